"""The cost of what a plan makes the network send and the receivers receive.

Reference: M. Adler, Z. Ge, J. Kurose, D. Towsley, S. Zabele, "Channelization Problem in Large Scale
Data Dissemination" (2001), sections 2.2 and 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributary.cost.loads import plan_loads
from distributary.model import Demand, FloatArray, Plan

__all__ = ["ChannelCost", "ChannelPrices", "channel_cost"]


@dataclass(frozen=True, slots=True)
class ChannelPrices:
    """`received` (w1) per message received, `sent` (w2) per message sent, counting each copy.

    Both default to 1, as in section 5.1: the paper's w1 = w2, times two.
    """

    received: float = 1.0
    sent: float = 1.0

    def __post_init__(self) -> None:
        for word, price in (("received", self.received), ("sent", self.sent)):
            if not 0 <= price < float("inf"):
                raise ValueError(f"{word} must be a finite number of at least 0, not {price}")


@dataclass(frozen=True, slots=True)
class ChannelCost:
    """`lower_bound` is C_inf, the cost with a group per flow; `flooding` that with one group."""

    received: float
    sent: float
    lower_bound: float
    flooding: float

    @property
    def cost(self) -> float:
        """C: received and sent messages, each at its price."""
        return self.received + self.sent

    @property
    def overhead(self) -> float:
        """C - C_inf."""
        return self.cost - self.lower_bound


def channel_cost(
    plan: Plan,
    demand: Demand,
    prices: ChannelPrices,
    coefficients: FloatArray | None = None,
    weights: FloatArray | None = None,
) -> ChannelCost:
    """Price a plan by messages sent and received, in groups and by unicast.

    `coefficients[j, i]` (receivers x flows) scales what receiver j pays for flow i, for example by
    the length of the path; without it every receiver pays the same. `weights[j]` scales all that
    receiver j receives.
    """
    interest, rate, loads = demand.interest, demand.rate, plan_loads(plan, demand)
    if weights is not None and coefficients is not None:
        coefficients = coefficients * weights[:, np.newaxis]
    if coefficients is None and weights is not None:
        received = float(loads.received @ weights)
        wanted = float(loads.wanted @ weights)
        flooded = float(rate.sum()) * float(weights.sum())
    elif coefficients is None:
        received = float(loads.received.sum())
        wanted = float(loads.wanted.sum())
        flooded = float(rate.sum()) * len(interest.receivers)
    else:
        if coefficients.shape != (len(interest.receivers), len(interest.flows)):
            raise ValueError("coefficients must be receivers x flows")
        priced = coefficients * rate
        received = _price_received(plan, priced)
        wanted = float(priced[interest.flow_receivers, interest.pair_flows()].sum())
        flooded = float(priced.sum())
    sent_once = prices.sent * float(rate.sum())
    return ChannelCost(
        received=prices.received * received,
        sent=prices.sent * (float(rate[plan.placement_flow].sum()) + loads.unicast_rate),
        lower_bound=prices.received * wanted + sent_once,
        flooding=prices.received * flooded + sent_once,
    )


def _price_received(plan: Plan, priced: FloatArray) -> float:
    by_group = np.zeros((len(plan.receivers), plan.n_groups))
    placement_group = plan.session_group[plan.placement_session]
    np.add.at(by_group.T, placement_group, priced.T[plan.placement_flow])
    unicast = priced[plan.unicast_receiver, plan.unicast_flow]
    return float(by_group[plan.group_joins()].sum() + unicast.sum())
