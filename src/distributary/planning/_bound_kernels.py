"""The compiled inner loops of the lower bounds.

A *kind* is a set of receivers that some flows have in common, with the sum of their rates. Kinds
are sorted by weight, widest first. A cluster of kinds is *anchored* at its first kind. Weights of
sets are counted in whole steps, rounded down, so that what is computed from them is never above
what it bounds from below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distributary.compiled import copy_into, kernel
from distributary.model import FloatArray, IndexArray, IntArray

__all__ = ["Kinds", "count_cover", "measure_unions", "price_anchors", "search_cluster"]

Steps = np.ndarray[Any, np.dtype[np.int32]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

_FREE, _OUT, _IN = 0, 1, 2


class Kinds(NamedTuple):
    """Kinds, widest first: kind k has the receivers `members[offsets[k]:offsets[k + 1]]`.

    `rate` and `size` are the rate of each kind and the weight of its receivers; `weight` is that of
    each receiver, and `step` the unit in which weights of sets are counted.
    """

    offsets: IntArray
    members: IndexArray
    rate: FloatArray
    size: FloatArray
    weight: FloatArray
    step: float


@kernel
def measure_unions(kinds: Kinds, union: Steps) -> None:
    """Fill in the weight, in steps, of the receivers of any two kinds (OUT; r <= k only)."""
    offsets, members = kinds.offsets, kinds.members
    missing = np.zeros(len(kinds.weight))
    copy_into(missing, kinds.weight)
    for r in range(len(kinds.rate)):
        for at in range(offsets[r], offsets[r + 1]):
            missing[members[at]] = 0.0
        for k in range(r, len(kinds.rate)):
            size = kinds.size[r]
            for at in range(offsets[k], offsets[k + 1]):
                size += missing[members[at]]
            union[r, k] = int(size / kinds.step)
        for at in range(offsets[r], offsets[r + 1]):
            missing[members[at]] = kinds.weight[members[at]]


@kernel
def _count_widths(kinds: Kinds, worth: FloatArray) -> int:
    """How many widths matter: none has more than all receivers, nor profit beyond all worth."""
    total, most = 0.0, kinds.size[0]
    for weight in kinds.weight:
        total += weight
    for each in worth:
        most = max(most, each)
    return int(min(most, total) / kinds.step) + 3


@kernel
def _list_worth(
    width: int, rate: float, worth: float, step: float, gain: FloatArray, loss: FloatArray
) -> None:
    """Let a kind pay from `width` steps up to its worth: `gain` and `loss` hold the changes."""
    gain[width] += rate * worth
    loss[width] += rate
    if worth < (len(gain) - 1) * step:
        end = int(np.ceil(worth / step))
        gain[end] -= rate * worth
        loss[end] -= rate


@kernel
def _find_peak(
    first: int,
    fixed_gain: float,
    fixed_loss: float,
    step: float,
    gain: FloatArray,
    loss: FloatArray,
) -> tuple[float, int]:
    """The largest profit at any width from `first` on, and that width; clears the lists."""
    best, best_width = -np.inf, first
    for width in range(first, len(gain)):
        fixed_gain += gain[width]
        fixed_loss += loss[width]
        gain[width] = loss[width] = 0.0
        profit = fixed_gain - fixed_loss * (width * step)
        if profit > best:
            best, best_width = profit, width
    return best, best_width


@kernel
def price_anchors(
    kinds: Kinds,
    union: Steps,
    worth: FloatArray,
    profit: FloatArray,  # OUT
    width: IntArray,  # OUT
) -> None:
    """Bound from above the profit of any cluster by its anchor, and say at which width.

    The profit of a cluster C with receivers U is sum(rate x (worth - |U|)) over its kinds. With the
    anchor r, |U| is at least the union of r and any other kind k of C: so at width |U| = t the
    profit is at most that of r, and of each later kind with |r + k| <= t and worth > t.
    """
    rate, step = kinds.rate, kinds.step
    n_widths = _count_widths(kinds, worth)
    gain, loss = np.zeros(n_widths), np.zeros(n_widths)
    for r in range(len(rate)):
        for k in range(r + 1, len(rate)):
            if worth[k] > union[r, k] * step:
                _list_worth(union[r, k], rate[k], worth[k], step, gain, loss)
        profit[r], width[r] = _find_peak(union[r, r], rate[r] * worth[r], rate[r], step, gain, loss)


@kernel
def count_cover(
    kinds: Kinds,
    union: Steps,
    worth: FloatArray,
    anchors: IntArray,
    width: IntArray,
    cover: FloatArray,  # OUT
) -> None:
    """Count for each kind in how many of the clusters at these anchors it is."""
    for r in anchors:
        cover[r] += 1
        for k in range(r + 1, len(kinds.rate)):
            if union[r, k] <= width[r] < worth[k] / kinds.step:
                cover[k] += 1


class _Pool(NamedTuple):
    """The open nodes of a search for a cluster: its receivers so far, and the fate of each kind.

    Each has a bound of its profit, the width at which it may have that, and the kind to decide
    next: -1 if a cluster has that profit.
    """

    inside: Flags
    fate: np.ndarray[Any, np.dtype[np.int8]]
    gain: FloatArray
    loss: FloatArray
    bound: FloatArray
    width: IntArray
    branch: IntArray


@kernel
def _bound_node(
    kinds: Kinds, worth: FloatArray, pool: _Pool, node: int, gain: FloatArray, loss: FloatArray
) -> None:
    """Bound the profit at a node, as `price_anchors` does with all that is inside as the anchor."""
    offsets, members, step = kinds.offsets, kinds.members, kinds.step
    inside, fate = pool.inside[node], pool.fate[node]
    n_kinds = len(kinds.rate)
    own = 0.0
    for j in range(len(inside)):
        if inside[j]:
            own += kinds.weight[j]
    first = int(own / step)
    widths = np.zeros(n_kinds, np.int64)
    for k in range(n_kinds):
        if fate[k] == _FREE and worth[k] > own:
            size = own
            for at in range(offsets[k], offsets[k + 1]):
                if not inside[members[at]]:
                    size += kinds.weight[members[at]]
            widths[k] = int(size / step)
            if worth[k] > widths[k] * step:
                _list_worth(widths[k], kinds.rate[k], worth[k], step, gain, loss)
    bound, width = _find_peak(first, pool.gain[node], pool.loss[node], step, gain, loss)
    pool.bound[node], pool.width[node], pool.branch[node] = bound, width, -1
    most = 0.0
    for k in range(n_kinds):
        if fate[k] == _FREE and first < widths[k] <= width:
            share = kinds.rate[k] * (worth[k] - width * step)
            if share > most:
                most, pool.branch[node] = share, k


@kernel
def search_cluster(
    kinds: Kinds,
    worth: FloatArray,
    anchor: int,
    max_nodes: int,
    cover: FloatArray,  # OUT
) -> tuple[float, int]:
    """Bound the profit of any cluster with this anchor by branch and bound, best bound first.

    The bound is reached by a cluster if the search ends before `max_nodes`. Adds 1 to the `cover`
    of the kinds at the node with the best bound; returns that bound, and how many nodes there were.
    """
    n_kinds, n_widths = len(kinds.rate), _count_widths(kinds, worth)
    pool = _Pool(
        np.zeros((max_nodes, len(kinds.weight)), np.bool_),
        np.zeros((max_nodes, n_kinds), np.int8),
        np.zeros(max_nodes),
        np.zeros(max_nodes),
        np.zeros(max_nodes),
        np.zeros(max_nodes, np.int64),
        np.zeros(max_nodes, np.int64),
    )
    gain, loss = np.zeros(n_widths), np.zeros(n_widths)
    for k in range(anchor):
        pool.fate[0, k] = _OUT
    _take_in(kinds, worth, pool, 0, anchor)
    _bound_node(kinds, worth, pool, 0, gain, loss)
    top, n_nodes = 0, 1
    while n_nodes < max_nodes and pool.branch[top] >= 0:
        chosen = pool.branch[top]
        copy_into(pool.inside[n_nodes], pool.inside[top])
        copy_into(pool.fate[n_nodes], pool.fate[top])
        pool.gain[n_nodes], pool.loss[n_nodes] = pool.gain[top], pool.loss[top]
        _take_in(kinds, worth, pool, n_nodes, chosen)
        _bound_node(kinds, worth, pool, n_nodes, gain, loss)
        pool.fate[top, chosen] = _OUT
        _bound_node(kinds, worth, pool, top, gain, loss)
        n_nodes += 1
        top = 0
        for node in range(1, n_nodes):
            if pool.bound[node] > pool.bound[top]:
                top = node
    _cover_node(kinds, worth, pool, top, cover)
    return pool.bound[top], n_nodes


@kernel
def _take_in(kinds: Kinds, worth: FloatArray, pool: _Pool, node: int, kind: int) -> None:
    pool.fate[node, kind] = _IN
    pool.gain[node] += kinds.rate[kind] * worth[kind]
    pool.loss[node] += kinds.rate[kind]
    for at in range(kinds.offsets[kind], kinds.offsets[kind + 1]):
        pool.inside[node, kinds.members[at]] = True


@kernel
def _cover_node(kinds: Kinds, worth: FloatArray, pool: _Pool, node: int, cover: FloatArray) -> None:
    offsets, members = kinds.offsets, kinds.members
    inside, width = pool.inside[node], pool.width[node] * kinds.step
    own = 0.0
    for j in range(len(inside)):
        if inside[j]:
            own += kinds.weight[j]
    for k in range(len(kinds.rate)):
        size = own
        for at in range(offsets[k], offsets[k + 1]):
            if not inside[members[at]]:
                size += kinds.weight[members[at]]
        is_free = pool.fate[node, k] == _FREE and int(size / kinds.step) * kinds.step <= width
        if pool.fate[node, k] == _IN or (is_free and worth[k] > width):
            cover[k] += 1
