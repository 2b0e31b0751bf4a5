"""The domain's values: interest, rates and plans; topologies; events and filters."""

from distributary.model.amounts import Amount
from distributary.model.constraints import Constraints, broken_constraints
from distributary.model.demand import UNITS, Demand, Unit, weigh_receivers
from distributary.model.event import Attribute, AttributeKind, Key, Schema, Value
from distributary.model.filter import Box, Filter, covers, equivalent, intersects
from distributary.model.interest import FloatArray, IndexArray, IntArray, Interest, distinct
from distributary.model.limits import Limits, PacketStep
from distributary.model.packing import Packing, packets_per_second
from distributary.model.plan import Plan, Previous, plan_problems
from distributary.model.rates import Rates
from distributary.model.residual import Comparison, Pattern, Residual
from distributary.model.tables import ArrowTable, Pairs, RatesByFlow
from distributary.model.topology import LinkTable, SpanningTree, Topology, VirtualLink
from distributary.model.uses import LimitUse, broken_limits, limit_uses
from distributary.model.values import Values

__all__ = [
    "UNITS",
    "Amount",
    "ArrowTable",
    "Attribute",
    "AttributeKind",
    "Box",
    "Comparison",
    "Constraints",
    "Demand",
    "Filter",
    "FloatArray",
    "IndexArray",
    "IntArray",
    "Interest",
    "Key",
    "LimitUse",
    "Limits",
    "LinkTable",
    "PacketStep",
    "Packing",
    "Pairs",
    "Pattern",
    "Plan",
    "Previous",
    "Rates",
    "RatesByFlow",
    "Residual",
    "Schema",
    "SpanningTree",
    "Topology",
    "Unit",
    "Value",
    "Values",
    "VirtualLink",
    "broken_constraints",
    "broken_limits",
    "covers",
    "distinct",
    "equivalent",
    "intersects",
    "limit_uses",
    "packets_per_second",
    "plan_problems",
    "weigh_receivers",
]
