"""The compiled inner loops of the search tree; `_tree_reference.py` is their plain twin.

Tests are numbered from 1; 0 is no test. Test `t` is on attribute `test[t, 0]` and accepts the codes
from `ranges[k, 0]` to before `ranges[k, 1]` for k from `test[t, 1]` to before
`test[t, 2]`. Tests of a single code come first among those of their attribute, by that code.

A call of another kernel counts references to each array that it passes on. In the innermost loop
that made a step up to fifteen times slower, so both searches inline the simple case and call only
for the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distributary.compiled import copy_into, kernel
from distributary.model import IndexArray, IntArray

__all__ = [
    "Nodes",
    "count_matches",
    "expand",
    "grow",
    "lay_out",
    "list_matches",
    "pending",
    "root",
    "successors",
]

LEAF = -1
# The columns of `Nodes.node`: all that a search reads of a node, in half a cache line.
ATTRIBUTE, LOW, SPAN, TABLE, STAR, GUARD, OTHER, END = range(8)
# A table of children by code has at most PLACES places for each child, and MORE_PLACES more.
PLACES, MORE_PLACES = 4, 8
SEARCHED = -1


class Nodes(NamedTuple):
    """A tree as arrays, with nodes numbered breadth first.

    The children of node `v` are those from `first[v]` to before `first[v + 1]`: the * child if
    there is one, the children reached by equality in the order of their codes, then those reached
    by other tests. Node 0 is never a child, so 0 stands for none.

    The columns of `node` are: the attribute that it tests, or LEAF; the first code, the length and
    the place of a table of the children by equality, which ends with a 0; the * child; a test that
    all boxes below the * child share, or 0; and the first child by other tests and the end of
    these. If there is such a test or child, or the table would be too long, its length is SEARCHED.
    """

    index: IndexArray  # attributes that are looked up instead of tested
    strides: IntArray  # the stride of each of them in `roots`
    roots: IndexArray  # the root of each sub-tree, or -1
    node: IndexArray  # n x 8
    table: IndexArray
    first: IndexArray  # n + 1
    edge: IndexArray  # the test that leads to a node, 0 for *
    parent: IndexArray  # -1 for roots
    leaf_rows: IndexArray  # n x 2: where the boxes of a leaf begin and end in row_box
    row_box: IndexArray
    test: IndexArray  # tests x 3
    ranges: IndexArray  # ranges x 2
    code_at: IntArray  # where each attribute's codes begin in `possible`
    possible: IntArray  # how many codes before this one can occur


# --- building ------------------------------------------------------------------------------------


@kernel
def expand(
    tests: IndexArray,  # IN   test of each row on the index attribute
    keys: IntArray,  # IN   place of each row's root, so far
    size: int,  # codes of the attribute
    test: IndexArray,  # IN
    ranges: IndexArray,  # IN
    total: int,  # rows that come out
) -> tuple[IntArray, IntArray]:
    """Copy each row to every code that passes its test; return the rows, and their places."""
    rows = np.empty(total, np.int64)
    places = np.empty(total, np.int64)
    n = 0
    for row in range(len(tests)):
        t = tests[row]
        if t == 0:
            for code in range(size):
                rows[n], places[n] = row, keys[row] * size + code
                n += 1
        else:
            for k in range(test[t, 1], test[t, 2]):
                for code in range(ranges[k, 0], ranges[k, 1]):
                    rows[n], places[n] = row, keys[row] * size + code
                    n += 1
    return rows, places


@kernel
def _find_shared_test(columns: IndexArray, depth: int, first: int, last: int) -> int:
    """Find the first test, from column `depth` on, that all rows have; 0 if there is none."""
    for d in range(depth, len(columns)):
        t = columns[d, first]
        if t == 0 or columns[d, last - 1] != t:
            continue
        row = first + 1
        while row < last and columns[d, row] == t:
            row += 1
        if row == last:
            return t
    return 0


@kernel
def grow(
    columns: IndexArray,  # IN   columns x rows: tests, the rows sorted
    group_at: IntArray,  # IN   where the rows of each root begin, and the end
    trivial_tests: bool,
    delayed_branching: bool,
    bound: int,  # an upper bound on the number of nodes
) -> tuple[IndexArray, IndexArray, IndexArray, IndexArray, IndexArray, IndexArray]:
    """Build the trie: each node's column, first child, test on its edge, guard, parent and rows.

    Rows with the same tests so far are neighbours, and rows without a test come first. So a node
    needs no test if and only if the last of its rows has none.
    """
    depth = np.empty(bound, np.int32)
    child = np.empty(bound + 1, np.int32)
    edge = np.empty(bound, np.int32)
    guard = np.zeros(bound, np.int32)
    parent = np.empty(bound, np.int32)
    rows = np.empty((bound, 2), np.int32)
    n = len(group_at) - 1
    for v in range(n):
        rows[v, 0], rows[v, 1] = group_at[v], group_at[v + 1]
        depth[v], edge[v], parent[v] = 0, 0, -1
    v = 0
    while v < n:
        first, last, d = rows[v, 0], rows[v, 1], depth[v]
        while trivial_tests and d < len(columns) and columns[d, last - 1] == 0:
            d += 1
        depth[v], child[v] = d, n
        while d < len(columns) and first < last:
            t = columns[d, first]
            stop = first + 1
            while stop < last and columns[d, stop] == t:
                stop += 1
            rows[n, 0], rows[n, 1] = first, stop
            depth[n], edge[n], parent[n] = d + 1, t, v
            if delayed_branching and t == 0:
                guard[n] = _find_shared_test(columns, d + 1, first, stop)
            n += 1
            first = stop
        v += 1
    child[n] = n
    return depth[:n], child[: n + 1], edge[:n], guard[:n], parent[:n], rows[:n]


@kernel
def lay_out(
    attributes: IndexArray,  # IN   attribute of each column, and LEAF
    depth: IndexArray,  # IN
    child: IndexArray,  # IN
    edge: IndexArray,  # IN
    guard: IndexArray,  # IN
    code_of: IndexArray,  # IN   the only code of each test, or -1
) -> tuple[IndexArray, IndexArray]:
    """The columns of `Nodes.node`, and the tables of children."""
    n = len(edge)
    node = np.zeros((n, 8), np.int32)
    used = 1
    for v in range(n):
        first, last = child[v], child[v + 1]
        node[v, ATTRIBUTE] = attributes[depth[v]]
        if first < last and edge[first] == 0:
            node[v, STAR], node[v, GUARD] = first, guard[first]
            first += 1
        other = first
        while other < last and code_of[edge[other]] >= 0:
            other += 1
        node[v, OTHER], node[v, END] = other, last
        if first < other:
            node[v, LOW] = code_of[edge[first]]
            span = code_of[edge[other - 1]] - node[v, LOW] + 1
            if span <= PLACES * (other - first) + MORE_PLACES:
                node[v, SPAN], node[v, TABLE] = span, used
                used += span + 1
            else:
                node[v, SPAN] = SEARCHED
        if node[v, GUARD] > 0 or other < last:
            node[v, SPAN] = SEARCHED
    table = np.zeros(used, np.int32)
    for v in range(n):
        if node[v, SPAN] > 0:
            for at in range(child[v], node[v, OTHER]):
                if edge[at] > 0:
                    table[node[v, TABLE] + code_of[edge[at]] - node[v, LOW]] = at
    return node, table


@kernel
def pending(tree: Nodes) -> int:
    """The most nodes that can be on the stack of a depth-first search."""
    n = len(tree.edge)
    most = np.ones(n + 1, np.int64)
    for v in range(n - 1, -1, -1):
        apply = tree.node[v, END] - tree.node[v, OTHER]
        apply += 1 if tree.node[v, STAR] > 0 else 0
        apply += 1 if tree.node[v, SPAN] != 0 else 0
        for child in range(tree.first[v], tree.first[v + 1]):
            most[v] = max(most[v], apply, apply - 1 + most[child])
    return most.max()


# --- matching ------------------------------------------------------------------------------------


@kernel
def _passes(test: IndexArray, ranges: IndexArray, t: int, code: int) -> bool:
    for k in range(test[t, 1], test[t, 2]):
        if code < ranges[k, 0]:
            return False
        if code < ranges[k, 1]:
            return True
    return False


@kernel
def _child(
    edge: IndexArray, test: IndexArray, ranges: IndexArray, first: int, last: int, code: int
) -> int:
    """Find the child by equality for this code; 0 if there is none."""
    while last - first > 1:
        middle = (first + last) // 2
        if ranges[test[edge[middle], 1], 0] <= code:
            first = middle
        else:
            last = middle
    return first if ranges[test[edge[first], 1], 0] == code else 0


@kernel
def successors(tree: Nodes, v: int, codes: IndexArray, event: int, out: IndexArray, n: int) -> int:
    """Append the children of a SEARCHED node that the event reaches, * first, to `out[:n]`."""
    node, edge, test, ranges = tree.node, tree.edge, tree.test, tree.ranges
    code = codes[event, node[v, ATTRIBUTE]]
    star, t = node[v, STAR], node[v, GUARD]
    if star > 0 and (t == 0 or _passes(test, ranges, t, codes[event, test[t, 0]])):
        out[n] = star
        n += 1
    for child in range(node[v, END] - 1, node[v, OTHER] - 1, -1):
        if _passes(test, ranges, edge[child], code):
            out[n] = child
            n += 1
    first = tree.first[v] + (star > 0)
    if first < node[v, OTHER]:
        out[n] = _child(edge, test, ranges, first, node[v, OTHER], code)
        n += out[n] > 0
    return n


@kernel
def root(tree: Nodes, codes: IndexArray, event: int) -> int:
    place = 0
    for k in range(len(tree.index)):
        place += codes[event, tree.index[k]] * tree.strides[k]
    return tree.roots[place]


@kernel
def _leaves(tree: Nodes, codes: IndexArray, event: int, queue: IndexArray) -> tuple[int, int]:
    """Collect the leaves that an event reaches in `queue`; return their number and the steps.

    A queue is faster than a stack here: the next nodes are known early, and so fetched early.
    """
    node, table = tree.node, tree.table
    queue[0] = root(tree, codes, event)
    if queue[0] < 0:
        return 0, 0
    n, at, found = 1, 0, 0
    while at < n:
        v = queue[at]
        at += 1
        if node[v, ATTRIBUTE] == LEAF:
            queue[found] = v
            found += 1
        elif node[v, SPAN] == SEARCHED:
            n = successors(tree, v, codes, event, queue, n)
        else:
            # Written always, counted only if it exists: cheaper than a mispredicted branch.
            queue[n] = node[v, STAR]
            n += node[v, STAR] > 0
            place = codes[event, node[v, ATTRIBUTE]] - node[v, LOW]
            if place < 0 or place > node[v, SPAN]:
                place = node[v, SPAN]
            child = table[node[v, TABLE] + place]
            queue[n] = child
            n += child > 0
    return found, n


@kernel
def count_matches(
    tree: Nodes,  # IN
    codes: IndexArray,  # IN   events x attributes
    counts: IntArray,  # OUT  boxes that each event is in
    steps: IntArray,  # OUT  nodes visited for each event
) -> None:
    """Count the boxes that events are in."""
    queue = np.empty(len(tree.edge) + 1, np.int32)
    for event in range(len(codes)):
        found, steps[event] = _leaves(tree, codes, event, queue)
        counts[event] = 0
        for k in range(found):
            counts[event] += tree.leaf_rows[queue[k], 1] - tree.leaf_rows[queue[k], 0]


@kernel
def list_matches(
    tree: Nodes,  # IN
    codes: IndexArray,  # IN   events x attributes
    offsets: IntArray,  # OUT  where each event's boxes begin, and the end
    steps: IntArray,  # OUT  nodes visited for each event
) -> IndexArray:
    """List the boxes that events are in."""
    queue = np.empty(len(tree.edge) + 1, np.int32)
    boxes = np.empty(16, np.int32)
    n = 0
    offsets[0] = 0
    for event in range(len(codes)):
        found, steps[event] = _leaves(tree, codes, event, queue)
        for k in range(found):
            first, last = tree.leaf_rows[queue[k], 0], tree.leaf_rows[queue[k], 1]
            if n + last - first > len(boxes):
                more = np.empty(2 * (n + last - first), np.int32)
                copy_into(more, boxes[:n])
                boxes = more
            for row in range(first, last):
                boxes[n] = tree.row_box[row]
                n += 1
        offsets[event + 1] = n
    return boxes[:n]
