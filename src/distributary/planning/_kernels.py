"""The compiled inner loops. Arrays and scalars in, arrays out; `_reference.py` is their plain twin.

A *thing* is what is being clustered: a flow, or a session treated as one flow. Thing `k` has the
receivers `members[offsets[k]:offsets[k + 1]]` and the whole-number rate `weight[k]`. Sums of whole
numbers are exact, so rounding can neither fake an improvement nor break a tie.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distributary.compiled import kernel, lowest_bit, popcount
from distributary.model import FloatArray, IndexArray, IntArray

__all__ = [
    "Clusters",
    "Merging",
    "audience_sizes",
    "cluster_counts",
    "kmeans_pass",
    "merge_closest",
    "place_beside",
]


Flags = np.ndarray[Any, np.dtype[np.uint8]]
Words = np.ndarray[Any, np.dtype[np.uint64]]


class Clusters(NamedTuple):
    """The running state of a clustering.

    `count[n, c]` is how many things of receiver n are in cluster c, `present` whether any is;
    `audience` and `total` are each cluster's receivers and rate.
    """

    count: np.ndarray[Any, np.dtype[np.int32]]
    present: np.ndarray[Any, np.dtype[np.uint8]]
    audience: IntArray
    total: IntArray


class Merging(NamedTuple):
    """Sets of elements that are being merged: a set per row.

    `words` are the sets as bits, `extent` their weights, `mass` the other factor of their price.
    `element_weight` is empty where each element weighs 1. A row was merged into its `parent`, which
    is itself while it stands. Its `nearest` later row costs `least` to merge with, or no less than
    that where it is `stale`.
    """

    words: Words
    element_weight: IntArray
    mass: IntArray
    extent: IntArray
    bonus: int
    parent: IndexArray
    nearest: IndexArray
    least: IntArray
    stale: np.ndarray[Any, np.dtype[np.bool_]]


@kernel
def cluster_counts(
    offsets: IntArray,  # IN
    members: IndexArray,  # IN
    weight: IntArray,  # IN
    cluster: IndexArray,  # IN   cluster of each thing
    clusters: Clusters,  # OUT
) -> None:
    """Fill the running state of a clustering from scratch."""
    count, present, audience, total = clusters
    count[:] = 0
    present[:] = 0
    audience[:] = 0
    total[:] = 0
    for k in range(len(cluster)):
        c = cluster[k]
        total[c] += weight[k]
        for at in range(offsets[k], offsets[k + 1]):
            n = members[at]
            if count[n, c] == 0:
                present[n, c] = 1
                audience[c] += 1
            count[n, c] += 1


@kernel
def kmeans_pass(
    offsets: IntArray,  # IN
    members: IndexArray,  # IN
    weight: IntArray,  # IN
    cluster: IndexArray,  # IN, OUT
    clusters: Clusters,  # IN, OUT
) -> tuple[int, int]:
    """Move each thing in turn to its nearest cluster (eq. 8); return moves made and cost saved.

    A thing is taken out of its cluster first, so that each distance is the exact change of cost. It
    stays unless another cluster is strictly nearer; the first of several is taken.
    """
    count, present, audience, total = clusters
    n_clusters = len(total)
    shared = np.zeros(n_clusters, np.int32)
    moves = 0
    saved = np.int64(0)
    for k in range(len(cluster)):
        first, last = offsets[k], offsets[k + 1]
        size = last - first
        rate = weight[k]
        old = cluster[k]
        total[old] -= rate
        for at in range(first, last):
            n = members[at]
            count[n, old] -= 1
            if count[n, old] == 0:
                present[n, old] = 0
                audience[old] -= 1

        shared[:] = 0
        for at in range(first, last):
            row = present[members[at]]
            for c in range(n_clusters):
                shared[c] += row[c]

        stay = rate * (audience[old] - shared[old]) + total[old] * (size - shared[old])
        nearest, least = old, stay
        for c in range(n_clusters):
            distance = rate * (audience[c] - shared[c]) + total[c] * (size - shared[c])
            if distance < least:
                nearest, least = c, distance

        if nearest != old:
            cluster[k] = nearest
            moves += 1
            saved += stay - least
        total[nearest] += rate
        for at in range(first, last):
            n = members[at]
            if count[n, nearest] == 0:
                present[n, nearest] = 1
                audience[nearest] += 1
            count[n, nearest] += 1
    return moves, saved


@kernel
def place_beside(
    offsets: IntArray,  # IN
    members: IndexArray,  # IN
    weight: FloatArray,  # IN
    present: Flags,  # IN, OUT   whether each of these receivers is in each cluster
    audience: FloatArray,  # IN, OUT   of each cluster, with other receivers
    total: FloatArray,  # IN, OUT
    cluster: IndexArray,  # OUT  cluster of each thing
) -> None:
    """Put each new thing into its nearest cluster, the first of several, seeing earlier ones."""
    n_clusters = len(total)
    shared = np.zeros(n_clusters, np.int32)
    for k in range(len(cluster)):
        first, last = offsets[k], offsets[k + 1]
        size, rate = last - first, weight[k]
        shared[:] = 0
        for at in range(first, last):
            row = present[members[at]]
            for c in range(n_clusters):
                shared[c] += row[c]
        nearest, least = 0, np.inf
        for c in range(n_clusters):
            distance = rate * (audience[c] - shared[c]) + total[c] * (size - shared[c])
            if distance < least:
                nearest, least = c, distance
        cluster[k] = nearest
        total[nearest] += rate
        audience[nearest] += size - shared[nearest]
        for at in range(first, last):
            present[members[at], nearest] = 1


@kernel
def audience_sizes(
    offsets: IntArray,  # IN
    members: IndexArray,  # IN
    cluster: IndexArray,  # IN
    order: IntArray,  # IN   things sorted by cluster
    n_receivers: int,
    n_clusters: int,
) -> IntArray:
    """The number of different receivers of each cluster's things."""
    sizes = np.zeros(n_clusters, np.int64)
    seen = np.full(n_receivers, -1, np.int32)
    for k in order:
        c = cluster[k]
        for at in range(offsets[k], offsets[k + 1]):
            n = members[at]
            if seen[n] != c:
                seen[n] = c
                sizes[c] += 1
    return sizes


@kernel
def _overlap(sets: Merging, a: int, b: int) -> int:
    """The weight of the intersection of the sets `a` and `b`."""
    words, element_weight = sets.words, sets.element_weight
    weight = np.int64(0)
    if len(element_weight) == 0:
        for w in range(words.shape[1]):
            weight += np.int64(popcount(words[a, w] & words[b, w]))
        return weight
    for w in range(words.shape[1]):
        both = words[a, w] & words[b, w]
        while both:
            weight += element_weight[w * 64 + np.int64(lowest_bit(both))]
            both &= both - np.uint64(1)
    return weight


@kernel
def _merge_cost(sets: Merging, a: int, b: int) -> int:
    mass, extent = sets.mass, sets.extent
    shared = _overlap(sets, a, b)
    return mass[a] * extent[b] + mass[b] * extent[a] - (mass[a] + mass[b] + sets.bonus) * shared


@kernel
def _find_nearest(at: int, alive: IntArray, sets: Merging) -> None:
    """Find the nearest later row of a stale one."""
    a = alive[at]
    sets.stale[a] = False
    sets.least[a] = np.iinfo(np.int64).max
    for i in range(at + 1, len(alive)):
        cost = _merge_cost(sets, a, alive[i])
        if cost < sets.least[a]:
            sets.least[a], sets.nearest[a] = cost, alive[i]


@kernel
def _join_nearest(a: int, sets: Merging) -> int:
    """Merge a row with its nearest one; return which that was."""
    b = sets.nearest[a]
    sets.extent[a] += sets.extent[b] - _overlap(sets, a, b)
    sets.mass[a] += sets.mass[b]
    sets.words[a] |= sets.words[b]
    sets.parent[b] = a
    return b


@kernel
def merge_closest(
    sets: Merging,  # IN, OUT
    steps: int,
) -> int:
    """Merge the cheapest pair of sets, at most `steps` times; return how many were merged.

    Merging a and b costs mass_a extent_b + mass_b extent_a - (mass_a + mass_b + bonus) overlap. Of
    equal pairs the one with the smallest rows is merged first, and the smaller row survives.

    Each row stores its nearest later row. If a merge leaves only a lower bound for a row, the row
    is marked stale, and searched again only when it is the cheapest. Initially every row is stale
    and its bound is the smallest number.
    """
    nearest, least, stale = sets.nearest, sets.least, sets.stale
    alive = np.flatnonzero(sets.parent == np.arange(len(sets.parent)))
    n = len(alive)
    merged = 0
    while merged < steps and n > 1:
        at = 0
        for i in range(1, n - 1):
            if least[alive[i]] < least[alive[at]]:
                at = i
        a = alive[at]
        if stale[a]:
            _find_nearest(at, alive[:n], sets)
            continue

        b = _join_nearest(a, sets)
        merged += 1
        gone = int(np.searchsorted(alive[:n], b))
        for i in range(gone, n - 1):
            alive[i] = alive[i + 1]
        n -= 1

        for i in range(at):
            row = alive[i]
            cost = _merge_cost(sets, row, a)
            if cost < least[row] or (cost == least[row] and a <= nearest[row]):
                least[row], nearest[row], stale[row] = cost, a, False
            elif nearest[row] == a or nearest[row] == b:
                stale[row] = True
        for i in range(at, min(gone, n)):
            row = alive[i]
            stale[row] |= row == a or nearest[row] == b
        least[a] = np.iinfo(np.int64).min
    return merged
