"""The cost of a plan from five sums alone, when the pairs of interest do not fit in memory."""

from __future__ import annotations

from dataclasses import dataclass

from distributary.cost.channel import ChannelCost
from distributary.cost.filtering import FilteringCost
from distributary.cost.packets import Prices

__all__ = ["Totals"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Messages per second over all receivers, under a plan that sends each flow once.

    `received` is what they get from groups, `accepted` from sessions, `wanted` what they asked
    for; `sent` is what the sender sends.
    """

    receivers: int
    received: float
    accepted: float
    wanted: float
    sent: float

    def filtering(self, prices: Prices) -> FilteringCost:
        """The filtering cost; equal to that of `filtering_cost`.

        Sums over all sessions do not tell how full each one's packets are: they count as full.
        """
        price = prices.alpha + prices.beta
        return FilteringCost(
            session_cost=prices.alpha * self.received,
            flow_cost=prices.beta * self.accepted,
            wanted_work=price * self.wanted,
            flooding_excess=price * (self.receivers * self.sent - self.wanted),
        )

    def channel(self) -> ChannelCost:
        """The channel cost at prices of 1; equal to that of `channel_cost`."""
        return ChannelCost(
            received=self.received,
            sent=self.sent,
            lower_bound=self.wanted + self.sent,
            flooding=self.sent * (1 + self.receivers),
        )
