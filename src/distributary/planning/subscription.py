"""Who subscribes to what, once flows are placed: the subscription problem.

Reference: Adler et al. (2001), sections 3.3 and 3.4. With each flow in one session there is no
choice. With duplicated flows it is a set cover with prices: exact where a receiver has few sessions
to choose from, greedy beyond.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributary.cost import FilteringPrices
from distributary.model import Demand, FloatArray, IndexArray, Plan, distinct

__all__ = ["Bill", "channel_bill", "cheapest_cover", "filtering_bill", "place", "place_single"]

EXACT_LIMIT = 20  # sessions to choose from; up to here the cover is proven cheapest


@dataclass(frozen=True, slots=True, eq=False)
class Bill:
    """What a receiver pays to subscribe to each session and to join each group."""

    session: FloatArray
    group: FloatArray


def filtering_bill(
    session_rate: FloatArray, session_group: IndexArray, prices: FilteringPrices
) -> Bill:
    """Price sessions and groups by filtering work: beta per session rate, alpha per group rate."""
    return Bill(prices.beta * session_rate, prices.alpha * _group_rate(session_rate, session_group))


def channel_bill(session_rate: FloatArray, session_group: IndexArray) -> Bill:
    """Price groups by what they carry; sessions cost nothing more."""
    return Bill(np.zeros_like(session_rate), _group_rate(session_rate, session_group))


def _group_rate(session_rate: FloatArray, session_group: IndexArray) -> FloatArray:
    return np.bincount(session_group, weights=session_rate).astype(np.float64, copy=False)


def place_single(demand: Demand, session: IndexArray, session_group: IndexArray) -> Plan:
    """The plan with each flow in one session: a receiver needs exactly its flows' sessions."""
    interest = demand.interest
    n_sessions = len(session_group)
    keys = distinct(
        interest.flow_receivers.astype(np.int64) * n_sessions + session[interest.pair_flows()]
    )
    return Plan(
        receivers=interest.receivers,
        flows=interest.flows,
        placement_flow=np.arange(len(interest.flows), dtype=np.int32),
        placement_session=session.astype(np.int32),
        session_group=session_group.astype(np.int32),
        subscription_receiver=(keys // n_sessions).astype(np.int32),
        subscription_session=(keys % n_sessions).astype(np.int32),
    )


def place(
    demand: Demand,
    placement_flow: IndexArray,
    placement_session: IndexArray,
    session_group: IndexArray,
    bill: Bill,
) -> Plan:
    """The plan with flows in one or more sessions, every receiver on its cheapest cover.

    Placements are pairs in ascending order. Sessions that nobody ends up on are dropped, with the
    placements in them, and the rest is renumbered.
    """
    interest = demand.interest
    bounds = np.searchsorted(placement_flow, np.arange(len(interest.flows) + 1))
    receivers: list[int] = []
    sessions: list[int] = []
    for receiver in range(len(interest.receivers)):
        options = [
            tuple(int(s) for s in placement_session[bounds[flow] : bounds[flow + 1]])
            for flow in interest.flows_of(receiver)
        ]
        cover = cheapest_cover(options, session_group, bill)
        receivers.extend([receiver] * len(cover))
        sessions.extend(cover)
    used, subscribed = np.unique(np.array(sessions, np.int32), return_inverse=True)
    kept = np.isin(placement_session, used)
    return Plan(
        receivers=interest.receivers,
        flows=interest.flows,
        placement_flow=placement_flow[kept],
        placement_session=np.searchsorted(used, placement_session[kept]).astype(np.int32),
        session_group=np.unique(session_group[used], return_inverse=True)[1].astype(np.int32),
        subscription_receiver=np.array(receivers, np.int32),
        subscription_session=subscribed.astype(np.int32),
    )


def cheapest_cover(
    options: list[tuple[int, ...]], session_group: IndexArray, bill: Bill
) -> list[int]:
    """The cheapest sessions that hit every option (a wanted flow's sessions), ascending."""
    # A superset of another option asks for nothing more.
    needs = sorted({frozenset(option) for option in options}, key=lambda o: (len(o), sorted(o)))
    needs = [o for i, o in enumerate(needs) if not any(other < o for other in needs[:i])]
    if all(len(option) == 1 for option in needs):
        return sorted(next(iter(option)) for option in needs)
    choices = frozenset[int]().union(*needs)
    search = _exact_cover if len(choices) <= EXACT_LIMIT else _greedy_cover
    return sorted(search(needs, session_group, bill))


def _added_price(session: int, taken: set[int], session_group: IndexArray, bill: Bill) -> float:
    group = session_group[session]
    joins = all(session_group[other] != group for other in taken)
    return float(bill.session[session] + (bill.group[group] if joins else 0.0))


def _exact_cover(needs: list[frozenset[int]], session_group: IndexArray, bill: Bill) -> set[int]:
    """Branch on the sessions of the first option still unmet, cheapest first."""
    best = _greedy_cover(needs, session_group, bill)
    best_price = _cover_price(best, session_group, bill)

    def descend(taken: set[int], price: float) -> None:
        nonlocal best, best_price
        unmet = next((option for option in needs if not option & taken), None)
        if unmet is None:
            best, best_price = set(taken), price
            return
        priced = sorted(
            (price + _added_price(session, taken, session_group, bill), session)
            for session in unmet
        )
        for next_price, session in priced:
            if next_price < best_price:
                descend(taken | {session}, next_price)

    descend(set(), 0.0)
    return best


def _greedy_cover(needs: list[frozenset[int]], session_group: IndexArray, bill: Bill) -> set[int]:
    """Take the session with the least price per option met, then drop what became needless."""
    taken: set[int] = set()
    unmet = list(needs)
    while unmet:
        session = min(
            sorted(frozenset[int]().union(*unmet)),
            key=lambda s: (
                _added_price(s, taken, session_group, bill) / sum(s in option for option in unmet)
            ),
        )
        taken.add(session)
        unmet = [option for option in unmet if session not in option]
    dearest_first = sorted(taken, key=lambda s: (-_added_price(s, set(), session_group, bill), s))
    for session in dearest_first:
        if all(option & (taken - {session}) for option in needs):
            taken.remove(session)
    return taken


def _cover_price(taken: set[int], session_group: IndexArray, bill: Bill) -> float:
    groups = {int(session_group[session]) for session in taken}
    return float(sum(bill.session[s] for s in taken) + sum(bill.group[g] for g in groups))
