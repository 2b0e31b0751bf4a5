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

from distributary.compiled import CACHED, kernel
from distributary.model import FloatArray, IndexArray, IntArray

__all__ = [
    "apply_moves",
    "descend",
    "draw_move",
    "draw_moves",
    "regroup",
    "sweep",
    "two_level_counts",
]

Counts = np.ndarray[Any, np.dtype[np.int32]]
Flags = np.ndarray[Any, np.dtype[np.uint8]]

_STRETCH = 64  # choices whose odds are added up at once
_LARGEST = 1e34  # what odds in single precision may add up to; 3.5 ** 64 is 6e34


@kernel
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


@kernel
def _join(n: int, c: int, count: Counts, present: Flags, audience: FloatArray, copies: int) -> None:
    if count[n, c] == 0:
        present[n, c] = 1
        audience[c] += 1
    count[n, c] += copies


@kernel
def _leave(
    n: int, c: int, count: Counts, present: Flags, audience: FloatArray, copies: int
) -> None:
    count[n, c] -= copies
    if count[n, c] == 0:
        present[n, c] = 0
        audience[c] -= 1


@njit(cache=CACHED, nogil=True, fastmath={"nnan", "ninf", "nsz"})
def _least(price: FloatArray) -> float:
    """The smallest of the prices; none is NaN, which lets the loop run on vectors."""
    least = price[0]
    for c in range(1, len(price)):
        least = min(least, price[c])
    return least


@kernel
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


@kernel
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


@kernel
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


@kernel
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


@kernel
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


@kernel
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


@kernel
def sweep(
    order: IntArray,  # IN   the flows to draw, one after the other
    chance: FloatArray,  # IN   a number in [0, 1) for each of them
    alpha: float,
    beta: float,
    temperature: float,  # above 0
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
    """Draw a session for each flow and move it there, each seeing all moves before it.

    The state is exact; what a flow is drawn by is rounded to single precision, twice as fast and
    far finer than any temperature.
    """
    n_sessions, n_groups = len(session_total), len(group_total)
    few_in_session, few_in_group = np.zeros(n_sessions, np.uint8), np.zeros(n_groups, np.uint8)
    in_session, in_group = np.zeros(n_sessions, np.int32), np.zeros(n_groups, np.int32)
    price, group_price = np.zeros(n_sessions, np.float32), np.zeros(n_groups, np.float32)
    odds = np.zeros(n_sessions, np.float32)
    sums = np.zeros((n_sessions + _STRETCH - 1) // _STRETCH, np.float32)
    session_about = np.empty((2, n_sessions), np.float32)  # audience and total, rounded
    group_about = np.empty((2, n_groups), np.float32)
    session_about[0], session_about[1] = session_audience, session_total
    group_about[0], group_about[1] = group_audience, group_total
    which = group.astype(np.uint32)  # unsigned: no check for negative ones in the inner loop
    one = np.empty(1, np.int32)
    for i in range(len(order)):
        k = order[i]
        old = session[k]
        if offsets[k + 1] - offsets[k] < 256:
            new = _drawn(
                k, chance[i], np.float32(alpha), np.float32(beta), temperature,
                offsets, members, weight, session, which, session_count, session_present,
                session_about, group_count, group_present, group_about,
                few_in_session, few_in_group, price, group_price, odds, sums,
            )  # fmt: skip
        else:
            new = _drawn(
                k, chance[i], np.float32(alpha), np.float32(beta), temperature,
                offsets, members, weight, session, which, session_count, session_present,
                session_about, group_count, group_present, group_about,
                in_session, in_group, price, group_price, odds, sums,
            )  # fmt: skip
        if new == old:
            continue
        one[0] = new
        apply_moves(
            order[i : i + 1], one, offsets, members, weight, session, group,
            session_count, session_present, session_audience, session_total,
            group_count, group_present, group_audience, group_total,
        )  # fmt: skip
        for c in (np.int64(old), np.int64(new)):
            session_about[0, c], session_about[1, c] = session_audience[c], session_total[c]
            m = group[c]
            group_about[0, m], group_about[1, m] = group_audience[m], group_total[m]


@kernel
def _drawn(
    k: int,
    chance: float,
    alpha: float,
    beta: float,
    temperature: float,
    offsets: IntArray,
    members: IndexArray,
    weight: FloatArray,
    session: IndexArray,
    group: Any,
    session_count: Counts,
    session_present: Flags,
    session_about: Any,
    group_count: Counts,
    group_present: Flags,
    group_about: Any,
    in_session: Any,  # from here on: room to work in
    in_group: Any,
    price: Any,
    group_price: Any,
    odds: Any,
    sums: Any,
) -> int:
    """`draw_move` in single precision: the same prices, rounded."""
    one = np.float32(1)
    rate = np.float32(weight[k])
    old = session[k]
    old_group = group[old]
    size = np.float32(offsets[k + 1] - offsets[k])
    in_session[:] = 0
    in_group[:] = 0
    only_in_session = only_in_group = np.float32(0)
    for at in range(offsets[k], offsets[k + 1]):
        n = members[at]
        row = session_present[n]
        for c in range(len(price)):
            in_session[c] += row[c]
        row = group_present[n]
        for c in range(len(group_price)):
            in_group[c] += row[c]
        if session_count[n, old] == 1:
            only_in_session += one
        if group_count[n, old_group] == 1:
            only_in_group += one
    audience, total = group_about[0], group_about[1]
    for c in range(len(group_price)):
        group_price[c] = alpha * (
            rate * (audience[c] - in_group[c]) + total[c] * (size - in_group[c])
        )
    group_price[old_group] = alpha * (
        rate * (audience[old_group] - in_group[old_group])
        + (total[old_group] - rate) * (size - (in_group[old_group] - only_in_group))
    )
    audience, total = session_about[0], session_about[1]
    for c in range(len(price)):
        price[c] = beta * (rate * (audience[c] - in_session[c]) + total[c] * (size - in_session[c]))
    price[old] = beta * (
        rate * (audience[old] - in_session[old])
        + (total[old] - rate) * (size - (in_session[old] - only_in_session))
    )
    for c in range(len(price)):
        price[c] += group_price[group[c]]
    return _pick_near(price, old, temperature, chance, odds, sums)


@kernel
def _pick_near(
    price: Any, stay: int, temperature: float, chance: float, odds: Any, sums: Any
) -> int:
    """As `_pick`, but prices are set against that of staying, which need not be searched for.

    Only where something is far cheaper than staying, so that the powers would overflow, they are
    set against the cheapest.
    """
    scale = np.float32(1.0 / (64.0 * temperature))
    total = _powers(price, price[stay], scale, odds, sums)
    if total > _LARGEST:
        total = _powers(price, _least(price), scale, odds, sums)
    left = np.float32(chance) * total
    for s in range(len(sums)):
        if left < sums[s]:
            stretch = odds[s * _STRETCH : (s + 1) * _STRETCH]
            for c in range(len(stretch)):
                left -= stretch[c]
                if left < 0:
                    return s * _STRETCH + c
            return s * _STRETCH + len(stretch) - 1  # rounding
        left -= sums[s]
    return stay


@kernel
def _powers(price: Any, against: float, scale: float, odds: Any, sums: Any) -> float:
    """Fill the odds and their sums by stretches; return the sum of all."""
    zero, one, most = np.float32(0), np.float32(1), np.float32(3.5)
    for c in range(len(price)):
        x = one + (against - price[c]) * scale
        x = x if x > zero else zero
        x = x if x < most else most
        x *= x
        x *= x
        x *= x
        x *= x
        x *= x
        odds[c] = x * x
    total = zero
    for s in range(len(sums)):
        sums[s] = _sum_near(odds[s * _STRETCH : (s + 1) * _STRETCH])
        total += sums[s]
    return total


@kernel
def _sum_near(values: Any) -> float:
    """Eight sums side by side, always in the same order."""
    a = b = c = d = e = f = g = h = np.float32(0)
    whole = len(values) // 8 * 8
    for i in range(0, whole, 8):
        a += values[i]
        b += values[i + 1]
        c += values[i + 2]
        d += values[i + 3]
        e += values[i + 4]
        f += values[i + 5]
        g += values[i + 6]
        h += values[i + 7]
    for i in range(whole, len(values)):
        a += values[i]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@kernel
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
