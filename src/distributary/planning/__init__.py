"""Solvers: from interest and rates to a plan."""

from distributary.planning.bounds import Bound, lower_bound
from distributary.planning.hierarchy import Annealing
from distributary.planning.interruptible import SEARCH_THREAD
from distributary.planning.make import MadePlan, bound_plan, make_plan, price_solution
from distributary.planning.moves import BY_UNICAST, Move, count_moved, moves_between
from distributary.planning.pair_map import PairMap, decode_pairs
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.request import (
    ALGORITHMS,
    DEFAULT_ALGORITHM,
    Algorithm,
    Change,
    Request,
    RequestSettings,
    Search,
    Size,
    Terms,
)
from distributary.planning.running_plan import Place, PlanStep, RunningCost, RunningPlan
from distributary.planning.solve import Solution, plan
from distributary.planning.study import Compared, CurvePoint, compare_algorithms, cost_curve
from distributary.planning.subscription import place_shared, place_single
from distributary.planning.terms import UnicastLimits
from distributary.planning.with_terms import has_terms

__all__ = [
    "ALGORITHMS",
    "BY_UNICAST",
    "DEFAULT_ALGORITHM",
    "SEARCH_THREAD",
    "Algorithm",
    "Annealing",
    "Bound",
    "Change",
    "Compared",
    "CurvePoint",
    "MadePlan",
    "Move",
    "PairMap",
    "Place",
    "PlanStep",
    "Progress",
    "Request",
    "RequestSettings",
    "RunningCost",
    "RunningPlan",
    "Search",
    "Size",
    "Solution",
    "Step",
    "Terms",
    "UnicastLimits",
    "bound_plan",
    "compare_algorithms",
    "cost_curve",
    "count_moved",
    "decode_pairs",
    "has_terms",
    "lower_bound",
    "make_plan",
    "moves_between",
    "place_shared",
    "place_single",
    "plan",
    "price_solution",
    "silent",
]
