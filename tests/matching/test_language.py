"""What every command takes as a filter, and the reason that each gives for what it refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from distributary.errors import InputError
from distributary.matching import event_schema, parse_filter, print_filter

SCHEMA = event_schema(
    pa.schema(
        {
            "symbol": pa.string(),
            "Price": pa.float64(),
            "qty": pa.int32(),
            "hot": pa.bool_(),
            "day": pa.date32(),
            "at": pa.timestamp("us", "UTC"),
            "two words": pa.int64(),
            "tags": pa.list_(pa.string()),
            "cash": pa.decimal128(10, 2),
        }
    )
)


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
        ("symbol LIKE '%x%' OR symbol LIKE 'a_c'", {"symbol"}),
        ("NOT (symbol LIKE '_') AND symbol LIKE '%a%b%'", {"symbol"}),
        ("price BETWEEN qty AND 100 OR cash NOT BETWEEN 1 AND qty", {"price", "qty", "cash"}),
        ("NOT qty <=> `two words` AND day <= at", {"qty", "two words", "day", "at"}),
        ("hot IS TRUE OR hot IS NOT FALSE", {"hot"}),
        ("qty IN (1, NULL) OR symbol IN ('a', NULL, 'b')", {"qty", "symbol"}),
        ("qty <=> NULL AND NOT symbol <=> NULL", {"qty", "symbol"}),
        ("at < '2026-01-05 10:30:00+02:00'", {"at"}),
        ("at < TIMESTAMP '2026-01-05 10:30:00.5Z' OR at = '2026-01-06 00:00:00 UTC'", {"at"}),
        ("TRUE", set()),
        ("qty IN (NULL) OR qty NOT IN (1, NULL)", set()),
        (" OR ".join(f"qty = {n}" for n in range(3000)), {"qty"}),
    ],
)
def test_a_condition_on_attributes_is_usable(text: str, attributes: set[str]) -> None:
    found = parse_filter(text, SCHEMA)
    used = {SCHEMA.attributes[at].name.lower() for box in found.boxes for at in box.attributes}
    assert used == attributes
    assert parse_filter(print_filter(found), SCHEMA) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not parse"),
        ("symbol =", "does not parse"),
        ("symbol = 'IBM", "does not parse"),
        ("symbol = 'a' symbol = 'b'", "does not parse"),
        ("colour = 'red'", "there is no attribute 'colour'"),
        ("t.symbol = 'IBM'", "t.symbol is not an attribute"),
        ("length(symbol) > 3", "LENGTH(symbol) > 3 tests no attribute"),
        ("price + 1 > 3", "price + 1 > 3 tests no attribute"),
        ("qty / 0 = 1", "qty / 0 = 1 tests no attribute"),
        ("max(qty) = 1", "MAX(qty) = 1 tests no attribute"),
        ("qty IN (SELECT 1)", "is not a condition that filters may have"),
        ("EXISTS(SELECT 1)", "is not a condition that filters may have"),
        ("SELECT 1", "is not a condition that filters may have"),
        ("qty = 1; DROP TABLE x", "is not a condition that filters may have"),
        ("qty = 1 AS x", "is not a condition that filters may have"),
        ("rand() < 0.5", "RAND() < 0.5 tests no attribute"),
        ("CASE WHEN hot THEN hot END", "is not a condition that filters may have"),
        ("symbol RLIKE 'I.*'", "is not a condition that filters may have"),
        ("symbol LIKE 'a!%' ESCAPE '!'", "is not a condition that filters may have"),
        ("symbol LIKE ANY ('a', 'b')", "a pattern must be a text constant"),
        ("symbol LIKE 'a\\\\%'", "a pattern must be a text constant without backslashes"),
        ("symbol LIKE symbol", "a pattern must be a text constant"),
        ("qty LIKE '1%'", "applies LIKE to an attribute that is not text"),
        ("price", "price is not true or false"),
        ("'IBM'", "is not a condition that filters may have"),
        ("symbol = 5", "symbol = 5 compares text with a number"),
        ("price = 'high'", "compares a number with text"),
        ("hot = 1", "compares true or false with a number"),
        ("symbol IN ('IBM', 3)", "compares text with a number"),
        ("day = 'yesterday'", "compares a day with text"),
        ("day = '2026-02-30'", "compares a day with text"),
        ("symbol = '2026-01-05' AND day = symbol", "compares a day with text"),
        ("day = DATE 'soon'", "is not a constant"),
        ("qty = NULL", "NULL is not a constant"),
        ("qty IS TRUE", "qty is not true or false"),
        ("tags = 'a'", "attribute 'tags' is of a type that filters cannot test"),
        ("tags IS NULL", "attribute 'tags' is of a type that filters cannot test"),
        ("qty = " + "1" * 39, "has more than 38 digits"),
        ("qty = :limit", "is not a constant"),
        ("qty IN (1, price)", "IN lists only constants; write OR qty = price"),
        ("(qty > 3) IS TRUE", "is not a condition that filters may have"),
        ("hot < qty", "hot < qty compares true or false with a whole number"),
        ("price BETWEEN symbol AND 3", "compares a number with text"),
        ("symbol ILIKE 'i%'", "is not a condition that filters may have"),
        ("at = '2026-01-05 10:30:00+19:00'", "compares a point in time with text"),
        ("at = '2026-01-05 10:30:00 Europe/Berlin'", "compares a point in time with text"),
        ("qty BETWEEN SYMMETRIC 2 AND 1", "is not a condition that filters may have"),
        ("(" * 400 + "hot" + ")" * 400, "is nested too deeply"),
    ],
)
def test_anything_else_is_refused_with_the_offending_part(text: str, reason: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_filter(text, SCHEMA)
    assert reason in raised.value.reason
    assert "\n" not in raised.value.reason
