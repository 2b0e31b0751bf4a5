"""The compiled inner loops of planning with duplicated flows.

A *pair* is a receiver and a flow that it wants. The sessions from which a flow's pairs take it are
its *copies*; the flow's rate is paid once for each copy sent.

The price of a session is the exact change of cost, plus `fee` times the rate if that would be an
additional copy. Numbers are whole numbers stored in doubles, as in `_anneal_kernels`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distributary.compiled import kernel
from distributary.model import FloatArray, IndexArray, IntArray
from distributary.planning._choice_kernels import pick
from distributary.planning._state_kernels import Level, join, leave

__all__ = ["CopyPrices", "Sources", "redraw_sources"]

FORBIDDEN = 1e300


class CopyPrices(NamedTuple):
    """The prices, the `fee` on each unit of rate that is sent again, and the limit of all sent.

    A place is drawn by its price over the `temperature`.
    """

    alpha: float
    beta: float
    fee: float
    limit: float
    temperature: float


class Sources(NamedTuple):
    """The session from which each pair takes its flow, and both levels with every pair counted.

    The pairs of flow k are `offsets[k]` to `offsets[k + 1]`, their receivers are `members`, and
    `source[p]` is the session of pair p. `sent` holds one number: the total rate of all copies.
    """

    offsets: IntArray
    members: IndexArray
    weight: FloatArray
    source: IndexArray
    sent: FloatArray
    group: IndexArray
    sessions: Level
    groups: Level


class _Room(NamedTuple):
    """Scratch arrays; `here` counts the flow's receivers that take it from each session."""

    here: Any
    price: Any
    group_price: Any
    in_session: Any
    in_group: Any
    odds: Any


@kernel
def redraw_sources(
    order: IntArray,  # IN   the flows to redraw, one after the other
    chance: FloatArray,  # IN   a number in [0, 1) for each pair, twice
    prices: CopyPrices,
    sources: Sources,  # IN and OUT
) -> int:
    """Redraw the session of each copy of a flow, then the session each receiver takes it from.

    Return how many of them moved.
    """
    offsets, source = sources.offsets, sources.source
    n_receivers, n_sessions = sources.sessions.count.shape
    n_groups = len(sources.groups.total)
    part = np.zeros(n_receivers, np.int64)  # the pairs that move together
    room = _Room(
        np.zeros(n_sessions, np.int32),
        np.zeros(n_sessions),
        np.zeros(n_groups),
        np.zeros(n_sessions, np.int32),
        np.zeros(n_groups, np.int32),
        np.zeros(n_sessions),
    )
    here = room.here
    moved = 0
    for i in range(len(order)):
        k = order[i]
        first, last = offsets[k], offsets[k + 1]
        for p in range(first, last):
            here[source[p]] += 1
        for whole in (True, False):
            for p in range(first, last):
                old = source[p]
                size = 0
                if whole:  # all receivers that take it from here, at the first of them
                    for q in range(first, last):
                        if source[q] == old:
                            part[size] = q
                            size += 1
                    if part[0] != p:
                        continue
                elif here[old] > 1:
                    part[0] = p
                    size = 1
                else:
                    continue
                drawn = chance[whole * len(sources.members) + p]
                moved += _redraw(k, part[:size], drawn, prices, sources, room)
        for p in range(first, last):
            here[source[p]] = 0
    return moved


@kernel
def _redraw(
    k: int,
    part: IntArray,  # IN   pairs of flow k that take it from one session
    chance: float,
    prices: CopyPrices,
    sources: Sources,  # IN and OUT
    room: _Room,
) -> int:
    """Take the pairs out, price every session for them, and put them into the one drawn."""
    source, rate = sources.source, sources.weight[k]
    size, old = len(part), source[part[0]]
    may_copy = sources.sent[0] + rate <= prices.limit or room.here[old] == size
    if not may_copy and _is_alone(k, old, sources):
        return 0
    _take_out(part, old, rate, sources, room)
    _price_places(k, size, may_copy, prices, sources, room)
    new = pick(room.price, old, prices.temperature, chance, room.odds)
    _put_in(part, new, rate, sources, room)
    return new != old


@kernel
def _is_alone(k: int, session: int, sources: Sources) -> bool:
    """Whether the flow is in that session only."""
    alone = True
    for p in range(sources.offsets[k], sources.offsets[k + 1]):
        alone &= sources.source[p] == session
    return alone


@kernel
def _take_out(part: IntArray, old: int, rate: float, sources: Sources, room: _Room) -> None:
    """Take pairs out of their session, and count where their receivers still are."""
    sessions, groups = sources.sessions, sources.groups
    room.in_session[:] = 0
    room.in_group[:] = 0
    room.here[old] -= len(part)
    if room.here[old] == 0:
        sessions.total[old] -= rate
        groups.total[sources.group[old]] -= rate
        sources.sent[0] -= rate
    for i in range(len(part)):
        n = sources.members[part[i]]
        sources.source[part[i]] = -1
        leave(n, old, sessions, 1)
        leave(n, sources.group[old], groups, 1)
        row = sessions.present[n]
        for c in range(len(row)):
            room.in_session[c] += row[c]
        row = groups.present[n]
        for c in range(len(row)):
            room.in_group[c] += row[c]


@kernel
def _price_places(
    k: int, size: int, may_copy: bool, prices: CopyPrices, sources: Sources, room: _Room
) -> None:
    """Price every session for `size` receivers of flow k, both where it is and where it is not."""
    sessions, groups, group = sources.sessions, sources.groups, sources.group
    in_session, in_group, price = room.in_session, room.in_group, room.price
    alpha, beta, rate = prices.alpha, prices.beta, sources.weight[k]
    if may_copy:
        for c in range(len(in_group)):
            room.group_price[c] = prices.fee * rate + alpha * (
                rate * (groups.audience[c] + size - in_group[c])
                + groups.total[c] * (size - in_group[c])
            )
        for c in range(len(price)):
            price[c] = beta * (
                rate * (sessions.audience[c] + size - in_session[c])
                + sessions.total[c] * (size - in_session[c])
            )
        for c in range(len(price)):
            price[c] += room.group_price[group[c]]
    else:
        price[:] = FORBIDDEN
    for p in range(sources.offsets[k], sources.offsets[k + 1]):
        c = sources.source[p]
        if c >= 0:  # a copy is there already
            m = group[c]
            price[c] = beta * sessions.total[c] * (size - in_session[c]) + alpha * groups.total[
                m
            ] * (size - in_group[m])


@kernel
def _put_in(part: IntArray, new: int, rate: float, sources: Sources, room: _Room) -> None:
    """Make pairs take their flow from a session."""
    sessions, groups = sources.sessions, sources.groups
    if room.here[new] == 0:
        sessions.total[new] += rate
        groups.total[sources.group[new]] += rate
        sources.sent[0] += rate
    room.here[new] += len(part)
    for i in range(len(part)):
        n = sources.members[part[i]]
        sources.source[part[i]] = new
        join(n, new, sessions, 1)
        join(n, sources.group[new], groups, 1)
