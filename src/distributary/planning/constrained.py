"""Plan under constraints: find a plan that meets them, then improve it without breaking them."""

from __future__ import annotations

import time

import numpy as np

from distributary.cost import FilteringPrices
from distributary.errors import InfeasibleError
from distributary.model import Constraints, Demand, FloatArray, IndexArray
from distributary.planning._guard_kernels import repair_sweep, sweep_within_limits
from distributary.planning.balancing import lightest_first
from distributary.planning.best import (
    COLDEST,
    HOTTEST,
    PATIENCE,
    SHORTEST_CHAIN,
    Annealed,
    anneal,
)
from distributary.planning.bundles import number_bundles
from distributary.planning.contradictions import check_contradictions
from distributary.planning.guard import Guard
from distributary.planning.hierarchy import Maps, TwoLevelProblem, sessions_in_groups
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.things import Things
from distributary.planning.two_level import TwoLevel

__all__ = ["best_within"]

_ATTEMPTS = 40  # to find a plan that satisfies the constraints
_LONGEST_CHAIN = 8_000  # sweeps
_SWEEPS = 80  # annealing sweeps in each attempt
_REPAIRS = 20  # repair sweeps in each attempt
_ORDINARY = 2  # weight of a receiver at first; each attempt adds 1 to those over their cap
_TRIED_TO_FILL = 50  # flows to try for each group that must not stay empty
_FEW_FLOWS = 16  # up to this many, an exhaustive search decides whether a plan exists


def best_within(
    demand: Demand,
    constraints: Constraints,
    problem: TwoLevelProblem,
    rng: np.random.Generator,
    budget_s: float,
    progress: Progress = silent,
) -> Annealed:
    """Find the best plan that meets the constraints, or raise `InfeasibleError` with the reason.

    Flows are annealed one by one, as in `best`; moves that would break a constraint are not made.
    """
    check_contradictions(demand, constraints, problem.n_groups)
    bundle, n_bundles = number_bundles(demand, constraints)
    things = problem.things.merge(bundle, n_bundles)
    guard = Guard.of(demand, constraints, bundle, n_bundles)
    n_groups = min(problem.n_groups, max(n_bundles, int(guard.pinned.max()) + 1))
    n_sessions = max(problem.n_sessions, n_groups)

    group = _hold_constraints(things, guard, n_groups, rng, budget_s / 2)
    start = sessions_in_groups(things, group, n_sessions, n_groups, rng)
    bundled = TwoLevelProblem(things, n_sessions, n_groups, problem.prices)
    found = _anneal(bundled, guard, start, rng, budget_s, progress)
    maps = found.maps
    closed, _ = Maps(maps.session[bundle], maps.group).close_gaps()
    return Annealed(closed, found.cut_short)


def _anneal(
    problem: TwoLevelProblem,
    guard: Guard,
    start: Maps,
    rng: np.random.Generator,
    budget_s: float,
    progress: Progress,
) -> Annealed:
    deadline = time.monotonic() + PATIENCE * budget_s
    things, n_groups = problem.things, problem.n_groups
    n_things = len(things)
    state = TwoLevel(things, start, problem.prices)
    guard = guard.with_loads(things, start.flow_group, n_groups)
    prices = state.move_prices()

    def sweep(order: np.ndarray, chance: FloatArray, temperature: float) -> int:
        return int(
            sweep_within_limits(order, chance, prices, temperature, guard.state, state.state)
        )

    best, least, unit = start, state.work, state.work / n_things
    sweeps = min(
        _sweeps_within(budget_s / 2, things, len(start.group) + n_groups),
        max(SHORTEST_CHAIN, min(_LONGEST_CHAIN, n_things)),
    )
    cut_short = False
    for done in range(sweeps):
        temperature = unit * HOTTEST * (COLDEST / HOTTEST) ** (done / max(1, sweeps - 1))
        sweep(rng.permutation(n_things), rng.random(n_things), temperature)
        if state.work < least:
            best, least = state.maps, state.work
        progress(Step("annealing within limits", done, sweeps, least))
        if time.monotonic() > deadline:
            cut_short = True
            break
    while sweep(np.arange(n_things), np.zeros(n_things), 0.0):
        pass
    if state.work < least:
        best = state.maps
    return Annealed(best, cut_short)


def _sweeps_within(budget_s: float, things: Things, columns: int) -> int:
    """The number of sweeps that one core of the reference machine makes within the budget."""
    sweep_s = 5e-5 + 1e-9 * (
        len(things) * (250 + 3.0 * columns) + len(things.members) * 0.12 * columns
    )
    return max(1, int(min(budget_s, 1e9) / sweep_s))


def _hold_constraints(
    things: Things,
    guard: Guard,
    n_groups: int,
    rng: np.random.Generator,
    budget_s: float,
) -> IndexArray:
    """Find an assignment to groups that satisfies the constraints.

    Each attempt repairs violations; if some remain, it anneals the flows over groups by the
    receivers' intake and starts the next attempt from there. A receiver over its cap gets more
    weight each time.
    """
    deadline = time.monotonic() + budget_s
    importance = np.full(things.n_receivers, _ORDINARY)
    begin = lightest_first(guard.load, np.argsort(-guard.load, kind="stable"), n_groups)
    one_each = np.arange(n_groups, dtype=np.int32)
    attempts = 0
    while attempts == 0 or (attempts < _ATTEMPTS and time.monotonic() < deadline):
        attempts += 1
        group, after = _repair(things, guard, begin, n_groups, rng)
        group, after = _fill_needed_groups(things, after, group, n_groups)
        if not after.is_violated(group):
            return group
        weighed = things.weigh(importance)
        problem = TwoLevelProblem(weighed, n_groups, n_groups)
        cooling = anneal(problem, Maps(group, one_each), _SWEEPS, rng)
        begin = [maps.session for _, _, maps in cooling][-1]
        taken = guard.with_loads(things, begin, n_groups)
        importance += taken.intake > taken.receiver_cap
    if len(things) > _FEW_FLOWS:
        raise InfeasibleError(
            f"{attempts} attempts found no plan with {n_groups} groups that meets all constraints"
            + _worst(after),
            proven=False,
            remedy="loosen a cap, allow more groups or a longer budget",
        )
    found = _search_all(things, guard, n_groups)
    if found is None:
        raise InfeasibleError(
            f"no assignment of {len(things)} flows to {n_groups} groups meets all constraints "
            "(all were tried)",
            proven=True,
            remedy="loosen a cap, or allow more groups",
        )
    return found


def _worst(guard: Guard) -> str:
    over_groups = int((guard.group_load > guard.group_cap).sum())
    over_receivers = int((guard.intake > guard.receiver_cap).sum())
    return (
        f" (in the last, {over_groups} groups and {over_receivers} receivers exceeded their caps)"
    )


def _repair(
    things: Things,
    guard: Guard,
    begin: IndexArray,
    n_groups: int,
    rng: np.random.Generator,
) -> tuple[IndexArray, Guard]:
    """Move flows to where the violation shrinks most, until it no longer shrinks."""
    one_each = np.arange(n_groups, dtype=np.int32)
    begin = np.where(guard.pinned >= 0, guard.pinned, begin).astype(np.int32)
    state = TwoLevel(things, Maps(begin, one_each), FilteringPrices())
    guard = guard.with_loads(things, begin, n_groups)
    for _ in range(_REPAIRS):
        if not guard.is_violated(state.maps.session):
            break
        order = rng.permutation(len(things))
        if not repair_sweep(order, one_each, guard.state, state.state):
            break
    return state.maps.session, guard


def _fill_needed_groups(
    things: Things, guard: Guard, group: IndexArray, n_groups: int
) -> tuple[IndexArray, Guard]:
    """Move a flow into each empty group below a pinned one, if that breaks no other constraint."""
    for empty in np.flatnonzero(guard.group_load[: guard.needed] == 0):
        crowd = np.bincount(group, minlength=n_groups)
        free = np.flatnonzero((guard.pinned < 0) & (crowd[group] > 1))
        for k in free[np.argsort(guard.load[free], kind="stable")][:_TRIED_TO_FILL]:
            moved = group.copy()
            moved[k] = empty
            after = guard.with_loads(things, moved, n_groups)
            if (after.intake <= np.maximum(after.receiver_cap, guard.intake)).all():
                group, guard = moved, after
                break
    return group, guard


def _search_all(things: Things, guard: Guard, n_groups: int) -> IndexArray | None:
    """Try every assignment that may satisfy the constraints; return None if none does."""
    order = np.lexsort((np.arange(len(things)), -guard.load, guard.pinned < 0))
    receivers = [
        set(things.members[things.offsets[k] : things.offsets[k + 1]].tolist())
        for k in range(len(things))
    ]
    foes = [
        set(guard.foes[guard.foe_offsets[k] : guard.foe_offsets[k + 1]].tolist())
        for k in range(len(things))
    ]
    capped = np.flatnonzero(np.isfinite(guard.receiver_cap)).tolist()
    loads, members = [0.0] * n_groups, [set[int]() for _ in range(n_groups)]
    inside: list[set[int]] = [set() for _ in range(n_groups)]
    group = np.full(len(things), -1, np.int32)

    def holds() -> bool:
        return all(
            sum(loads[g] for g in range(n_groups) if n in members[g]) <= guard.receiver_cap[n]
            for n in capped
        )

    def place(depth: int) -> bool:
        if depth == len(order):
            return all(inside[g] for g in range(guard.needed))
        k = int(order[depth])
        tried_empty = False
        for g in range(n_groups) if guard.pinned[k] < 0 else [int(guard.pinned[k])]:
            if inside[g] & foes[k] or loads[g] + guard.load[k] > guard.group_cap:
                continue
            if not inside[g] and guard.pinned[k] < 0 and g >= guard.needed:
                if tried_empty:
                    continue  # no flow is pinned to these, so empty groups are interchangeable
                tried_empty = True
            before = members[g]
            loads[g] += float(guard.load[k])
            members[g] = before | receivers[k]
            inside[g].add(k)
            group[k] = g
            if holds() and place(depth + 1):
                return True
            inside[g].remove(k)
            members[g] = before
            loads[g] -= float(guard.load[k])
        return False

    return group if place(0) else None
