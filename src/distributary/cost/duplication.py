"""How much excess the flows that travel in several sessions save the receivers of a plan."""

from __future__ import annotations

import numpy as np

from distributary.cost.loads import sum_by
from distributary.cost.packets import Prices, count_for
from distributary.cost.priced import PricedPlan
from distributary.model import Demand, FloatArray, IndexArray, Plan

__all__ = ["duplication_saving", "least_excess_of_one_copy"]


def duplication_saving(
    plan: Plan, demand: Demand, prices: Prices, weights: FloatArray | None = None
) -> float:
    """The increase of the excess if every duplicated flow were in one session only.

    Each flow is priced by itself, exactly, in the one of its sessions where it costs least, with
    everybody who gets it in a session subscribing there and nobody unsubscribing. A new plan would
    suit single copies better: this estimates what the copies save and is not the difference to
    another plan.
    """
    return float(least_excess_of_one_copy(plan, demand, prices, weights).sum())


def least_excess_of_one_copy(
    plan: Plan, demand: Demand, prices: Prices, weights: FloatArray | None = None
) -> FloatArray:
    """For each duplicated flow, ascending: the excess that a single copy of it would add."""
    copies = np.bincount(plan.placement_flow, minlength=len(plan.flows))
    flows = np.flatnonzero(copies > 1)
    if len(flows) == 0:
        return np.zeros(0)
    demand = count_for(demand, prices)
    priced, interest = PricedPlan.of(plan, demand, prices, weights), demand.interest
    heard = _members(plan.subscription_receiver, plan.subscription_session, plan.n_sessions)
    joined = _members(*plan.group_joins(), plan.n_groups)
    added = np.zeros(len(flows))
    for at, flow in enumerate(flows):
        alone = plan.unicast_receiver[plan.unicast_flow == flow]
        audience = np.setdiff1d(interest.receivers_of(int(flow)), alone)
        sessions = plan.placement_session[plan.placement_flow == flow]
        rate = float(demand.rate[flow])
        added[at] = min(
            _excess_of_one(priced, sessions, one, rate)
            + _excess_of_joining(
                priced,
                sessions,
                one,
                rate,
                np.setdiff1d(audience, heard[one]),
                np.setdiff1d(audience, joined[plan.session_group[one]]),
            )
            for one in sessions
        )
    return added


def _excess_of_one(priced: PricedPlan, sessions: IndexArray, one: np.int32, rate: float) -> float:
    """The change of work for those who listen already, if only one of the sessions has the flow."""
    gone = sessions[sessions != one]
    before = priced.loads.session_rate[gone]
    flow_filter, no_change = priced.prices.flow_filter, np.zeros(1)
    groups = np.unique(priced.plan.session_group[gone])
    accepted = flow_filter(np.maximum(before - rate, 0.0)) - flow_filter(before)
    received = _price_without(priced, gone, rate, groups)
    received -= priced.price_groups(groups, no_change, no_change)
    return float(
        priced.subscribed_weight[gone] @ accepted + priced.joined_weight[groups] @ received
    )


def _excess_of_joining(
    priced: PricedPlan,
    sessions: IndexArray,
    one: np.int32,
    rate: float,
    subscribers: IndexArray,
    members: IndexArray,
) -> float:
    """The work of those who must subscribe to the session that is left, and join its group."""
    group = priced.plan.session_group[one : one + 1]
    price = _price_without(priced, sessions[sessions != one], rate, group)
    accepted = priced.prices.flow_filter(priced.loads.session_rate[one : one + 1])
    weight = priced.weight
    return float(weight[subscribers].sum() * accepted[0] + weight[members].sum() * price[0])


def _price_without(
    priced: PricedPlan, gone: IndexArray, rate: float, groups: IndexArray
) -> FloatArray:
    """What a member pays for each of these groups if some sessions carry `rate` less."""
    after = np.maximum(priced.loads.session_rate[gone] - rate, 0.0)
    price, pauses = priced.group_changes(gone, after)
    place, n = priced.plan.session_group[gone], priced.plan.n_groups
    return priced.price_groups(
        groups, sum_by(place, price, n)[groups], sum_by(place, pauses, n)[groups]
    )


def _members(receiver: IndexArray, channel: IndexArray, n_channels: int) -> list[IndexArray]:
    """The receivers of each channel."""
    order = np.argsort(channel, kind="stable")
    ends = np.cumsum(np.bincount(channel, minlength=n_channels))
    return np.split(receiver[order], ends[:-1])
