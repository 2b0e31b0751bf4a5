"""A lower bound of one level of clusters, by Lagrangian relaxation.

Kinds k with rates r_k and receivers S_k are to be put in at most n clusters. A cluster C costs R x
|U|: the rate of its kinds times the weight of all their receivers. Give each kind any *worth* h_k
per message. The cost of all clusters is

    sum of r_k x h_k over all kinds - sum over clusters of the profit p(C),
    p(C) = sum of r_k x (h_k - |U|) over its kinds.

The *anchor* of a cluster is its widest kind (the first of equals). No two clusters have the same
one, so the profits of n clusters are at most the n largest of

    P(a) >= the profit of any cluster with the anchor a, or 0.

So sum r_k h_k - (the n largest P(a)) is a lower bound for any worth. P(a) looks at pairs: |U| is at
least the weight of the anchor and any other kind of C together (`price_anchors`). A branch and
bound over who is in the cluster lowers it towards the largest profit there is (`search_cluster`);
with that, the best worth gives the bound of the linear program over all clusters there could be.

The worth is improved by subgradients with Polyak's steps: a kind that no chosen cluster has becomes
worth more, one that several have less. At h_k = |S_k| the bound is what is wanted, and it never
pays to go below. Leaving kinds out only lowers the cost of a clustering, so that of many kinds the
slow ones may be bounded by what is wanted of them.
"""

from __future__ import annotations

import numpy as np

from distributary.model import FloatArray
from distributary.planning._bound_kernels import (
    Kinds,
    Steps,
    count_cover,
    measure_unions,
    price_anchors,
    search_cluster,
)

__all__ = ["bound_by_anchors"]

_MOST_KINDS = 2_000  # in the table of unions
_MOST_KINDS_TO_SEARCH = 300  # beyond, a search for clusters was not worth its time
_STARS, _SEARCHES = 150, 60  # steps at most without and with such a search
_NODES = (200, 1_000)  # of a search for a cluster, at least and at most
_PATIENCE = 8  # steps without a better bound before they become smaller
_SMALLEST_STEP = 0.01
_ROUNDING = 1e-12  # of sums of worth and of profits
_HOPE = 1.05  # times the best bound is what steps aim at; the cost of a good plan did worse


def bound_by_anchors(kinds: Kinds, n_clusters: int, work: int) -> float:
    """Bound rate x receivers over at most `n_clusters` clusters, in so many operations, about."""
    fast, rest = _choose_fast(kinds)
    union = np.zeros((len(fast.rate), len(fast.rate)), np.int32)
    measure_unions(fast, union)
    ascent = _Ascent(fast)
    _climb_by_pairs(ascent, union, n_clusters, work // 2)
    if len(fast.rate) <= _MOST_KINDS_TO_SEARCH:
        _climb_by_search(ascent, union, n_clusters, work // 2)
    return ascent.best + rest


def _choose_fast(kinds: Kinds) -> tuple[Kinds, float]:
    """The fastest kinds, and what is wanted of all others."""
    if len(kinds.rate) <= _MOST_KINDS:
        return kinds, 0.0
    fast = np.sort(np.argsort(-kinds.rate, kind="stable")[:_MOST_KINDS])
    sizes = np.diff(kinds.offsets)[fast]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    at = np.repeat(kinds.offsets[fast] - offsets[:-1], sizes) + np.arange(offsets[-1])
    rate, size = kinds.rate[fast], kinds.size[fast]
    rest = float(kinds.rate @ kinds.size - rate @ size)
    chosen = kinds._replace(offsets=offsets, members=kinds.members[at], rate=rate, size=size)
    return chosen, max(rest, 0.0)


class _Ascent:
    """The worth of each kind, on its way to the best bound."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self.worth = kinds.size.copy()
        self.best = float(kinds.rate @ kinds.size)
        self._best_worth = self.worth
        # No kind adds more to a cost than all rates (1) x all receivers.
        self._most_worth = kinds.weight.sum() / np.maximum(kinds.rate, 1e-30)
        self.restart()

    def restart(self) -> None:
        """Go on from the best worth, with large steps."""
        self.worth = self._best_worth
        self._step, self._stalled = 1.0, 0
        self._direction = np.zeros(len(self.worth))

    def climb(self, bound: float, cover: FloatArray) -> bool:
        """Take a step from a bound and how many clusters have each kind; False at the end."""
        if bound > self.best:
            self.best, self._best_worth, self._stalled = bound, self.worth, 0
        else:
            self._stalled += 1
        missing = 1 - cover
        slope = float(self.kinds.rate @ missing**2)
        if slope == 0 or self._step < _SMALLEST_STEP:
            return False
        if self._stalled == _PATIENCE:
            self._step, self._stalled = self._step * 0.6, 0
            self.worth = self._best_worth
            return True
        self._direction = missing + 0.3 * self._direction
        length = self._step * (self.best * _HOPE - bound) / max(slope, 1e-30)
        worth = self.worth + length * self._direction
        self.worth = np.clip(worth, self.kinds.size, self._most_worth)
        return True


def _climb_by_pairs(ascent: _Ascent, union: Steps, n_clusters: int, work: int) -> None:
    kinds = ascent.kinds
    n_kinds = len(kinds.rate)
    profit, width = np.zeros(n_kinds), np.zeros(n_kinds, np.int64)
    total = kinds.weight.sum()
    going, steps = True, 0
    while going and steps < _STARS and work > 0:
        price_anchors(kinds, union, ascent.worth, profit, width)
        chosen = _largest(profit, n_clusters)
        cover = np.zeros(n_kinds)
        count_cover(kinds, union, ascent.worth, chosen, width, cover)
        bound = _subtract(float(kinds.rate @ ascent.worth), profit[chosen].sum())
        work -= n_kinds * (n_kinds + int(min(ascent.worth.max(), total) / kinds.step))
        going, steps = ascent.climb(bound, cover), steps + 1


def _climb_by_search(ascent: _Ascent, union: Steps, n_clusters: int, work: int) -> None:
    kinds = ascent.kinds
    n_kinds = len(kinds.rate)
    work_per_node = 2 * (len(kinds.members) + 2 * n_kinds + len(kinds.weight))
    searches = _SEARCHES * min(2 * n_clusters, n_kinds)
    max_nodes = int(np.clip(work // (work_per_node * searches), *_NODES))
    ascent.restart()
    going, steps = True, 0
    while going and steps < _SEARCHES and work > 0:
        bound, cover, nodes = _relax_by_search(kinds, union, ascent.worth, n_clusters, max_nodes)
        work -= nodes * work_per_node
        going, steps = ascent.climb(bound, cover), steps + 1


def _relax_by_search(
    kinds: Kinds, union: Steps, worth: FloatArray, n_clusters: int, max_nodes: int
) -> tuple[float, FloatArray, int]:
    """The bound for a worth with a search at each anchor that may be among the largest profits."""
    n_kinds = len(kinds.rate)
    profit, width = np.zeros(n_kinds), np.zeros(n_kinds, np.int64)
    price_anchors(kinds, union, worth, profit, width)
    searched, covers, nodes = np.zeros(n_kinds), np.zeros((n_kinds, n_kinds)), 0
    for anchor in _largest(profit, n_kinds).tolist():
        if np.count_nonzero(searched >= profit[anchor]) >= n_clusters:
            break
        found, spent = search_cluster(kinds, worth, anchor, max_nodes, covers[anchor])
        searched[anchor] = min(found, profit[anchor])
        nodes += spent
    chosen = _largest(searched, n_clusters)
    bound = _subtract(float(kinds.rate @ worth), searched[chosen].sum())
    return bound, covers[chosen].sum(axis=0), nodes


def _subtract(worth: float, profits: float) -> float:
    """The difference of two sums, and no more, whatever rounding did to them."""
    return float(worth * (1 - _ROUNDING) - profits * (1 + _ROUNDING))


def _largest(profit: FloatArray, n: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The anchors with the n largest profits above 0, largest first."""
    order = np.argsort(-profit, kind="stable")[:n]
    return order[profit[order] > 0]
