"""Streams: what is known after any batches, and what they say of themselves."""

from __future__ import annotations

import urllib.request
from collections import Counter
from datetime import timedelta
from functools import reduce
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.files import read_plan
from distributary.model import Interest, plan_problems
from distributary.pipeline.ingest import Reason, read_publications, read_subscriptions
from distributary.pipeline.interest import interest_of, last_actions
from distributary.pipeline.kept_tables import KINDS
from distributary.pipeline.ledger import LedgerState
from distributary.pipeline.metrics import StreamMetrics
from distributary.pipeline.rates import publication_digest, rates_for, rates_from
from distributary.pipeline.stream import StreamJob, rate_span, stream
from tests.pipeline.test_rates import judged

from .stream_logs import (
    BAD_PUBLICATIONS,
    BAD_SUBSCRIPTIONS,
    DAYS,
    PUBLICATION_FILES,
    START,
    SUBSCRIPTION_FILES,
    file_name,
)
from .stream_outcome import history, plan_bytes, quarantine, stored_rates, table, wanted_pairs
from .stream_process import small_job

pytestmark = pytest.mark.usefixtures("small_slices")


def test_interest_and_rates_are_those_of_the_batch_functions(
    spark: SparkSession, logs: Path, undisturbed: tuple[StreamJob, LedgerState]
) -> None:
    job, state = undisturbed
    subscribed = [
        read_subscriptions(spark, str(logs / "subscriptions" / file_name(number)), DAYS).used
        for number in range(SUBSCRIPTION_FILES)
    ]
    interest = interest_of(last_actions(reduce(DataFrame.union, subscribed))).persist()
    assert wanted_pairs(job, state) == sorted(map(tuple, interest.collect()))

    span = rate_span(state, job)
    assert span is not None
    start, end = span
    assert timedelta(hours=1) <= end - start < timedelta(hours=1, minutes=1)
    assert start.second == start.microsecond == 0
    published = []
    for number in range(PUBLICATION_FILES):
        used = read_publications(spark, str(logs / "publications" / file_name(number)), DAYS).used
        in_time = F.col("ts") >= F.lit(START + timedelta(minutes=20 * number))
        published.append(used.where(in_time & F.col("ts").between(F.lit(start), F.lit(end))))
    rows_in_span = judged(reduce(DataFrame.union, published))
    rates = rates_from(publication_digest(rows_in_span), start, end)
    expected = rates_for(interest, rates, 1 / (end - start).total_seconds())
    rows = expected.select("flow", "rate").collect()
    assert stored_rates(job, state) == {row["flow"]: row["rate"] for row in rows}


def test_each_bad_row_is_counted_and_put_aside_once(
    spark: SparkSession, undisturbed: tuple[StreamJob, LedgerState]
) -> None:
    job, state = undisturbed
    told = state.counts["subscriptions"]
    assert told["used"] + told["duplicates"] == SUBSCRIPTION_FILES * 40
    assert told["reasons"] == {Reason.CORRUPT: 1, **{reason: 1 for _, reason in BAD_SUBSCRIPTIONS}}
    told = state.counts["publications"]
    assert told["used"] == PUBLICATION_FILES * 150
    assert told["reasons"] == {
        Reason.LATE: PUBLICATION_FILES - 2,
        **{reason: 1 for _, reason in BAD_PUBLICATIONS},
    }
    aside = Counter((log, reason) for log, _, reason, _ in quarantine(spark, job))
    assert aside == {
        (log, reason): number
        for log, counts in state.counts.items()
        for reason, number in counts["reasons"].items()
    }


def test_the_history_adds_up(undisturbed: tuple[StreamJob, LedgerState]) -> None:
    job, state = undisturbed
    lines = history(job)
    assert [line["batch"] for line in lines] == list(range(PUBLICATION_FILES))
    assert sum(line["files"] for line in lines) == SUBSCRIPTION_FILES + PUBLICATION_FILES
    assert sum(line["publications"] for line in lines) == state.counts["publications"]["used"]
    assert sum(line["subscriptions"] for line in lines) == state.counts["subscriptions"]["used"]
    for before, line in pairwise(lines):
        assert line["version"] - before["version"] in (0, 1)
        assert line["moves"] <= 1  # 2 % of 16 flows, but one at least
        assert line["version"] > before["version"] or not line["moves"] + line["new"]
    assert lines[-1]["version"] == state.version == len(list((job.out / "plans").iterdir()))


def test_metrics_say_what_the_history_says(undisturbed: tuple[StreamJob, LedgerState]) -> None:
    job, state = undisturbed
    metrics = StreamMetrics(clock=lambda: 12.0)

    def read() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        values = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {
            name.removeprefix("distributary_stream_"): float(value) for name, _, value in values
        }

    with metrics.serve(0) as port:
        assert read() == {}
        metrics.take(state)
        told = read()
    line = history(job)[-1]
    gauges = {
        **{"plan_version": "version", "excess_ratio": "excess", "drift_ratio": "drift"},
        **{"drift_cost": "drift_cost", "drift_share": "drift_share"},
        **{"plan_age_batches": "age_batches", "plan_age_seconds": "age_s"},
        **{"saved": "saved", "saved_share": "saved_share", "moves": "moves", "new_flows": "new"},
    }
    known = {name: line[key] for name, key in gauges.items() if line[key] is not None}
    assert {"drift_cost", "plan_age_seconds"} <= set(known)
    assert {name: told.get(name) for name in gauges if name in told} == known
    assert (told["batches_total"], told["committed_seconds"]) == (PUBLICATION_FILES, 12)
    assert told['rows_total{fate="used",log="publications"}'] == PUBLICATION_FILES * 150
    assert told['quarantined_rows_total{log="publications",reason="late"}'] == 3
    assert told['state_files{table="actions"}'] == len(state.tables["actions"].files)


def test_the_plan_serves_everybody_and_is_the_last_version(
    undisturbed: tuple[StreamJob, LedgerState],
) -> None:
    job, state = undisturbed
    interest = Interest.from_pairs(wanted_pairs(job, state))
    stored = read_plan(job.out / "plan", interest)
    assert plan_problems(stored.plan, interest) == ()
    assert plan_bytes(job.out / "plan") == plan_bytes(job.out / "plans" / f"{state.version:06d}")


def test_other_programs_read_the_interest_as_documented(
    undisturbed: tuple[StreamJob, LedgerState], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, state = undisturbed
    page = Path(__file__).parents[2] / "docs" / "pipeline.md"
    query = page.read_text(encoding="utf-8").split("```sql")[1].split("```")[0]
    monkeypatch.chdir(job.out.parent)
    found = duckdb.sql(query.replace("live/", f"{job.out.name}/")).fetchall()
    assert sorted(found) == wanted_pairs(job, state)


@pytest.mark.slow
def test_batches_and_partitions_do_not_change_the_state(spark: SparkSession, logs: Path) -> None:
    """As long as nothing is late, which depends on the batch that a row comes in."""
    before = str(spark.conf.get("spark.sql.shuffle.partitions"))
    states = []
    for partitions, files in ((2, 1), (1, 9), (5, 2)):
        name = f"{partitions} partitions, {files} files"
        job = small_job(logs, name, files_per_batch=files, late=timedelta(days=1))
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        try:
            state = stream(spark, job)
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", before)
        assert state.batch + 1 == -(-PUBLICATION_FILES // files)
        tables = [table(job, state, kind) for kind in KINDS]
        states.append((tables, state.counts["publications"], stored_rates(job, state)))
    assert states[0] == states[1] == states[2]
