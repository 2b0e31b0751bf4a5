"""The compiled inner loops of annealing on both levels at once.

The state is laid out so that a few vector operations price all sessions at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distributary.compiled import kernel
from distributary.model import FloatArray, IndexArray, IntArray
from distributary.planning._choice_kernels import STRETCH, pick, pick_near
from distributary.planning._state_kernels import State, join, leave, move

__all__ = [
    "MovePrices",
    "Room",
    "descend",
    "draw_move",
    "draw_moves",
    "make_room",
    "regroup",
    "sweep",
]


class MovePrices(NamedTuple):
    """What a flow pays where: the two prices, and a `toll` anywhere but in its `home` session.

    A home of -1 is none.
    """

    alpha: float
    beta: float
    toll: float
    home: IndexArray


class Room(NamedTuple):
    """Scratch arrays, one number per session or per group."""

    in_session: Any
    in_group: Any
    price: Any
    group_price: Any
    odds: Any


class _Near(NamedTuple):
    """The state rounded to single precision; `session` and `group` are audience and total."""

    alpha: Any
    beta: Any
    group_of: Any  # unsigned: no check for negative ones in the inner loop
    session: Any
    group: Any
    sums: Any


@kernel
def make_room(state: State) -> Room:
    """Allocate scratch arrays in double precision."""
    n_sessions, n_groups = len(state.sessions.total), len(state.groups.total)
    return Room(
        np.zeros(n_sessions, np.int32),
        np.zeros(n_groups, np.int32),
        np.zeros(n_sessions),
        np.zeros(n_groups),
        np.zeros(n_sessions),
    )


@kernel
def draw_move(
    k: int,
    chance: float,
    prices: MovePrices,
    temperature: float,
    state: State,  # IN
    room: Room,
) -> int:
    """Draw a session for one flow; the prices are the exact changes of cost."""
    alpha, beta = prices.alpha, prices.beta
    sessions, groups = state.sessions, state.groups
    in_session, in_group = room.in_session, room.in_group
    price, group_price = room.price, room.group_price
    first, last = state.offsets[k], state.offsets[k + 1]
    rate = state.weight[k]
    old = state.session[k]
    old_group = state.group[old]
    size = float(last - first)
    in_session[:] = 0
    in_group[:] = 0
    only_in_session = only_in_group = 0.0  # receivers that are there only for this flow
    for at in range(first, last):
        n = state.members[at]
        row = sessions.present[n]
        for c in range(len(price)):
            in_session[c] += row[c]
        row = groups.present[n]
        for c in range(len(group_price)):
            in_group[c] += row[c]
        only_in_session += sessions.count[n, old] == 1
        only_in_group += groups.count[n, old_group] == 1

    for c in range(len(group_price)):
        group_price[c] = alpha * (
            rate * (groups.audience[c] - in_group[c]) + groups.total[c] * (size - in_group[c])
        )
    # The present group and session are priced as if the flow had been taken out. That removes the
    # receivers that are there only for it from both counts of the first term, which stays the same.
    others = in_group[old_group] - only_in_group
    group_price[old_group] = alpha * (
        rate * (groups.audience[old_group] - in_group[old_group])
        + (groups.total[old_group] - rate) * (size - others)
    )
    for c in range(len(price)):
        price[c] = beta * (
            rate * (sessions.audience[c] - in_session[c])
            + sessions.total[c] * (size - in_session[c])
        )
    others = in_session[old] - only_in_session
    price[old] = beta * (
        rate * (sessions.audience[old] - in_session[old])
        + (sessions.total[old] - rate) * (size - others)
    )
    for c in range(len(price)):
        price[c] += group_price[state.group[c]]
    if prices.home[k] >= 0:
        price[prices.home[k]] -= prices.toll
    return pick(price, old, temperature, chance, room.odds)


@kernel
def draw_moves(
    chosen: IntArray,  # IN   the flows to draw for
    chance: FloatArray,  # IN   a number in [0, 1) for each of them
    prices: MovePrices,
    temperature: float,
    state: State,  # IN
    target: IndexArray,  # OUT  the session that each would move to if no other flow moved
) -> None:
    """Draw a session for each flow without moving any; the state is only read."""
    room = make_room(state)
    for i in range(len(chosen)):
        target[i] = draw_move(chosen[i], chance[i], prices, temperature, state, room)


@kernel
def regroup(
    chance: FloatArray,  # IN   a number in [0, 1) for each session
    alpha: float,
    temperature: float,
    state: State,  # IN and OUT
) -> int:
    """Draw a group for each whole session, at the exact change of cost; return how many moved."""
    group, sessions, groups = state.group, state.sessions, state.groups
    n_receivers, n_groups = groups.count.shape
    in_group = np.zeros(n_groups, np.float64)
    price = np.zeros(n_groups, np.float64)
    odds = np.zeros(n_groups, np.float64)
    subscribers = np.zeros(n_receivers, np.int64)
    moved = 0
    for s in range(len(group)):
        old = group[s]
        rate, audience = sessions.total[s], sessions.audience[s]
        if audience == 0:
            continue
        groups.total[old] -= rate
        n_subscribers = 0
        in_group[:] = 0
        for n in range(n_receivers):
            if sessions.present[n, s]:
                subscribers[n_subscribers] = n
                n_subscribers += 1
                leave(n, old, groups, sessions.count[n, s])
                row = groups.present[n]
                for c in range(n_groups):
                    in_group[c] += row[c]
        for c in range(n_groups):
            price[c] = alpha * (
                rate * (groups.audience[c] - in_group[c])
                + groups.total[c] * (audience - in_group[c])
            )
        new = pick(price, old, temperature, chance[s], odds)
        moved += new != old
        group[s] = new
        groups.total[new] += rate
        for i in range(n_subscribers):
            n = subscribers[i]
            join(n, new, groups, sessions.count[n, s])
    return moved


@kernel
def sweep(
    order: IntArray,  # IN   the flows to draw, one after the other
    chance: FloatArray,  # IN   a number in [0, 1) for each of them
    alpha: float,
    beta: float,
    temperature: float,  # above 0
    state: State,  # IN and OUT
) -> None:
    """Draw a session for each flow and move it there; each flow sees all earlier moves.

    The state is exact. Draws use prices rounded to single precision, which is twice as fast and far
    finer than any temperature.
    """
    group, sessions, groups = state.group, state.sessions, state.groups
    n_sessions, n_groups = len(sessions.total), len(groups.total)
    price, group_price = np.zeros(n_sessions, np.float32), np.zeros(n_groups, np.float32)
    odds = np.zeros(n_sessions, np.float32)
    few = Room(
        np.zeros(n_sessions, np.uint8), np.zeros(n_groups, np.uint8), price, group_price, odds
    )
    many = Room(
        np.zeros(n_sessions, np.int32), np.zeros(n_groups, np.int32), price, group_price, odds
    )
    sums = np.zeros((n_sessions + STRETCH - 1) // STRETCH, np.float32)
    session_about = np.empty((2, n_sessions), np.float32)  # audience and total, rounded
    group_about = np.empty((2, n_groups), np.float32)
    for c in range(n_sessions):
        session_about[0, c], session_about[1, c] = sessions.audience[c], sessions.total[c]
    for m in range(n_groups):
        group_about[0, m], group_about[1, m] = groups.audience[m], groups.total[m]
    which = group.astype(np.uint32)
    near = _Near(np.float32(alpha), np.float32(beta), which, session_about, group_about, sums)
    for i in range(len(order)):
        k = order[i]
        old = state.session[k]
        if state.offsets[k + 1] - state.offsets[k] < 256:
            new = _draw_near(k, chance[i], temperature, state, near, few)
        else:
            new = _draw_near(k, chance[i], temperature, state, near, many)
        if not move(k, new, state):
            continue
        for c in (np.int64(old), np.int64(new)):
            session_about[0, c], session_about[1, c] = sessions.audience[c], sessions.total[c]
            m = group[c]
            group_about[0, m], group_about[1, m] = groups.audience[m], groups.total[m]


@kernel
def _draw_near(
    k: int,
    chance: float,
    temperature: float,
    state: State,
    near: _Near,
    room: Room,
) -> int:
    """`draw_move` in single precision: the same prices, rounded."""
    alpha, beta, group = near.alpha, near.beta, near.group_of
    in_session, in_group = room.in_session, room.in_group
    price, group_price = room.price, room.group_price
    first, last = state.offsets[k], state.offsets[k + 1]
    one = np.float32(1)
    rate = np.float32(state.weight[k])
    old = state.session[k]
    old_group = group[old]
    size = np.float32(last - first)
    in_session[:] = 0
    in_group[:] = 0
    only_in_session = only_in_group = np.float32(0)
    for at in range(first, last):
        n = state.members[at]
        row = state.sessions.present[n]
        for c in range(len(price)):
            in_session[c] += row[c]
        row = state.groups.present[n]
        for c in range(len(group_price)):
            in_group[c] += row[c]
        if state.sessions.count[n, old] == 1:
            only_in_session += one
        if state.groups.count[n, old_group] == 1:
            only_in_group += one
    audience, total = near.group[0], near.group[1]
    for c in range(len(group_price)):
        group_price[c] = alpha * (
            rate * (audience[c] - in_group[c]) + total[c] * (size - in_group[c])
        )
    group_price[old_group] = alpha * (
        rate * (audience[old_group] - in_group[old_group])
        + (total[old_group] - rate) * (size - (in_group[old_group] - only_in_group))
    )
    audience, total = near.session[0], near.session[1]
    for c in range(len(price)):
        price[c] = beta * (rate * (audience[c] - in_session[c]) + total[c] * (size - in_session[c]))
    price[old] = beta * (
        rate * (audience[old] - in_session[old])
        + (total[old] - rate) * (size - (in_session[old] - only_in_session))
    )
    for c in range(len(price)):
        price[c] += group_price[group[c]]
    return pick_near(price, old, temperature, chance, room.odds, near.sums)


@kernel
def descend(
    order: IntArray,  # IN   the flows to ask, one after the other
    prices: MovePrices,
    state: State,  # IN and OUT
) -> int:
    """Move each flow to its cheapest session, seeing all earlier moves; return how many moved."""
    room = make_room(state)
    moved = 0
    for i in range(len(order)):
        new = draw_move(order[i], 0.0, prices, 0.0, state, room)
        moved += move(order[i], new, state)
    return moved
