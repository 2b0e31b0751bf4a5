"""The state of the search with terms: what it keeps up to date is what counting from scratch finds.

The judge is that of the oracle, `tests.planning.tiny_plans`, which knows nothing of the planner.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from distributary.planning import UnicastLimits
from distributary.planning._pair_prices import (
    make_room,
)
from distributary.planning._pair_state import (
    COST,
    KINDS,
    RATE_SENT,
)
from distributary.planning._pair_sweeps import (
    Best,
    cool,
)
from distributary.planning.decision import decide
from distributary.planning.term_problem import Places, TermProblem, TermSettings
from tests.planning.every_plan import cheapest_plan
from tests.planning.tiny_instances import KINDS as KINDS_OF_INSTANCES
from tests.planning.tiny_instances import tiny_instance
from tests.planning.tiny_plans import Instance, complaints, price, read_tiny
from tests.planning.tiny_requests import as_constraints, as_demand, as_packing, as_prices
from tests.strategies import near

ALL = KINDS_OF_INSTANCES[-1]
CASES = [(kind, seed) for seed, kind in enumerate(KINDS_OF_INSTANCES)] + [
    (ALL, seed) for seed in range(100, 130)
]


def state_problem(instance: Instance) -> TermProblem:
    unicast = instance.unicast
    return TermProblem.of(
        as_demand(instance),
        TermSettings(
            n_sessions=instance.most_sessions,
            n_groups=min(instance.most_groups, instance.most_sessions),
            prices=as_prices(instance),
            sent_price=instance.prices.sent,
            constraints=as_constraints(instance),
            packing=as_packing(instance),
            unicast=(
                None
                if unicast is None
                else UnicastLimits(unicast.receivers, unicast.links, unicast.rate)
            ),
            max_sent=instance.max_sent,
            weights=dict(zip(instance.receivers, instance.weights, strict=True)),
        ),
    )


def draw_places(problem: TermProblem, chance: Random) -> Places:
    """Any places at all, of pairs one by one or of things as a whole."""
    bounds = problem.bounds
    allowed = [*range(problem.n_sessions), *([-1] if bounds.unicast_receivers else [])]
    place = np.array([chance.choice(allowed) for _ in problem.wants.members], np.int32)
    if not bounds.copies:  # each thing in one session, single pairs by unicast
        session = [chance.randrange(problem.n_sessions) for _ in range(len(problem))]
        spread = np.repeat(session, np.diff(problem.wants.offsets))
        place = np.where(place < 0, place, spread).astype(np.int32)
        place[0] = spread[0]
    place[0] = max(place[0], 0)
    group = [chance.randrange(problem.n_groups) for _ in range(problem.n_sessions)]
    return Places(place, np.array(group, np.int32))


def forget_moves(instance: Instance) -> Instance:
    return replace(instance, home=tuple(frozenset() for _ in instance.flows), max_moves=None)


@pytest.mark.parametrize(("kind", "seed"), CASES, ids=str)
def test_any_places_cost_and_break_what_the_judge_says(kind: tuple[str, ...], seed: int) -> None:
    instance = forget_moves(tiny_instance(kind, seed))
    problem, chance = state_problem(instance), Random(seed)
    for _ in range(5):
        places = draw_places(problem, chance)
        table = problem.begin(places).table
        plan = read_tiny(problem.write_plan(places)[0], None, 0)
        assert float(table.sums[COST]) * problem.unit == near(price(plan, instance))
        said = complaints(plan, instance)
        if not instance.pinned:  # a plan may renumber groups, and so break or mend a pin
            assert bool(table.broken.any()) == bool(said), said


@pytest.mark.parametrize(("kind", "seed"), CASES, ids=str)
def test_after_any_sweeps_the_state_kept_is_the_state_from_scratch(
    kind: tuple[str, ...], seed: int
) -> None:
    problem = state_problem(forget_moves(tiny_instance(kind, seed)))
    state = problem.begin(draw_places(problem, Random(seed)))
    table, largest = state.table, int(np.diff(problem.wants.offsets).max())
    room = make_room(problem.n_sessions, problem.n_groups, largest, seed)
    best = Best(table.place.copy(), table.group.copy(), np.full(3, np.inf))
    unit = float(table.sums[COST]) / len(problem)
    fees, most, left = np.zeros(4), np.full(4, unit), np.full(4, 1.0)
    for heat in (1.0, 0.1, 0.0):
        was_broken = bool(table.broken.any())
        weight = np.full(KINDS, unit)
        cool(np.full(3, heat * unit), fees, most, left, weight, 0.5, 1, state, room, best)
        fresh = problem.begin(Places(table.place.copy(), table.group.copy())).table
        for kept, counted in zip(table, fresh, strict=True):
            if kept.dtype == np.float64 and kept is not table.receiver:
                scale = max(1.0, float(np.abs(counted).max(initial=0)))
                assert np.abs(kept - counted).max(initial=0) <= 1e-9 * scale
        assert table.broken.tolist() == fresh.broken.tolist()
        assert table.held.tolist() == fresh.held.tolist()
        assert table.joins.tolist() == fresh.joins.tolist()
        assert was_broken or not table.broken.any(), "a limit that held was broken"
    assert table.sums[RATE_SENT] > 0


@pytest.mark.parametrize("seed", range(20))
def test_trying_everything_finds_a_plan_exactly_if_there_is_one(seed: int) -> None:
    instance = forget_moves(tiny_instance(("limits", "unicast", "copies"), seed))
    decided = decide(state_problem(instance))
    assert (decided.places is None) == (cheapest_plan(instance) is None) == decided.is_proven
