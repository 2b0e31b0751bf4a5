"""The plain twins of the bitmap's kernels: the same functions, slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence

from distributary.matching._bitmap_kernels import Owners, Tables

__all__ = ["count_boxes", "count_owners", "group_ranges", "lay_out", "list_owners"]

Ranges = Sequence[tuple[int, int]]


def group_ranges(tests: Sequence[Ranges], bucket_of: Sequence[int]) -> list[tuple[set[int], bool]]:
    """The buckets that each test touches, and whether all codes of them pass the test."""
    grouped = []
    for ranges in tests:
        codes = {code for low, high in ranges for code in range(low, high)}
        buckets = {bucket_of[code] for code in codes}
        exact = codes == {code for code, bucket in enumerate(bucket_of) if bucket in buckets}
        grouped.append((buckets, exact))
    return grouped


def lay_out(
    tests: Sequence[Sequence[int]], ranges: Sequence[Ranges], columns: Sequence[int]
) -> list[int]:
    """For each column, as the bits of one long number, the boxes whose test has it in a range."""
    rows = [0] * columns[-1]
    for a, chosen in enumerate(tests):
        for box, test in enumerate(chosen):
            for column in range(columns[a], columns[a + 1]):
                if any(low <= column < high for low, high in ranges[test]):
                    rows[column] |= 1 << box
    return rows


def count_boxes(tables: Tables, events: Sequence[Sequence[int]]) -> list[int]:
    """How many boxes each event matches."""
    return [len(_matching_boxes(tables, codes)) for codes in events]


def count_owners(tables: Tables, owners: Owners, events: Sequence[Sequence[int]]) -> list[int]:
    """How many filters each event matches."""
    return [len(found) for found in list_owners(tables, owners, events)]


def list_owners(tables: Tables, owners: Owners, events: Sequence[Sequence[int]]) -> list[list[int]]:
    """The filters that each event matches, in order."""
    listed = []
    for codes in events:
        found = {
            int(number)
            for box in _matching_boxes(tables, codes)
            for number in owners.filters[owners.offsets[box] : owners.offsets[box + 1]]
            if owners.alive[number]
        }
        listed.append(sorted(found))
    return listed


def _matching_boxes(tables: Tables, codes: Sequence[int]) -> list[int]:
    """Check every box by the bits of its rows, without the summaries."""
    width = tables.rows.shape[1]
    found = []
    for box in range(64 * len(tables.alive)):
        word, bit = divmod(box, 64)
        block, at = divmod(word, width)
        words = [int(tables.alive[word])]
        for a, attribute in enumerate(tables.attributes):
            column = tables.column_of[tables.code_offsets[a] + codes[attribute]]
            words.append(int(tables.rows[tables.row_of[block, column], at]))
        if all(one >> bit & 1 for one in words) and _passes(tables, box, codes):
            found.append(box)
    return found


def _passes(tables: Tables, box: int, codes: Sequence[int]) -> bool:
    word, bit = divmod(box, 64)
    if not int(tables.inexact[word]) >> bit & 1:
        return True
    checks = tables.checks[tables.check_offsets[box] : tables.check_offsets[box + 1]].tolist()
    return all(
        any(low <= codes[at] < high for at, low, high in checks if at == attribute)
        for attribute in {at for at, _, _ in checks}
    )
