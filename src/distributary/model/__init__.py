"""The nouns: who wants what, how fast it flows, and the plan that carries it."""

from distributary.model.constraints import Constraints, broken_constraints
from distributary.model.demand import Demand
from distributary.model.interest import FloatArray, IndexArray, IntArray, Interest, distinct
from distributary.model.plan import Plan, Previous, plan_problems
from distributary.model.rates import Rates

__all__ = [
    "Constraints",
    "Demand",
    "FloatArray",
    "IndexArray",
    "IntArray",
    "Interest",
    "Plan",
    "Previous",
    "Rates",
    "broken_constraints",
    "distinct",
    "plan_problems",
]
