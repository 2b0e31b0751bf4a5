"""The compiled inner loops of annealing under constraints.

The *violation* is the sum of all loads beyond their caps; a forbidden group adds infinity.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distributary.compiled import kernel
from distributary.model import FloatArray, IndexArray, IntArray
from distributary.planning._anneal_kernels import MovePrices, draw_move, make_room
from distributary.planning._state_kernels import State, move

__all__ = ["GuardState", "repair_sweep", "sweep_within_limits"]

_MOST_TRIED = 10  # groups per sweep, roughly

Flags = np.ndarray[Any, np.dtype[np.uint8]]


class GuardState(NamedTuple):
    """The state that constraints depend on, as whole numbers stored in doubles.

    `load` is that of each flow, `group_load` that of each group, and `intake` that of each
    receiver; a missing cap is infinite. `pinned` is the group of a pinned flow, or -1. A flow must
    not share its group with its foes, `foes[foe_offsets[k]:foe_offsets[k + 1]]`. Groups below
    `needed` must not become empty, since a pinned group would then lose its number.
    """

    load: FloatArray
    group_load: FloatArray
    intake: FloatArray
    group_cap: float
    receiver_cap: FloatArray
    pinned: IndexArray
    needed: int
    foe_offsets: IntArray
    foes: IndexArray


class _Shift(NamedTuple):
    """A flow of that rate that moves between two groups."""

    old: int
    new: int
    rate: float


@kernel
def _over(load: float, cap: float) -> float:
    return load - cap if load > cap else 0.0


@kernel
def _added_violation(
    k: int,
    new: int,
    wants: Flags,  # IN   1 for each receiver of flow k
    guard: GuardState,  # IN
    state: State,  # IN
) -> float:
    """The increase of the violation if flow k moves to a group; infinite if that is forbidden."""
    group_load, cap, intake = guard.group_load, guard.group_cap, guard.intake
    old = state.group[state.session[k]]
    if guard.pinned[k] >= 0 and guard.pinned[k] != new:
        return np.inf
    for at in range(guard.foe_offsets[k], guard.foe_offsets[k + 1]):
        if state.group[state.session[guard.foes[at]]] == new:
            return np.inf
    if new == old:
        return 0.0
    rate = guard.load[k]
    if old < guard.needed and group_load[old] == rate:
        return np.inf  # it would leave an empty group below a pinned one
    added = (
        _over(group_load[new] + rate, cap)
        - _over(group_load[new], cap)
        + _over(group_load[old] - rate, cap)
        - _over(group_load[old], cap)
    )
    shift = _Shift(old, new, rate)
    for n in range(len(intake)):
        if guard.receiver_cap[n] == np.inf:
            continue
        change = _intake_change(n, shift, wants, guard, state)
        if change != 0.0:
            limit = guard.receiver_cap[n]
            added += _over(intake[n] + change, limit) - _over(intake[n], limit)
    return added


@kernel
def _intake_change(n: int, shift: _Shift, wants: Flags, guard: GuardState, state: State) -> float:
    """The change of a receiver's intake if a flow of that rate moves between two groups."""
    old, new, rate = shift
    count, present, load = state.groups.count, state.groups.present, guard.group_load
    if wants[n]:
        change = 0.0
        change -= load[old] if count[n, old] == 1 else rate
        change += rate if present[n, new] else load[new] + rate
        return change
    return rate * present[n, new] - rate * present[n, old]


@kernel
def _shift_load(
    k: int,
    new: int,
    wants: Flags,
    guard: GuardState,  # IN and OUT
    state: State,  # IN
) -> None:
    """Update loads and intakes for a move of flow k, before it is made."""
    old = state.group[state.session[k]]
    rate = guard.load[k]
    shift = _Shift(old, new, rate)
    for n in range(len(guard.intake)):
        guard.intake[n] += _intake_change(n, shift, wants, guard, state)
    guard.group_load[old] -= rate
    guard.group_load[new] += rate


@kernel
def _mark(k: int, wants: Flags, state: State, value: int) -> None:
    for at in range(state.offsets[k], state.offsets[k + 1]):
        wants[state.members[at]] = value


@kernel
def sweep_within_limits(
    order: IntArray,  # IN
    chance: FloatArray,  # IN
    prices: MovePrices,
    temperature: float,
    guard: GuardState,  # IN and OUT
    state: State,  # IN and OUT
) -> int:
    """Redraw each flow's session; moves that would increase the violation are not made."""
    room = make_room(state)
    wants = np.zeros(len(guard.intake), np.uint8)
    moved = 0
    for i in range(len(order)):
        k = order[i]
        target = draw_move(k, chance[i], prices, temperature, state, room)
        if target == state.session[k]:
            continue
        new = np.int64(state.group[target])  # as below: one type, compiled once
        _mark(k, wants, state, 1)
        if _added_violation(k, new, wants, guard, state) <= 0.0:
            if new != state.group[state.session[k]]:
                _shift_load(k, new, wants, guard, state)
            moved += move(k, target, state)
        _mark(k, wants, state, 0)
    return moved


@kernel
def repair_sweep(
    order: IntArray,  # IN
    first_session: IndexArray,  # IN   for each group, the session to move a flow to
    guard: GuardState,  # IN and OUT
    state: State,  # IN and OUT
) -> int:
    """Move each flow to the group that reduces the violation most; return how many moved."""
    wants = np.zeros(len(guard.intake), np.uint8)
    n_groups = len(guard.group_load)
    moved = 0
    for i in range(len(order)):
        k = order[i]
        _mark(k, wants, state, 1)
        old = np.int64(state.group[state.session[k]])
        least, best = 0.0, old
        # A flow in a forbidden group has to leave, even if that increases the violation elsewhere.
        if _added_violation(k, old, wants, guard, state) == np.inf:
            least = np.inf
        # If there are many groups, each sweep tries only some of them, different ones each time.
        step = max(1, n_groups // _MOST_TRIED) if least == 0.0 else 1
        for m in range(i % step, n_groups, step):
            added = _added_violation(k, m, wants, guard, state)
            if added < least:
                least, best = added, m
        if best != old:
            _shift_load(k, best, wants, guard, state)
            moved += move(k, np.int64(first_session[best]), state)
        _mark(k, wants, state, 0)
    return moved
