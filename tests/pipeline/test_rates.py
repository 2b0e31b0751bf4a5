from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession

from distributary.pipeline.rates import (
    FlowCounts,
    flow_counts,
    publication_digest,
    published_window,
    rates_for,
    rates_from,
)
from distributary.pipeline.schemas import INTEREST, PUBLICATIONS, RATES

START = datetime(2024, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
Message = tuple[datetime, str, int | None]


def drawn(count: int, seed: int = 1) -> list[Message]:
    draw = random.Random(seed)
    return [
        (
            START + timedelta(microseconds=draw.randrange(3_600_000_000)),
            f"f{draw.randrange(4)}",
            draw.choice([None, draw.randrange(1000)]),
        )
        for _ in range(count)
    ]


def frame(spark: SparkSession, rows: list[Message]) -> DataFrame:
    return spark.createDataFrame(rows, PUBLICATIONS)


def judged(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("*", "CAST(NULL AS STRING) AS reason", "false AS copy")


def rates_over(
    rows: DataFrame,
    start: datetime,
    end: datetime,
    half_life: timedelta | None = None,
    peak_window: timedelta | None = None,
) -> DataFrame:
    digest = publication_digest(judged(rows), half_life, peak_window)
    return rates_from(digest, start, end, half_life, peak_window)


def by_flow(rates: DataFrame) -> dict[str, tuple[float, float | None, float | None]]:
    assert rates.columns == RATES.fieldNames()
    return {row["flow"]: (row["rate"], row["size"], row["peak"]) for row in rates.collect()}


def test_rates_and_mean_sizes(spark: SparkSession) -> None:
    rows = [(START, "a", 10), (START, "a", 20), (START + HOUR, "a", None), (START, "b", None)]
    found = by_flow(rates_over(frame(spark, rows), START, START + HOUR))
    assert found == {"a": (3 / 3600, 15.0, None), "b": (1 / 3600, None, None)}


def test_weighted_rates_and_peaks_are_those_of_plain_python(spark: SparkSession) -> None:
    rows, end = drawn(500), START + HOUR
    for minutes in (0.5, 7, 600):
        half_life = timedelta(minutes=minutes)
        found = by_flow(
            rates_over(frame(spark, rows), START, end, half_life, timedelta(seconds=90))
        )
        for flow in {flow for _, flow, _ in rows}:
            times = [ts for ts, name, _ in rows if name == flow]
            weights = [2 ** -((end - ts) / half_life) for ts in times]
            length = half_life.total_seconds()
            integral = length / math.log(2) * (1 - 2 ** (-3600 / length))
            slots = Counter((ts - EPOCH) // timedelta(seconds=90) for ts in times)
            rate, _, peak = found[flow]
            assert rate == pytest.approx(math.fsum(weights) / integral, rel=1e-7)
            assert peak == max(slots.values()) / 90


def test_a_constant_rate_is_weighted_to_itself(spark: SparkSession) -> None:
    rows: list[Message] = [
        (START + timedelta(milliseconds=250 + 500 * number), "a", None) for number in range(7200)
    ]
    for minutes in (1, 10, 1000):
        found = by_flow(
            rates_over(frame(spark, rows), START, START + HOUR, timedelta(minutes=minutes))
        )
        assert found["a"][0] == pytest.approx(2, rel=1e-4)


def test_wanted_but_silent_flows_get_the_floor(spark: SparkSession) -> None:
    rows: list[Message] = [(START, "a", 7), (START, "b", None), (START + HOUR, "b", None)]
    digest = publication_digest(judged(frame(spark, rows)))
    interest = spark.createDataFrame([("r", "a"), ("r", "c"), ("s", "a"), ("s", "c")], INTEREST)
    rates = rates_from(digest, START, START + HOUR)
    found = by_flow(rates_for(interest, rates, floor=0.5))
    assert found == {"a": (1 / 3600, 7.0, None), "c": (0.5, None, None)}
    assert flow_counts(interest, digest) == FlowCounts(
        wanted=2, silent=1, unwanted=1, unwanted_messages=2
    )
    with pytest.raises(ValueError, match="floor"):
        rates_for(interest, rates, floor=0)


def test_a_weight_that_is_nothing_any_more_is_silence(spark: SparkSession) -> None:
    rows: list[Message] = [(START, "a", None)]
    rates = rates_over(frame(spark, rows), START, START + HOUR, timedelta(seconds=1))
    assert by_flow(rates)["a"][0] == 0
    interest = spark.createDataFrame([("r", "a")], INTEREST)
    assert by_flow(rates_for(interest, rates, floor=0.25))["a"][0] == 0.25


def test_no_messages_have_no_window(spark: SparkSession) -> None:
    assert published_window(publication_digest(judged(frame(spark, [])))) is None
    one = published_window(publication_digest(judged(frame(spark, [(START, "a", None)]))))
    assert one == (START, START + timedelta(seconds=1))
    with pytest.raises(ValueError, match="empty"):
        rates_over(frame(spark, []), START, START)
