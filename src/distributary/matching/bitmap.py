"""Filters compiled for matching: one bit per box, and events matched by ANDs of words.

Equal boxes are stored once. Boxes are sorted by their tests, the most tested attribute first, so
that similar boxes are neighbours: for most events whole blocks of them drop out at once. The codes
of an attribute with many codes are combined into buckets; a box whose tests do not end at bucket
boundaries is checked against the exact codes if it passes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from distributary.matching._bitmap_kernels import (
    Owners,
    Ranges,
    Tables,
    WordArray,
    count_boxes,
    count_owners,
    group_ranges,
    lay_out,
    list_owners,
)
from distributary.matching.axes import Axes, CodeArray
from distributary.model import Filter, IndexArray, IntArray, Key, Schema, Values

__all__ = ["BUCKETS", "Bitmap", "Buckets"]

_BLOCK_WORDS = 64


@dataclass(frozen=True, slots=True)
class Buckets:
    """The most buckets of an attribute: more take more memory, fewer more checking.

    Boxes are sorted by the most tested attribute first. A block has few distinct tests of it, and
    most of its buckets share a row of bits, so it may have many more buckets at little cost.
    """

    most: int = 128
    most_of_first: int = 4096

    def __post_init__(self) -> None:
        if self.most < 1 or self.most_of_first < 1:
            raise ValueError("an attribute needs at least one bucket")


BUCKETS = Buckets()


@dataclass(slots=True, eq=False)
class Bitmap:
    """A fixed set of numbered filters, from which filters can only be removed."""

    axes: Axes
    numbers: IntArray  # of the filters, in order
    _tables: Tables
    _owners: Owners
    _box_offsets: IndexArray  # where a filter's boxes begin in _boxes
    _boxes: IndexArray
    _several: bool  # whether some filter has more than one box

    @classmethod
    def of(
        cls,
        numbers: Sequence[int] | IntArray,
        filters: Sequence[Filter],
        schema: Schema,
        *,
        buckets: Buckets = BUCKETS,
    ) -> Self:
        """Compile filters, whose numbers are in order."""
        tests = _Tests.of(filters, len(schema))
        axes = Axes.of_tests(tests.different, schema)
        attributes = [_attribute(at, tests, axes) for at in tests.attributes()]
        order, is_new = _sort_boxes(attributes, len(tests.sizes))
        tables = _tables(attributes, order[is_new], buckets)
        box_of = np.empty(len(order), np.int32)
        box_of[order] = np.cumsum(is_new) - 1
        owners = _owners(tests.boxes, order, is_new)
        return cls(
            axes,
            np.asarray(numbers, np.int64),
            tables,
            owners,
            _offsets(tests.boxes).astype(np.int32),
            box_of,
            bool((tests.boxes > 1).any()),
        )

    def __len__(self) -> int:
        """The number of filters that are not removed."""
        return int(np.count_nonzero(self._owners.alive))

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self.numbers, number)
        return bool(
            at < len(self.numbers) and self.numbers[at] == number and self._owners.alive[at]
        )

    @property
    def bytes_used(self) -> int:
        """The size of all arrays, in bytes."""
        others = (self.numbers, self._box_offsets, self._boxes)
        return sum(found.nbytes for found in (*self._tables, *self._owners, *others))

    def remove(self, number: int) -> None:
        """Remove a filter; `KeyError` if there is none with that number."""
        if number not in self:
            raise KeyError(number)
        at = bisect_left(self.numbers, number)
        self._owners.alive[at] = False
        for box in self._boxes[self._box_offsets[at] : self._box_offsets[at + 1]].tolist():
            self._owners.count[box] -= 1
            if not self._owners.count[box]:
                self._tables.alive[box // 64] &= ~np.uint64(1 << box % 64)

    def match_keys(self, keys: Sequence[Key | None]) -> IntArray:
        """The numbers, in order, of the filters that an event with these keys matches."""
        _, found = self.match_codes(self.axes.code(keys).reshape(1, -1))
        return found

    def match_codes(self, events: CodeArray) -> tuple[IntArray, IntArray]:
        """The offsets of each event's filters, and their numbers, sorted for each event.

        Events are rows of codes on this bitmap's `axes`.
        """
        offsets, found = list_owners(self._tables, self._owners, events)
        return offsets, self.numbers[found]

    def count_codes(self, events: CodeArray) -> IntArray:
        """The number of filters that each event matches."""
        if self._several:
            offsets, _ = list_owners(self._tables, self._owners, events)
            return np.diff(offsets)
        if len(self._owners.count) < len(self._boxes):  # some filters share a box
            return count_owners(self._tables, self._owners, events)
        return count_boxes(self._tables, events)


# --- filters into arrays -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Tests:
    """The tests of all boxes, numbered among the `different` ones of their attribute."""

    different: list[list[Values]]  # of each attribute
    boxes: IntArray  # how many each filter has
    sizes: IntArray  # how many tests each box has
    attribute: IndexArray  # of each test of each box
    number: IndexArray  # of each test of each box, among the different ones

    @classmethod
    def of(cls, filters: Sequence[Filter], n_attributes: int) -> Self:
        """Collect the tests of all boxes. Most are repeated, and found fastest by identity."""
        by_identity: list[dict[int, int]] = [{} for _ in range(n_attributes)]
        by_value: list[dict[Values, int]] = [{} for _ in range(n_attributes)]
        attributes, numbers, sizes = array("i"), array("i"), array("q")
        for found in filters:
            for box in found.boxes:
                sizes.append(len(box.tests))
                for at, values in box.tests:
                    number = by_identity[at].get(id(values))
                    if number is None:
                        number = by_value[at].setdefault(values, len(by_value[at]))
                        by_identity[at][id(values)] = number
                    attributes.append(at)
                    numbers.append(number)
        return cls(
            [list(found) for found in by_value],
            np.array([len(found.boxes) for found in filters], np.int64),
            np.array(sizes, np.int64),
            np.array(attributes, np.int32),
            np.array(numbers, np.int32),
        )

    def attributes(self) -> list[int]:
        """The tested attributes, the most tested first."""
        tested = np.bincount(self.attribute, minlength=len(self.different))
        return [int(at) for at in np.argsort(-tested, kind="stable") if tested[at]]


@dataclass(frozen=True, slots=True, eq=False)
class _Attribute:
    """The sorted tests of one attribute as ranges of codes, and the test of each box.

    Test 0 is passed by all codes: it is for boxes that do not test the attribute.
    """

    at: int
    n_codes: int
    offsets: IntArray
    low: IndexArray
    high: IndexArray
    test: NDArray[np.unsignedinteger]  # of each box


def _attribute(at: int, tests: _Tests, axes: Axes) -> _Attribute:
    n_codes = int(axes.sizes()[at])
    low, high, sizes = axes.all_ranges(at, tests.different[at])
    offsets = _offsets(sizes)
    order = np.lexsort((high[offsets[1:] - 1], low[offsets[:-1]]))
    chosen = _slice_indices(offsets, order)
    smallest: np.dtype[np.unsignedinteger] = np.min_scalar_type(len(order))  # it sorts faster
    rank = np.empty(len(order), smallest)
    rank[order] = np.arange(1, len(order) + 1)
    here = np.flatnonzero(tests.attribute == at)
    box = np.searchsorted(np.cumsum(tests.sizes), here, side="right")
    test = np.zeros(len(tests.sizes), smallest)
    test[box] = rank[tests.number[here]]
    return _Attribute(
        at,
        n_codes,
        _offsets(np.append(1, sizes[order])),
        np.append(np.int32(0), low[chosen]),
        np.append(np.int32(n_codes), high[chosen]),
        test,
    )


def _sort_boxes(
    attributes: Sequence[_Attribute], n_boxes: int
) -> tuple[IntArray, NDArray[np.bool_]]:
    """Sort the boxes by their tests; return the order, and which differ from the one before."""
    is_new = np.zeros(n_boxes, np.bool_)
    is_new[:1] = True
    if not attributes:
        return np.arange(n_boxes), is_new
    order = np.lexsort([attribute.test for attribute in reversed(attributes)])
    for attribute in attributes:
        test = attribute.test[order]
        is_new[1:] |= test[1:] != test[:-1]
    return order, is_new


def _owners(boxes: IntArray, order: IntArray, is_new: NDArray[np.bool_]) -> Owners:
    starts = np.append(np.flatnonzero(is_new), len(order)).astype(np.int32)
    owner = np.repeat(np.arange(len(boxes), dtype=np.int32), boxes)
    return Owners(starts, owner[order], np.ones(len(boxes), np.bool_), np.diff(starts))


# --- arrays into bits ----------------------------------------------------------------------------


def _tables(attributes: Sequence[_Attribute], boxes: IntArray, limits: Buckets) -> Tables:
    """Lay out the chosen boxes in the given order."""
    tests = np.empty((len(attributes), len(boxes)), np.int32)
    grouped = []
    for a, attribute in enumerate(attributes):
        tests[a] = attribute.test[boxes]
        most = limits.most if a else limits.most_of_first
        bucket_of = _bucket_of(attribute, tests[a], most)
        ranges = group_ranges(attribute.offsets, attribute.low, attribute.high, bucket_of)
        grouped.append((bucket_of, *ranges))
    check_offsets, checks = _checks(attributes, tests, [exact for *_, exact in grouped])
    columns = _offsets([bucket_of[-1] + 1 for bucket_of, *_ in grouped])
    ranges_before = _offsets([len(low) for _, _, low, _, _ in grouped])
    offsets = [found[:-1] + n for (_, found, *_), n in zip(grouped, ranges_before, strict=False)]
    tests += _offsets([len(found) for found in offsets])[:-1, None].astype(np.int32)
    n_words = -(-len(boxes) // 64)
    groups, summaries, row_of, rows = lay_out(
        tests,
        Ranges(
            np.concatenate([*offsets, ranges_before[-1:]]),
            _concatenate(low + n for (_, _, low, _, _), n in zip(grouped, columns, strict=False)),
            _concatenate(high + n for (_, _, _, high, _), n in zip(grouped, columns, strict=False)),
        ),
        columns,
        max(1, min(_BLOCK_WORDS, n_words)),
    )
    return Tables(
        np.array([attribute.at for attribute in attributes], np.int32),
        _offsets([len(bucket_of) for bucket_of, *_ in grouped])[:-1],
        _concatenate(
            bucket_of + n for (bucket_of, *_), n in zip(grouped, columns, strict=False)
        ).astype(np.uint32),
        groups,
        summaries,
        row_of,
        rows,
        _bits(np.ones(len(boxes), np.bool_)),
        _bits(np.diff(check_offsets) > 0) if len(check_offsets) else np.zeros(n_words, np.uint64),
        check_offsets,
        checks,
    )


def _bucket_of(attribute: _Attribute, test: IndexArray, most: int) -> IndexArray:
    """The bucket of each code: each holds about as many ends of tests, or a single code.

    So codes are distinguished most finely where many tests end.
    """
    n_codes = attribute.n_codes
    if n_codes <= most:
        return np.arange(n_codes, dtype=np.int32)
    uses = np.bincount(test, minlength=len(attribute.offsets) - 1)
    uses[0] = 0
    weights = np.repeat(uses, np.diff(attribute.offsets))
    ends = np.bincount(attribute.low, weights, n_codes + 1)
    ends += np.bincount(attribute.high, weights, n_codes + 1)
    middle = np.cumsum(ends[:n_codes]) - ends[:n_codes] / 2
    bucket = np.minimum(middle * most // middle[-1], most - 1)
    return np.unique(bucket, return_inverse=True)[1].astype(np.int32)


def _checks(
    attributes: Sequence[_Attribute], tests: IndexArray, exact: Sequence[NDArray[np.bool_]]
) -> tuple[IndexArray, IndexArray]:
    """The ranges of each box's tests that do not end at buckets; empty arrays if all do."""
    boxes, checks = [], []
    for attribute, test, is_exact in zip(attributes, tests, exact, strict=True):
        box = np.flatnonzero(~is_exact[test])
        ranges = _slice_indices(attribute.offsets, test[box])
        at = np.full(len(ranges), attribute.at, np.int32)
        boxes.append(np.repeat(box, np.diff(attribute.offsets)[test[box]]))
        checks.append(np.column_stack((at, attribute.low[ranges], attribute.high[ranges])))
    if not any(len(found) for found in boxes):
        return np.empty(0, np.int32), np.empty((0, 3), np.int32)
    box = np.concatenate(boxes)
    counts = np.bincount(box, minlength=tests.shape[1])
    order = np.argsort(box, kind="stable")
    return _offsets(counts).astype(np.int32), np.concatenate(checks)[order]


def _bits(flags: NDArray[np.bool_]) -> WordArray:
    padded = np.zeros(-(-len(flags) // 64) * 64, np.bool_)
    padded[: len(flags)] = flags
    return np.packbits(padded, bitorder="little").view(np.uint64)


def _offsets(sizes: Sequence[int] | IntArray) -> IntArray:
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def _slice_indices(offsets: IntArray, chosen: NDArray[np.integer]) -> IntArray:
    """The indices of the chosen slices, one slice after the other."""
    sizes = np.diff(offsets)[chosen]
    before = np.cumsum(sizes) - sizes
    return np.repeat(offsets[chosen] - before, sizes) + np.arange(sizes.sum())


def _concatenate(parts: Iterable[IndexArray]) -> IndexArray:
    return np.concatenate([np.empty(0, np.int32), *parts]).astype(np.int32)
