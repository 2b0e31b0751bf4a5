"""A plan with the price of each session and group: what estimates of changes to it start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from distributary.cost.loads import Loads, plan_loads, sum_by
from distributary.cost.packets import Prices
from distributary.model import Demand, FloatArray, IndexArray, Plan

__all__ = ["PricedPlan"]


@dataclass(frozen=True, slots=True, eq=False)
class PricedPlan:
    """What a plan's sessions and groups cost each receiver in them, and the weight of those.

    `group_price` is without heartbeats; these go by `group_pauses`.
    """

    plan: Plan
    loads: Loads
    prices: Prices
    weight: FloatArray
    subscribed_weight: FloatArray
    joined_weight: FloatArray
    group_price: FloatArray
    group_pauses: FloatArray

    @classmethod
    def of(cls, plan: Plan, demand: Demand, prices: Prices, weights: FloatArray | None) -> Self:
        """Price each session and group of a plan; `weights` of receivers are 1 unless given."""
        loads = plan_loads(plan, demand)
        weight = np.ones(len(plan.receivers)) if weights is None else weights
        join_receiver, join_group = plan.group_joins()
        groups, rate = plan.session_group, loads.session_rate
        return cls(
            plan=plan,
            loads=loads,
            prices=prices,
            weight=weight,
            subscribed_weight=sum_by(
                plan.subscription_session, weight[plan.subscription_receiver], plan.n_sessions
            ),
            joined_weight=sum_by(join_group, weight[join_receiver], plan.n_groups),
            group_price=sum_by(groups, prices.session_filter(rate), plan.n_groups),
            group_pauses=sum_by(groups, prices.pauses(rate), plan.n_groups),
        )

    def session_change(self, rate: FloatArray) -> FloatArray:
        """For each session, the change of its price to a subscriber at another rate."""
        prices = self.prices
        return prices.flow_filter(rate) - prices.flow_filter(self.loads.session_rate)

    def group_changes(self, session: IndexArray, rate: FloatArray) -> tuple[FloatArray, FloatArray]:
        """For each of these sessions alone, the change of its group's price at another rate.

        The second array is that of the pauses of its group.
        """
        before, prices = self.loads.session_rate[session], self.prices
        return (
            prices.session_filter(rate) - prices.session_filter(before),
            prices.pauses(rate) - prices.pauses(before),
        )

    def price_groups(
        self, group: IndexArray, price_change: FloatArray, pauses_change: FloatArray
    ) -> FloatArray:
        """What a member pays for each of these groups, heartbeats included, after changes."""
        # What is left after a subtraction may be less than 0 by rounding.
        pauses = np.maximum(self.group_pauses[group] + pauses_change, 0.0)
        return self.group_price[group] + price_change + self.prices.heartbeat_price(pauses)
