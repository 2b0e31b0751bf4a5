"""The compiled inner loops of the cover index; `_covering_reference.py` has their plain twins.

A row of the table has two numbers for each attribute, the lower end of what a filter asks for and
the upper end in reversed order (`~high`), and at the end a word of doubts. So "the row's box covers
the query's" is one comparison in the same direction for every number. "Is covered by" and "meets"
work the same way with a query in a suitable form.
"""

from __future__ import annotations

from distributary.compiled import kernel
from distributary.model import IndexArray, IntArray

__all__ = ["rows_at_least", "rows_at_most"]


@kernel
def rows_at_most(
    table: IntArray,  # IN   rows x (2 x attributes + 1)
    rows: IndexArray,  # IN   rows to try
    query: IntArray,  # IN   2 x attributes
    doubts: int,  # IN   a row that shares one of these bits is in doubt
    enough: int,  # IN   stop after this many rows without a doubt
    found: IndexArray,  # OUT  rows that pass, as ~row where in doubt
) -> int:
    """Find the rows whose numbers are all at most those of the query; return how many."""
    width = len(query)
    count = sure = 0
    for row in rows:
        i = 0
        while i < width and table[row, i] <= query[i]:
            i += 1
        if i < width:
            continue
        if table[row, width] & doubts:
            found[count] = ~row
            count += 1
        else:
            found[count] = row
            count += 1
            sure += 1
            if sure == enough:
                break
    return count


@kernel
def rows_at_least(
    table: IntArray,  # IN   rows x (2 x attributes + 1)
    rows: IndexArray,  # IN   rows to try
    query: IntArray,  # IN   2 x attributes
    doubts: int,  # IN   a row that shares one of these bits is in doubt
    found: IndexArray,  # OUT  rows that pass, as ~row where in doubt
) -> int:
    """Find the rows whose numbers are all at least those of the query; return how many."""
    width = len(query)
    count = 0
    for row in rows:
        i = 0
        while i < width and table[row, i] >= query[i]:
            i += 1
        if i == width:
            found[count] = ~row if table[row, width] & doubts else row
            count += 1
    return count
