"""The planner run several times in parallel on executors, each time with another seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.cost import objective_cost
from distributary.errors import InfeasibleError
from distributary.model import Demand
from distributary.planning import Request, plan

__all__ = ["cheapest_seed"]


def cheapest_seed(spark: SparkSession, demand: Demand, request: Request, restarts: int) -> int:
    """The seed with the cheapest plan, of `restarts` seeds from the request's own upwards.

    Executors return the cost of each plan and not the plan, which is large: the same seed gives the
    same plan again.
    """
    known = spark.sparkContext.broadcast((demand, request))
    seeds = spark.range(request.search.seed, request.search.seed + restarts).repartitionById(
        restarts, (F.col("id") - request.search.seed).cast("int")
    )
    priced = seeds.mapInArrow(_make_solver(known), "seed bigint, cost double").toArrow().to_pylist()
    best: int = min(priced, key=lambda row: (row["cost"], row["seed"]))["seed"]
    return best


def _make_solver(known: Broadcast[tuple[Demand, Request]]) -> Callable[..., Any]:
    def solve(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        demand, request = known.value
        for batch in batches:
            seeds = batch.column(0).to_pylist()
            costs = [_price_plan(demand, request.replace(seed=seed)) for seed in seeds]
            yield pa.RecordBatch.from_arrays(
                [pa.array(seeds, pa.int64()), pa.array(costs, pa.float64())], ["seed", "cost"]
            )

    return solve


def _price_plan(demand: Demand, request: Request) -> float:
    """What the plan of a request costs, infinite if none is found: the driver says why."""
    try:
        found = plan(demand, request).plan
    except InfeasibleError:
        return math.inf
    return objective_cost(
        found,
        demand,
        request.search.objective,
        request.prices,
        request.channel,
        request.weigh(demand.interest),
    )
