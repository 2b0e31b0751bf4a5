"""The compiled inner loops of annealing on both levels at once.

The state of a two-level plan, receiver by receiver: `session_count[n, l]` is how many of receiver
n's flows are in session l, `session_present` whether any is; `group_count` and `group_present` the
same for groups. `session_audience` and `session_total` are each session's receivers and rate,
`group_audience` and `group_total` each group's. The cost is alpha x received + beta x accepted:
audience times total, summed over groups and over sessions.

Numbers are whole numbers kept in doubles, small enough (below 2 ** 53) for every sum and product
here to be exact, and laid out so that the price of all sessions at once is a few vector operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from distributary.model import FloatArray, IndexArray, IntArray

__all__ = [
    "apply_moves",
    "descend",
    "draw_move",
    "draw_moves",
    "regroup",
    "settle_moves",
    "sweep_blocks",
    "two_level_counts",
]

Counts = np.ndarray[Any, np.dtype[np.int32]]
Flags = np.ndarray[Any, np.dtype[np.uint8]]

_STRETCH = 64  # choices whose odds are added up at once


@njit(cache=True, nogil=True)
def two_level_counts(
    offsets: IntArray,  # IN
    members: IndexArray,  # IN
    weight: FloatArray,  # IN
    session: IndexArray,  # IN
    group: IndexArray,  # IN
    session_count: Counts,  # OUT
    session_present: Flags,  # OUT
    session_audience: FloatArray,  # OUT
    session_total: FloatArray,  # OUT
    group_count: Counts,  # OUT
    group_present: Flags,  # OUT
    group_audience: FloatArray,  # OUT
    group_total: FloatArray,  # OUT
) -> None:
    """Fill the state from the two maps."""
    session_count[:] = 0
    session_present[:] = 0
    session_audience[:] = 0
    session_total[:] = 0
    group_count[:] = 0
    group_present[:] = 0
    group_audience[:] = 0
    group_total[:] = 0
    for k in range(len(session)):
        l = session[k]  # noqa: E741
        m = group[l]
        session_total[l] += weight[k]
        group_total[m] += weight[k]
        for at in range(offsets[k], offsets[k + 1]):
            _join(members[at], l, session_count, session_present, session_audience, 1)
            _join(members[at], m, group_count, group_present, group_audience, 1)


@njit(cache=True, nogil=True)
def _join(n: int, c: int, count: Counts, present: Flags, audience: FloatArray, copies: int) -> None:
    if count[n, c] == 0:
        present[n, c] = 1
        audience[c] += 1
    count[n, c] += copies


@njit(cache=True, nogil=True)
def _leave(
    n: int, c: int, count: Counts, present: Flags, audience: FloatArray, copies: int
) -> None:
    count[n, c] -= copies
    if count[n, c] == 0:
        present[n, c] = 0
        audience[c] -= 1


@njit(cache=True, nogil=True, fastmath={"nnan", "ninf", "nsz"})
def _least(price: FloatArray) -> float:
    """The smallest of the prices; none is NaN, which lets the loop run on vectors."""
    least = price[0]
    for c in range(1, len(price)):
        least = min(least, price[c])
    return least


@njit(cache=True, nogil=True)
def _pick(price: FloatArray, stay: int, temperature: float, chance: float, odds: FloatArray) -> int:
    """One of the choices, with a probability that falls as exp(-price / temperature).

    At temperature 0 the first of the cheapest, unless the present one is as cheap. The exponential
    is taken as (1 + x/64) ** 64, which runs on vectors; `odds` is room to work in.
    """
    least = _least(price)
    if temperature <= 0:
        if price[stay] == least:
            return stay
        for c in range(len(price)):
            if price[c] == least:
                return c
    scale = 1.0 / (64.0 * temperature)
    for c in range(len(price)):
        x = 1.0 + (least - price[c]) * scale
        x = x if x > 0.0 else 0.0
        x *= x
        x *= x
        x *= x
        x *= x
        x *= x
        odds[c] = x * x
    total = 0.0
    for first in range(0, len(price), _STRETCH):
        total += _sum(odds[first : first + _STRETCH])
    left = chance * total
    for first in range(0, len(price), _STRETCH):
        stretch = odds[first : first + _STRETCH]
        here = _sum(stretch)
        if left < here:
            for c in range(len(stretch)):
                left -= stretch[c]
                if left < 0:
                    return first + c
            return first + len(stretch) - 1  # rounding: the sum was a hair more than its parts
        left -= here
    return stay


@njit(cache=True, nogil=True)
def _sum(values: FloatArray) -> float:
    """Four sums side by side, always in the same order, so that every machine adds alike."""
    a = b = c = d = 0.0
    whole = len(values) // 4 * 4
    for i in range(0, whole, 4):
        a += values[i]
        b += values[i + 1]
        c += values[i + 2]
        d += values[i + 3]
    for i in range(whole, len(values)):
        a += values[i]
    return (a + b) + (c + d)


@njit(cache=True, nogil=True)
def draw_move(
    k: int,
    chance: float,
    alpha: float,
    beta: float,
    temperature: float,
    toll: float,
    home: IndexArray,
    offsets: IntArray,  # IN   from here on: the state
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
    in_session: Counts,  # from here on: room to work in, a number per session or group
    in_group: Counts,
    price: FloatArray,
    group_price: FloatArray,
    odds: FloatArray,
) -> int:
    """Draw a session for one flow, by the exact change of cost."""
    n_sessions, n_groups = len(session_total), len(group_total)
    rate = weight[k]
    old = session[k]
    old_group = group[old]
    size = float(offsets[k + 1] - offsets[k])
    in_session[:] = 0
    in_group[:] = 0
    only_in_session = only_in_group = 0.0  # receivers who are there for this flow alone
    for at in range(offsets[k], offsets[k + 1]):
        n = members[at]
        row = session_present[n]
        for c in range(n_sessions):
            in_session[c] += row[c]
        row = group_present[n]
        for c in range(n_groups):
            in_group[c] += row[c]
        only_in_session += session_count[n, old] == 1
        only_in_group += group_count[n, old_group] == 1

    for c in range(n_groups):
        group_price[c] = alpha * (
            rate * (group_audience[c] - in_group[c]) + group_total[c] * (size - in_group[c])
        )
    # Where the flow is now, it is taken out first. Who stays without it is not among those
    # counted twice, so the first term is the same with it and without it.
    others = in_group[old_group] - only_in_group
    group_price[old_group] = alpha * (
        rate * (group_audience[old_group] - in_group[old_group])
        + (group_total[old_group] - rate) * (size - others)
    )
    for c in range(n_sessions):
        price[c] = beta * (
            rate * (session_audience[c] - in_session[c]) + session_total[c] * (size - in_session[c])
        )
    others = in_session[old] - only_in_session
    price[old] = beta * (
        rate * (session_audience[old] - in_session[old])
        + (session_total[old] - rate) * (size - others)
    )
    for c in range(n_sessions):
        price[c] += group_price[group[c]]
    if home[k] >= 0:
        price[home[k]] -= toll
    return _pick(price, old, temperature, chance, odds)


@njit(cache=True, nogil=True)
def draw_moves(
    chosen: IntArray,  # IN   the flows to ask
    chance: FloatArray,  # IN   a number in [0, 1) for each of them
    alpha: float,
    beta: float,
    temperature: float,
    toll: float,  # what it costs to be in another session than home
    home: IndexArray,  # IN   each flow's own session, or -1
    offsets: IntArray,  # IN   from here on: the state
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
    target: IndexArray,  # OUT  the session that each would go to, were it alone
) -> None:
    """Draw a session for each flow, by the exact change of cost; the state is only read."""
    n_sessions, n_groups = len(session_total), len(group_total)
    in_session, in_group = np.zeros(n_sessions, np.int32), np.zeros(n_groups, np.int32)
    price, group_price, odds = np.zeros(n_sessions), np.zeros(n_groups), np.zeros(n_sessions)
    for i in range(len(chosen)):
        target[i] = draw_move(
            chosen[i], chance[i], alpha, beta, temperature, toll, home,
            offsets, members, weight, session, group,
            session_count, session_present, session_audience, session_total,
            group_count, group_present, group_audience, group_total,
            in_session, in_group, price, group_price, odds,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def apply_moves(
    chosen: IntArray,  # IN
    target: IndexArray,  # IN
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
    """Move each flow to its target; return how many moved."""
    moved = 0
    for i in range(len(chosen)):
        k, new = chosen[i], target[i]
        old = session[k]
        if new == old:
            continue
        moved += 1
        old_group, new_group = group[old], group[new]
        session[k] = new
        session_total[old] -= weight[k]
        session_total[new] += weight[k]
        group_total[old_group] -= weight[k]
        group_total[new_group] += weight[k]
        for at in range(offsets[k], offsets[k + 1]):
            n = members[at]
            _leave(n, old, session_count, session_present, session_audience, 1)
            _join(n, new, session_count, session_present, session_audience, 1)
            if new_group != old_group:
                _leave(n, old_group, group_count, group_present, group_audience, 1)
                _join(n, new_group, group_count, group_present, group_audience, 1)
    return moved


@njit(cache=True, nogil=True)
def regroup(
    chance: FloatArray,  # IN   a number in [0, 1) for each session
    alpha: float,
    temperature: float,
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
    """Draw a group for each whole session, by the exact change of cost; return how many moved."""
    n_receivers, n_groups = group_count.shape
    in_group = np.zeros(n_groups, np.float64)
    price = np.zeros(n_groups, np.float64)
    odds = np.zeros(n_groups, np.float64)
    subscribers = np.zeros(n_receivers, np.int64)
    moved = 0
    for s in range(len(group)):
        old = group[s]
        rate, audience = session_total[s], session_audience[s]
        if audience == 0:
            continue
        group_total[old] -= rate
        n_subscribers = 0
        in_group[:] = 0
        for n in range(n_receivers):
            if session_present[n, s]:
                subscribers[n_subscribers] = n
                n_subscribers += 1
                _leave(n, old, group_count, group_present, group_audience, session_count[n, s])
                row = group_present[n]
                for c in range(n_groups):
                    in_group[c] += row[c]
        for c in range(n_groups):
            price[c] = alpha * (
                rate * (group_audience[c] - in_group[c]) + group_total[c] * (audience - in_group[c])
            )
        new = _pick(price, old, temperature, chance[s], odds)
        moved += new != old
        group[s] = new
        group_total[new] += rate
        for i in range(n_subscribers):
            n = subscribers[i]
            _join(n, new, group_count, group_present, group_audience, session_count[n, s])
    return moved


@njit(cache=True, nogil=True)
def settle_moves(
    chosen: IntArray,  # IN
    chance: FloatArray,  # IN
    alpha: float,
    beta: float,
    temperature: float,
    home: IndexArray,  # IN
    target: IndexArray,  # IN   as `draw_moves` left it
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
) -> None:
    """Move a block of flows that were drawn side by side, one by one.

    Where a flow's own session or its target was changed by a move before it in the block, it is
    drawn again from the state as it is: else all would rush into the same cheap session.
    """
    n_sessions, n_groups = len(session_total), len(group_total)
    in_session, in_group = np.zeros(n_sessions, np.int32), np.zeros(n_groups, np.int32)
    price, group_price, odds = np.zeros(n_sessions), np.zeros(n_groups), np.zeros(n_sessions)
    changed = np.zeros(n_sessions, np.bool_)
    one = np.empty(1, np.int32)
    for i in range(len(chosen)):
        k = chosen[i]
        old = session[k]
        one[0] = target[i]
        if changed[old] or changed[target[i]]:
            one[0] = draw_move(
                k, chance[i], alpha, beta, temperature, 0.0, home,
                offsets, members, weight, session, group,
                session_count, session_present, session_audience, session_total,
                group_count, group_present, group_audience, group_total,
                in_session, in_group, price, group_price, odds,
            )  # fmt: skip
        if one[0] != old:
            changed[old] = changed[one[0]] = True
            apply_moves(
                chosen[i : i + 1], one, offsets, members, weight, session, group,
                session_count, session_present, session_audience, session_total,
                group_count, group_present, group_audience, group_total,
            )  # fmt: skip


@njit(cache=True, nogil=True)
def sweep_blocks(
    order: IntArray,  # IN
    chance: FloatArray,  # IN
    alpha: float,
    beta: float,
    temperature: float,
    block: int,
    home: IndexArray,  # IN
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
) -> None:
    """Draw a block of flows from one state, move them, go on with the next block."""
    target = np.empty(block, np.int32)
    for first in range(0, len(order), block):
        chosen = order[first : first + block]
        some = chance[first : first + block]
        draw_moves(
            chosen, some, alpha, beta, temperature, 0.0, home,
            offsets, members, weight, session, group,
            session_count, session_present, session_audience, session_total,
            group_count, group_present, group_audience, group_total, target,
        )  # fmt: skip
        settle_moves(
            chosen, some, alpha, beta, temperature, home, target,
            offsets, members, weight, session, group,
            session_count, session_present, session_audience, session_total,
            group_count, group_present, group_audience, group_total,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def descend(
    order: IntArray,  # IN   the flows to ask, one after the other
    alpha: float,
    beta: float,
    toll: float,
    home: IndexArray,  # IN
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
    """Move each flow to its cheapest session, seeing all moves before it; return how many moved."""
    n_sessions, n_groups = len(session_total), len(group_total)
    in_session, in_group = np.zeros(n_sessions, np.int32), np.zeros(n_groups, np.int32)
    price, group_price, odds = np.zeros(n_sessions), np.zeros(n_groups), np.zeros(n_sessions)
    target = np.empty(1, np.int32)
    moved = 0
    for i in range(len(order)):
        target[0] = draw_move(
            order[i], 0.0, alpha, beta, 0.0, toll, home, offsets, members, weight, session, group,
            session_count, session_present, session_audience, session_total,
            group_count, group_present, group_audience, group_total,
            in_session, in_group, price, group_price, odds,
        )  # fmt: skip
        moved += apply_moves(
            order[i : i + 1], target, offsets, members, weight, session, group,
            session_count, session_present, session_audience, session_total,
            group_count, group_present, group_audience, group_total,
        )  # fmt: skip
    return moved
