"""The compiled inner loops of the exact solvers: depth-first branch and bound, one flow per level.

Both searches keep their state in the arrays that they are given, so that a caller can stop after
some nodes, check the clock and continue. At level d the first d flows are placed; `child[d]` lists
the choices for flow d, cheapest bound first, `bound[d]` the least cost of each choice, and `at[d]`
the number of choices tried. Groups are opened in order: any other order is the same plan with other
numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distributary.compiled import kernel, popcount
from distributary.model import IntArray

__all__ = ["search_covers", "search_partitions"]

Words = np.ndarray[Any, np.dtype[np.uint64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


@kernel
def _insert(child: IntArray, bound: IntArray, n: int, choice: int, cost: int) -> None:
    """Insert a choice after all that are as cheap."""
    at = n
    while at > 0 and bound[at - 1] > cost:
        bound[at], child[at] = bound[at - 1], child[at - 1]
        at -= 1
    bound[at], child[at] = cost, choice


@kernel
def _groups_for_flow(
    depth: int,
    rate: IntArray,
    wants: Words,
    audience: Words,
    carried: IntArray,
    used: int,
    child: IntArray,
    bound: IntArray,
) -> int:
    """List the groups for the flow at `depth`, by the least cost that the plan can then have.

    A later flow is received at least by its own receivers and by those that its group already has.
    """
    n_flows, n_words = wants.shape
    n_groups = len(carried)
    n = 0
    for chosen in range(min(used + 1, n_groups)):
        opened = max(used, chosen + 1)
        cost = np.int64(0)
        for m in range(opened):
            size = np.int64(0)
            for w in range(n_words):
                word = audience[m, w]
                if m == chosen:
                    word |= wants[depth, w]
                size += np.int64(popcount(word))
            cost += size * (carried[m] + (rate[depth] if m == chosen else 0))
        for k in range(depth + 1, n_flows):
            least = np.iinfo(np.int64).max
            if opened < n_groups:
                least = np.int64(0)
                for w in range(n_words):
                    least += np.int64(popcount(wants[k, w]))
            else:
                for m in range(n_groups):
                    size = np.int64(0)
                    for w in range(n_words):
                        word = audience[m, w] | wants[k, w]
                        if m == chosen:
                            word |= wants[depth, w]
                        size += np.int64(popcount(word))
                    least = min(least, size)
            cost += rate[k] * least
        _insert(child, bound, n, chosen, cost)
        n += 1
    return n


@kernel
def search_partitions(
    rate: IntArray,  # IN   of each flow, in the order of the search
    wants: Words,  # IN   flows x words: the receivers of each flow, as bits
    audience: Words,  # IN, OUT  level x groups x words
    carried: IntArray,  # IN, OUT  level x groups: rate
    used: IntArray,  # IN, OUT  level: groups opened
    child: IntArray,  # IN, OUT  level x groups
    bound: IntArray,  # IN, OUT
    width: IntArray,  # IN, OUT  level: choices listed; -1 at level 0 before the first call
    at: IntArray,  # IN, OUT
    depth: int,
    best: int,
    best_child: IntArray,  # OUT  the group of each flow in the best plan
    max_nodes: int,
) -> tuple[int, int]:
    """Minimise the received rate with each flow in one group; return the level and the best cost.

    Level -1 means that the search is complete.
    """
    n_flows = len(rate)
    if width[0] < 0:
        width[0] = _groups_for_flow(0, rate, wants, audience[0], carried[0], 0, child[0], bound[0])
    nodes = 0
    while depth >= 0 and nodes < max_nodes:
        if at[depth] >= width[depth] or bound[depth, at[depth]] >= best:
            depth -= 1
            continue
        chosen = child[depth, at[depth]]
        cost = bound[depth, at[depth]]
        at[depth] += 1
        nodes += 1
        if depth == n_flows - 1:
            best = cost
            for d in range(n_flows):
                best_child[d] = child[d, at[d] - 1]
            continue
        audience[depth + 1] = audience[depth]
        audience[depth + 1, chosen] |= wants[depth]
        carried[depth + 1] = carried[depth]
        carried[depth + 1, chosen] += rate[depth]
        used[depth + 1] = max(used[depth], chosen + 1)
        depth += 1
        at[depth] = 0
        width[depth] = _groups_for_flow(
            depth, rate, wants, audience[depth], carried[depth], used[depth],
            child[depth], bound[depth],
        )  # fmt: skip
    return depth, best


@kernel
def _covers_for_flow(
    depth: int,
    rate: IntArray,
    wants: Flags,
    covers: Words,
    rest: IntArray,
    feasible: Words,
    carried: IntArray,
    used: int,
    child: IntArray,
    bound: IntArray,
) -> int:
    """List the sets of groups for the flow at `depth`, by the least cost of the plan.

    Each receiver joins the cheapest set that is still possible, at the present rates; every later
    flow is sent at least once and received once by each receiver that wants it.
    """
    n_groups = len(carried)
    n_sets = 1 << n_groups
    set_rate = np.zeros(n_sets, np.int64)
    n = 0
    for chosen in range(1, n_sets):
        fresh = chosen >> used
        if fresh & (fresh + 1):
            continue
        cost = rest[depth + 1]
        for m in range(n_groups):
            group_rate = carried[m] + rate[depth] * (chosen >> m & 1)
            cost += group_rate
            for joined in range(1 << m):
                set_rate[joined | 1 << m] = set_rate[joined] + group_rate
        for j in range(len(feasible)):
            open_sets = feasible[j]
            if wants[depth, j]:
                open_sets &= covers[chosen]
            least = np.iinfo(np.int64).max
            for joined in range(n_sets):
                if open_sets >> np.uint64(joined) & np.uint64(1):
                    least = min(least, set_rate[joined])
            cost += least
        _insert(child, bound, n, chosen, cost)
        n += 1
    return n


@kernel
def search_covers(
    rate: IntArray,  # IN   of each flow, in the order of the search
    wants: Flags,  # IN   flows x receivers
    covers: Words,  # IN   for each set of groups, the sets that share a group with it
    rest: IntArray,  # IN   level: least cost of the flows from this level on
    feasible: Words,  # IN, OUT  level x receivers: the sets of groups it may still join
    carried: IntArray,  # IN, OUT  level x groups: rate
    used: IntArray,  # IN, OUT  level: groups opened
    child: IntArray,  # IN, OUT  level x sets of groups
    bound: IntArray,  # IN, OUT
    width: IntArray,  # IN, OUT  level: choices listed; -1 at level 0 before the first call
    at: IntArray,  # IN, OUT
    depth: int,
    best: int,
    best_child: IntArray,  # OUT  the set of groups of each flow in the best plan
    max_nodes: int,
) -> tuple[int, int]:
    """Minimise the received and sent rate with each flow in a set of groups.

    Returns the same as `search_partitions`. A set of groups is a number below 2 ** groups, and a
    set of such sets is one 64-bit word: hence at most 6 groups.
    """
    n_flows = len(rate)
    if width[0] < 0:
        width[0] = _covers_for_flow(
            0, rate, wants, covers, rest, feasible[0], carried[0], 0, child[0], bound[0]
        )
    nodes = 0
    while depth >= 0 and nodes < max_nodes:
        if at[depth] >= width[depth] or bound[depth, at[depth]] >= best:
            depth -= 1
            continue
        chosen = child[depth, at[depth]]
        cost = bound[depth, at[depth]]
        at[depth] += 1
        nodes += 1
        if depth == n_flows - 1:
            best = cost
            for d in range(n_flows):
                best_child[d] = child[d, at[d] - 1]
            continue
        used[depth + 1] = used[depth]
        for m in range(carried.shape[1]):
            inside = chosen >> m & 1
            carried[depth + 1, m] = carried[depth, m] + rate[depth] * inside
            if inside:
                used[depth + 1] = max(used[depth + 1], m + 1)
        for j in range(feasible.shape[1]):
            feasible[depth + 1, j] = feasible[depth, j]
            if wants[depth, j]:
                feasible[depth + 1, j] &= covers[chosen]
        depth += 1
        at[depth] = 0
        width[depth] = _covers_for_flow(
            depth, rate, wants, covers, rest, feasible[depth], carried[depth], used[depth],
            child[depth], bound[depth],
        )  # fmt: skip
    return depth, best
