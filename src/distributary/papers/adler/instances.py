"""Random instances, and the cost of each algorithm's plan on them."""

from __future__ import annotations

import numpy as np

from distributary.cost import ChannelCost, ChannelPrices, channel_cost
from distributary.errors import DistributaryError
from distributary.model import Demand, FloatArray
from distributary.papers.wording import percent
from distributary.planning import Progress, Request, Step, plan
from distributary.workloads import TwoClass, two_class

__all__ = [
    "ACTIVE",
    "BEYOND_CHANCE",
    "BUDGET_S",
    "CHANCE",
    "EQUAL",
    "EXACT",
    "HEURISTICS",
    "MERGES",
    "OURS",
    "QUICK_BUDGET_S",
    "begin_at",
    "draw_instance",
    "lead",
    "price_algorithm",
    "price_ours",
    "rescale",
    "saved",
]

MERGES = ("FBM", "UBM")
CHANCE = ("RAN", "RSE", "RRE")
HEURISTICS = MERGES + CHANCE
EXACT = ("OCC", "OCA")
OURS = "best"

ACTIVE = (
    "Flows that nobody wants and users who want nothing are drawn again until all are active. "
    "Deleting them, as the paper does, would leave fewer flows and users than its figures state."
)

BEYOND_CHANCE = (
    "An algorithm beats another beyond chance if its mean lead over it, instance by instance, is "
    "more than two standard errors."
)

EQUAL = ChannelPrices()  # 1 and 1: the paper's w1 = w2
PATIENCE = 1000.0  # a busy machine must not change a figure
# For ours; a user's plan has 30 s unless told otherwise.
BUDGET_S, QUICK_BUDGET_S = 1.0, 0.05


def draw_instance(params: TwoClass, seed: int, *which: int) -> tuple[Demand, int]:
    """The instance with this number, and a seed for randomised algorithms."""
    rng = np.random.default_rng([seed, *which])
    demand = Demand.of(*two_class(params, rng))
    return demand, int(rng.integers(2**32))


def price_algorithm(
    demand: Demand, algorithm: str, groups: int, seed: int, prices: ChannelPrices = EQUAL
) -> ChannelCost:
    """The cost of the algorithm's plan; exact algorithms must have proven it optimal."""
    solution = plan(demand, Request(groups, algorithm=algorithm, seed=seed, channel=prices))
    if algorithm in EXACT and not solution.proven:
        raise DistributaryError(
            f"{algorithm} ran out of time before it could prove an optimum; "
            "run the figure again when the machine is less busy"
        )
    return channel_cost(solution.plan, demand, prices)


def price_ours(
    demand: Demand,
    groups: int,
    seed: int,
    prices: ChannelPrices = EQUAL,
    *,
    budget_s: float,
) -> ChannelCost:
    """The cost of the plan that our own planner finds in a short time, each flow in one group."""
    request = Request(
        groups,
        algorithm=OURS,
        seed=seed,
        channel=prices,
        objective="channel",
        budget_s=budget_s,
        patience=PATIENCE,
    )
    return channel_cost(plan(demand, request).plan, demand, prices)


def begin_at(progress: Progress, done: int) -> Progress:
    """Report further steps after `done` others."""
    return lambda step: progress(Step(step.stage, done + step.done, done + (step.total or 0)))


def rescale(ours: FloatArray, theirs: FloatArray) -> float:
    """The mean of ours on all instances, from the first ones: theirs times the ratio on those."""
    first = float(theirs[: len(ours)].mean())
    return float(theirs.mean() * ours.mean() / first) if first else float(ours.mean())


def saved(ours: FloatArray, theirs: FloatArray) -> str:
    """By how much ours is below theirs on average, or above."""
    share = 1 - float(ours.mean() / theirs.mean()) if theirs.mean() else 0.0
    return f"{percent(abs(share))} {'less' if share >= 0 else '**more**'}"


def lead(winner: FloatArray, loser: FloatArray) -> FloatArray:
    """The lead of the winner's mean cost in standard errors, column by column.

    Rows are instances. Both algorithms saw the same ones, so the differences are paired.
    """
    ahead = loser - winner
    error = ahead.std(axis=0, ddof=1) / np.sqrt(len(ahead))
    mean, error = np.atleast_1d(ahead.mean(axis=0), error)
    errors: FloatArray = np.divide(mean, error, out=np.zeros_like(error), where=error > 0)
    return errors
