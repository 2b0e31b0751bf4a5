"""Three cost models, and one evaluation of a plan under all of them."""

from distributary.cost.channel import ChannelCost, ChannelPrices, channel_cost
from distributary.cost.duplication import duplication_saving, least_excess_of_one_copy
from distributary.cost.evaluation import Evaluation, Objective, evaluate, objective_cost
from distributary.cost.filtering import FilteringCost, filtering_cost
from distributary.cost.loads import Loads, plan_loads
from distributary.cost.operating import (
    Cluster,
    OperatingCost,
    OperatingPrices,
    operating_cost,
    plan_operating_cost,
)
from distributary.cost.packets import PacketPrices, Prices, count_for
from distributary.cost.prices import FilteringPrices
from distributary.cost.totals import Totals
from distributary.cost.unicast import least_added_excess, unicast_saving

__all__ = [
    "ChannelCost",
    "ChannelPrices",
    "Cluster",
    "Evaluation",
    "FilteringCost",
    "FilteringPrices",
    "Loads",
    "Objective",
    "OperatingCost",
    "OperatingPrices",
    "PacketPrices",
    "Prices",
    "Totals",
    "channel_cost",
    "count_for",
    "duplication_saving",
    "evaluate",
    "filtering_cost",
    "least_added_excess",
    "least_excess_of_one_copy",
    "objective_cost",
    "operating_cost",
    "plan_loads",
    "plan_operating_cost",
    "unicast_saving",
]
