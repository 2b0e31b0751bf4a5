"""The compiled inner loops of the index of covers; `_covering_reference.py` has them plain.

A row of the table has two numbers for each attribute, the lower end of what a filter asks for and
the upper end with its order turned round (`~high`), and a word of doubts at the end. So "the row's
box holds the query's" is one comparison in one direction for every number, and so are "is held by"
and "meets", with a query that is written down to suit.
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
    doubts: int,  # IN   bits that make a row doubtful if it has one of them, too
    enough: int,  # IN   stop at so many rows without a doubt
    found: IndexArray,  # OUT  rows that pass, as ~row where in doubt
) -> int:
    """The rows none of whose numbers is above that of the query; returns how many."""
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
    doubts: int,  # IN   bits that make a row doubtful if it has one of them, too
    found: IndexArray,  # OUT  rows that pass, as ~row where in doubt
) -> int:
    """The rows none of whose numbers is below that of the query; returns how many."""
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
