"""Check residuals: which of the pairs of event and filter that the bitmaps found do match.

Bitmaps know only the tests of boxes and find a filter with residuals by its tests alone. Here its
pairs are checked, all events of a filter at once, and texts and decimals once per distinct value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distributary.matching.axes import column_keys, float_keys
from distributary.model import (
    AttributeKind,
    Box,
    Comparison,
    Filter,
    IntArray,
    Key,
    Pattern,
    Residual,
    Schema,
    Values,
)
from distributary.model.residual import SIGNS, Operand

__all__ = ["check_pairs"]

Flags = NDArray[np.bool_]


def check_pairs(
    events: pa.Table, rows: IntArray, numbers: IntArray, filters: Mapping[int, Filter]
) -> Flags:
    """Which pairs of a row and a filter's number match.

    `filters` has the filters with residuals; pairs of other filters always match. `events` is made
    by `event_table`.
    """
    holds = np.ones(len(rows), np.bool_)
    inexact = np.flatnonzero(np.isin(numbers, np.fromiter(filters, np.int64, len(filters))))
    if not len(inexact):
        return holds
    by_number = inexact[np.argsort(numbers[inexact], kind="stable")]
    starts = np.flatnonzero(np.diff(numbers[by_number], prepend=-1))
    columns = _Columns(events, next(iter(filters.values())).schema)
    for pairs in np.split(by_number, starts[1:]):
        filter = filters[int(numbers[pairs[0]])]
        holds[pairs] = columns.match_filter(filter, rows[pairs])
    return holds


class _Columns:
    """The columns of a table as keys, computed on first use."""

    def __init__(self, events: pa.Table, schema: Schema) -> None:
        self._columns = [
            _Column(events.column(at), attribute.kind)
            for at, attribute in enumerate(schema.attributes)
        ]

    def match_filter(self, filter: Filter, rows: IntArray) -> Flags:
        """Which of the rows match, by tests and residuals."""
        if len(filter.boxes) == 1:  # the rows are known to pass its tests
            return self._match_residuals(filter.boxes[0], rows)
        found = np.zeros(len(rows), np.bool_)
        for box in filter.boxes:
            left = np.flatnonzero(~found)
            for at, values in box.tests:
                left = left[self._columns[at].test(values, rows[left])]
            found[left] = self._match_residuals(box, rows[left])
        return found

    def _match_residuals(self, box: Box, rows: IntArray) -> Flags:
        found = np.ones(len(rows), np.bool_)
        for residual in box.residuals:
            left = np.flatnonzero(found)
            found[left] = self._match_residual(residual, rows[left])
        return found

    def _match_residual(self, residual: Residual, rows: IntArray) -> Flags:
        """Which rows a residual holds for; they passed the box's tests, so no value is missing."""
        match residual:
            case Pattern():
                column = self._columns[residual.at]
                return column.look_up(residual, residual.matches_text, rows)
            case Comparison():
                left, right = residual.left, residual.right
                one = self._columns[left.at].values(left)[rows]
                other = self._columns[right.at].values(right)[rows]
                return np.asarray(SIGNS[residual.sign](one, other), np.bool_)


class _Column:
    """One column as keys: per distinct value for texts and decimals, otherwise per row."""

    def __init__(self, column: pa.ChunkedArray, kind: AttributeKind) -> None:
        self._column = column
        self._is_coded = kind in (AttributeKind.TEXT, AttributeKind.DECIMAL)
        self._kind = kind
        self._known: dict[object, NDArray[Any]] = {}

    @cached_property
    def _missing(self) -> Flags:
        return np.asarray(pc.is_null(self._column), np.bool_)

    @cached_property
    def _coded(self) -> tuple[NDArray[Any], IntArray]:
        """The keys of the distinct values, and for each row the index of its key among them.

        The last key stands for a missing value.
        """
        encoded = self._column.combine_chunks().dictionary_encode()
        keys = column_keys(encoded.dictionary, self._kind)
        place = pc.fill_null(encoded.indices, len(keys)).to_numpy(zero_copy_only=False)
        return np.append(keys, np.array([None])), place.astype(np.int64)

    @cached_property
    def _by_row(self) -> NDArray[Any]:
        """The key of each row; arbitrary if the value is missing."""
        if self._is_coded:
            keys, place = self._coded
            return keys[place]
        return column_keys(self._column.combine_chunks(), self._kind)

    def test(self, values: Values, rows: IntArray) -> Flags:
        """Which rows have one of the values."""
        if self._is_coded:
            return self.look_up(values, lambda key: key in values, rows)
        keys = self._by_row[rows]
        low = np.array([low for low, _ in values.ranges], np.int64)
        last = np.array([high - 1 for _, high in values.ranges if high is not None], np.int64)
        place = np.searchsorted(low, keys, side="right") - 1
        inside = place >= 0
        inside[inside] = keys[inside] <= last[place[inside]]
        return np.where(self._missing[rows], values.null, inside)

    def look_up(self, of: object, test: Callable[[Key | None], bool], rows: IntArray) -> Flags:
        """Apply a test to texts or decimals, once per distinct value; `of` identifies the test."""
        keys, place = self._coded
        if of not in self._known:
            self._known[of] = np.array([test(key) for key in keys], np.bool_)
        return np.asarray(self._known[of][place[rows]], np.bool_)

    def values(self, operand: Operand) -> NDArray[Any]:
        """The value of each row as a comparison uses it."""
        if operand.factor == 1 and operand.scale is None:
            return self._by_row
        if operand not in self._known:
            self._known[operand] = self._convert(operand)
        return self._known[operand]

    def _convert(self, operand: Operand) -> NDArray[Any]:
        if operand.scale is not None and not self._is_coded:
            return float_keys(self._by_row.astype(np.float64))
        # As Python numbers, because the results may be beyond 64 bits.
        keys, place = self._coded if self._is_coded else (self._by_row, None)
        converted = np.empty(len(keys), object)
        converted[:] = [None if key is None else operand.value(key) for key in keys.tolist()]
        return converted if place is None else converted[place]
