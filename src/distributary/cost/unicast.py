"""How much work the pairs sent by unicast save the receivers of a plan."""

from __future__ import annotations

import numpy as np

from distributary.cost.loads import sum_by, unicast_rates
from distributary.cost.packets import Prices, count_for
from distributary.cost.priced import PricedPlan
from distributary.model import Demand, FloatArray, IndexArray, Plan

__all__ = ["least_added_excess", "unicast_saving"]


def unicast_saving(
    plan: Plan, demand: Demand, prices: Prices, weights: FloatArray | None = None
) -> float:
    """The excess that the flows sent by unicast would add in sessions of this plan.

    Each flow is priced by itself, exactly, in the session where it adds least, which may be one
    that already carries it for other receivers. Placed together they would interact, and a new plan
    would suit them better: this is a close estimate of what unicast saves and not the difference to
    another plan.
    """
    return float(least_added_excess(plan, demand, prices, weights).sum())


def least_added_excess(
    plan: Plan, demand: Demand, prices: Prices, weights: FloatArray | None = None
) -> FloatArray:
    """For each flow sent by unicast, ascending: the excess it would add in its cheapest session."""
    demand = count_for(demand, prices)
    priced = PricedPlan.of(plan, demand, prices, weights)
    sessions = _Listeners(plan.subscription_receiver, plan.subscription_session, plan.n_sessions)
    groups = _Listeners(*plan.group_joins(), plan.n_groups)
    order = np.argsort(plan.unicast_flow, kind="stable")
    flows, first = np.unique(plan.unicast_flow[order], return_index=True)
    audiences = np.split(plan.unicast_receiver[order], first[1:])
    alone = unicast_rates(plan, demand)
    every = np.arange(plan.n_sessions, dtype=np.int32)
    added = np.zeros(len(flows))
    for at, flow in enumerate(flows):
        audience, rate = audiences[at], float(demand.rate[flow])
        weight = priced.weight[audience]
        carries = np.isin(every, plan.placement_session[plan.placement_flow == flow])
        after = priced.loads.session_rate + np.where(carries, 0.0, rate)
        new_subscribers = weight.sum() - sessions.weigh(audience, weight)
        new_members = (weight.sum() - groups.weigh(audience, weight))[plan.session_group]
        price = priced.price_groups(plan.session_group, *priced.group_changes(every, after))
        before = priced.price_groups(plan.session_group, np.zeros(1), np.zeros(1))
        work = (
            new_subscribers * prices.flow_filter(after)
            + priced.subscribed_weight * priced.session_change(after)
            + new_members * price
            + priced.joined_weight[plan.session_group] * (price - before)
        )
        own = alone[audience]
        saved = prices.stream(own) - prices.stream(np.maximum(own - rate, 0.0))
        added[at] = float(work.min() - saved @ weight)
    return added


class _Listeners:
    """Which channels (sessions or groups) each receiver listens to."""

    def __init__(self, receiver: IndexArray, channel: IndexArray, n_channels: int) -> None:
        self._receiver, self._channel, self._n = receiver, channel, n_channels

    def weigh(self, audience: IndexArray, weight: FloatArray) -> FloatArray:
        """For each channel, the weight of those in the audience who listen to it."""
        first = np.searchsorted(self._receiver, audience, "left")
        last = np.searchsorted(self._receiver, audience, "right")
        heard = [self._channel[a:b] for a, b in zip(first, last, strict=True)]
        return sum_by(np.concatenate(heard), np.repeat(weight, last - first), self._n)
