"""The state of a two-level plan in the form that kernels use, and moves of single flows in it.

Numbers are whole numbers stored in doubles, small enough (below 2 ** 53) that every sum and product
is exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distributary.compiled import kernel
from distributary.model import FloatArray, IndexArray, IntArray

__all__ = ["Level", "State", "apply_moves", "count_two_levels", "join", "leave", "move"]

Counts = np.ndarray[Any, np.dtype[np.int32]]
Flags = np.ndarray[Any, np.dtype[np.uint8]]


class Level(NamedTuple):
    """The sessions of a plan, or its groups, and their receivers.

    `count[n, c]` is the number of receiver n's flows in channel c, `present` whether there is any;
    `audience` and `total` are each channel's number of receivers and rate. The intake of all
    receivers is the sum of audience times total.
    """

    count: Counts
    present: Flags
    audience: FloatArray
    total: FloatArray


class State(NamedTuple):
    """A two-level plan: the flows with their receivers and rates, the two maps, and both levels.

    The receivers of flow k are `members[offsets[k]:offsets[k + 1]]`. The cost is alpha times the
    intake from groups plus beta times the intake from sessions.
    """

    offsets: IntArray
    members: IndexArray
    weight: FloatArray
    session: IndexArray
    group: IndexArray
    sessions: Level
    groups: Level


@kernel
def count_two_levels(state: State) -> None:
    """Fill both levels from the two maps."""
    for level in (state.sessions, state.groups):
        level.count[:] = 0
        level.present[:] = 0
        level.audience[:] = 0
        level.total[:] = 0
    for k in range(len(state.session)):
        l = state.session[k]  # noqa: E741
        m = state.group[l]
        state.sessions.total[l] += state.weight[k]
        state.groups.total[m] += state.weight[k]
        for at in range(state.offsets[k], state.offsets[k + 1]):
            join(state.members[at], l, state.sessions, 1)
            join(state.members[at], m, state.groups, 1)


@kernel
def join(n: int, c: int, level: Level, copies: int) -> None:
    """Count `copies` more of a receiver's flows in a channel."""
    if level.count[n, c] == 0:
        level.present[n, c] = 1
        level.audience[c] += 1
    level.count[n, c] += copies


@kernel
def leave(n: int, c: int, level: Level, copies: int) -> None:
    """Count `copies` fewer of a receiver's flows in a channel."""
    level.count[n, c] -= copies
    if level.count[n, c] == 0:
        level.present[n, c] = 0
        level.audience[c] -= 1


@kernel
def apply_moves(
    chosen: IntArray,  # IN
    target: IndexArray,  # IN
    state: State,  # IN and OUT
) -> int:
    """Move each flow to its target; return how many moved."""
    moved = 0
    for i in range(len(chosen)):
        moved += move(chosen[i], target[i], state)
    return moved


@kernel
def move(k: int, new: int, state: State) -> int:
    """Move one flow; return 1 unless it is there already."""
    old = state.session[k]
    if new == old:
        return 0
    sessions, groups = state.sessions, state.groups
    rate = state.weight[k]
    old_group, new_group = state.group[old], state.group[new]
    state.session[k] = new
    sessions.total[old] -= rate
    sessions.total[new] += rate
    groups.total[old_group] -= rate
    groups.total[new_group] += rate
    for at in range(state.offsets[k], state.offsets[k + 1]):
        n = state.members[at]
        leave(n, old, sessions, 1)
        join(n, new, sessions, 1)
        if new_group != old_group:
            leave(n, old_group, groups, 1)
            join(n, new_group, groups, 1)
    return 1
