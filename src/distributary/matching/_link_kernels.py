"""The compiled inner loops of link matching; `_tree_reference.py` has their plain twins.

The trits of a node are two bit planes, `planes[v, YES]` and `planes[v, MAYBE]`, one bit per link.
While combining, `some` has the links with either bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distributary.compiled import copy_into, kernel
from distributary.matching._tree_kernels import (
    ATTRIBUTE,
    END,
    LEAF,
    LOW,
    OTHER,
    SEARCHED,
    SPAN,
    STAR,
    TABLE,
    Nodes,
    root,
    successors,
)
from distributary.model import IndexArray, IntArray

__all__ = ["annotate", "climb", "find_links"]

Words = NDArray[np.uint64]

YES, MAYBE = 0, 1


@kernel
def find_links(
    tree: Nodes,  # IN
    planes: Words,  # IN   nodes x 2 x words: links with Y, links with M
    most: int,  # the most nodes on the stack
    codes: IndexArray,  # IN   events x attributes
    masks: Words,  # IN   events x words: links with M at the start
) -> tuple[Words, IntArray]:
    """Search for each event just far enough to decide which links need it.

    Return the links with Y at the end (events x words), and the nodes visited for each event.

    A link that any sub-search finds is decided for all of them (M becomes Y), so one set of found
    links is enough. A node on the stack waits with the links that were undecided above it.
    """
    node, table = tree.node, tree.table
    words = masks.shape[1]
    found = np.zeros((len(codes), words), np.uint64)
    steps = np.zeros(len(codes), np.int64)
    stack = np.empty(most + 1, np.int32)
    waiting = np.empty((most, words), np.uint64)
    mask = np.empty(words, np.uint64)
    for event in range(len(codes)):
        for w in range(words):
            waiting[0, w] = masks[event, w]
        stack[0] = root(tree, codes, event)
        n = 1 if stack[0] >= 0 else 0
        while n > 0:
            n -= 1
            v = stack[n]
            undecided = np.uint64(0)
            for w in range(words):
                mask[w] = waiting[n, w] & ~found[event, w]
                undecided |= mask[w]
            if undecided == 0:
                continue
            steps[event] += 1
            undecided = np.uint64(0)
            for w in range(words):
                found[event, w] |= mask[w] & planes[v, YES, w]
                mask[w] &= planes[v, MAYBE, w]
                undecided |= mask[w]
            if undecided == 0:
                continue
            first = n
            if node[v, SPAN] == SEARCHED:
                n = successors(tree, v, codes, event, stack, n)
            else:
                stack[n] = node[v, STAR]
                n += node[v, STAR] > 0
                place = codes[event, node[v, ATTRIBUTE]] - node[v, LOW]
                if place < 0 or place > node[v, SPAN]:
                    place = node[v, SPAN]
                child = table[node[v, TABLE] + place]
                stack[n] = child
                n += child > 0
            for k in range(first, n):
                for w in range(words):
                    waiting[k, w] = mask[w]
    return found, steps


@kernel
def _annotate_leaf(tree: Nodes, links: IndexArray, v: int, yes: Words, some: Words) -> None:
    yes[:] = 0
    for row in range(tree.leaf_rows[v, 0], tree.leaf_rows[v, 1]):
        link = links[tree.row_box[row]]
        if link >= 0:
            yes[link >> 6] |= np.uint64(1) << np.uint64(link & 63)
    copy_into(some, yes)


@kernel
def _combine_equal(tree: Nodes, planes: Words, v: int, first: int, yes: Words, some: Words) -> None:
    """Alternative combine over children of one code each, and all-N if another code can occur."""
    a = tree.node[v, ATTRIBUTE]
    codes = tree.code_at[a]
    missing = tree.possible[tree.code_at[a + 1] - 1]
    for child in range(first, tree.node[v, OTHER]):
        code = tree.ranges[tree.test[tree.edge[child], 1], 0]
        if tree.possible[codes + code + 1] == tree.possible[codes + code]:
            continue
        missing -= 1
        for w in range(len(yes)):
            yes[w] &= planes[child, YES, w]
            some[w] |= planes[child, YES, w] | planes[child, MAYBE, w]
    if missing > 0:
        yes[:] = 0


@kernel
def _combine_ranges(
    tree: Nodes, planes: Words, v: int, first: int, yes: Words, some: Words
) -> None:
    """Alternative combine over the codes, parallel combine of the children that have each code.

    It sweeps over the ends of all ranges: between two of them the same children apply.
    """
    a = tree.node[v, ATTRIBUTE]
    last = tree.node[v, END]
    n = 0
    for child in range(first, last):
        t = tree.edge[child]
        n += tree.test[t, 2] - tree.test[t, 1]
    ends = np.empty(2 * n, np.int64)
    who = np.empty(2 * n, np.int64)
    k = 0
    for child in range(first, last):
        t = tree.edge[child]
        for at in range(tree.test[t, 1], tree.test[t, 2]):
            ends[k], who[k] = tree.ranges[at, 0], child
            ends[k + 1], who[k + 1] = tree.ranges[at, 1], ~child
            k += 2
    order = np.argsort(ends)
    counts = np.zeros((2, 64 * len(yes)), np.int32)
    now = np.zeros((2, len(yes)), np.uint64)
    codes = tree.code_at[a]
    size = tree.code_at[a + 1] - codes - 1
    before = 0
    for k in range(2 * n + 1):
        end = ends[order[k]] if k < 2 * n else size
        if tree.possible[codes + end] > tree.possible[codes + before]:
            for w in range(len(yes)):
                yes[w] &= now[YES, w]
                some[w] |= now[YES, w] | now[MAYBE, w]
        before = end
        if k < 2 * n:
            child = who[order[k]]
            if child >= 0:
                _count_links(planes[child], 1, counts, now)
            else:
                _count_links(planes[~child], -1, counts, now)


@kernel
def _count_links(plane: Words, by: int, counts: IndexArray, now: Words) -> None:
    """Add or remove a child that applies; `now` has the links that some child has."""
    for kind in range(2):
        for w in range(plane.shape[1]):
            word = plane[kind, w]
            link = 64 * w
            bit = np.uint64(1)
            while word != 0:
                if word & np.uint64(1):
                    counts[kind, link] += by
                    if counts[kind, link] > 0:
                        now[kind, w] |= bit
                    else:
                        now[kind, w] &= ~bit
                word >>= np.uint64(1)
                bit <<= np.uint64(1)
                link += 1


@kernel
def _annotate_node(
    tree: Nodes, planes: Words, links: IndexArray, v: int, yes: Words, some: Words
) -> bool:
    """Combine the annotations of a node's children into its own; return whether it changed.

    A guard needs no care. All boxes below it share its test, so the node that makes that test has
    an all-N branch if the test can fail, and no Y of the branch survives the combination there.
    """
    if tree.node[v, ATTRIBUTE] == LEAF:
        _annotate_leaf(tree, links, v, yes, some)
    else:
        star = tree.node[v, STAR]
        first = tree.first[v] + (star > 0)
        yes[:] = ~np.uint64(0)
        some[:] = 0
        if tree.node[v, OTHER] == tree.node[v, END]:
            _combine_equal(tree, planes, v, first, yes, some)
        else:
            _combine_ranges(tree, planes, v, first, yes, some)
        if star > 0:
            for w in range(len(yes)):
                yes[w] |= planes[star, YES, w]
                some[w] |= planes[star, YES, w] | planes[star, MAYBE, w]
    changed = False
    for w in range(len(yes)):
        maybe = some[w] & ~yes[w]
        changed |= planes[v, YES, w] != yes[w] or planes[v, MAYBE, w] != maybe
        planes[v, YES, w], planes[v, MAYBE, w] = yes[w], maybe
    return changed


@kernel
def annotate(
    tree: Nodes,  # IN
    links: IndexArray,  # IN   link of each box, -1 for none
    planes: Words,  # OUT  nodes x 2 x words
) -> None:
    """Annotate every node, from the leaves up."""
    yes = np.empty(planes.shape[2], np.uint64)
    some = np.empty(planes.shape[2], np.uint64)
    for v in range(len(tree.edge) - 1, -1, -1):
        _annotate_node(tree, planes, links, v, yes, some)


@kernel
def climb(
    tree: Nodes,  # IN
    links: IndexArray,  # IN   link of each box, -1 for none
    planes: Words,  # IN, OUT
    leaf: int,
) -> int:
    """Update a leaf and then its ancestors until one does not change; return how many."""
    yes = np.empty(planes.shape[2], np.uint64)
    some = np.empty(planes.shape[2], np.uint64)
    v = leaf
    visited = 0
    while v >= 0:
        visited += 1
        if not _annotate_node(tree, planes, links, v, yes, some):
            break
        v = tree.parent[v]
    return visited
