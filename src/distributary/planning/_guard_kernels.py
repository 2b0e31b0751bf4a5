"""The compiled inner loops of annealing under constraints.

The *guard* is what the constraints look at: `load` of each flow, `group_load` and `intake` (what
each receiver takes in) as whole numbers in doubles, the two kinds of caps (infinite where there is
none), the group a flow is pinned to (-1 where it is not) and whom it must not meet. Groups below
`needed` must not become empty, or a pinned one would lose its number. A *violation*
is how far loads are over their caps, added up; a forbidden group counts as infinitely far.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distributary.compiled import kernel
from distributary.model import FloatArray, IndexArray, IntArray
from distributary.planning._anneal_kernels import apply_moves, draw_move

__all__ = ["guarded_sweep", "repair_sweep"]

_MOST_ASKED = 10  # groups, roughly

Counts = np.ndarray[Any, np.dtype[np.int32]]
Flags = np.ndarray[Any, np.dtype[np.uint8]]


@kernel
def _over(load: float, cap: float) -> float:
    return load - cap if load > cap else 0.0


@kernel
def _added_violation(
    k: int,
    new: int,
    wants: Flags,  # IN   1 for each receiver of flow k
    load: FloatArray,
    group_load: FloatArray,
    intake: FloatArray,
    group_cap: float,
    receiver_cap: FloatArray,
    pinned: IndexArray,
    needed: int,
    foe_offsets: IntArray,
    foes: IndexArray,
    session: IndexArray,
    group: IndexArray,
    group_count: Counts,
    group_present: Flags,
) -> float:
    """How much the violation grows if flow k moves to a group; infinite if it must not be there."""
    old = group[session[k]]
    if pinned[k] >= 0 and pinned[k] != new:
        return np.inf
    for at in range(foe_offsets[k], foe_offsets[k + 1]):
        if group[session[foes[at]]] == new:
            return np.inf
    if new == old:
        return 0.0
    rate = load[k]
    if old < needed and group_load[old] == rate:
        return np.inf  # it would leave an empty group below a pinned one
    added = (
        _over(group_load[new] + rate, group_cap)
        - _over(group_load[new], group_cap)
        + _over(group_load[old] - rate, group_cap)
        - _over(group_load[old], group_cap)
    )
    for n in range(len(intake)):
        if receiver_cap[n] == np.inf:
            continue
        change = 0.0
        if wants[n]:
            change -= group_load[old] if group_count[n, old] == 1 else rate
            change += rate if group_present[n, new] else group_load[new] + rate
        else:
            change -= rate * group_present[n, old]
            change += rate * group_present[n, new]
        if change != 0.0:
            added += _over(intake[n] + change, receiver_cap[n]) - _over(intake[n], receiver_cap[n])
    return added


@kernel
def _shift_load(
    k: int,
    new: int,
    wants: Flags,
    load: FloatArray,
    group_load: FloatArray,
    intake: FloatArray,
    session: IndexArray,
    group: IndexArray,
    group_count: Counts,
    group_present: Flags,
) -> None:
    """Bring loads and intakes up to date for a move of flow k, before it is made."""
    old = group[session[k]]
    rate = load[k]
    for n in range(len(intake)):
        if wants[n]:
            intake[n] -= group_load[old] if group_count[n, old] == 1 else rate
            intake[n] += rate if group_present[n, new] else group_load[new] + rate
        else:
            intake[n] += rate * group_present[n, new] - rate * group_present[n, old]
    group_load[old] -= rate
    group_load[new] += rate


@kernel
def guarded_sweep(
    order: IntArray,  # IN
    chance: FloatArray,  # IN
    alpha: float,
    beta: float,
    temperature: float,
    home: IndexArray,  # IN
    load: FloatArray,  # IN   from here on: the guard, group_load and intake IN and OUT
    group_load: FloatArray,
    intake: FloatArray,
    group_cap: float,
    receiver_cap: FloatArray,
    pinned: IndexArray,
    needed: int,
    foe_offsets: IntArray,
    foes: IndexArray,
    offsets: IntArray,  # IN   from here on: the state, IN and OUT
    members: IndexArray,
    weight: FloatArray,
    session: IndexArray,
    group: IndexArray,
    session_count: Counts,
    session_present: Flags,
    session_audience: FloatArray,
    session_total: FloatArray,
    group_count: Counts,
    group_present: Flags,
    group_audience: FloatArray,
    group_total: FloatArray,
) -> int:
    """Redraw each flow's session; a move that would add to the violation is not made."""
    n_sessions, n_groups = len(session_total), len(group_total)
    in_session, in_group = np.zeros(n_sessions, np.int32), np.zeros(n_groups, np.int32)
    price, group_price, odds = np.zeros(n_sessions), np.zeros(n_groups), np.zeros(n_sessions)
    target = np.empty(1, np.int32)
    wants = np.zeros(len(intake), np.uint8)
    moved = 0
    for i in range(len(order)):
        one = order[i : i + 1]
        k = order[i]
        target[0] = draw_move(
            k, chance[i], alpha, beta, temperature, 0.0, home,
            offsets, members, weight, session, group,
            session_count, session_present, session_audience, session_total,
            group_count, group_present, group_audience, group_total,
            in_session, in_group, price, group_price, odds,
        )  # fmt: skip
        new = group[target[0]]
        if target[0] == session[k]:
            continue
        for at in range(offsets[k], offsets[k + 1]):
            wants[members[at]] = 1
        added = _added_violation(
            k, new, wants, load, group_load, intake, group_cap, receiver_cap, pinned,
            needed, foe_offsets, foes, session, group, group_count, group_present,
        )  # fmt: skip
        if added <= 0.0:
            if new != group[session[k]]:
                _shift_load(
                    k, new, wants, load, group_load, intake, session, group,
                    group_count, group_present,
                )  # fmt: skip
            moved += apply_moves(
                one, target, offsets, members, weight, session, group,
                session_count, session_present, session_audience, session_total,
                group_count, group_present, group_audience, group_total,
            )  # fmt: skip
        for at in range(offsets[k], offsets[k + 1]):
            wants[members[at]] = 0
    return moved


@kernel
def repair_sweep(
    order: IntArray,  # IN
    first_session: IndexArray,  # IN   a session of each group, to land in
    load: FloatArray,  # IN   from here on: the guard, group_load and intake IN and OUT
    group_load: FloatArray,
    intake: FloatArray,
    group_cap: float,
    receiver_cap: FloatArray,
    pinned: IndexArray,
    needed: int,
    foe_offsets: IntArray,
    foes: IndexArray,
    offsets: IntArray,  # IN   from here on: the state, IN and OUT
    members: IndexArray,
    weight: FloatArray,
    session: IndexArray,
    group: IndexArray,
    session_count: Counts,
    session_present: Flags,
    session_audience: FloatArray,
    session_total: FloatArray,
    group_count: Counts,
    group_present: Flags,
    group_audience: FloatArray,
    group_total: FloatArray,
) -> int:
    """Move each flow to the group where the violation shrinks most; return how many moved."""
    target = np.empty(1, np.int32)
    wants = np.zeros(len(intake), np.uint8)
    moved = 0
    for i in range(len(order)):
        k = order[i]
        for at in range(offsets[k], offsets[k + 1]):
            wants[members[at]] = 1
        old = group[session[k]]
        least, best = 0.0, old
        # A flow where it must not be has to leave, whatever that adds elsewhere.
        if _added_violation(
            k, old, wants, load, group_load, intake, group_cap, receiver_cap, pinned,
            needed, foe_offsets, foes, session, group, group_count, group_present,
        ) == np.inf:  # fmt: skip
            least = np.inf
        # Where there are many groups, each sweep asks only some of them, other ones every time.
        step = max(1, len(group_load) // _MOST_ASKED) if least == 0.0 else 1
        for m in range(i % step, len(group_load), step):
            added = _added_violation(
                k, m, wants, load, group_load, intake, group_cap, receiver_cap, pinned,
                needed, foe_offsets, foes, session, group, group_count, group_present,
            )  # fmt: skip
            if added < least:
                least, best = added, m
        if best != old:
            _shift_load(
                k, best, wants, load, group_load, intake, session, group,
                group_count, group_present,
            )  # fmt: skip
            target[0] = first_session[best]
            moved += apply_moves(
                order[i : i + 1], target, offsets, members, weight, session, group,
                session_count, session_present, session_audience, session_total,
                group_count, group_present, group_audience, group_total,
            )  # fmt: skip
        for at in range(offsets[k], offsets[k + 1]):
            wants[members[at]] = 0
    return moved
