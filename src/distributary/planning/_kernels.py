"""The compiled inner loops. Arrays and scalars in, arrays out; `_reference.py` is their plain twin.

A *thing* is what is being clustered: a flow, or a session treated as one flow. Thing `k` has the
receivers `members[offsets[k]:offsets[k + 1]]` and the whole-number rate `weight[k]`. Sums of whole
numbers are exact, so rounding can neither fake an improvement nor break a tie.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distributary.compiled import kernel, lowest_bit, popcount
from distributary.model import IndexArray, IntArray

__all__ = ["audience_sizes", "cluster_counts", "kmeans_pass", "merge_closest"]


@kernel
def cluster_counts(
    offsets: IntArray,  # IN
    members: IndexArray,  # IN
    weight: IntArray,  # IN
    cluster: IndexArray,  # IN   cluster of each thing
    count: np.ndarray[Any, np.dtype[np.int32]],  # OUT  receivers x clusters: its number of things
    present: np.ndarray[Any, np.dtype[np.uint8]],  # OUT  1 where count is above 0
    audience: IntArray,  # OUT  receivers of each cluster
    total: IntArray,  # OUT  rate of each cluster
) -> None:
    """Fill the running state of a clustering from scratch."""
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
    count: np.ndarray[Any, np.dtype[np.int32]],  # IN, OUT
    present: np.ndarray[Any, np.dtype[np.uint8]],  # IN, OUT
    audience: IntArray,  # IN, OUT
    total: IntArray,  # IN, OUT
) -> tuple[int, int]:
    """Move each thing in turn to its nearest cluster (eq. 8); return moves made and cost saved.

    A thing is taken out of its cluster first, so that each distance is the exact change of cost. It
    stays unless another cluster is strictly nearer; the first of several is taken.
    """
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
def _overlap(
    words: np.ndarray[Any, np.dtype[np.uint64]], element_weight: IntArray, a: int, b: int
) -> int:
    """The weight of the intersection of the sets `a` and `b`."""
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
def _merge_cost(
    words: np.ndarray[Any, np.dtype[np.uint64]],
    element_weight: IntArray,
    mass: IntArray,
    extent: IntArray,
    bonus: int,
    a: int,
    b: int,
) -> int:
    shared = _overlap(words, element_weight, a, b)
    return mass[a] * extent[b] + mass[b] * extent[a] - (mass[a] + mass[b] + bonus) * shared


@kernel
def merge_closest(
    words: np.ndarray[Any, np.dtype[np.uint64]],  # IN, OUT  a set of elements per row, as bits
    element_weight: IntArray,  # IN   of each element; empty if each weighs 1
    mass: IntArray,  # IN, OUT
    extent: IntArray,  # IN, OUT  the weight of each set
    bonus: int,
    parent: IndexArray,  # IN, OUT  the row each row was merged into; itself if not merged
    nearest: IndexArray,  # IN, OUT  each row's nearest later row
    least: IntArray,  # IN, OUT  the cost of merging with it, or a lower bound
    stale: np.ndarray[Any, np.dtype[np.bool_]],  # IN, OUT  where `least` is only a bound
    steps: int,
) -> int:
    """Merge the cheapest pair of sets, at most `steps` times; return how many were merged.

    Merging a and b costs mass_a extent_b + mass_b extent_a - (mass_a + mass_b + bonus) overlap. Of
    equal pairs the one with the smallest rows is merged first, and the smaller row survives.

    Each row stores its nearest later row. If a merge leaves only a lower bound for a row, the row
    is marked stale, and searched again only when it is the cheapest. Initially every row is stale
    and its bound is the smallest number.
    """
    alive = np.flatnonzero(parent == np.arange(len(parent)))
    n = len(alive)
    merged = 0
    while merged < steps and n > 1:
        at = 0
        for i in range(1, n - 1):
            if least[alive[i]] < least[alive[at]]:
                at = i
        a = alive[at]
        if stale[a]:
            stale[a] = False
            least[a] = np.iinfo(np.int64).max
            for i in range(at + 1, n):
                cost = _merge_cost(words, element_weight, mass, extent, bonus, a, alive[i])
                if cost < least[a]:
                    least[a], nearest[a] = cost, alive[i]
            continue

        b = nearest[a]
        extent[a] += extent[b] - _overlap(words, element_weight, a, b)
        mass[a] += mass[b]
        words[a] |= words[b]
        parent[b] = a
        merged += 1
        gone = np.searchsorted(alive[:n], b)
        alive[gone : n - 1] = alive[gone + 1 : n].copy()
        n -= 1

        for i in range(at):
            row = alive[i]
            cost = _merge_cost(words, element_weight, mass, extent, bonus, row, a)
            if cost < least[row] or (cost == least[row] and a <= nearest[row]):
                least[row], nearest[row], stale[row] = cost, a, False
            elif nearest[row] == a or nearest[row] == b:
                stale[row] = True
        for i in range(at, min(gone, n)):
            row = alive[i]
            stale[row] |= row == a or nearest[row] == b
        least[a] = np.iinfo(np.int64).min
    return merged
