"""The receivers' cost of filtering out messages, in two stages.

Reference: Y. Tock, N. Naaman, A. Harpaz, G. Gershinsky, "Hierarchical Clustering of Message Flows
in a Multicast Data Dissemination System" (2005), eq. 1-4 and section 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from distributary.cost.loads import plan_loads
from distributary.model import Demand, Plan

__all__ = ["FilteringCost", "FilteringPrices", "filtering_cost"]

DEAREST = 1e12  # so that no cost of any demand overflows


@dataclass(frozen=True, slots=True)
class FilteringPrices:
    """`alpha` per message at the session filter, `beta` per message at the flow filter."""

    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        for word, price in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0 <= price <= DEAREST:
                raise ValueError(f"{word} must be a number from 0 to {DEAREST:g}, not {price:g}")
            # Kernels are compiled for one type of price.
            object.__setattr__(self, word, float(price))
        if self.alpha + self.beta == 0:
            raise ValueError("alpha and beta cannot both be 0: nothing would cost anything")

    def work(self, received: float, accepted: float) -> float:
        """Cw: what is received passes the session filter, what is accepted the flow filter."""
        return self.alpha * received + self.beta * accepted

    @classmethod
    def for_packets(
        cls, messages_per_packet: float, *, alpha0: float, alpha1: float, beta0: float, beta1: float
    ) -> Self:
        """The prices at h messages per packet: alpha0 + alpha1/h, beta0 + beta1/h (eq. 2 and 4)."""
        if not messages_per_packet >= 1:
            raise ValueError(f"a packet holds at least 1 message, not {messages_per_packet}")
        h = messages_per_packet
        return cls(alpha0 + alpha1 / h, beta0 + beta1 / h)


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


def filtering_cost(plan: Plan, demand: Demand, prices: FilteringPrices) -> FilteringCost:
    """Price a plan by the work of its receivers' filters."""
    loads = plan_loads(plan, demand)
    price = prices.alpha + prices.beta
    unwanted = len(demand.interest.receivers) - demand.interest.audience
    return FilteringCost(
        session_cost=prices.alpha * float(loads.received.sum()),
        flow_cost=prices.beta * float(loads.accepted.sum()),
        wanted_work=price * float(loads.wanted.sum()),
        flooding_excess=price * float(demand.rate @ unwanted),
    )
