"""The planner run several times side by side over executors, each with a seed of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.cost import channel_cost, filtering_cost
from distributary.cost.channel import ChannelPrices
from distributary.model import Demand
from distributary.planning import Request, Solution, plan

__all__ = ["plan_with_restarts"]


def plan_with_restarts(
    spark: SparkSession, demand: Demand, request: Request, restarts: int
) -> tuple[Solution, int]:
    """The cheapest plan of so many seeds, from the request's on; and which seed that was.

    Executors send back what each plan costs; the best one is then made again here: plans are large
    and the same seed gives the same one.
    """
    known = spark.sparkContext.broadcast((demand, request))
    seeds = spark.range(request.search.seed, request.search.seed + restarts).repartitionById(
        restarts, (F.col("id") - request.search.seed).cast("int")
    )
    priced = seeds.mapInArrow(_planning(known), "seed bigint, cost double").toArrow().to_pylist()
    best = min(priced, key=lambda row: (row["cost"], row["seed"]))["seed"]
    return plan(demand, request.replace(seed=best)), best


def _planning(known: Broadcast[tuple[Demand, Request]]) -> Callable[..., Any]:
    def solve(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        demand, request = known.value
        for batch in batches:
            seeds = batch.column(0).to_pylist()
            costs = [_cost(demand, request.replace(seed=seed)) for seed in seeds]
            yield pa.RecordBatch.from_arrays(
                [pa.array(seeds, pa.int64()), pa.array(costs, pa.float64())], ["seed", "cost"]
            )

    return solve


def _cost(demand: Demand, request: Request) -> float:
    found = plan(demand, request).plan
    if request.search.objective == "channel":
        return channel_cost(found, demand, ChannelPrices()).cost
    return filtering_cost(found, demand, request.prices).work
