"""How much excess the flows sent by unicast save the receivers of a plan."""

from __future__ import annotations

import numpy as np

from distributary.cost.filtering import FilteringPrices
from distributary.cost.loads import plan_loads
from distributary.model import Demand, FloatArray, IndexArray, IntArray, Plan

__all__ = ["least_added_excess", "unicast_saving"]


def unicast_saving(plan: Plan, demand: Demand, prices: FilteringPrices) -> float:
    """The excess that the flows sent by unicast would add in sessions of this plan.

    Each flow is priced by itself, exactly, in the session where it adds least, which may be one
    that already carries it for other receivers. Placed together they would interact, and a new plan
    would suit them better: this is a close estimate of what unicast saves and not the difference to
    another plan.
    """
    return float(least_added_excess(plan, demand, prices).sum())


def least_added_excess(plan: Plan, demand: Demand, prices: FilteringPrices) -> FloatArray:
    """For each unicast flow, ascending: the excess it would add in its cheapest session."""
    loads = plan_loads(plan, demand)
    sessions = _Listeners(plan.subscription_receiver, plan.subscription_session, plan.n_sessions)
    groups = _Listeners(*plan.group_joins(), plan.n_groups)
    order = np.argsort(plan.unicast_flow, kind="stable")
    flows, first = np.unique(plan.unicast_flow[order], return_index=True)
    audiences = np.split(plan.unicast_receiver[order], first[1:])
    placed = np.searchsorted(plan.placement_flow, np.arange(len(plan.flows) + 1))
    added = np.zeros(len(flows))
    for at, flow in enumerate(flows):
        rate, audience = float(demand.rate[flow]), audiences[at]
        by_session, in_same_session = sessions.added_rates(
            audience, rate, loads.session_rate, loads.session_subscribers
        )
        by_group, in_same_group = groups.added_rates(
            audience, rate, loads.group_rate, loads.group_members
        )
        price = prices.beta * by_session + prices.alpha * by_group[plan.session_group]
        own = plan.placement_session[placed[flow] : placed[flow + 1]]  # sessions that carry it
        price[own] = (
            prices.beta * in_same_session[own]
            + prices.alpha * in_same_group[plan.session_group[own]]
        )
        added[at] = float(price.min())
    return added


class _Listeners:
    """Which channels (sessions or groups) each receiver listens to."""

    def __init__(self, receiver: IndexArray, channel: IndexArray, n_channels: int) -> None:
        self._receiver, self._channel, self._n = receiver, channel, n_channels

    def added_rates(
        self, audience: IndexArray, rate: float, carried: FloatArray, listeners: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """For each channel, the unwanted rate that a flow with this audience would add there.

        Members of the audience who do not listen yet would take in what the channel carries;
        listeners outside the audience would take in the flow. The second answer is for a channel
        that carries the flow already: it carries no more than before, and the copies that the
        audience got by unicast go.
        """
        first = np.searchsorted(self._receiver, audience, "left")
        last = np.searchsorted(self._receiver, audience, "right")
        heard = [self._channel[a:b] for a, b in zip(first, last, strict=True)]
        there = np.bincount(np.concatenate(heard), minlength=self._n)
        joining = (len(audience) - there) * carried
        return joining + (listeners - there) * rate, joining - len(audience) * rate
