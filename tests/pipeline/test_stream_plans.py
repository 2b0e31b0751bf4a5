"""The versions of a plan that a stream publishes, and what its history says of them."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from distributary.cli.stream import _batch_line
from distributary.cost import FilteringCost, evaluate
from distributary.files import read_plan
from distributary.model import (
    Constraints,
    Demand,
    Interest,
    Limits,
    Rates,
    broken_constraints,
    plan_problems,
)
from distributary.pipeline.ledger import LedgerState
from distributary.pipeline.stream import StreamHooks, stream
from distributary.planning import Request

from .stream_logs import START, Row, publication, subscription, write
from .stream_outcome import history, stored_rates
from .stream_process import Checks, check_batches, small_job

pytestmark = pytest.mark.usefixtures("small_slices")


def put_logs(folder: Path, number: int, subscribing: list[Row], messages: dict[int, int]) -> None:
    """The files of a batch: its subscriptions, and so many messages of each flow."""
    at = START + timedelta(minutes=10 * number)
    write(folder / "subscriptions" / f"{number}.csv", subscribing, at)
    publishing = [publication(at, f"f{flow}") for flow in messages for _ in range(messages[flow])]
    write(folder / "publications" / f"{number}.parquet", publishing, at)


def test_newcomers_are_served_at_once_and_no_change_is_no_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = [(f"r{r}", f"f{f}") for r in range(6) for f in range(8) if (r + f) % 3 == 0]
    at = START + timedelta(minutes=20)
    gone = [subscription(at, r, f, "unsubscribe") for r, f in names if f == "f2"]
    first = [subscription(START, *pair) for pair in names]
    arriving = [first, first[:1], [subscription(at, "ann", "new"), *gone]]
    for number, subscribing in enumerate(arriving):
        put_logs(tmp_path, number, subscribing, dict.fromkeys(range(8), 3))
    job = small_job(tmp_path, drift=10.0)

    def check() -> Checks:
        for _ in range(2):
            state = yield
            assert state.version == 1
        assert history(job)[-1]["drift"] == pytest.approx(0)
        state = yield
        assert state.version == 2

    check_batches(spark, job, check())
    placed = {
        row["flow"]: row["session"]
        for row in pq.read_table(job.out / "plan" / "placements.parquet").to_pylist()
    }
    heard = pq.read_table(job.out / "plan" / "subscriptions.parquet").to_pylist()
    assert "f2" not in placed
    assert {row["session"] for row in heard if row["receiver"] == "ann"} == {placed["new"]}
    line = history(job)[-1]
    assert (line["moves"], line["new"]) == (0, 1)
    # The plan was completed, and is as old as before.
    assert (line["age_batches"], line["age_s"]) == (2, 1200)


def test_the_history_says_how_old_the_plan_is_and_what_moving_flows_saved(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Three circles of receivers in two groups: the two that publish least share one."""
    pairs = [(f"r{r}", f"f{f}") for r in range(6) for f in range(8) if (r + f) % 3 == 0]
    by_circle = [
        {0: 90, 1: 2, 2: 3},
        {0: 90, 1: 2, 2: 9},
        {0: 1, 1: 2, 2: 900},
        {0: 1, 1: 4, 2: 900},
    ]
    for number, messages in enumerate(by_circle):
        at = START + timedelta(minutes=10 * number)
        subscribing = [subscription(at, *pair) for pair in pairs]
        put_logs(tmp_path, number, subscribing, {f: messages[f % 3] for f in range(8)})
    job, states = small_job(tmp_path, max_moves=8), list[LedgerState]()
    stream(spark, job, StreamHooks(show=states.append))
    del states[0]  # of the start

    def cost_of(version: int, state: LedgerState) -> FilteringCost:
        rates = stored_rates(job, state)
        demand = Demand.of(Interest.from_pairs(pairs), Rates.from_mapping(rates))
        return evaluate(read_plan(job.out / "plans" / f"{version:06d}").plan, demand).filtering

    made, kept, moved, left = history(job)
    first, second = (cost_of(version, states[2]) for version in (made["version"], moved["version"]))
    assert first.excess > second.excess
    assert (moved["moves"] > 0, kept["moves"], left["moves"]) == (True, 0, 0)
    assert moved["saved"] == pytest.approx(first.excess - second.excess)
    assert moved["saved_share"] == pytest.approx((first.excess - second.excess) / first.work)
    now, reference = cost_of(left["version"], states[3]), second.relative_excess
    drift_cost = now.excess - reference * now.flooding_excess
    assert left["drift_cost"] == pytest.approx(drift_cost)
    assert left["drift_share"] == pytest.approx(drift_cost / now.work)
    assert drift_cost != pytest.approx(0)
    ages = [(line["age_batches"], line["age_s"]) for line in (made, kept, moved, left)]
    assert ages == [(0, 0), (1, 600), (0, 0), (1, 600)]
    assert [line["saved"] for line in (made, kept, left)] == [None, None, moved["saved"]]


def test_limits_hold_in_every_version_and_one_that_cannot_is_not_put_in_force(
    spark: SparkSession, tmp_path: Path
) -> None:
    within = Constraints(Limits(group_members=2, receiver_groups=1))
    request = Request(groups=2, constraints=within, budget_s=0.01, patience=math.inf)
    wanted = {("r0", "f0"), ("r1", "f0"), ("r2", "f1"), ("r3", "f1")}
    arriving = [
        [(*pair, "subscribe") for pair in sorted(wanted)],
        [("r4", "f0", "subscribe")],  # three receivers of one flow
        [("r0", "f0", "unsubscribe")],
    ]
    for number, changes in enumerate(arriving):
        at = START + timedelta(minutes=10 * number)
        put_logs(tmp_path, number, [subscription(at, *one) for one in changes], {0: 1, 1: 1})
    job = small_job(tmp_path, request=request)

    def check_plan(wants: set[tuple[str, str]]) -> None:
        interest = Interest.from_pairs(sorted(wants))
        kept = read_plan(job.out / "plan", interest).plan
        assert plan_problems(kept, interest) == ()
        assert broken_constraints(kept, Demand(interest, np.ones(2)), within) == ()

    def check() -> Checks:
        state = yield
        assert state.version == 1
        check_plan(wanted)
        state = yield
        assert state.version == 1
        check_plan(wanted)
        line = history(job)[-1]
        assert line["refused"].startswith("infeasible: ")
        assert (line["unserved"], line["version"], line["excess"]) == (1, 1, None)
        assert state.unserved is not None
        unserved = pq.read_table(job.out / "state" / state.unserved)
        assert unserved.to_pylist() == [{"receiver": "r4", "flow": "f0"}]
        assert f"version 1 stays: {line['refused']}; 1 wanted pairs" in _batch_line(line, 0.1)
        state = yield
        assert state.version == 2
        check_plan(wanted - {("r0", "f0")} | {("r4", "f0")})
        assert "refused" not in history(job)[-1]
        assert state.unserved is None

    check_batches(spark, job, check())
