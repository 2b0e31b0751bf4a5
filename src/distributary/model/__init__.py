"""The nouns: who wants what, how fast it flows, and the plan that carries it."""

from distributary.model.demand import Demand
from distributary.model.interest import FloatArray, IndexArray, IntArray, Interest, distinct
from distributary.model.plan import Plan, Previous, plan_problems
from distributary.model.rates import Rates

__all__ = [
    "Demand",
    "FloatArray",
    "IndexArray",
    "IntArray",
    "Interest",
    "Plan",
    "Previous",
    "Rates",
    "distinct",
    "plan_problems",
]
