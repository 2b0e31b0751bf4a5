"""The compiled loops of a plan that changes while it runs.

Their plain twin is in `tests/planning/test_running_plan.py`: it computes everything anew from sets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distributary.compiled import kernel
from distributary.model import IndexArray, IntArray

__all__ = ["Seats", "count_pairs", "find_place", "place_flows"]


class Seats(NamedTuple):
    """Who is in which session and group, and what each carries.

    `in_session` (receivers x sessions) is how many flows a receiver wants of each session,
    `in_group` the same of each group. `members` are receivers with at least one, `rate` is the sum
    of the weights of the flows, `flows` their number.
    """

    session_group: IndexArray
    in_session: IndexArray
    in_group: IndexArray
    session_members: IntArray
    group_members: IntArray
    session_rate: IntArray
    group_rate: IntArray
    session_flows: IntArray
    group_flows: IntArray


@kernel
def _count_pair(receiver: int, session: int, by: int, seats: Any) -> int:
    """Add `by`, 1 or -1, to a receiver's wants of a session; whether a subscription changes."""
    group = seats.session_group[session]
    before = seats.in_session[receiver, session]
    before_group = seats.in_group[receiver, group]
    seats.in_session[receiver, session] = before + by
    seats.in_group[receiver, group] = before_group + by
    if min(before_group, before_group + by) == 0:
        seats.group_members[group] += by
    if min(before, before + by) == 0:
        seats.session_members[session] += by
        return 1
    return 0


@kernel
def count_pairs(
    receiver: IndexArray,  # IN
    flow: IndexArray,  # IN
    by: int,  # IN  1 or -1
    session_of: IndexArray,  # IN  of each flow, or -1
    seats: Any,  # IN and OUT
) -> int:
    """Count pairs of flows that have a session; return how many subscriptions changed."""
    changed = 0
    for i in range(len(receiver)):
        session = session_of[flow[i]]
        if session >= 0:
            changed += _count_pair(receiver[i], session, by, seats)
    return changed


@kernel
def _price(weight: float, rate: float, members: float, strangers: float) -> float:
    """What a flow adds to the intake of a session or group, where `strangers` are its receivers
    that are not members yet.
    """
    return weight * (members + strangers) + rate * strangers


@kernel
def find_place(
    receivers: IndexArray,  # IN  of the flow
    weight: int,  # IN
    alpha: float,  # IN
    beta: float,  # IN
    seats: Any,  # IN
) -> tuple[int, int, float]:
    """The session and group where a flow adds least work, and how much.

    Of equal prices, a session in use comes before an empty one, and then the lowest number.
    """
    n_sessions, n_groups = len(seats.session_rate), len(seats.group_rate)
    session_strangers = np.zeros(n_sessions, np.int64)
    group_strangers = np.zeros(n_groups, np.int64)
    for receiver in receivers:
        for session in range(n_sessions):
            session_strangers[session] += seats.in_session[receiver, session] == 0
        for group in range(n_groups):
            group_strangers[group] += seats.in_group[receiver, group] == 0
    in_group = np.empty(n_groups, np.float64)
    for group in range(n_groups):
        in_group[group] = alpha * _price(
            float(weight),
            float(seats.group_rate[group]),
            float(seats.group_members[group]),
            float(group_strangers[group]),
        )
    best_session, best_group, best_price = -1, -1, np.inf
    empty_session, empty_group = -1, -1
    for session in range(n_sessions):
        if seats.session_flows[session] == 0:
            empty_session = session if empty_session < 0 else empty_session
            continue
        group = seats.session_group[session]
        price = in_group[group] + beta * _price(
            float(weight),
            float(seats.session_rate[session]),
            float(seats.session_members[session]),
            float(session_strangers[session]),
        )
        if price < best_price:
            best_session, best_group, best_price = session, group, price
    if empty_session < 0:
        return best_session, best_group, best_price
    alone = beta * (float(weight) * float(len(receivers)))
    for group in range(n_groups):
        if seats.group_flows[group] == 0:
            if empty_group >= 0:
                continue
            empty_group = group
        price = in_group[group] + alone
        if price < best_price:
            best_session, best_group, best_price = empty_session, group, price
    return best_session, best_group, best_price


@kernel
def _price_at(
    session: int, receivers: IndexArray, weight: int, alpha: float, beta: float, seats: Any
) -> float:
    """What a flow adds to the work in one session."""
    group = seats.session_group[session]
    in_session, in_group = 0, 0
    for receiver in receivers:
        in_session += seats.in_session[receiver, session] == 0
        in_group += seats.in_group[receiver, group] == 0
    received = _price(
        float(weight),
        float(seats.group_rate[group]),
        float(seats.group_members[group]),
        float(in_group),
    )
    accepted = _price(
        float(weight),
        float(seats.session_rate[session]),
        float(seats.session_members[session]),
        float(in_session),
    )
    return alpha * received + beta * accepted


@kernel
def _put(session: int, receivers: IndexArray, weight: int, by: int, seats: Any) -> None:
    """Put a flow into a session (`by` is 1) or take it out (-1)."""
    group = seats.session_group[session]
    for receiver in receivers:
        _count_pair(receiver, session, by, seats)
    seats.session_rate[session] += by * weight
    seats.group_rate[group] += by * weight
    seats.session_flows[session] += by
    seats.group_flows[group] += by


@kernel
def place_flows(
    flows: IndexArray,  # IN  in the order to place them
    offsets: IntArray,  # IN  of the receivers of each
    receivers: IndexArray,  # IN
    weights: IntArray,  # IN  of each
    alpha: float,  # IN
    beta: float,  # IN
    passes: int,  # IN
    session_of: IndexArray,  # IN and OUT
    seats: Any,  # IN and OUT
) -> None:
    """Place new flows one after the other, then ask each again while one of them gains."""
    for _ in range(passes):
        moved = 0
        for i in range(len(flows)):
            own, weight = receivers[offsets[i] : offsets[i + 1]], weights[i]
            here = session_of[flows[i]]
            if here >= 0:
                _put(here, own, weight, -1, seats)
            session, group, price = find_place(own, weight, alpha, beta, seats)
            if here >= 0 and not price < _price_at(here, own, weight, alpha, beta, seats):
                session, group = here, seats.session_group[here]
            seats.session_group[session] = group
            _put(session, own, weight, 1, seats)
            moved += session != here
            session_of[flows[i]] = session
        if not moved:
            return
