"""Random instances, and the cost of each algorithm's plan on them."""

from __future__ import annotations

import numpy as np

from distributary.cost import ChannelCost, ChannelPrices, channel_cost
from distributary.errors import DistributaryError
from distributary.model import Demand, FloatArray
from distributary.planning import Request, plan
from distributary.workloads import TwoClass, two_class

__all__ = [
    "ACTIVE",
    "BEYOND_CHANCE",
    "CHANCE",
    "EXACT",
    "HEURISTICS",
    "MERGES",
    "draw_instance",
    "lead",
    "price_algorithm",
]

MERGES = ("FBM", "UBM")
CHANCE = ("RAN", "RSE", "RRE")
HEURISTICS = MERGES + CHANCE
EXACT = ("OCC", "OCA")

ACTIVE = (
    "Flows that nobody wants and users who want nothing are drawn again until all are active. "
    "Deleting them, as the paper does, would leave fewer flows and users than its figures state."
)

BEYOND_CHANCE = (
    "An algorithm beats another beyond chance if its mean lead over it, instance by instance, is "
    "more than two standard errors."
)

_PRICES = ChannelPrices()  # 1 and 1: the paper's w1 = w2


def draw_instance(params: TwoClass, seed: int, *which: int) -> tuple[Demand, int]:
    """The instance with this number, and a seed for randomised algorithms."""
    rng = np.random.default_rng([seed, *which])
    demand = Demand.of(*two_class(params, rng))
    return demand, int(rng.integers(2**32))


def price_algorithm(demand: Demand, algorithm: str, groups: int, seed: int) -> ChannelCost:
    """The cost of the algorithm's plan; exact algorithms must have proven it optimal."""
    solution = plan(demand, Request(groups, algorithm=algorithm, seed=seed))
    if algorithm in EXACT and not solution.proven:
        raise DistributaryError(
            f"{algorithm} ran out of time before it could prove an optimum; "
            "run the figure again when the machine is less busy"
        )
    return channel_cost(solution.plan, demand, _PRICES)


def lead(winner: FloatArray, loser: FloatArray) -> FloatArray:
    """The lead of the winner's mean cost in standard errors, column by column.

    Rows are instances. Both algorithms saw the same ones, so the differences are paired.
    """
    ahead = loser - winner
    error = ahead.std(axis=0, ddof=1) / np.sqrt(len(ahead))
    mean, error = np.atleast_1d(ahead.mean(axis=0), error)
    errors: FloatArray = np.divide(mean, error, out=np.zeros_like(error), where=error > 0)
    return errors
