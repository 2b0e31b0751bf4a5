"""Events against filters on Spark, with Spark's own evaluation of the same texts as the oracle."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.matching import Matcher, event_schema, parse_filter
from distributary.pipeline.matching import compile_filters, count_matches, match_pairs
from tests.matching.schemas import (
    EVENTS,
    arrow_events,
    conditions,
    residual_tests,
    single_tests,
)

TEXTS = [
    "symbol = 'ab' AND qty > 0",
    "NOT (symbol LIKE 'a%') OR price < 0.5",
    "qty IN (-1, 0, 3) AND hot",
    "price BETWEEN -0.5 AND 2 OR symbol IS NULL",
    "NOT hot AND qty < 1.5",
    "at >= '2026-01-05 10:30:00' OR qty <=> 1",
    "price > 0.5",
    "symbol <> 'it''s' AND NOT qty = 0",
    "symbol >= 'a' AND symbol < 'b'",
    "TRUE",
    "FALSE",
    "hot = FALSE OR at = DATE '2026-01-06'",
    "price BETWEEN -10 AND 30",
    "price > -1.7976931348623157e308 AND price < 5e-324",
    "qty < 1e16",
    "qty IN (10000000000000000, 1e0)",
    "qty BETWEEN 10000000000000000 AND 1e16",
    "qty = 9223372036854775807 OR qty = -9223372036854775808",
    "qty < 9223372036854775808 AND qty > 9.223372036854775807e18",
    "day = '2026-01-05 10:30:00' OR day = TIMESTAMP '2026-01-06 00:00:00.5'",
    "day IN ('2026-01-05 10:30:00', TIMESTAMP '2026-01-06 00:00:00')",
    "at = CAST('2026-01-05 10:30:00' AS DATE) OR day = CAST('2026-01-06 01:00:00' AS DATE)",
    "at < '294247-01-10 04:00:54.775807' AND at > '0000-01-01'",
    "at <= '1969-12-31 23:59:59.999999' OR day < '+20000-01-01'",
    "amount = 9007199254740992 OR amount = 1234567.89",
    "amount = 9007199254740992e0",
    "amount IN (9007199254740992, 1e0)",
    "amount < 0.001 AND amount > -0.999",
    "qty < price OR amount >= qty",
    "amount = price OR NOT day < at",
    "NOT qty <=> amount AND qty BETWEEN price AND 3",
    "symbol LIKE '%b%' OR symbol LIKE 'a_' OR symbol LIKE '%\n'",
    "symbol NOT LIKE '_' AND NOT symbol LIKE 'a%b%'",
    "hot IS NOT TRUE",
    "hot IS FALSE OR qty IN (1, NULL) OR qty NOT IN (2, NULL)",
    "symbol <=> NULL OR NOT price <=> NULL",
    "at < '2026-01-05 12:30:01+02:00' AND at >= TIMESTAMP '2026-01-05 10:30:00Z'",
    "at = '2026-01-05T10:30:00.0 UTC' OR at > TIMESTAMP '2026-01-05 23:30:00 -00:30'",
    "day = '2026-01-05 23:30:00-05:00' OR at = '2026-01-05 23:30:00-00:30'",
]
REFUSED = ["colour = 'red'", "qty = ", "qty = symbol"]


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    table = arrow_events(EVENTS)
    at = table.schema.get_field_index("at")
    table = table.set_column(at, "at", table["at"].cast(pa.timestamp("us", "UTC")))
    table = table.append_column("number", pa.array(range(len(EVENTS)), pa.int64()))
    return spark.createDataFrame(table).repartition(3, "number")


@pytest.fixture(scope="module")
def filters(spark: SparkSession) -> DataFrame:
    rows = [(f"r{number % 4}", text) for number, text in enumerate([*TEXTS, *REFUSED])]
    return spark.createDataFrame(
        [*rows, rows[0], (None, "hot"), (None, "qty = ")], "receiver string, filter string"
    )


def rows_by_spark(events: DataFrame, texts: list[str]) -> list[set[int]]:
    """The events for which each text is true to Spark, by a single query."""
    tests = (F.expr(text).alias(f"f{number}") for number, text in enumerate(texts))
    found = events.select("number", *tests).toArrow()
    return [
        set(found["number"].filter(pc.fill_null(found[f"f{number}"], False)).to_pylist())
        for number in range(len(texts))
    ]


def test_pairs_are_those_that_spark_finds(events: DataFrame, filters: DataFrame) -> None:
    compiled = compile_filters(filters, events)
    pairs = match_pairs(events, compiled, ["number"]).toArrow()
    ours = {
        (row["number"], row["receiver"], compiled.texts[row["filter"]]) for row in pairs.to_pylist()
    }
    assert len(ours) == pairs.num_rows
    expected = {
        (number, f"r{at % 4}", text)
        for at, (text, found) in enumerate(zip(TEXTS, rows_by_spark(events, TEXTS), strict=True))
        for number in found
    }
    assert ours == expected


def check_texts(events: DataFrame, texts: list[str]) -> None:
    table = events.toArrow()
    schema = event_schema(table.schema)
    matcher = Matcher(schema, [parse_filter(text, schema) for text in texts])
    rows, numbers = matcher.match_table(table)
    place = np.array(table["number"])
    for at, (text, found) in enumerate(zip(texts, rows_by_spark(events, texts), strict=True)):
        assert set(place[rows[numbers == at]].tolist()) == found, text


# What differs is told by its text: to make it shorter would take Spark many minutes.
drawn = settings(
    deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None
)
# Spark has whole numbers less than one beyond 64 bits even where they are missing.
BEYOND = re.compile(r"(?<!-)9223372036854775808|9223372036854775809")
SOME_TEXTS = st.lists(
    conditions(single_tests() | residual_tests()).filter(lambda text: not BEYOND.search(text)),
    min_size=25,
    max_size=40,
    unique=True,
)


@settings(drawn, max_examples=1)
@given(SOME_TEXTS)
def test_any_filter_means_what_it_means_to_spark(events: DataFrame, texts: list[str]) -> None:
    check_texts(events, texts)


@pytest.mark.slow
@settings(drawn, max_examples=25)
@given(SOME_TEXTS)
def test_many_filters_mean_what_they_mean_to_spark(events: DataFrame, texts: list[str]) -> None:
    check_texts(events, texts)


def test_counts_are_those_of_the_pairs(events: DataFrame, filters: DataFrame) -> None:
    compiled = compile_filters(filters, events)
    pairs = match_pairs(events, compiled, ["number"]).groupBy("number").count().collect()
    found = {row["number"]: row["count"] for row in pairs}
    counted = count_matches(events, compiled)
    assert counted.columns == [*events.columns, "matches"]
    told = {row["number"]: row["matches"] for row in counted.select("number", "matches").collect()}
    assert told == {number: found.get(number, 0) for number in range(len(EVENTS))}


def test_what_is_no_filter_is_put_aside(events: DataFrame, filters: DataFrame) -> None:
    """A row without a receiver counts as that, whatever its filter."""
    aside = compile_filters(filters, events).quarantine.collect()
    reasons = Counter((row["raw"], row["reason"].split(":")[0]) for row in aside)
    assert reasons == {
        ("hot", "no receiver"): 1,
        ("qty = ", "no receiver"): 1,
        ("qty = ", "does not parse"): 1,
        ("colour = 'red'", "there is no attribute 'colour'"): 1,
        ("qty = symbol", "qty = symbol compares a whole number with text"): 1,
    }
    assert {raw for raw, _ in reasons} == {*REFUSED, "hot"}
