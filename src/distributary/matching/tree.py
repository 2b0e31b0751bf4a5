"""The parallel search tree: find the boxes that contain an event without trying all of them.

Each box is a path from the root to a leaf, one test after the other; boxes with the same first
tests share the start of the path. A search follows every branch that the event passes: the one of
its value, any other test that its value passes, and * for the boxes without a test. A *matching
step* is the visit of one node.

Banavar et al., "An Efficient Multicast Protocol for Content-Based Publish-Subscribe Systems", 1999;
the tree is that of Aguilera et al., "Matching Events in a Content-Based Subscription System", 1999.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from distributary.matching import _tree_kernels as kernels
from distributary.matching.axes import Axes, CodeArray, CodeRange
from distributary.model import Box, IndexArray, IntArray, Values
from distributary.model.event import key_of

__all__ = ["DEFAULT_OPTIONS", "CodedBoxes", "SearchTree", "TreeOptions"]

# Factoring copies a box without a test to every value of the index; the most copies per box.
MOST_COPIES = 2.5
# The most places of the index per box: it is then still small compared with the tree.
MOST_PLACES = 4


@dataclass(frozen=True, slots=True)
class TreeOptions:
    """The paper's three optimisations; without them the tree is the paper's basic one.

    `factoring`: attributes that nearly all boxes test are looked up in an index of sub-trees.
    `trivial_tests`: a node whose only branch is * is left out. `delayed_branching`: a * branch is
    entered only by events that pass a test that all boxes below it share. Neither the look-up nor
    that test counts as a step. Delayed branching is off: it saved up to 6 % of the steps on filters
    like the paper's and up to 18 % on narrow ones, but the tests mostly took longer than the steps
    they saved.
    """

    factoring: bool = True
    trivial_tests: bool = True
    delayed_branching: bool = False


DEFAULT_OPTIONS = TreeOptions()


@dataclass(frozen=True, slots=True, eq=False)
class CodedBoxes:
    """Boxes whose tests are numbered, with ranges of codes.

    `tests[box, attribute]` is the number of a test, 0 for none. The columns of `test` have the
    attribute of each test, and where its half-open ranges of codes begin and end in `ranges`. Tests
    of one attribute are consecutive: first those of a single code, by that code.
    """

    tests: IndexArray
    test: IndexArray
    ranges: IndexArray
    possible: tuple[
        NDArray[np.bool_], ...
    ]  # for each attribute, whether an event can have each code

    @classmethod
    def of(cls, boxes: Sequence[Box], axes: Axes) -> Self:
        """Encode boxes whose ends are among the cuts of the axes."""
        found: list[dict[Values, int]] = [{} for _ in axes.cuts]
        rows, columns, places = [], [], []
        for row, box in enumerate(boxes):
            for at, values in box.tests:
                rows.append(row)
                columns.append(at)
                places.append(found[at].setdefault(values, len(found[at])))
        ranges = [[axes.ranges(at, values) for values in each] for at, each in enumerate(found)]
        given = np.zeros((len(boxes), len(axes.cuts)), np.int32)
        given[rows, columns] = np.array(places, np.int32) + 1
        return cls.of_tests(given, ranges, _possible(axes))

    @classmethod
    def of_tests(
        cls,
        given: IndexArray,
        ranges: Sequence[Sequence[tuple[CodeRange, ...]]],
        possible: Sequence[NDArray[np.bool_]],
    ) -> Self:
        """Number the tests; `given[box, attribute]` is an index into `ranges` from 1 on, or 0."""
        tests = np.zeros(given.shape, np.int32)
        kept: list[tuple[int, tuple[CodeRange, ...]]] = []
        for at, each in enumerate(ranges):
            order = sorted(range(len(each)), key=lambda place: _test_order(each[place]))
            number = np.zeros(len(each) + 1, np.int32)
            for place in order:
                # Different values can have the same codes; they are one test.
                if not kept or kept[-1] != (at, each[place]):
                    kept.append((at, each[place]))
                number[place + 1] = len(kept)
            tests[:, at] = number[given[:, at]]
        ends = np.cumsum([0, 0, *(len(test) for _, test in kept)])
        attributes = [-1, *(at for at, _ in kept)]
        flat = [found for _, test in kept for found in test]
        return cls(
            tests,
            np.column_stack([attributes, ends[:-1], ends[1:]]).astype(np.int32),
            np.array(flat, np.int32).reshape(-1, 2),
            tuple(possible),
        )

    def __len__(self) -> int:
        return len(self.tests)

    def codes_of(self, test: int) -> list[CodeRange]:
        """The ranges of codes that pass a test."""
        _, first, last = self.test[test]
        return [(int(low), int(high)) for low, high in self.ranges[first:last]]

    def widths(self) -> IntArray:
        """The number of codes that pass each test; 0 for no test."""
        ends = np.concatenate([[0], np.cumsum(self.ranges[:, 1] - self.ranges[:, 0])])
        return np.asarray(ends[self.test[:, 2]] - ends[self.test[:, 1]], np.int64)


class SearchTree:
    """Boxes compiled into a tree; a box is identified by its index in the input."""

    def __init__(self, boxes: CodedBoxes, options: TreeOptions = DEFAULT_OPTIONS) -> None:
        self.boxes = boxes
        self.options = options
        self.sizes = np.array([len(codes) for codes in boxes.possible], np.int64)
        don_t_care = (boxes.tests == 0).sum(axis=0)
        attributes = np.argsort(don_t_care, kind="stable")
        n_index = _index_size(boxes, attributes, self.sizes) if options.factoring else 0
        self.index = attributes[:n_index]
        self.order = attributes[n_index:]
        self.nodes = _compile(self)
        self.pending = int(kernels.pending(self.nodes))

    @classmethod
    def of(cls, boxes: Sequence[Box], axes: Axes, options: TreeOptions = DEFAULT_OPTIONS) -> Self:
        """The tree of boxes whose ends are among the cuts of the axes."""
        return cls(CodedBoxes.of(boxes, axes), options)

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.nodes.edge)

    def match(self, codes: CodeArray) -> tuple[IndexArray, int]:
        """The boxes that contain an event, in order, and the number of steps."""
        _, boxes, steps = self.match_all(codes[np.newaxis])
        return np.sort(boxes), int(steps[0])

    def match_all(self, codes: CodeArray) -> tuple[IntArray, IndexArray, IntArray]:
        """The offsets of each event's boxes, the boxes, and the steps of each event."""
        codes = self.check_codes(codes)
        offsets = np.empty(len(codes) + 1, np.int64)
        steps = np.empty(len(codes), np.int64)
        boxes = kernels.list_matches(self.nodes, codes, offsets, steps)
        return offsets, boxes, steps

    def count(self, codes: CodeArray) -> tuple[IntArray, IntArray]:
        """The number of boxes that contain each event, and the steps of each event."""
        codes = self.check_codes(codes)
        counts = np.empty(len(codes), np.int64)
        steps = np.empty(len(codes), np.int64)
        kernels.count_matches(self.nodes, codes, counts, steps)
        return counts, steps

    def check_codes(self, codes: CodeArray) -> CodeArray:
        """Check that all codes are on their axes, and return them as the kernels need them."""
        if codes.shape[1] != len(self.sizes):
            raise ValueError(f"events have {codes.shape[1]} attributes, not {len(self.sizes)}")
        if len(codes) and (codes.min() < 0 or (codes.max(axis=0) >= self.sizes).any()):
            raise ValueError("a code is beyond the end of its axis")
        return np.ascontiguousarray(codes, np.int32)


# --- coding --------------------------------------------------------------------------------------


def _test_order(test: tuple[CodeRange, ...]) -> tuple[bool, tuple[CodeRange, ...]]:
    return sum(high - low for low, high in test) != 1, test


def _possible(axes: Axes) -> list[NDArray[np.bool_]]:
    """Which codes can occur: with a domain only those of its values, and 0 for a missing one."""
    found = []
    for attribute, cuts, size in zip(axes.schema.attributes, axes.cuts, axes.sizes(), strict=True):
        possible = np.ones(size, np.bool_)
        if attribute.domain is not None:
            keys = [key_of(value, attribute.kind, attribute.scale) for value in attribute.domain]
            possible[1:] = False
            possible[[1 + bisect_right(cuts, key) for key in keys]] = True
        found.append(possible)
    return found


# --- building ------------------------------------------------------------------------------------


def _index_size(boxes: CodedBoxes, attributes: IntArray, sizes: IntArray) -> int:
    """The number of attributes that can be factored out before there are too many copies."""
    widths = boxes.widths()
    copies = np.ones(len(boxes), np.float64)
    places = 1
    for n, at in enumerate(attributes):
        tests = boxes.tests[:, at]
        copies *= np.where(tests == 0, sizes[at], widths[tests])
        places *= int(sizes[at])
        # An attribute that no box tests does not help.
        if not tests.any() or copies.sum() > MOST_COPIES * len(boxes):
            return n
        if places > MOST_PLACES * len(boxes) + 64:
            return n
    return len(attributes)


def _compile(tree: SearchTree) -> kernels.Nodes:
    """Expand the boxes over the index, sort them, build the trie, and lay it out."""
    boxes, options = tree.boxes, tree.options
    box_of_row, keys = _expand_rows(tree)
    order, columns = _sort_columns(boxes.tests[:, tree.order], box_of_row, keys)
    box_of_row, keys = box_of_row[order], keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    groups = np.append(starts, len(keys)).astype(np.int64)
    depth, first, edge, guard, parent, rows = kernels.grow(
        columns, groups, options.trivial_tests, options.delayed_branching, _bound(columns, starts)
    )
    attributes = np.append(tree.order, kernels.LEAF).astype(np.int32)
    node, table = kernels.lay_out(attributes, depth, first, edge, guard, _only_codes(boxes))
    roots = np.full(int(np.prod(tree.sizes[tree.index])), -1, np.int32)
    roots[keys[starts]] = np.arange(len(starts))
    code_at, possible = _possible_codes(boxes)
    return kernels.Nodes(
        index=tree.index.astype(np.int32),
        strides=_strides(tree.sizes[tree.index]),
        roots=roots,
        node=node,
        table=table,
        first=first.copy(),
        edge=edge.copy(),
        parent=parent.copy(),
        leaf_rows=rows.copy(),
        row_box=box_of_row.astype(np.int32),
        test=boxes.test,
        ranges=boxes.ranges,
        code_at=code_at,
        possible=possible,
    )


def _strides(sizes: IntArray) -> IntArray:
    return np.array([np.prod(sizes[k + 1 :]) for k in range(len(sizes))], np.int64)


def _expand_rows(tree: SearchTree) -> tuple[IntArray, IntArray]:
    """The box that each row of the tree is a copy of, and the place of its root in the index."""
    boxes, widths = tree.boxes, tree.boxes.widths()
    rows = np.arange(len(boxes), dtype=np.int64)
    keys = np.zeros(len(boxes), np.int64)
    for at in tree.index:
        tests = boxes.tests[rows, at]
        total = np.where(tests == 0, tree.sizes[at], widths[tests]).sum()
        copied, keys = kernels.expand(tests, keys, tree.sizes[at], boxes.test, boxes.ranges, total)
        rows = rows[copied]
    return rows, keys


def _sort_columns(
    tests: IndexArray, box_of_row: IntArray, keys: IntArray
) -> tuple[IntArray, IndexArray]:
    """Sort rows by key and tests; return the order, and the columns of tests in that order.

    Neighbouring columns are packed into one word as long as they fit: fewer passes of the sort.
    """
    words: list[IntArray] = []
    word, bits = keys.copy(), int(keys.max(initial=0)).bit_length()
    for column in tests.T:
        width = int(column.max(initial=0)).bit_length()
        if bits + width > 63:
            words.append(word)
            word, bits = np.zeros(len(keys), np.int64), 0
        word = word << width | column[box_of_row]
        bits += width
    order = np.lexsort([*reversed([*words, word])])
    sorted_boxes = box_of_row[order]
    columns = np.empty((tests.shape[1], len(order)), np.int32)
    for d, column in enumerate(tests.T):
        columns[d] = column[sorted_boxes]
    return order, columns


def _bound(columns: IndexArray, starts: IntArray) -> int:
    """The number of nodes of the whole trie: one for each prefix in which rows differ."""
    begins = np.zeros(columns.shape[1], np.bool_)
    begins[starts] = True
    total = len(starts)
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
        total += int(np.count_nonzero(begins))
    return total


def _only_codes(boxes: CodedBoxes) -> IndexArray:
    """The code of each test that has a single one, -1 for the others."""
    single = boxes.widths() == 1
    codes = np.full(len(boxes.test), -1, np.int32)
    codes[single] = boxes.ranges[boxes.test[single, 1], 0]
    return codes


def _possible_codes(boxes: CodedBoxes) -> tuple[IntArray, IntArray]:
    """For each code of each attribute, the number of codes before it that can occur."""
    counts = [np.concatenate([[0], np.cumsum(codes)]) for codes in boxes.possible]
    code_at = np.cumsum([0, *(len(each) for each in counts)])
    return code_at.astype(np.int64), np.concatenate(counts).astype(np.int64)
