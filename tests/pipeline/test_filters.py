from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from distributary.errors import InputError
from distributary.pipeline.filters import Kind, attribute_kinds, used_attributes

KINDS = attribute_kinds(
    StructType()
    .add("symbol", StringType())
    .add("Price", DoubleType())
    .add("qty", IntegerType())
    .add("hot", BooleanType())
    .add("day", DateType())
    .add("at", TimestampType())
    .add("two words", LongType())
    .add("tags", ArrayType(StringType()))
    .add("cash", DecimalType(10, 2))
)


def test_attributes_have_kinds() -> None:
    assert KINDS == {
        "symbol": Kind.TEXT,
        "price": Kind.NUMBER,
        "qty": Kind.NUMBER,
        "hot": Kind.TRUTH,
        "day": Kind.TIME,
        "at": Kind.TIME,
        "two words": Kind.NUMBER,
        "tags": None,
        "cash": Kind.NUMBER,
    }


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("symbol = 'IBM' AND price BETWEEN 90 AND 120", {"symbol", "price"}),
        ("SYMBOL <> 'it''s' or not (QTY in (1, 2, -3))", {"symbol", "qty"}),
        ("symbol LIKE 'IB%' AND symbol NOT LIKE '%x_'", {"symbol"}),
        ("hot", {"hot"}),
        ("NOT hot OR hot = false", {"hot"}),
        ("symbol IS NULL AND day IS NOT NULL", {"symbol", "day"}),
        ("day >= '2026-01-05' AND at < '2026-01-05 10:30:00.5'", {"day", "at"}),
        ("day = DATE '2026-01-05' OR at > TIMESTAMP '2026-01-05 10:30:00'", {"day", "at"}),
        ("qty < price AND `two words` <=> 5", {"qty", "price", "two words"}),
        ("price > 1.5e3 AND cash <= 0.01", {"price", "cash"}),
        ("qty NOT BETWEEN 1 AND 2 AND qty NOT IN (7)", {"qty"}),
        ("qty IN (9223372036854775807, -9223372036854775808)", {"qty"}),
        ("TRUE", set()),
        (" OR ".join(f"qty = {n}" for n in range(3000)), {"qty"}),
    ],
)
def test_a_condition_on_attributes_is_usable(text: str, attributes: set[str]) -> None:
    assert used_attributes(text, KINDS) == attributes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not parse"),
        ("symbol =", "does not parse"),
        ("symbol = 'IBM", "does not parse"),
        ("symbol = 'a' symbol = 'b'", "does not parse"),
        ("colour = 'red'", "there is no attribute 'colour'"),
        ("t.symbol = 'IBM'", "t.symbol is neither an attribute nor a constant"),
        ("length(symbol) > 3", "LENGTH(symbol) is neither an attribute nor a constant"),
        ("price + 1 > 3", "price + 1 is neither"),
        ("qty / 0 = 1", "qty / 0 is neither"),
        ("max(qty) = 1", "MAX(qty) is neither"),
        ("qty IN (SELECT 1)", "is not a condition that filters may have"),
        ("EXISTS(SELECT 1)", "is not a condition that filters may have"),
        ("SELECT 1", "is not a condition that filters may have"),
        ("qty = 1; DROP TABLE x", "is not a condition that filters may have"),
        ("qty = 1 AS x", "is not a condition that filters may have"),
        ("rand() < 0.5", "RAND() is neither an attribute nor a constant"),
        ("CASE WHEN hot THEN hot END", "is not a condition that filters may have"),
        ("symbol RLIKE 'I.*'", "is not a condition that filters may have"),
        ("symbol LIKE 'a!%' ESCAPE '!'", "is not a condition that filters may have"),
        ("symbol LIKE ANY ('a', 'b')", "a pattern is plain text"),
        ("symbol LIKE 'a\\\\%'", "a pattern is plain text without backslashes"),
        ("symbol LIKE symbol", "a pattern is plain text"),
        ("qty LIKE '1%'", "looks for a pattern in what is not text"),
        ("price", "price is not true or false"),
        ("'IBM'", "is not a condition that filters may have"),
        ("symbol = 5", "symbol = 5 compares a number with text"),
        ("price = 'high'", "compares a number with text"),
        ("hot = 1", "compares a number with true or false"),
        ("symbol IN ('IBM', 3)", "compares a number with text"),
        ("day = 'yesterday'", "compares a point in time with text"),
        ("day = '2026-02-30'", "compares a point in time with text"),
        ("symbol = '2026-01-05' AND day = symbol", "compares a point in time with text"),
        ("day = DATE 'soon'", "is neither an attribute nor a constant"),
        ("qty = NULL", "NULL is neither an attribute nor a constant"),
        ("qty IS TRUE", "is not a condition that filters may have"),
        ("tags = 'a'", "attribute 'tags' is of a type that filters cannot test"),
        ("tags IS NULL", "attribute 'tags' is of a type that filters cannot test"),
        ("qty = 12345678901234567890", "has more than 18 digits"),
        ("qty = 1234567890.123456789", "has more than 18 digits"),
        ("qty = :limit", "is neither an attribute nor a constant"),
        ("qty BETWEEN SYMMETRIC 2 AND 1", "is not a condition that filters may have"),
        ("(" * 400 + "hot" + ")" * 400, "is nested too deeply"),
    ],
)
def test_anything_else_is_refused_with_the_offending_part(text: str, reason: str) -> None:
    with pytest.raises(InputError) as raised:
        used_attributes(text, KINDS)
    assert reason in raised.value.reason
    assert "\n" not in raised.value.reason
