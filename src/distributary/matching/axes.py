"""Encode events and tests as small integers: each attribute's axis is cut where a test ends.

No filter distinguishes two values between neighbouring cuts. So to these filters an event is one
*code* per attribute: 0 for a missing value, otherwise the number of its interval, from 1 on. A test
is then a set of ranges of codes, whatever the attribute's kind, and matching works on codes alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distributary.errors import InputError
from distributary.model import Attribute, AttributeKind, Box, IntArray, Key, Schema, Values
from distributary.model.event import key_of

__all__ = ["Axes", "CodeArray", "column_keys", "event_schema", "event_table", "float_keys"]

CodeArray = NDArray[np.int32]
CodeRange = tuple[int, int]
Cuts = NDArray[np.int64] | list[Key]

_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_MOST_LOOKED_UP = 1 << 12
_NOT_A_NUMBER = np.int64(0x7FF0_0000_0000_0001)


@dataclass(frozen=True, slots=True, eq=False)
class Axes:
    """The sorted cuts of every attribute: int64 keys, or a list for text and decimals."""

    schema: Schema
    cuts: tuple[Cuts, ...]

    @classmethod
    def of(cls, boxes: Iterable[Box], schema: Schema) -> Self:
        """Cut each axis at both ends of every range that a test of the boxes has."""
        tests: list[set[Values]] = [set() for _ in schema.attributes]
        for box in boxes:
            for at, values in box.tests:
                tests[at].add(values)
        return cls.of_tests(tests, schema)

    @classmethod
    def of_tests(cls, tests: Sequence[Iterable[Values]], schema: Schema) -> Self:
        """The same, from the tests of each attribute."""
        return cls(
            schema,
            tuple(
                _cuts(found, attribute.kind)
                for found, attribute in zip(tests, schema.attributes, strict=True)
            ),
        )

    def sizes(self) -> CodeArray:
        """How many codes each attribute has."""
        return np.array([len(cuts) + 2 for cuts in self.cuts], np.int32)

    def ranges(self, at: int, values: Values) -> tuple[CodeRange, ...]:
        """A test as sorted, disjoint half-open ranges of codes; its ends must be among the cuts."""
        cuts, kind = self.cuts[at], self.schema.attributes[at].kind
        found = [(0, 1)] if values.null else []
        for low, high in values.ranges:
            first = 1 if low == kind.least else 2 + bisect_left(cuts, low)
            last = len(cuts) + 2 if high == kind.end else 2 + bisect_left(cuts, high)
            if found and found[-1][1] == first:
                found[-1] = (found[-1][0], last)
            else:
                found.append((first, last))
        return tuple(found)

    def all_ranges(self, at: int, tests: Sequence[Values]) -> tuple[CodeArray, CodeArray, IntArray]:
        """`ranges` of many tests at once: low and high ends, and how many ranges each test has.

        The code of a missing value is a range of its own, even if the next one touches it.
        """
        cuts, kind = self.cuts[at], self.schema.attributes[at].kind
        places: dict[Key | None, int] = {cut: 2 + k for k, cut in enumerate(list(cuts))}
        first, last = {**places, kind.least: 1}, {**places, kind.end: len(cuts) + 2}
        lows: list[int] = []
        highs: list[int] = []
        for values in tests:
            if values.null:
                lows.append(0)
                highs.append(1)
            for low, high in values.ranges:
                lows.append(first[low])
                highs.append(last[high])
        sizes = np.array([len(values.ranges) + values.null for values in tests], np.int64)
        return np.array(lows, np.int32), np.array(highs, np.int32), sizes

    def code(self, keys: Sequence[Key | None]) -> CodeArray:
        """The codes of one event, given as the schema's `keys` of it."""
        return np.array(
            [
                0 if key is None else 1 + bisect_right(cuts, key)
                for cuts, key in zip(self.cuts, keys, strict=True)
            ],
            np.int32,
        )

    def codes(self, events: pa.Table) -> CodeArray:
        """The codes of a table of events: one row each, one column for each attribute.

        The table has exactly the schema's columns, as `event_table` makes it.
        """
        codes = np.empty((events.num_rows, len(self.schema)), np.int32)
        for at, (attribute, cuts) in enumerate(zip(self.schema.attributes, self.cuts, strict=True)):
            column = events.column(at)
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            codes[:, at] = _column_codes(column, attribute.kind, cuts)
        return codes


def event_table(events: pa.Table, schema: Schema, *, path: str | None = None) -> pa.Table:
    """Make a table with exactly the schema's columns: absent ones are null, others are dropped.

    Column names are matched without regard to case. A column of another kind, or a value outside a
    domain, is an `InputError`.
    """
    places: dict[str, int] = {}
    for at, name in enumerate(events.column_names):
        if places.setdefault(name.lower(), at) != at:
            raise InputError(f"two columns are called {name!r}, apart from case", path=path)
    columns = []
    for attribute in schema.attributes:
        target = _arrow_type(attribute)
        place = places.get(attribute.name.lower())
        if place is None:
            columns.append(pa.nulls(events.num_rows, target))
            continue
        column = events.column(place)
        if column.type != target:
            if not pa.types.is_null(column.type) and not _is_of(column.type, attribute.kind):
                raise InputError(
                    f"column {attribute.name!r} has {column.type}, not {attribute.kind.value}",
                    path=path,
                )
            column = _cast(column, target, attribute, path)
        _check_domain(column, attribute, path)
        columns.append(column)
    names = [attribute.name for attribute in schema.attributes]
    return pa.Table.from_arrays(columns, names=names)


def event_schema(schema: pa.Schema) -> Schema:
    """The attributes that filters can test, and the names of columns that they cannot."""
    return Schema(
        tuple(
            Attribute(column.name, kind, scale=_scale(column.type))
            for column in schema
            if (kind := _kind(column.type)) is not None
        ),
        frozenset(column.name.lower() for column in schema if _kind(column.type) is None),
    )


_ARROW = {
    AttributeKind.TEXT: pa.string(),
    AttributeKind.INTEGER: pa.int64(),
    AttributeKind.FLOAT: pa.float64(),
    AttributeKind.BOOLEAN: pa.bool_(),
    AttributeKind.DATE: pa.date32(),
    AttributeKind.TIMESTAMP: pa.timestamp("us"),
}
# Kinds of columns that are converted to the kind of an attribute.
_WIDENED = {
    AttributeKind.FLOAT: (AttributeKind.INTEGER, AttributeKind.DECIMAL),
    AttributeKind.DECIMAL: (AttributeKind.INTEGER,),
    AttributeKind.TIMESTAMP: (AttributeKind.DATE,),
}


def _arrow_type(attribute: Attribute) -> pa.DataType:
    if attribute.kind is AttributeKind.DECIMAL:
        return pa.decimal256(76, attribute.scale)
    return _ARROW[attribute.kind]


def _scale(found: pa.DataType) -> int:
    if pa.types.is_dictionary(found):
        return _scale(found.value_type)
    return int(found.scale) if pa.types.is_decimal(found) else 0


def _is_of(found: pa.DataType, kind: AttributeKind) -> bool:
    column = _kind(found)
    return column is kind or column in _WIDENED.get(kind, ())


def _kind(found: pa.DataType) -> AttributeKind | None:
    if pa.types.is_dictionary(found):
        return _kind(found.value_type)
    tests = (
        (
            AttributeKind.TEXT,
            (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        ),
        (AttributeKind.INTEGER, (pa.types.is_integer,)),
        (AttributeKind.DECIMAL, (pa.types.is_decimal,)),
        (AttributeKind.FLOAT, (pa.types.is_floating,)),
        (AttributeKind.BOOLEAN, (pa.types.is_boolean,)),
        (AttributeKind.DATE, (pa.types.is_date,)),
        (AttributeKind.TIMESTAMP, (pa.types.is_timestamp,)),
    )
    return next((kind for kind, is_one in tests if any(test(found) for test in is_one)), None)


def _cast(
    column: pa.ChunkedArray, target: pa.DataType, attribute: Attribute, path: str | None
) -> pa.ChunkedArray:
    try:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if attribute.kind is AttributeKind.FLOAT and pa.types.is_decimal(column.type):
            column = column.cast(pa.string())  # parsed from text, it is the nearest double
        if attribute.kind is AttributeKind.TIMESTAMP and pa.types.is_timestamp(column.type):
            return _microseconds(column)
        return column.cast(target, safe=attribute.kind is not AttributeKind.FLOAT)
    except pa.ArrowInvalid as error:
        raise InputError(f"column {attribute.name!r}: {error}", path=path) from None


def _microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert times to whole microseconds in UTC without a zone, rounded down."""
    if column.type.unit == "ns":
        count = column.cast(pa.int64())
        toward_zero = pc.divide(count, 1_000)
        is_up = pc.greater(pc.multiply(toward_zero, 1_000), count)
        return pc.subtract(toward_zero, is_up.cast(pa.int64())).cast(pa.timestamp("us"))
    return column.cast(pa.timestamp(column.type.unit)).cast(pa.timestamp("us"))


def _check_domain(column: pa.ChunkedArray, attribute: Attribute, path: str | None) -> None:
    if attribute.domain is None or _is_run_of(attribute, column):
        return
    known = pc.is_in(column, value_set=pa.array(list(attribute.domain), column.type))
    strange = column.filter(pc.and_(pc.invert(known), pc.is_valid(column)))
    if len(strange):
        value = strange[0].as_py()
        raise InputError(
            f"attribute {attribute.name!r} is {value!r}, which is not in its domain",
            path=path,
            value=value,
        )


def _is_run_of(attribute: Attribute, column: pa.ChunkedArray) -> bool:
    """Whether the domain is consecutive integers and includes the least and greatest value."""
    domain = attribute.domain
    if attribute.kind is not AttributeKind.INTEGER or not domain:
        return False
    low, high = min(domain), max(domain)
    ends = pc.min_max(column)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    run = int(high) - int(low) + 1 == len(domain)  # type: ignore[arg-type]
    return run and (least is None or (low <= least and most <= high))


def _cuts(tests: Iterable[Values], kind: AttributeKind) -> Cuts:
    ends: set[Key] = {end for values in tests for found in values.ranges for end in found}
    inner = sorted(ends - {kind.least, kind.end})
    return (
        inner if kind in (AttributeKind.TEXT, AttributeKind.DECIMAL) else np.array(inner, np.int64)
    )


def _column_codes(column: pa.Array, kind: AttributeKind, cuts: Cuts) -> CodeArray:
    if isinstance(cuts, list):
        return _look_up_codes(column, kind, cuts)
    found = _places(cuts, column_keys(column, kind))
    if column.null_count:
        found[pc.is_null(column).to_numpy(zero_copy_only=False)] = 0
    return found


def column_keys(column: pa.Array, kind: AttributeKind) -> NDArray[Any]:
    """`key_of` for a whole column of `event_table`; arbitrary for missing values.

    Keys of texts and decimals are Python objects, all others 64-bit integers.
    """
    match kind:
        case AttributeKind.FLOAT:
            return float_keys(pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False))
        case AttributeKind.BOOLEAN:
            return np.asarray(pc.fill_null(column, False), np.int64)
        case AttributeKind.TEXT | AttributeKind.DECIMAL:
            keys = np.empty(len(column), object)
            scale = column.type.scale if kind is AttributeKind.DECIMAL else 0
            keys[:] = [key_of(value, kind, scale) for value in column.to_pylist()]
            return keys
    width = pa.int32() if kind is AttributeKind.DATE else pa.int64()
    return np.asarray(pc.fill_null(column.cast(width).cast(pa.int64()), 0), np.int64)


def _places(cuts: NDArray[np.int64], keys: NDArray[np.int64]) -> CodeArray:
    """The code of each key; if the cuts are close together, from a table of all keys."""
    # As Python integers, because the distance of two keys may be beyond 64 bits.
    span = int(cuts[-1]) - int(cuts[0]) if len(cuts) else 0
    if not len(cuts) or span >= _MOST_LOOKED_UP:
        return (np.searchsorted(cuts, keys, side="right") + 1).astype(np.int32)
    low, high = cuts[0] - 1, cuts[-1]
    every = low + np.arange(span + 2)
    table = np.searchsorted(cuts, every, side="right").astype(np.int32) + 1
    codes: CodeArray = table[np.clip(keys, low, high) - low]
    return codes


def _look_up_codes(column: pa.Array, kind: AttributeKind, cuts: Sequence[Key]) -> CodeArray:
    """The codes of texts or decimals; each distinct value is looked up once."""
    encoded = column.dictionary_encode()
    keys = column_keys(encoded.dictionary, kind)
    found = np.array([1 + bisect_right(cuts, key) for key in keys])
    places = pc.fill_null(encoded.indices, len(found)).to_numpy(zero_copy_only=False)
    codes: CodeArray = np.append(found, 0).astype(np.int32)[places]
    return codes


def float_keys(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """`key_of` for many doubles."""
    bits = np.ascontiguousarray(values).view(np.int64)
    keys = np.where(bits >= 0, bits, -(bits & _MAGNITUDE))
    return np.where(np.isnan(values), _NOT_A_NUMBER, keys)
