"""The compiled search through every plan of a tiny problem with terms."""

from __future__ import annotations

import numpy as np

from distributary.compiled import inner_kernel, kernel
from distributary.planning._pair_counts import (
    count_broken,
)
from distributary.planning._pair_state import (
    FILLED,
    GROUP_PACKETS,
    KINDS,
    PARTS,
    UNICAST,
    PairArrays,
    PairState,
    open_state,
    widen,
)
from distributary.planning._pair_steps import (
    clear,
    put_in,
    take_out,
)

__all__ = ["try_all"]


@kernel
def try_all(most_steps: int, arrays: PairArrays) -> int:
    """Try every place of every pair in turn; 1 if a plan was found, 0 if there is none.

    The answer is -1 if `most_steps` were not enough. A pair that opens a session also chooses its
    group. More pairs never need less of anything, so a branch ends where it breaks a limit, except
    for groups that must not stay empty and packets, which more members may allow. Of several
    empty sessions or groups that differ by number only, it tries the first.
    """
    state = open_state(arrays)
    wants, bounds, table = state.wants, state.bounds, state.table
    n_pairs, n_sessions, n_groups = len(wants.members), len(table.group), table.groups.shape[1]
    clear(bounds, table)
    owner = np.zeros(n_pairs, np.int64)
    for k in range(len(wants.rate)):
        owner[wants.offsets[k] : wants.offsets[k + 1]] = k
    n_choices = n_sessions * n_groups + 1
    choice = np.full(n_pairs, -1, np.int64)
    part = np.zeros(1, np.int64)
    depth, steps = 0, 0
    while depth >= 0:
        if depth == n_pairs:
            if count_broken(table) == 0:
                return 1
            depth -= 1
            continue
        k = owner[depth]
        part[0] = depth
        if choice[depth] >= 0:
            take_out(k, part, state)
        found = False
        while not found and choice[depth] + 1 < n_choices:
            choice[depth] += 1
            steps += 1
            if steps > most_steps:
                return -1
            found = _try_choice(k, part, choice[depth], state)
        if found:
            depth += 1
            if depth < n_pairs:
                choice[depth] = -1
        else:
            choice[depth] = -1
            depth -= 1
    return 0


@inner_kernel
def _try_choice(k: int, part: np.ndarray, choice: int, state: PairState) -> bool:
    """Put a pair into the place of a choice, if that can lead to a plan."""
    bounds, table = state.bounds, state.table
    n_sessions, n_groups = len(table.group), table.groups.shape[1]
    if choice == n_sessions * n_groups:
        if bounds.unicast_receivers <= 0:
            return False
        put_in(k, part, UNICAST, state)
    else:
        c, m = choice // n_groups, choice % n_groups
        if table.session[PARTS, c] > 0:
            if table.group[c] != m:
                return False
        else:
            if _is_like_an_earlier(c, m, state):
                return False
            table.group[c] = m
        if not bounds.copies and _has_other_session(k, c, state):
            return False
        put_in(k, part, widen(c), state)
    if _may_hold(state):
        return True
    take_out(k, part, state)
    return False


@inner_kernel
def _has_other_session(k: int, c: int, state: PairState) -> bool:
    start = state.wants.offsets[k]
    for slot in range(start, start + state.table.n_parts[k]):
        place = state.table.part_place[slot]
        if place >= 0 and place != c:
            return True
    return False


@inner_kernel
def _is_like_an_earlier(c: int, m: int, state: PairState) -> bool:
    """Whether an earlier empty session or group would do as well."""
    bounds, table = state.bounds, state.table
    if len(bounds.home) == 0:
        for other in range(c):
            if table.session[PARTS, other] == 0:
                return True
    if len(bounds.home) == 0 and table.groups[PARTS, m] == 0 and m >= bounds.filled:
        for other in range(bounds.filled, m):
            if table.groups[PARTS, other] == 0:
                return True
    return False


@inner_kernel
def _may_hold(state: PairState) -> bool:
    """Whether nothing is broken that more pairs could not mend."""
    for kind in range(KINDS):
        if kind not in (FILLED, GROUP_PACKETS) and state.table.broken[kind]:
            return False
    return True
