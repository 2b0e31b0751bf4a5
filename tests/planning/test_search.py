"""The search with terms against all plans of tiny instances: each option, each pair, and all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from distributary.cost import PacketPrices, objective_cost
from distributary.errors import InfeasibleError
from distributary.model import (
    Constraints,
    Demand,
    Limits,
    Previous,
    broken_constraints,
    plan_problems,
)
from distributary.planning import Solution, UnicastLimits, plan
from distributary.planning.best import Allowance
from distributary.planning.search import search_with_terms
from distributary.planning.term_problem import TermProblem, TermSettings
from distributary.workloads import TwoClass, two_class
from tests.planning.every_plan import cheapest_plan
from tests.planning.tiny_instances import KINDS, tiny_instance
from tests.planning.tiny_plans import Instance, complaints, count_moves, price, read_tiny
from tests.planning.tiny_requests import as_constraints, as_demand, as_packing, as_request
from tests.strategies import near

BUDGET_S = 0.001
CLOSE = 1.02  # of the optimum
FEW, MANY = 3, 200  # instances of each kind
# The instances of 13,600 on which the plan costs more than that: where no single step of the search
# leads to the better plan, as when two flows must change sides at once.
DEAR: Mapping[str, frozenset[int]] = {
    "unicast": frozenset({165}),
    "prices+apart": frozenset({93}),
    "pins+apart": frozenset({83, 85, 137}),
    "pins+moves": frozenset({95}),
    "apart+moves": frozenset({69, 137}),
    "unicast+moves": frozenset({85}),
}
ALONE = [kind for kind in KINDS if len(kind) != 2]
PAIRS = [kind for kind in KINDS if len(kind) == 2]


def search(instance: Instance, seed: int = 0) -> Solution | None:
    """The plan that the planner finds, None if it says that there is none."""
    request = as_request(instance, seed=seed, budget_s=BUDGET_S, patience=math.inf)
    try:
        return plan(as_demand(instance), request)
    except InfeasibleError:
        return None


def check_plan(found: Solution, instance: Instance) -> float:
    """Check by two judges that a plan keeps all terms; return its cost."""
    demand = as_demand(instance)
    assert plan_problems(found.plan, demand.interest) == ()
    constraints, packing = as_constraints(instance), as_packing(instance)
    assert broken_constraints(found.plan, demand, constraints, packing) == ()
    origin = None if found.session_origin is None else found.session_origin.tolist()
    tiny = read_tiny(found.plan, origin, len(instance.home_group))
    assert complaints(tiny, instance) == []
    if instance.max_moves is not None:
        assert count_moves(tiny, instance) <= instance.max_moves
    cost = price(tiny, instance)
    request = as_request(instance)
    assert cost == near(
        objective_cost(
            found.plan,
            demand,
            request.search.objective,
            request.prices,
            request.channel,
            request.weigh(demand.interest),
        )
    )
    return cost


def judge(instance: Instance, seed: int) -> str:
    """What became of an instance: near the optimum, too dear, missed, or there is no plan."""
    least, found = cheapest_plan(instance), search(instance, seed)
    if found is None:
        return "none" if least is None else "missed"
    assert least is not None, "a plan was found where there is none"
    cost = check_plan(found, instance)
    assert cost >= least.cost * (1 - 1e-6), "cheaper than the cheapest plan"
    return "close" if cost <= CLOSE * least.cost else f"dear by {cost / least.cost - 1:.1%}"


def check_kind(kind: tuple[str, ...], seeds: range) -> None:
    """Check that a kind's instances are solved where that can be, and well."""
    outcomes = {seed: judge(tiny_instance(kind, seed), seed) for seed in seeds}
    dear = DEAR.get("+".join(kind), frozenset())
    wrong = {
        seed: found
        for seed, found in outcomes.items()
        if found not in ("close", "none") and not (found.startswith("dear") and seed in dear)
    }
    assert not wrong, f"{kind}: {Counter(outcomes.values())}, {wrong}"
    assert "close" in outcomes.values()


@pytest.mark.parametrize("kind", ALONE, ids="+".join)
def test_with_an_option_or_all_the_plan_is_near_the_optimum_and_keeps_the_terms(
    kind: tuple[str, ...],
) -> None:
    check_kind(kind, range(10))


@pytest.mark.parametrize("kind", PAIRS, ids="+".join)
def test_with_two_options_the_plan_is_near_the_optimum_and_keeps_the_terms(
    kind: tuple[str, ...],
) -> None:
    check_kind(kind, range(FEW))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids="+".join)
def test_of_many_instances_each_plan_is_near_the_optimum_and_keeps_the_terms(
    kind: tuple[str, ...],
) -> None:
    check_kind(kind, range(FEW, MANY))


@pytest.mark.parametrize("kind", ALONE, ids="+".join)
def test_the_same_seed_gives_the_same_plan(kind: tuple[str, ...]) -> None:
    instance = next(
        one
        for one in (tiny_instance(kind, seed) for seed in range(1_000, 1_100))
        if cheapest_plan(one) is not None
    )
    first, again = search(instance, seed=7), search(instance, seed=7)
    assert first is not None
    assert again is not None
    assert first.plan == again.plan


def test_the_same_seed_gives_the_same_plan_on_any_number_of_threads() -> None:
    params = TwoClass(flows=60, receivers=25, fast_share=0.5, want_unpopular=0.3)
    demand = Demand.of(*two_class(params, np.random.default_rng(1)))
    settings = TermSettings(
        n_sessions=8,
        n_groups=4,
        prices=PacketPrices(0.5, 1.0, 0.3, 0.5),
        constraints=Constraints(Limits(group_members=24, receiver_groups=4)),
        unicast=UnicastLimits(2, max_links=20),
        max_sent=1.5,
        weights={demand.interest.receivers[0]: 4.0},
        previous=Previous(
            {flow: at % 8 for at, flow in enumerate(demand.interest.flows[:50])},
            (np.arange(8) % 4).astype(np.int32),
        ),
        max_moves=25,
    )
    problem = TermProblem.of(demand, settings)
    assert settings.previous is not None
    start = problem.recall(settings.previous)
    found = []
    for threads in (1, 2, 4):
        allowance = Allowance(0.03, math.inf, threads)
        places = search_with_terms(problem, [start], np.random.default_rng(3), allowance).places
        found.append((places.place.tolist(), places.group.tolist()))
    assert found[0] == found[1] == found[2]
