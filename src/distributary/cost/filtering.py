"""The receivers' cost of filtering out messages, in two stages.

Reference: Y. Tock, N. Naaman, A. Harpaz, G. Gershinsky, "Hierarchical Clustering of Message Flows
in a Multicast Data Dissemination System" (2005), eq. 1-4 and section 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributary.cost.loads import Loads, plan_loads, sum_by, unicast_rates
from distributary.cost.packets import PacketPrices, Prices
from distributary.model import Demand, FloatArray, Plan

__all__ = ["FilteringCost", "filtering_cost"]

_ROUNDING = 1e-12  # relative, of sums in different orders


@dataclass(frozen=True, slots=True)
class FilteringCost:
    """The filtering work of all receivers together, per second.

    `session_cost` is C1, `flow_cost` C2. `wanted_work` is the work for the wanted flows alone: the
    work under unicast, or with a group for every flow, and a lower bound for any plan.
    `flooding_excess` is Cf, the excess when everybody receives every wanted flow.
    """

    session_cost: float
    flow_cost: float
    wanted_work: float
    flooding_excess: float

    @property
    def work(self) -> float:
        """Cw = C1 + C2."""
        return self.session_cost + self.flow_cost

    @property
    def excess(self) -> float:
        """Cx: the work beyond that for the wanted flows alone."""
        return self.work - self.wanted_work

    @property
    def flooding_work(self) -> float:
        """The work when everybody receives every wanted flow."""
        return self.wanted_work + self.flooding_excess

    @property
    def relative_excess(self) -> float:
        """Cx / Cf: 0 is perfect, 1 is flooding. 0 if even flooding wastes nothing."""
        return self.excess / self.flooding_excess if self.flooding_excess > 0 else 0.0

    @property
    def saved_share(self) -> float:
        """1 - Cx / Cf: the share of flooding's excess that the plan avoids."""
        return 1 - self.relative_excess


def filtering_cost(
    plan: Plan, demand: Demand, prices: Prices, weights: FloatArray | None = None
) -> FilteringCost:
    """Price a plan by the work of its receivers' filters.

    With `weights`, the work of receiver j counts `weights[j]` times.
    """
    if isinstance(prices, PacketPrices):
        return _price_packets(plan, demand, prices, weights)
    loads = plan_loads(plan, demand)
    price = prices.alpha + prices.beta
    if weights is None:
        unwanted = len(demand.interest.receivers) - demand.interest.audience
        return FilteringCost(
            session_cost=prices.alpha * float(loads.received.sum()),
            flow_cost=prices.beta * float(loads.accepted.sum()),
            wanted_work=price * float(loads.wanted.sum()),
            flooding_excess=price * float(demand.rate @ unwanted),
        )
    interest = demand.interest
    wanting = sum_by(interest.pair_flows(), weights[interest.flow_receivers], len(demand.rate))
    return FilteringCost(
        session_cost=prices.alpha * float(loads.received @ weights),
        flow_cost=prices.beta * float(loads.accepted @ weights),
        wanted_work=price * float(loads.wanted @ weights),
        flooding_excess=price * float(demand.rate @ _subtract(weights.sum(), wanting)),
    )


def _subtract(whole: FloatArray | np.float64, part: FloatArray) -> FloatArray:
    """The rest, which is 0 where it is no more than the rounding of two sums."""
    rest = whole - part
    return np.where(rest > _ROUNDING * part, rest, 0.0)


def _price_packets(
    plan: Plan, demand: Demand, prices: PacketPrices, weights: FloatArray | None
) -> FilteringCost:
    """Price a plan by messages and packets, whatever unit the demand counts in.

    No plan needs less than a stream for each receiver that carries just what it wants, without
    heartbeats: a session that carries more has as many packets or more, and so have two sessions
    instead of one.
    """
    demand = demand.count_in("messages")
    loads = plan_loads(plan, demand)
    weight = np.ones(len(plan.receivers)) if weights is None else weights
    total = np.array([demand.rate.sum()])
    wanted = prices.session_filter(loads.wanted) + prices.flow_filter(loads.wanted)
    return FilteringCost(
        session_cost=float(_session_work(plan, demand, loads, prices) @ weight),
        flow_cost=float(_flow_work(plan, demand, loads, prices) @ weight),
        wanted_work=float(wanted @ weight),
        flooding_excess=float(_subtract(prices.stream(total), wanted) @ weight),
    )


def _session_work(plan: Plan, demand: Demand, loads: Loads, prices: Prices) -> FloatArray:
    """The work of each receiver's session filter, heartbeats included."""
    groups, rate = plan.session_group, loads.session_rate
    price = sum_by(groups, prices.session_filter(rate), plan.n_groups)
    price += prices.heartbeat_price(sum_by(groups, prices.pauses(rate), plan.n_groups))
    receiver, group = plan.group_joins()
    alone = unicast_rates(plan, demand)
    beats = prices.heartbeat_price(prices.pauses(alone))
    return (
        sum_by(receiver, price[group], len(plan.receivers))
        + prices.session_filter(alone)
        + np.where(alone > 0, beats, 0.0)
    )


def _flow_work(plan: Plan, demand: Demand, loads: Loads, prices: Prices) -> FloatArray:
    """The work of each receiver's flow filter."""
    price = prices.flow_filter(loads.session_rate)
    in_sessions = price[plan.subscription_session]
    return sum_by(plan.subscription_receiver, in_sessions, len(plan.receivers)) + (
        prices.flow_filter(unicast_rates(plan, demand))
    )
