"""The compiled inner loops of the exact solvers: depth-first branch and bound, one flow per level.

Both searches keep all they know in the arrays they are given, so that a caller can stop after some
nodes, look at the clock and go on. At level d the first d flows are placed. Groups are opened in
order: any other order is the same plan renumbered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distributary.compiled import copy_into, kernel, popcount
from distributary.model import IntArray

__all__ = ["Covers", "Cursor", "Partitions", "search_covers", "search_partitions"]

Words = np.ndarray[Any, np.dtype[np.uint64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Cursor(NamedTuple):
    """Where a search is.

    `child[d]` lists where flow d may go, cheapest bound first, `bound[d]` the least cost of each
    choice, `width[d]` how many there are (-1 at level 0 before the first call) and `at[d]` how many
    were tried. `best_child` is the choice for each flow in the best plan met.
    """

    child: IntArray
    bound: IntArray
    width: IntArray
    at: IntArray
    best_child: IntArray


class Partitions(NamedTuple):
    """Flows to be placed in one group each, in the order of the search, and the groups so far.

    `wants` is flows x words: the receivers of each flow, as bits. By level: `audience` (x groups x
    words), the rate `carried` (x groups), and how many groups are `used`.
    """

    rate: IntArray
    wants: Words
    audience: Words
    carried: IntArray
    used: IntArray


class Covers(NamedTuple):
    """Flows to be placed in a set of groups each, in the order of the search, and the sets so far.

    `wants` is flows x receivers; `covers` says for a set of groups which sets have a group in
    common with it. By level: `rest`, the least cost of the flows from here on; `feasible` (x
    receivers), the sets of groups that a receiver may still join; the rate `carried` (x groups);
    and how many groups are `used`. What a receiver receives counts as often as its `weight` says,
    what is sent as often as `sent` says.
    """

    rate: IntArray
    wants: Flags
    covers: Words
    rest: IntArray
    feasible: Words
    carried: IntArray
    used: IntArray
    weight: IntArray
    sent: int


@kernel
def _insert(child: IntArray, bound: IntArray, n: int, choice: int, cost: int) -> None:
    """Insert a choice after all that are as cheap."""
    at = n
    while at > 0 and bound[at - 1] > cost:
        bound[at], child[at] = bound[at - 1], child[at - 1]
        at -= 1
    bound[at], child[at] = cost, choice


@kernel
def _take_choice(cursor: Cursor, depth: int, best: int) -> tuple[int, int]:
    """Take the next choice that may beat the best, at this level or above; return level and choice.

    Level -1 says that there is none.
    """
    while depth >= 0:
        at = cursor.at[depth]
        if at < cursor.width[depth] and cursor.bound[depth, at] < best:
            cursor.at[depth] += 1
            return depth, cursor.child[depth, at]
        depth -= 1
    return -1, -1


@kernel
def _keep_best(cursor: Cursor) -> int:
    """Keep the choices that led to the last level; return their cost."""
    last = len(cursor.at) - 1
    for d in range(last + 1):
        cursor.best_child[d] = cursor.child[d, cursor.at[d] - 1]
    return cursor.bound[last, cursor.at[last] - 1]


@kernel
def _list_groups(depth: int, flows: Partitions, cursor: Cursor) -> None:
    """List the groups for the flow at `depth`, by what the plan will cost at least.

    A later flow is received at least by its own receivers and by those that its group already has.
    """
    rate, wants = flows.rate, flows.wants
    audience, carried, used = flows.audience[depth], flows.carried[depth], flows.used[depth]
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
        _insert(cursor.child[depth], cursor.bound[depth], n, chosen, cost)
        n += 1
    cursor.at[depth], cursor.width[depth] = 0, n


@kernel
def search_partitions(
    flows: Partitions,  # IN and OUT
    cursor: Cursor,  # IN and OUT
    depth: int,
    best: int,
    max_nodes: int,
) -> tuple[int, int]:
    """Minimise the received rate with each flow in one group; return the level and the best cost.

    Level -1 means that the search is complete.
    """
    audience, carried, used = flows.audience, flows.carried, flows.used
    if cursor.width[0] < 0:
        _list_groups(depth, flows, cursor)
    for _ in range(max_nodes):
        depth, chosen = _take_choice(cursor, depth, best)
        if depth < 0:
            break
        if depth == len(flows.rate) - 1:
            best = _keep_best(cursor)
            continue
        for m in range(carried.shape[1]):
            copy_into(audience[depth + 1, m], audience[depth, m])
        for w in range(flows.wants.shape[1]):
            audience[depth + 1, chosen, w] |= flows.wants[depth, w]
        copy_into(carried[depth + 1], carried[depth])
        carried[depth + 1, chosen] += flows.rate[depth]
        used[depth + 1] = max(used[depth], chosen + 1)
        depth += 1
        _list_groups(depth, flows, cursor)
    return depth, best


@kernel
def _list_sets(depth: int, flows: Covers, cursor: Cursor) -> None:
    """List the sets of groups for the flow at `depth`, by what the plan will cost at least.

    Each receiver joins the cheapest set that is still possible, at the present rates; every later
    flow is sent at least once and received once by each receiver that wants it.
    """
    rate, wants, feasible = flows.rate, flows.wants, flows.feasible[depth]
    carried, used = flows.carried[depth], flows.used[depth]
    n_groups = len(carried)
    n_sets = 1 << n_groups
    set_rate = np.zeros(n_sets, np.int64)
    n = 0
    for chosen in range(1, n_sets):
        fresh = chosen >> used
        if fresh & (fresh + 1):
            continue
        cost = flows.rest[depth + 1]
        for m in range(n_groups):
            group_rate = carried[m] + rate[depth] * (chosen >> m & 1)
            cost += flows.sent * group_rate
            for joined in range(1 << m):
                set_rate[joined | 1 << m] = set_rate[joined] + group_rate
        for j in range(len(feasible)):
            open_sets = feasible[j]
            if wants[depth, j]:
                open_sets &= flows.covers[chosen]
            least = np.iinfo(np.int64).max
            for joined in range(n_sets):
                if open_sets >> np.uint64(joined) & np.uint64(1):
                    least = min(least, set_rate[joined])
            cost += flows.weight[j] * least
        _insert(cursor.child[depth], cursor.bound[depth], n, chosen, cost)
        n += 1
    cursor.at[depth], cursor.width[depth] = 0, n


@kernel
def search_covers(
    flows: Covers,  # IN and OUT
    cursor: Cursor,  # IN and OUT
    depth: int,
    best: int,
    max_nodes: int,
) -> tuple[int, int]:
    """Minimise the received and sent rate with each flow in a set of groups.

    Returns the same as `search_partitions`. A set of groups is a number below 2 ** groups, and a
    set of such sets is one 64-bit word: hence at most 6 groups.
    """
    feasible, carried, used = flows.feasible, flows.carried, flows.used
    if cursor.width[0] < 0:
        _list_sets(depth, flows, cursor)
    for _ in range(max_nodes):
        depth, chosen = _take_choice(cursor, depth, best)
        if depth < 0:
            break
        if depth == len(flows.rate) - 1:
            best = _keep_best(cursor)
            continue
        used[depth + 1] = used[depth]
        for m in range(carried.shape[1]):
            inside = chosen >> m & 1
            carried[depth + 1, m] = carried[depth, m] + flows.rate[depth] * inside
            if inside:
                used[depth + 1] = max(used[depth + 1], m + 1)
        for j in range(feasible.shape[1]):
            feasible[depth + 1, j] = feasible[depth, j]
            if flows.wants[depth, j]:
                feasible[depth + 1, j] &= flows.covers[chosen]
        depth += 1
        _list_sets(depth, flows, cursor)
    return depth, best
