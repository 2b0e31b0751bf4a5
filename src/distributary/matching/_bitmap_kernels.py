"""The compiled inner loops of the bitmap; `_bitmap_reference.py` has their plain twins.

Boxes are in order, 64 to a *word*, up to 64 words to a *block*, 64 blocks to a *group*. A *column*
is a bucket of codes of an attribute. For each column a block has a row of bits, one for each box
that the bucket passes, by its test or because it has none; a summary with one bit for each word of
the row that is not 0; and one bit in the word of its group if the summary is not 0. An event is one
column for each attribute. The boxes it passes are the AND of their bits, first of groups, then of
summaries, then of rows; the search stops as soon as nothing is left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distributary.compiled import copy_into, kernel, lowest_bit, popcount
from distributary.model import IndexArray, IntArray

__all__ = [
    "Owners",
    "PlaceArray",
    "Tables",
    "WordArray",
    "count_boxes",
    "count_owners",
    "group_ranges",
    "lay_out",
    "list_owners",
]

WordArray = NDArray[np.uint64]
# Unsigned, so that no check for negative indices is compiled: this saves a quarter of the time.
PlaceArray = NDArray[np.uint32]

_ONE = np.uint64(1)
_SIZE = np.uint64(64)  # bits of a word
_NONE = np.uint64(0)
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


class Ranges(NamedTuple):
    """Ranges of columns, each from `low` to before `high`.

    Those of test t are `offsets[t]` to `offsets[t + 1]`, apart and not touching.
    """

    offsets: IntArray
    low: IndexArray
    high: IndexArray


class Tables(NamedTuple):
    """The arrays of a search. Attributes are those that some box tests, in the order of tests."""

    attributes: IndexArray  # the attribute's place among an event's codes
    code_offsets: IntArray  # where the attribute's codes begin in `column_of`
    column_of: PlaceArray  # the column of each code
    groups: WordArray  # groups x columns: a bit for each block
    summaries: WordArray  # blocks x columns: a bit for each word of a row
    row_of: PlaceArray  # blocks x columns: which row of bits; equal rows are stored once
    rows: WordArray  # rows x words of a block
    alive: WordArray  # a bit for each box
    inexact: WordArray  # a bit for each box whose columns pass more codes than its tests
    check_offsets: IndexArray  # where the checks of a box begin; empty if no box is inexact
    checks: IndexArray  # checks x 3: attribute, first code, code after the last


class Owners(NamedTuple):
    """The filters of a box: `filters[offsets[box]:offsets[box + 1]]`; some may be removed."""

    offsets: IndexArray
    filters: IndexArray
    alive: NDArray[np.bool_]  # by filter
    count: IndexArray  # by box: filters that are alive


# --- building ------------------------------------------------------------------------------------


@kernel
def group_ranges(
    offsets: IntArray,  # IN   ranges of each test
    low: IndexArray,  # IN   first code; ranges of a test in order, apart or touching
    high: IndexArray,  # IN   code after the last
    bucket_of: IndexArray,  # IN   bucket of each code
) -> tuple[IntArray, IndexArray, IndexArray, NDArray[np.bool_]]:
    """Convert each test to the ranges of buckets it touches, and say whether they are exact."""
    n_tests = len(offsets) - 1
    n_codes = len(bucket_of)
    grouped = np.zeros(n_tests + 1, np.int64)
    first = np.empty(len(low), np.int32)
    last = np.empty(len(low), np.int32)
    exact = np.ones(n_tests, np.bool_)
    used = 0
    for test in range(n_tests):
        for at in range(offsets[test], offsets[test + 1]):
            begin, end = bucket_of[low[at]], bucket_of[high[at] - 1] + 1
            touches = at > offsets[test] and low[at] == high[at - 1]
            if low[at] > 0 and bucket_of[low[at] - 1] == begin and not touches:
                exact[test] = False
            joined = at + 1 < offsets[test + 1] and low[at + 1] == high[at]
            if high[at] < n_codes and bucket_of[high[at]] == end - 1 and not joined:
                exact[test] = False
            if used > grouped[test] and begin <= last[used - 1]:
                last[used - 1] = max(end, last[used - 1])
            else:
                first[used], last[used] = begin, end
                used += 1
        grouped[test + 1] = used
    return grouped, first[:used].copy(), last[:used].copy(), exact


@kernel
def lay_out(
    tests: IndexArray,  # IN   attributes x boxes: the test that a box has, or the one that all pass
    ranges: Ranges,  # IN   of each test
    columns: IntArray,  # IN   where each attribute's columns begin, and the end of all
    width: int,  # IN   words of a block
) -> tuple[WordArray, WordArray, PlaceArray, WordArray]:
    """Build the groups, summaries, row numbers and rows of `Tables`.

    Along the buckets of an attribute the row of a block changes only where a range begins or ends.
    So each end flips one bit, and a row is the previous one with these bits flipped; without a
    change no new row is stored. Row 0 has no bit set and row 1 has all of them.
    """
    n_attributes, n_boxes = tests.shape
    n_columns = columns[n_attributes]
    n_blocks = (n_boxes + 64 * width - 1) // (64 * width)
    groups = np.zeros(((n_blocks + 63) // 64, n_columns), np.uint64)
    summaries = np.zeros((n_blocks, n_columns), np.uint64)
    row_of = np.zeros((n_blocks, n_columns), np.uint32)
    rows = np.zeros((1024, width), np.uint64)
    rows[1] = _ALL
    used = 2
    changes = np.zeros((n_columns, width), np.uint64)
    changed = np.zeros(n_columns, np.bool_)
    row = np.zeros(width, np.uint64)
    for block in range(n_blocks):
        first_box = block * 64 * width
        n_here = min(n_boxes - first_box, 64 * width)
        for a in range(n_attributes):
            here = tests[a, first_box : first_box + n_here]
            _flip_ends(here, ranges, columns[a + 1], changes, changed)
            row[:] = _NONE
            summary = _NONE
            number = 0
            for column in range(columns[a], columns[a + 1]):
                if changed[column]:
                    passing, summary = _change_row(row, changes[column])
                    changed[column] = False
                    number = 0 if passing == 0 else 1 if passing == n_here else used
                if number == used:
                    if used == len(rows):
                        rows = np.concatenate((rows, np.zeros_like(rows[: used // 2])))
                    copy_into(rows[used], row)
                    used += 1
                row_of[block, column] = number
                summaries[block, column] = summary
                if summary != _NONE:
                    groups[block >> 6, column] |= _ONE << np.uint64(block & 63)
    return groups, summaries, row_of, rows[:used].copy()


@kernel
def _flip_ends(
    tests: IndexArray,  # IN   of the boxes of one block
    ranges: Ranges,  # IN
    end: int,  # IN   of the attribute's columns
    changes: WordArray,  # IN, OUT  columns x words: which boxes begin or end there
    changed: NDArray[np.bool_],  # IN, OUT  columns where any do
) -> None:
    """Mark where the ranges of boxes begin and end."""
    offsets, low, high = ranges
    for box in range(len(tests)):
        bit = _ONE << np.uint64(box & 63)
        for at in range(offsets[tests[box]], offsets[tests[box] + 1]):
            changes[low[at], box >> 6] ^= bit
            changed[low[at]] = True
            if high[at] < end:
                changes[high[at], box >> 6] ^= bit
                changed[high[at]] = True


@kernel
def _change_row(
    row: WordArray,  # IN, OUT
    change: WordArray,  # IN, OUT  left all 0
) -> tuple[int, np.uint64]:
    """Flip bits of a row; return how many are set now, and in which words."""
    passing = 0
    summary = _NONE
    for word in range(len(row)):
        row[word] ^= change[word]
        change[word] = _NONE
        passing += np.int64(popcount(row[word]))
        if row[word] != _NONE:
            summary |= _ONE << np.uint64(word)
    return passing, summary


# --- searching -----------------------------------------------------------------------------------


@kernel
def _passes(tables: Tables, box: np.uint64, codes: IndexArray) -> bool:
    """Whether codes pass every check of a box; the ranges of one attribute are alternatives."""
    at, end = tables.check_offsets[box], tables.check_offsets[box + _ONE]
    while at < end:
        attribute = tables.checks[at, 0]
        code = codes[attribute]
        inside = False
        while at < end and tables.checks[at, 0] == attribute:
            inside |= tables.checks[at, 1] <= code < tables.checks[at, 2]
            at += 1
        if not inside:
            return False
    return True


@kernel
def _find_words(
    tables: Tables,  # IN
    codes: IndexArray,  # IN   of one event
    columns: PlaceArray,  # OUT  scratch, one for each attribute
    found: WordArray,  # OUT  numbers of words with boxes that the event matches
    bits: WordArray,  # OUT  those boxes
) -> int:
    """Find the boxes of one event; return the number of words found."""
    n_attributes = len(tables.attributes)
    n_blocks, width = len(tables.summaries), np.uint64(tables.rows.shape[1])
    for a in range(n_attributes):
        code = codes[tables.attributes[a]]
        columns[a] = tables.column_of[tables.code_offsets[a] + code]
    n_found = 0
    for group in range(len(tables.groups)):
        blocks = _ALL >> np.uint64(64 - min(64, n_blocks - 64 * group))
        for a in range(n_attributes):
            blocks &= tables.groups[group, columns[a]]
            if blocks == _NONE:
                break
        while blocks != _NONE:
            block = np.uint64(64 * group) + lowest_bit(blocks)
            blocks &= blocks - _ONE
            words = _ALL >> (_SIZE - width)
            for a in range(n_attributes):
                words &= tables.summaries[block, columns[a]]
                if words == _NONE:
                    break
            while words != _NONE:
                at = lowest_bit(words)
                words &= words - _ONE
                word = block * width + at
                passing = tables.alive[word]
                for a in range(n_attributes):
                    passing &= tables.rows[tables.row_of[block, columns[a]], at]
                    if passing == _NONE:
                        break
                doubtful = passing & tables.inexact[word]
                while doubtful != _NONE:
                    bit = lowest_bit(doubtful)
                    doubtful &= doubtful - _ONE
                    if not _passes(tables, _SIZE * word + bit, codes):
                        passing ^= _ONE << bit
                if passing != _NONE:
                    found[n_found] = word
                    bits[n_found] = passing
                    n_found += 1
    return n_found


@kernel
def count_boxes(
    tables: Tables,  # IN
    events: IndexArray,  # IN   events x attributes: codes
) -> IntArray:
    """Count the boxes that each event matches."""
    columns = np.empty(len(tables.attributes), np.uint32)
    found = np.empty(len(tables.alive), np.uint64)
    bits = np.empty(len(tables.alive), np.uint64)
    counts = np.zeros(len(events), np.int64)
    for event in range(len(events)):
        for at in range(_find_words(tables, events[event], columns, found, bits)):
            counts[event] += np.int64(popcount(bits[at]))
    return counts


@kernel
def count_owners(
    tables: Tables,  # IN
    owners: Owners,  # IN   no filter may have two boxes
    events: IndexArray,  # IN   events x attributes: codes
) -> IntArray:
    """Count the filters that each event matches, if filters have one box each but may share it."""
    columns = np.empty(len(tables.attributes), np.uint32)
    found = np.empty(len(tables.alive), np.uint64)
    bits = np.empty(len(tables.alive), np.uint64)
    counts = np.zeros(len(events), np.int64)
    for event in range(len(events)):
        for at in range(_find_words(tables, events[event], columns, found, bits)):
            left = bits[at]
            while left != _NONE:
                counts[event] += owners.count[_SIZE * found[at] + lowest_bit(left)]
                left &= left - _ONE
    return counts


@kernel
def list_owners(
    tables: Tables,  # IN
    owners: Owners,  # IN
    events: IndexArray,  # IN   events x attributes: codes
) -> tuple[IntArray, IndexArray]:
    """List each event's filters, sorted and without duplicates, and their offsets."""
    columns = np.empty(len(tables.attributes), np.uint32)
    found = np.empty(len(tables.alive), np.uint64)
    bits = np.empty(len(tables.alive), np.uint64)
    n_words = (len(owners.alive) + 63) // 64
    marks = np.zeros(n_words, np.uint64)
    summary = np.zeros((n_words + 63) // 64, np.uint64)
    offsets = np.zeros(len(events) + 1, np.int64)
    listed = np.empty(1024, np.int32)
    for event in range(len(events)):
        n_found = _find_words(tables, events[event], columns, found, bits)
        n_marked = _mark_owners(owners, found[:n_found], bits, marks, summary)
        used = offsets[event]
        if used + n_marked > len(listed):
            more = np.empty(2 * len(listed) + n_marked, np.int32)
            copy_into(more, listed[:used])
            listed = more
        _list_marks(marks, summary, listed[used:])
        offsets[event + 1] = used + n_marked
    return offsets, listed[: offsets[-1]].copy()


@kernel
def _mark_owners(
    owners: Owners,  # IN
    found: WordArray,  # IN   numbers of words with boxes
    bits: WordArray,  # IN   those boxes
    marks: WordArray,  # IN, OUT  a bit for each filter
    summary: WordArray,  # IN, OUT  a bit for each word of marks that is not 0
) -> int:
    """Mark every filter that is alive and has one of the boxes; return how many there are.

    Marks put the filters in order and let each count once, without sorting.
    """
    n_marked = 0
    for at in range(len(found)):
        left = bits[at]
        while left != _NONE:
            box = _SIZE * found[at] + lowest_bit(left)
            left &= left - _ONE
            for each in range(owners.offsets[box], owners.offsets[box + _ONE]):
                number = owners.filters[each]
                bit = _ONE << np.uint64(number & 63)
                if owners.alive[number] and marks[number >> 6] & bit == _NONE:
                    marks[number >> 6] |= bit
                    summary[number >> 12] |= _ONE << np.uint64(number >> 6 & 63)
                    n_marked += 1
    return n_marked


@kernel
def _list_marks(
    marks: WordArray,  # IN, OUT  left all 0
    summary: WordArray,  # IN, OUT  left all 0
    listed: IndexArray,  # OUT
) -> None:
    """Write down what is marked, in order, and rub it out."""
    used = 0
    for top in range(len(summary)):
        words = summary[top]
        summary[top] = _NONE
        while words != _NONE:
            word = 64 * top + np.int64(lowest_bit(words))
            words &= words - _ONE
            left = marks[word]
            marks[word] = _NONE
            while left != _NONE:
                listed[used] = 64 * word + np.int64(lowest_bit(left))
                used += 1
                left &= left - _ONE
