"""Events against filters on Spark, with Spark's own evaluation of the same texts as the oracle."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.pipeline.matching import compiled_filters, match_counts, matched_pairs
from tests.matching.schemas import EVENTS

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
]
REFUSED = ["colour = 'red'", "qty = ", "qty = price"]


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    table = pa.Table.from_pylist(
        [{"number": number, **event} for number, event in enumerate(EVENTS)],
        schema=pa.schema(
            {
                "number": pa.int64(),
                "symbol": pa.string(),
                "qty": pa.int64(),
                "price": pa.float64(),
                "hot": pa.bool_(),
                "at": pa.timestamp("us", "UTC"),
            }
        ),
    )
    return spark.createDataFrame(table).repartition(3, "number")


@pytest.fixture(scope="module")
def filters(spark: SparkSession) -> DataFrame:
    rows = [(f"r{number % 4}", text) for number, text in enumerate([*TEXTS, *REFUSED])]
    return spark.createDataFrame([*rows, rows[0], (None, "hot")], "receiver string, filter string")


def test_pairs_are_those_that_spark_finds(events: DataFrame, filters: DataFrame) -> None:
    compiled = compiled_filters(filters, events)
    pairs = matched_pairs(events, compiled, ["number"]).toArrow()
    ours = {
        (row["number"], row["receiver"], compiled.texts[row["filter"]]) for row in pairs.to_pylist()
    }
    assert len(ours) == pairs.num_rows
    expected = {
        (row["number"], f"r{number % 4}", text)
        for number, text in enumerate(TEXTS)
        for row in events.where(F.expr(text)).select("number").collect()
    }
    assert ours == expected


def test_counts_are_those_of_the_pairs(events: DataFrame, filters: DataFrame) -> None:
    compiled = compiled_filters(filters, events)
    pairs = matched_pairs(events, compiled, ["number"]).groupBy("number").count().collect()
    found = {row["number"]: row["count"] for row in pairs}
    counted = match_counts(events, compiled)
    assert counted.columns == [*events.columns, "matches"]
    told = {row["number"]: row["matches"] for row in counted.collect()}
    assert told == {number: found.get(number, 0) for number in range(len(EVENTS))}


def test_what_is_no_filter_is_put_aside(events: DataFrame, filters: DataFrame) -> None:
    aside = compiled_filters(filters, events).quarantine.collect()
    assert {row["raw"] for row in aside} == {*REFUSED, "hot"}
    reasons = {row["raw"]: row["reason"] for row in aside}
    assert reasons["hot"] == "no receiver"
    assert reasons["colour = 'red'"] == "there is no attribute 'colour'"
