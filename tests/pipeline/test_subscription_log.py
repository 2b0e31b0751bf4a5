"""The log that receivers write is the one that the pipeline reads, and plans made by it serve."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, count
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from distributary.delivery.udp.subscription_log import SubscriptionLog
from distributary.files import write_plan
from distributary.model import Demand, Interest
from distributary.pipeline.ingest import read_subscriptions
from distributary.pipeline.interest import interest_of, last_actions
from distributary.planning import place_single
from tests.delivery.machines import simple_plan
from tests.delivery.udp.namespace import Worker, working


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    yield from working()


def read_pairs(spark: SparkSession, log: Path) -> list[tuple[str, str]]:
    """Who wants what by the log, as the pipeline reads it; every row has to be usable."""
    found = read_subscriptions(spark, str(log))
    assert found.quarantined.count() == 0
    rows = interest_of(last_actions(found.used)).collect()
    return sorted((row["receiver"], row["flow"]) for row in rows)


def test_flows_in_the_log_are_served_as_soon_as_a_plan_is_made_of_it(
    spark: SparkSession, worker: Worker, tmp_path: Path
) -> None:
    write_plan(simple_plan([0], [0]), {}, tmp_path / "plan")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            worker.run, "flows_that_a_plan_of_the_log_brings", str(tmp_path), "log"
        )
        while not (tmp_path / "ready").exists() and not running.done():
            time.sleep(0.01)
        if not running.done():
            interest = Interest.from_pairs(read_pairs(spark, tmp_path / "log"))
            n = len(interest.flows)
            demand = Demand(interest, np.ones(n), np.ones(n))
            plan = place_single(demand, np.zeros(n, np.int32), np.zeros(1, np.int32))
            write_plan(plan, {}, tmp_path / "plan")
        running.result()


@pytest.mark.parametrize("name", ["log", "log.jsonl"])
def test_the_last_action_of_each_receiver_and_flow_counts(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    clock = chain([5_000_000_000, 5_000_000_000, 1_000_000_000], count(6_000_000_000))
    logs = [
        SubscriptionLog(tmp_path / name, receiver, pytest.fail, clock=lambda: next(clock))
        for receiver in ("ann", "bob")
    ]
    logs[0].subscribe(["x", "y"])
    logs[0].unsubscribe(["x"])  # at the same time by the clock
    logs[0].subscribe(["x"])  # and before that, since the clock stepped back
    logs[0].subscribe(["x"])  # not again
    logs[1].want(["x", "z", 'q"'])
    logs[1].want(["z", "y"])
    assert read_pairs(spark, tmp_path / name) == [
        ("ann", "x"),
        ("ann", "y"),
        ("bob", "y"),
        ("bob", "z"),
    ]
