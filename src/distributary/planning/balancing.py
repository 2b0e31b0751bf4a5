"""Assignments that ignore interest, as baselines.

Reference: Adler et al. (2001), section 4: RAN, RSE and RRE.
"""

from __future__ import annotations

import heapq

import numpy as np

from distributary.model import FloatArray, IndexArray, IntArray

__all__ = ["balance", "lightest_first", "scatter"]


def scatter(n_flows: int, n_groups: int, rng: np.random.Generator) -> IndexArray:
    """RAN: put every flow in a group drawn at random; some groups may stay empty."""
    return rng.integers(n_groups, size=n_flows, dtype=np.int32)


def balance(load: FloatArray, n_groups: int, rng: np.random.Generator) -> IndexArray:
    """Take flows in random order and put each in the group with the least load so far.

    With a load of 1 for each flow it is RSE (balanced size), with its rate RRE (balanced rate).
    """
    return lightest_first(load, rng.permutation(len(load)), n_groups)


def lightest_first(load: FloatArray, order: IntArray, n_groups: int) -> IndexArray:
    """Take flows in this order and put each in the least loaded group, the first of several."""
    group = np.empty(len(load), np.int32)
    heap = [(0.0, g) for g in range(n_groups)]
    for one in order:
        carried, g = heapq.heappop(heap)
        group[one] = g
        heapq.heappush(heap, (carried + float(load[one]), g))
    return group
