from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from distributary.cost import evaluate
from distributary.model import Demand, plan_problems
from distributary.pipeline import distributed, first_plan, flow_store
from distributary.pipeline.distributed import DistributedPlan, plan_on_executors
from distributary.planning import Request, Step
from distributary.workloads import TwoClass, two_class

REQUEST = Request(groups=24, sessions=48, seed=3)


@pytest.fixture(scope="module")
def demand() -> Demand:
    params = TwoClass(flows=300, receivers=40, fast_share=0.3, want_unpopular=0.15)
    return Demand.of(*two_class(params, np.random.default_rng(5)))


@pytest.fixture(scope="module", autouse=True)
def _small_steps() -> Iterator[None]:
    """A sample of a part of the flows, placed in several buckets, in few rounds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_plan, "SAMPLE_PAIRS", 100)
        patch.setattr(first_plan, "SAMPLE_BYTES", 3_000)
        patch.setattr(first_plan, "BLOCK_PAIRS", 300)
        patch.setattr(first_plan, "GROUPS_PER_CLASS", 6)
        patch.setattr(flow_store, "PAIRS_PER_BUCKET", 500)
        patch.setattr(distributed, "MOST_ROUNDS", 4)
        patch.setattr(distributed, "ENOUGH", -1.0)
        yield


def frames(spark: SparkSession, demand: Demand, partitions: int) -> tuple[DataFrame, DataFrame]:
    interest = demand.interest
    receiver = np.repeat(np.arange(len(interest.receivers)), np.diff(interest.receiver_offsets))
    pairs = pa.table(
        {
            "receiver": pa.array(np.array(interest.receivers)[receiver]),
            "flow": pa.array(np.array(interest.flows)[interest.receiver_flows]),
        }
    )
    rates = pa.table({"flow": pa.array(interest.flows), "rate": pa.array(demand.rate)})
    return (
        spark.createDataFrame(pairs).repartition(partitions),
        spark.createDataFrame(rates).repartition(partitions),
    )


@pytest.fixture(scope="module")
def made(
    spark: SparkSession, demand: Demand, tmp_path_factory: pytest.TempPathFactory
) -> DistributedPlan:
    work = tmp_path_factory.mktemp("whole") / "work"
    return plan_on_executors(*frames(spark, demand, 3), REQUEST, work)


def test_the_plan_is_valid_and_costs_what_it_says(made: DistributedPlan, demand: Demand) -> None:
    assert plan_problems(made.plan, demand.interest) == ()
    evaluation = evaluate(made.plan, demand, REQUEST.prices)
    assert made.totals.received == pytest.approx(evaluation.loads.received.sum())
    assert made.totals.accepted == pytest.approx(evaluation.loads.accepted.sum())
    assert made.totals.wanted == pytest.approx(evaluation.loads.wanted.sum())
    assert made.totals.sent == pytest.approx(demand.rate.sum())
    assert made.plan.n_groups <= 24
    assert made.plan.n_sessions <= 48


def test_no_round_makes_it_dearer(made: DistributedPlan, demand: Demand) -> None:
    assert len(made.rounds) == 5
    assert list(made.rounds) == sorted(made.rounds, reverse=True)
    assert made.rounds[-1] < made.rounds[0]
    work = evaluate(made.plan, demand, REQUEST.prices).filtering.work
    assert made.rounds[-1] / made.rounds[0] < 1
    # The last round's cost is in whole-number rates: a power of two times messages per second.
    assert np.log2(made.rounds[-1] / work) == pytest.approx(round(np.log2(made.rounds[-1] / work)))


class KilledError(Exception):
    pass


def test_a_job_that_was_killed_goes_on_from_the_last_round(
    spark: SparkSession, demand: Demand, made: DistributedPlan, tmp_path: Path
) -> None:
    """Neither other partitions nor the rounds of another job change its plan."""
    work = tmp_path / "work"
    (work / "flows").mkdir(parents=True)
    (work / "flows" / "store.json").touch()
    (work / "round-000.npz").touch()
    (work / "job.json").write_text('{"seed": 77}')
    steps: list[int] = []

    def kill(step: Step) -> None:
        if step.stage == "rounds on executors":
            steps.append(step.done)
            if step.done == 2 and len(steps) == 3:
                raise KilledError

    with pytest.raises(KilledError):
        plan_on_executors(*frames(spark, demand, 2), REQUEST, work, kill)
    when = (work / "round-002.npz").stat().st_mtime_ns
    (work / "round-002.npz").unlink()  # killed in the middle of its last round
    first = (work / "round-001.npz").stat().st_mtime_ns
    again = plan_on_executors(*frames(spark, demand, 1), REQUEST, work, kill)
    assert again.plan == made.plan
    assert again.rounds == made.rounds
    assert (work / "round-001.npz").stat().st_mtime_ns == first
    assert (work / "round-002.npz").stat().st_mtime_ns > when


def test_a_demand_that_fits_the_sample_is_still_planned(
    spark: SparkSession, demand: Demand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_plan, "SAMPLE_PAIRS", 10**6)
    monkeypatch.setattr(first_plan, "SAMPLE_BYTES", 10**6)
    monkeypatch.setattr(distributed, "MOST_ROUNDS", 1)
    flat = Request(groups=5, seed=1)
    found = plan_on_executors(*frames(spark, demand, 2), flat, tmp_path / "work")
    assert plan_problems(found.plan, demand.interest) == ()
    assert found.plan.n_sessions <= 5
