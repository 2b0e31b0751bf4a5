"""The nouns: who wants what, how fast it flows, the plan that carries it; events and filters."""

from distributary.model.constraints import Constraints, broken_constraints
from distributary.model.demand import Demand
from distributary.model.event import Attribute, Key, Kind, Schema, Value
from distributary.model.filter import Box, Filter, covers, equivalent, intersects
from distributary.model.interest import FloatArray, IndexArray, IntArray, Interest, distinct
from distributary.model.plan import Plan, Previous, plan_problems
from distributary.model.rates import Rates
from distributary.model.topology import LinkTable, Topology, Tree, VirtualLink
from distributary.model.values import Values

__all__ = [
    "Attribute",
    "Box",
    "Constraints",
    "Demand",
    "Filter",
    "FloatArray",
    "IndexArray",
    "IntArray",
    "Interest",
    "Key",
    "Kind",
    "LinkTable",
    "Plan",
    "Previous",
    "Rates",
    "Schema",
    "Topology",
    "Tree",
    "Value",
    "Values",
    "VirtualLink",
    "broken_constraints",
    "covers",
    "distinct",
    "equivalent",
    "intersects",
    "plan_problems",
]
