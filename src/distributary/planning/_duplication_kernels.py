"""The compiled inner loops of planning with duplicated flows.

A *pair* is a receiver and a flow it wants: the pairs of flow k are `offsets[k]` to
`offsets[k + 1]`, their receivers are `members`, and `source[p]` is the session that the receiver
of pair p takes the flow from. The sessions that a flow's pairs name are its *copies*: each is sent,
and pays the flow's rate, once. The rest of the state is that of `_anneal_kernels`, with every pair
counted where it is taken from.

The price of a place is the exact change of cost, plus `fee` times the rate where that place is a
copy more. Numbers are whole numbers kept in doubles, as in `_anneal_kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distributary.compiled import kernel
from distributary.model import FloatArray, IndexArray, IntArray
from distributary.planning._anneal_kernels import _join, _leave, _pick

__all__ = ["redraw_sources"]

FORBIDDEN = 1e300

Counts = np.ndarray[Any, np.dtype[np.int32]]
Flags = np.ndarray[Any, np.dtype[np.uint8]]


@kernel
def redraw_sources(
    order: IntArray,  # IN   the flows to ask, one after the other
    chance: FloatArray,  # IN   a number in [0, 1) for each pair, twice
    alpha: float,
    beta: float,
    fee: float,  # on each unit of rate that is sent again
    limit: float,  # of what all copies send
    temperature: float,
    offsets: IntArray,  # IN
    members: IndexArray,  # IN
    weight: FloatArray,  # IN
    source: IndexArray,  # IN and OUT, from here on
    sent: FloatArray,  # one number: the rate of all copies
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
    """Redraw where each copy of a flow travels, then where each receiver takes it from.

    Return how many of them moved.
    """
    n_receivers, n_sessions = session_count.shape
    here = np.zeros(n_sessions, np.int32)  # the flow's receivers who take it from each session
    part = np.zeros(n_receivers, np.int64)  # the pairs that move together
    price = np.zeros(n_sessions, np.float64)
    odds = np.zeros(n_sessions, np.float64)
    in_session = np.zeros(n_sessions, np.int32)
    in_group = np.zeros(len(group_total), np.int32)
    group_price = np.zeros(len(group_total), np.float64)
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
                if whole:  # all who take it from here, once: at the first of them
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
                moved += _redraw(
                    part[:size], first, last, chance[whole * len(members) + p],
                    alpha, beta, fee, limit, temperature, members, weight[k], source, sent, group,
                    session_count, session_present, session_audience, session_total,
                    group_count, group_present, group_audience, group_total,
                    here, price, group_price, in_session, in_group, odds,
                )  # fmt: skip
        for p in range(first, last):
            here[source[p]] = 0
    return moved


@kernel
def _redraw(
    part: IntArray,  # IN   pairs of one flow that take it from one session
    first: int,
    last: int,
    chance: float,
    alpha: float,
    beta: float,
    fee: float,
    limit: float,
    temperature: float,
    members: IndexArray,
    rate: float,
    source: IndexArray,
    sent: FloatArray,
    group: IndexArray,
    session_count: Counts,
    session_present: Flags,
    session_audience: FloatArray,
    session_total: FloatArray,
    group_count: Counts,
    group_present: Flags,
    group_audience: FloatArray,
    group_total: FloatArray,
    here: Counts,
    price: FloatArray,  # from here on: room to work in
    group_price: FloatArray,
    in_session: Counts,
    in_group: Counts,
    odds: FloatArray,
) -> int:
    """Take the pairs out, price every session for them, put them into the one drawn."""
    size = len(part)
    n_sessions, n_groups = len(session_total), len(group_total)
    old = source[part[0]]
    more = sent[0] + rate <= limit or here[old] == size
    if not more:
        alone = True
        for p in range(first, last):
            alone &= source[p] == old
        if alone:
            return 0
    in_session[:] = 0
    in_group[:] = 0
    here[old] -= size
    if here[old] == 0:
        session_total[old] -= rate
        group_total[group[old]] -= rate
        sent[0] -= rate
    for i in range(size):
        n = members[part[i]]
        source[part[i]] = -1
        _leave(n, old, session_count, session_present, session_audience, 1)
        _leave(n, group[old], group_count, group_present, group_audience, 1)
        row = session_present[n]
        for c in range(n_sessions):
            in_session[c] += row[c]
        row = group_present[n]
        for c in range(n_groups):
            in_group[c] += row[c]

    if more:
        for c in range(n_groups):
            group_price[c] = fee * rate + alpha * (
                rate * (group_audience[c] + size - in_group[c])
                + group_total[c] * (size - in_group[c])
            )
        for c in range(n_sessions):
            price[c] = beta * (
                rate * (session_audience[c] + size - in_session[c])
                + session_total[c] * (size - in_session[c])
            )
        for c in range(n_sessions):
            price[c] += group_price[group[c]]
    else:
        price[:] = FORBIDDEN
    for p in range(first, last):
        c = source[p]
        if c >= 0:  # a copy is there already
            m = group[c]
            price[c] = beta * session_total[c] * (size - in_session[c]) + alpha * group_total[m] * (
                size - in_group[m]
            )

    new = _pick(price, old, temperature, chance, odds)
    if here[new] == 0:
        session_total[new] += rate
        group_total[group[new]] += rate
        sent[0] += rate
    here[new] += size
    for i in range(size):
        n = members[part[i]]
        source[part[i]] = new
        _join(n, new, session_count, session_present, session_audience, 1)
        _join(n, group[new], group_count, group_present, group_audience, 1)
    return new != old
