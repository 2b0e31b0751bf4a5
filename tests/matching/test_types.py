"""Every type that a column of events can have: a table and single events match alike."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import InputError
from distributary.matching import Matcher, event_schema, event_table, parse_filter
from distributary.model import Attribute, AttributeKind, Schema
from tests.examples import up_to

FIRST, LAST = -(2**63), 2**63 - 1
WHOLE = [FIRST, FIRST + 1, -1001, -1000, -1, 0, 1, 999, LAST - 1, LAST]
NUMBERS = ["-1e300", "-9223372036854775808", "-1", "0", "0.5", "2", "1e16", "9223372036854775807"]
TIMES = [
    *("-290308-12-21 19:59:05.224192", "0001-01-01", "1969-12-31 23:59:59.999998"),
    *("1969-12-31 23:59:59.999999", "1970-01-01", "2026-01-05 10:30:00", "2262-04-11"),
    *("9999-12-31", "10000-01-01", "294247-01-10 04:00:54.775807"),
]
TEXTS = ["", "a", "it\\'s", "é", "\U0010ffff"]


def counts(unit: str) -> list[int]:
    """Both ends of what microseconds can count, in a unit of time."""
    per = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[unit]
    least = -(2**63 // per) if per > 1 else FIRST
    return [least, LAST // per, *WHOLE[2:8], 1_767_609_000]


def column(values: list[object], found: pa.DataType) -> pa.Array:
    return pa.array([None, *values], found)


def counted(values: list[int], found: pa.DataType) -> pa.Array:
    return pa.array([None, *values], pa.int64()).cast(found)


FLOATS = [-np.inf, -1.5e308, -1e16, -20.5, -5e-324, -0.0, 0.0, 5e-324, 0.1, 2.0, np.inf, np.nan]
DECIMALS = [Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36 + ".99"), Decimal("1234567.89")]
COLUMNS: dict[str, tuple[pa.Array, list[str]]] = {
    "int64": (column(WHOLE, pa.int64()), NUMBERS),
    "int8": (column([-128, -1, 0, 127], pa.int8()), NUMBERS),
    "uint64": (column([0, 1, LAST], pa.uint64()), NUMBERS),
    "float64": (column(FLOATS, pa.float64()), NUMBERS),
    "float32": (
        column([np.float32(each) for each in (-3e38, 0.1, 16777216)], pa.float32()),
        NUMBERS,
    ),
    "float16": (column([np.float16(each) for each in (-65504, 0.1, 0, 2)], pa.float16()), NUMBERS),
    "decimal": (column([*DECIMALS, Decimal("0.00")], pa.decimal128(38, 2)), NUMBERS),
    "decimal of hundreds": (column([Decimal(100), Decimal(-900)], pa.decimal128(5, -2)), NUMBERS),
    "decimal256": (column([Decimal("9" * 76), Decimal(-1)], pa.decimal256(76, 0)), NUMBERS),
    "boolean": (column([False, True], pa.bool_()), ["TRUE", "FALSE"]),
    "text": (column(["", "a", "it's", "é", "\U0010ffff", "a\0"], pa.string()), TEXTS),
    "large text": (column(["", "a", "é"], pa.large_string()), TEXTS),
    "dictionary": (column(["b", "a", "b"], pa.string()).dictionary_encode(), TEXTS),
    "date32": (
        counted([-(2**31), -719162, -1, 0, 20458, 2**31 - 1], pa.int32()).cast(pa.date32()),
        TIMES,
    ),
    "date64": (counted([-86_400_000, 0, 86_400_000 * (2**31 - 1)], pa.date64()), TIMES),
    **{
        f"times in {u}": (counted(counts(u), pa.timestamp(u)), TIMES)
        for u in ("s", "ms", "us", "ns")
    },
    "zoned times": (counted(counts("us"), pa.timestamp("us", "Europe/Berlin")), TIMES),
    "zoned nanoseconds": (counted(counts("ns"), pa.timestamp("ns", "UTC")), TIMES),
}


def all_tests(constants: list[str], kind: AttributeKind) -> list[str]:
    quoted = (
        constants
        if kind not in (AttributeKind.TEXT, AttributeKind.DATE, AttributeKind.TIMESTAMP)
        else [f"'{each}'" for each in constants]
    )
    return [f"x {sign} {each}" for sign in ("<", "=", ">=", "<>") for each in quoted]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_table_and_single_events_match_alike(name: str) -> None:
    values, constants = COLUMNS[name]
    table = pa.table({"x": values})
    schema = event_schema(table.schema)
    texts = [*all_tests(constants, schema.attributes[0].kind), "x IS NULL"]
    filters = [parse_filter(text, schema) for text in texts]
    matcher = Matcher(schema, filters)
    rows, numbers = matcher.match_table(table)
    found = {row: numbers[rows == row].tolist() for row in range(len(table))}
    assert len({tuple(each) for each in found.values()}) > 1
    for row, scalar in enumerate(values):
        assert matcher.match({"x": scalar}).tolist() == found[row], scalar
        keys = schema.keys({"x": _python(scalar)}) if _python(scalar) is not ... else None
        if keys is not None:
            assert matcher.match_keys(keys).tolist() == found[row], scalar
            expected = [at for at, each in enumerate(filters) if each.matches(keys)]
            assert expected == found[row]


def _python(scalar: pa.Scalar) -> object:
    """The scalar as Python has it; ... where Python cannot."""
    try:
        value = scalar.as_py()
    except (OverflowError, ValueError):
        return ...
    return ... if isinstance(scalar, pa.TimestampScalar) and scalar.type.unit == "ns" else value


@up_to(150)
@given(
    st.lists(st.integers(FIRST, LAST) | st.integers(-3000, 3000), min_size=1, max_size=6),
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.integers(-3, 3),
)
def test_times_of_every_unit_match_alike(ticks: list[int], unit: str, at: int) -> None:
    """In nanoseconds before 1970 too, where rounding toward zero is not rounding down."""
    array = pa.array(ticks, pa.int64()).cast(pa.timestamp(unit))
    schema = event_schema(pa.schema({"x": array.type}))
    stamp = np.datetime64(at, "us")
    matcher = Matcher(
        schema,
        [parse_filter(f"x {sign} '{str(stamp).replace('T', ' ')}'", schema) for sign in ("<", "=")],
    )
    per = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    microseconds = [each * per // 1_000 for each in ticks]
    if not all(FIRST <= each <= LAST for each in microseconds):
        with pytest.raises(InputError, match="out of bounds"):
            matcher.match_table(pa.table({"x": array}))
        far = next(i for i, each in enumerate(microseconds) if not FIRST <= each <= LAST)
        with pytest.raises(InputError, match="not a point in time"):
            matcher.match({"x": array[far]})
        return
    rows, numbers = matcher.match_table(pa.table({"x": array}))
    for row, each in enumerate(microseconds):
        expected = [number for number, is_so in enumerate([each < at, each == at]) if is_so]
        assert numbers[rows == row].tolist() == expected
        assert matcher.match({"x": array[row]}).tolist() == expected
        if ticks[row] != FIRST:  # which numpy takes for a missing time
            assert matcher.match({"x": np.datetime64(ticks[row], unit)}).tolist() == expected


@up_to(150)
@given(
    st.lists(
        st.decimals(
            allow_nan=False, allow_infinity=False, places=4, min_value=-(10**30), max_value=10**30
        ),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_decimals_are_compared_exactly(values: list[Decimal], data: st.DataObject) -> None:
    table = pa.table({"x": pa.array(values, pa.decimal128(38, 4))})
    schema = event_schema(table.schema)
    other = st.sampled_from(values) | st.decimals(-(10**20), 10**20, places=6)
    constant = data.draw(other)
    matcher = Matcher(
        schema, [parse_filter(f"x {sign} {constant:f}", schema) for sign in ("<", "=", ">")]
    )
    rows, numbers = matcher.match_table(table)
    assert rows.tolist() == list(range(len(values)))
    assert numbers.tolist() == [(each >= constant) + (each > constant) for each in values]
    for row, each in enumerate(values):
        assert matcher.match({"x": each}).tolist() == [numbers[row]]


WIDER = Schema(
    (
        Attribute("number", AttributeKind.FLOAT),
        Attribute("amount", AttributeKind.DECIMAL, scale=2),
        Attribute("at", AttributeKind.TIMESTAMP),
    )
)


@pytest.mark.parametrize(
    ("name", "values", "text", "matches"),
    [
        ("number", [2**63 - 1, -1], "number = 9223372036854775808e0", [0]),
        ("number", [Decimal("1234567.89")], "number = 1234567.89", [0]),
        ("amount", [5, -(2**63)], "amount = 5", [0]),
        ("amount", [Decimal("0.5"), Decimal("1.5")], "amount < 1", [0]),
        ("at", [date(2026, 1, 5), date.max], "at = '2026-01-05'", [0]),
        ("at", [datetime(2026, 1, 5, tzinfo=UTC)], "at = '2026-01-05'", [0]),
    ],
)
def test_a_narrower_kind_is_taken_for_a_wider_one(
    name: str, values: list[object], text: str, matches: list[int]
) -> None:
    matcher = Matcher(WIDER, [parse_filter(text, WIDER)])
    assert matcher.match_table(pa.table({name: values}))[0].tolist() == matches
    assert [row for row, each in enumerate(values) if len(matcher.match({name: each}))] == matches


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("number", ["5"]),
        ("number", [True]),
        ("amount", [0.5]),
        ("amount", [Decimal("0.005")]),
        ("at", ["2026-01-05"]),
        ("at", [5]),
    ],
)
def test_what_a_table_may_not_have_a_single_event_may_not_have(
    name: str, values: list[object]
) -> None:
    matcher = Matcher(WIDER, [parse_filter("number IS NULL", WIDER)])
    with pytest.raises(InputError):
        matcher.match_table(pa.table({name: values}))
    with pytest.raises(InputError):
        matcher.match({name: values[0]})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (AttributeKind.FLOAT, 10**400),
        (AttributeKind.FLOAT, Decimal("sNaN")),
        (AttributeKind.INTEGER, 2**63),
        (AttributeKind.DECIMAL, 10**80),
        (AttributeKind.DECIMAL, Decimal("Infinity")),
        (AttributeKind.DECIMAL, Decimal("NaN")),
        (AttributeKind.DECIMAL, Decimal("1E+999999")),
        (AttributeKind.DATE, datetime(2026, 1, 5)),
        (AttributeKind.DATE, np.datetime64(2**40, "D")),
        (AttributeKind.TIMESTAMP, np.datetime64(2**62, "s")),
        (AttributeKind.TIMESTAMP, np.datetime64("2026")),
    ],
)
def test_a_value_beyond_its_kind_is_refused(kind: AttributeKind, value: object) -> None:
    with pytest.raises(InputError, match=f"not {kind.value}"):
        Attribute("x", kind).key(value)


def test_scalars_of_numpy_are_values_too() -> None:
    schema = Schema(tuple(Attribute(kind.name, kind) for kind in AttributeKind))
    event = {
        "TEXT": np.str_("a"),
        "INTEGER": np.int8(3),
        "FLOAT": np.float32(0.5),
        "BOOLEAN": np.True_,
        "DATE": np.datetime64("2026-01-05"),
        "TIMESTAMP": np.datetime64("2026-01-05T10"),
        "DECIMAL": np.int64(3),
    }
    plain = {
        "TEXT": "a",
        "INTEGER": 3,
        "FLOAT": 0.5,
        "BOOLEAN": True,
        "DATE": date(2026, 1, 5),
        "TIMESTAMP": datetime(2026, 1, 5, 10),
        "DECIMAL": Decimal(3),
    }
    assert schema.keys(event) == schema.keys(plain)
    assert schema.keys({"TIMESTAMP": np.datetime64("NaT")}) == (None,) * len(schema)


def test_a_column_that_is_null_throughout_is_of_any_kind() -> None:
    table = pa.table({name: pa.nulls(2) for name in ("number", "amount", "at")})
    assert event_table(table, WIDER).column("amount").null_count == 2
