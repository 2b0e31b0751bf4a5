"""The oracle of the search, checked by plainer means: all plans at all, and what `cost` says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest

from distributary.cost import ChannelPrices, channel_cost, filtering_cost
from distributary.model import broken_constraints, plan_problems
from tests.planning.every_plan import cheapest_plan, every_lean_plan, every_plan_at_all
from tests.planning.tiny_instances import KINDS, Largest, draw_plan, tiny_instance
from tests.planning.tiny_plans import (
    Instance,
    Prices,
    TinyPlan,
    Unicast,
    broken_terms,
    complaints,
    price,
)
from tests.planning.tiny_requests import as_constraints, as_demand, as_packing, as_plan, as_prices
from tests.strategies import near

SMALLEST = Largest(flows=2, receivers=2, sessions=2, groups=2)
SMALL = Largest(flows=4, receivers=3, pairs=5, sessions=3, groups=3)


def check_against(plans: Callable[[Instance], Iterator[TinyPlan]], instance: Instance) -> bool:
    """Compare the enumeration with a plainer one; return whether there is any plan."""
    costs = [price(plan, instance) for plan in plans(instance) if not complaints(plan, instance)]
    found = cheapest_plan(instance)
    if found is None:
        assert costs == []
        return False
    assert complaints(found.plan, instance) == []
    assert found.cost == near(price(found.plan, instance)) == near(min(costs))
    return True


@pytest.mark.parametrize("nth", range(4))
def test_the_cheapest_plan_is_the_cheapest_of_all_plans_at_all(nth: int) -> None:
    feasible = [
        check_against(every_plan_at_all, tiny_instance(kind, seed, SMALLEST))
        for seed, kind in enumerate(KINDS)
        if seed % 4 == nth
    ]
    assert any(feasible)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids="+".join)
def test_the_cheapest_plan_is_the_cheapest_of_all_plans_of_each_kind(kind: tuple[str, ...]) -> None:
    smallest = [tiny_instance(kind, seed, SMALLEST) for seed in range(100, 120)]
    small = [tiny_instance(kind, seed, SMALL) for seed in range(100, 110)]
    feasible = [
        *(check_against(every_plan_at_all, instance) for instance in smallest),
        *(check_against(every_lean_plan, instance) for instance in small),
    ]
    assert any(feasible)


@pytest.mark.parametrize("kind", KINDS, ids="+".join)
def test_the_cheapest_plan_keeps_all_terms(kind: tuple[str, ...]) -> None:
    instances = [tiny_instance(kind, seed) for seed in range(8)]
    found = [cheapest_plan(instance) for instance in instances]
    assert any(found), "a kind without any plan tests nothing"
    for instance, cheapest in zip(instances, found, strict=True):
        if cheapest is not None:
            assert complaints(cheapest.plan, instance) == []
            assert cheapest.cost == near(price(cheapest.plan, instance))


def draw_any_plan(rng: Random, instance: Instance) -> TinyPlan:
    """A plan that serves some and not others, with copies and unicast, whatever is allowed."""
    n_sessions = rng.randint(1, 4)
    n_groups = rng.randint(1, n_sessions)
    groups = [*range(n_groups), *(rng.randrange(n_groups) for _ in range(n_sessions - n_groups))]
    flows, receivers = range(len(instance.flows)), range(len(instance.receivers))

    def draw_pairs(left: range, right: range) -> frozenset[tuple[int, int]]:
        share = rng.choice([0.2, 0.5, 0.8])
        return frozenset(pair for pair in product(left, right) if rng.random() < share)

    sessions = range(n_sessions)
    wanted = {(r, f) for f in flows for r in instance.wanted[f]}
    return TinyPlan(
        draw_pairs(flows, sessions),
        draw_pairs(receivers, sessions),
        draw_pairs(receivers, flows) & wanted,
        tuple(groups),
    )


@pytest.mark.parametrize(
    "kind", [(), ("weights",), ("prices",), ("prices", "weights")], ids="+".join
)
def test_the_price_of_any_plan_is_what_cost_says(kind: tuple[str, ...]) -> None:
    for seed in range(60):
        instance = tiny_instance(kind, seed)
        tiny = draw_any_plan(Random(seed), instance)
        plan, demand, weights = (
            as_plan(tiny, instance),
            as_demand(instance),
            np.array(instance.weights),
        )
        work = filtering_cost(plan, demand, as_prices(instance), weights).work
        assert price(tiny, instance) == near(work)
        sent = Prices(alpha0=seed % 3, beta0=0.0, sent=0.5)
        cost = channel_cost(
            plan, demand, ChannelPrices(sent.alpha0, sent.sent), weights=weights
        ).cost
        assert price(tiny, replace(instance, prices=sent)) == near(cost)


@pytest.mark.parametrize(
    "kind",
    [
        ("limits",),
        ("limits", "peak"),
        ("limits", "prices"),
        ("pins",),
        ("together",),
        ("apart",),
        ("limits", "pins", "together", "apart"),
    ],
    ids="+".join,
)
def test_it_complains_of_a_limit_exactly_if_the_model_does(kind: tuple[str, ...]) -> None:
    said = []
    for seed in range(150):
        instance = replace(tiny_instance(kind, seed), groups=4, sessions=4)
        rng = Random(seed)
        tiny = draw_plan(rng, instance) if seed % 2 else draw_any_plan(rng, instance)
        broken = broken_constraints(
            as_plan(tiny, instance),
            as_demand(instance),
            as_constraints(instance),
            as_packing(instance),
        )
        assert len(broken_terms(tiny, instance)) == len(broken), broken
        said.append(bool(broken))
    assert any(said)
    assert not all(said)


def test_it_complains_of_a_plan_that_is_not_valid_exactly_if_the_model_does() -> None:
    for seed in range(150):
        instance = replace(tiny_instance((), seed), groups=4, sessions=4)
        tiny = draw_any_plan(Random(seed), instance)
        anything = replace(instance, unicast=Unicast(9), max_sent=99.0)
        wrong = plan_problems(as_plan(tiny, instance), as_demand(instance).interest)
        assert bool(complaints(tiny, anything)) == bool(wrong), wrong
