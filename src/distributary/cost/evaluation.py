"""The complete evaluation of a plan, recomputed from the plan and the demand alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from distributary.cost.channel import ChannelCost, ChannelPrices, channel_cost
from distributary.cost.duplication import duplication_saving
from distributary.cost.filtering import FilteringCost, filtering_cost
from distributary.cost.loads import Loads, plan_loads
from distributary.cost.operating import OperatingCost, OperatingPrices, plan_operating_cost
from distributary.cost.packets import Prices
from distributary.cost.prices import FilteringPrices
from distributary.cost.unicast import unicast_saving
from distributary.model import Demand, FloatArray, Plan, Unit, plan_problems

__all__ = ["Evaluation", "Objective", "evaluate", "objective_cost"]

Objective = Literal["filtering", "channel"]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Whether the plan is valid, what it costs, and who carries how much.

    Costs are in the unit that the demand counts in (`count`); `loads` are in messages and, where
    the sizes of messages are known, `byte_loads` in bytes. `unicast_channel_cost` is the channel
    cost if each receiver is sent just what it wants, by itself.
    `unicast_copies` is the mean number of copies that a sender without multicast would send per
    message; `goodput` the share of received messages that were asked for, under this plan and when
    everybody receives everything. `unicast_flows` are sent by unicast over `unicast_links`;
    `unicast_saving` is the filtering excess that they would add in sessions of this plan, each
    priced by itself (see `cost.unicast`), and `duplication_saving` the excess that the
    `duplicated_flows` would add with one copy each (see `cost.duplication`).
    """

    receivers: int
    flows: int
    sessions: int
    groups: int
    duplicated_flows: int
    problems: tuple[str, ...]
    filtering: FilteringCost
    channel: ChannelCost
    operating: OperatingCost
    loads: Loads
    byte_loads: Loads | None
    count: Unit
    unicast_channel_cost: float
    unicast_copies: float
    goodput: float
    flooding_goodput: float
    unicast_flows: int
    unicast_links: int
    unicast_saving: float
    duplication_saving: float

    @property
    def valid(self) -> bool:
        """Whether every wanted pair is served and no session or group is empty."""
        return not self.problems


def evaluate(
    plan: Plan,
    demand: Demand,
    filtering: Prices | None = None,
    channel: ChannelPrices | None = None,
    operating: OperatingPrices | None = None,
    weights: FloatArray | None = None,
) -> Evaluation:
    """Check a plan and price it under all three models.

    With `weights`, the work of receiver j and what it receives count `weights[j]` times; loads
    stay as they are, and so does the operating cost.
    """
    filtering = filtering or FilteringPrices()
    channel = channel or ChannelPrices()
    messages = demand.count_in("messages")
    loads = plan_loads(plan, messages)
    wanted, sent = float(loads.wanted.sum()), float(messages.rate.sum())
    received = float(loads.received.sum())
    in_bytes = None if demand.size is None else plan_loads(plan, demand.count_in("bytes"))
    counted = demand.wanted_rate
    weighted = counted.sum() if weights is None else counted @ weights
    return Evaluation(
        receivers=len(plan.receivers),
        flows=len(plan.flows),
        sessions=plan.n_sessions,
        groups=plan.n_groups,
        duplicated_flows=plan.duplicated_flows,
        problems=plan_problems(plan, demand.interest),
        filtering=filtering_cost(plan, demand, filtering, weights),
        channel=channel_cost(plan, demand, channel, weights=weights),
        operating=plan_operating_cost(plan, messages, operating or OperatingPrices()),
        loads=loads,
        byte_loads=in_bytes,
        count=demand.unit,
        unicast_channel_cost=float(channel.received * weighted + channel.sent * counted.sum()),
        unicast_copies=wanted / sent,
        goodput=wanted / received if received else 0.0,
        flooding_goodput=wanted / (sent * len(plan.receivers)),
        unicast_flows=plan.unicast_flows,
        unicast_links=loads.unicast_links,
        unicast_saving=unicast_saving(plan, demand, filtering, weights),
        duplication_saving=duplication_saving(plan, demand, filtering, weights),
    )


def objective_cost(
    plan: Plan,
    demand: Demand,
    objective: Objective,
    prices: Prices,
    channel: ChannelPrices | None = None,
    weights: FloatArray | None = None,
) -> float:
    """The one cost that plans are compared by: the filtering work, or the channel cost."""
    if objective == "filtering":
        return filtering_cost(plan, demand, prices, weights).work
    return channel_cost(plan, demand, channel or ChannelPrices(), weights=weights).cost
