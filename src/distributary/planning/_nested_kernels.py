"""The compiled inner loop of the exact search on two levels: flows in sessions, those in groups.

A depth-first branch and bound, one kind of flows per level (see `_bound_kernels`). At level d the
first d kinds are placed. Sessions and groups are opened in order: any other order is the same plan
renumbered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distributary.compiled import copy_into, kernel
from distributary.model import IntArray
from distributary.planning._bound_kernels import Flags, Kinds

__all__ = ["Nested", "make_nested", "search_nested"]

Table = np.ndarray[Any, np.dtype[np.float64]]


class Clusters(NamedTuple):
    """Sessions or groups by level: who is in each, their weight, the rate, and how many are open.

    `joined` has room for what a kind would pay in each.
    """

    inside: Flags
    size: Table
    rate: Table
    used: IntArray
    joined: Table


class Options(NamedTuple):
    """By level, where the kind may go, cheapest bound first; how many, and how many were tried."""

    session: IntArray
    group: IntArray
    bound: Table
    listed: IntArray
    tried: IntArray


class Nested(NamedTuple):
    """A search: the kinds, the prices, and all that it knows, by level.

    If it `is_flat`, each session is a group of its own.
    """

    kinds: Kinds
    alpha: float
    beta: float
    is_flat: bool
    sessions: Clusters
    groups: Clusters
    group_of: IntArray
    options: Options


def make_nested(kinds: Kinds, n_groups: int, n_sessions: int, alpha: float, beta: float) -> Nested:
    """Make room for a search."""
    n_levels, n_receivers = len(kinds.rate) + 1, len(kinds.weight)

    def clusters(count: int) -> Clusters:
        levels = (n_levels, count)
        return Clusters(
            np.zeros((*levels, n_receivers), np.bool_),
            np.zeros(levels),
            np.zeros(levels),
            np.zeros(n_levels, np.int64),
            np.zeros(levels),
        )

    levels = (n_levels, n_sessions + n_groups)
    options = Options(
        np.zeros(levels, np.int64),
        np.zeros(levels, np.int64),
        np.zeros(levels),
        np.zeros(n_levels, np.int64),
        np.zeros(n_levels, np.int64),
    )
    return Nested(
        kinds,
        alpha,
        beta,
        n_groups == n_sessions,
        clusters(n_sessions),
        clusters(n_groups),
        np.zeros((n_levels, n_sessions), np.int64),
        options,
    )


@kernel
def _weigh_union(kinds: Kinds, kind: int, inside: Flags, size: float) -> float:
    """The weight of a set of this weight together with the receivers of a kind."""
    for at in range(kinds.offsets[kind], kinds.offsets[kind + 1]):
        if not inside[kinds.members[at]]:
            size += kinds.weight[kinds.members[at]]
    return size


@kernel
def _join(kinds: Kinds, clusters: Clusters, level: int, chosen: int) -> None:
    """Copy a level's clusters to the next, with its kind in the cluster chosen."""
    inside, size, rate = clusters.inside, clusters.size, clusters.rate
    for other in range(clusters.used[level]):
        copy_into(inside[level + 1, other], inside[level, other])
        size[level + 1, other], rate[level + 1, other] = size[level, other], rate[level, other]
    if chosen == clusters.used[level]:
        for member in range(inside.shape[2]):
            inside[level + 1, chosen, member] = False
        size[level + 1, chosen] = rate[level + 1, chosen] = 0.0
    clusters.used[level + 1] = max(clusters.used[level], chosen + 1)
    size[level + 1, chosen] = _weigh_union(
        kinds, level, inside[level + 1, chosen], size[level + 1, chosen]
    )
    rate[level + 1, chosen] += kinds.rate[level]
    for at in range(kinds.offsets[level], kinds.offsets[level + 1]):
        inside[level + 1, chosen, kinds.members[at]] = True


@kernel
def _place(search: Nested, level: int, session: int, group: int) -> None:
    """Place the kind of a level."""
    group_of = search.group_of
    copy_into(group_of[level + 1], group_of[level])
    group_of[level + 1, session] = group
    _join(search.kinds, search.sessions, level, session)
    _join(search.kinds, search.groups, level, group)


@kernel
def _price_least(search: Nested, level: int, kind: int) -> float:
    """The least that a message of a later kind costs.

    It is received at least by its own receivers, and by those that its session and group have.
    """
    kinds, sessions, groups = search.kinds, search.sessions, search.groups
    n_sessions, n_groups = sessions.used[level], groups.used[level]
    may_open = n_sessions < sessions.size.shape[1]
    least: float = (search.alpha + search.beta) * kinds.size[kind]
    if may_open and n_groups < groups.size.shape[1]:
        return least
    least = np.inf
    joined = groups.joined[level]
    for g in range(n_groups):
        joined[g] = search.alpha * _weigh_union(
            kinds, kind, groups.inside[level, g], groups.size[level, g]
        )
        if may_open and not search.is_flat:
            least = min(least, joined[g] + search.beta * kinds.size[kind])
    for s in range(n_sessions):
        size = _weigh_union(kinds, kind, sessions.inside[level, s], sessions.size[level, s])
        least = min(least, joined[search.group_of[level, s]] + search.beta * size)
    return least


@kernel
def _bound_plan(search: Nested, level: int) -> float:
    """The least that any plan costs that goes on from this level."""
    sessions, groups = search.sessions, search.groups
    cost = 0.0
    for s in range(sessions.used[level]):
        cost += search.beta * sessions.size[level, s] * sessions.rate[level, s]
    for g in range(groups.used[level]):
        cost += search.alpha * groups.size[level, g] * groups.rate[level, g]
    for kind in range(level, len(search.kinds.rate)):
        cost += search.kinds.rate[kind] * _price_least(search, level, kind)
    return cost


@kernel
def _list_options(search: Nested, level: int) -> int:
    """List where the kind of this level may go, by what the plan will cost at least."""
    sessions, groups, options = search.sessions, search.groups, search.options
    n_sessions, n_groups = sessions.used[level], groups.used[level]
    count = 0
    for choice in range(n_sessions + n_groups + 1):
        if choice < n_sessions:
            session, group = choice, search.group_of[level, choice]
        else:
            session, group = n_sessions, choice - n_sessions
            if session == sessions.size.shape[1] or group == groups.size.shape[1]:
                continue
            if search.is_flat and group < n_groups:
                continue
        _place(search, level, session, group)
        bound, at = _bound_plan(search, level + 1), count
        while at > 0 and options.bound[level, at - 1] > bound:
            options.bound[level, at] = options.bound[level, at - 1]
            options.session[level, at] = options.session[level, at - 1]
            options.group[level, at] = options.group[level, at - 1]
            at -= 1
        options.bound[level, at] = bound
        options.session[level, at], options.group[level, at] = session, group
        count += 1
    options.listed[level], options.tried[level] = count, 0
    return count


@kernel
def search_nested(search: Nested, max_nodes: int) -> tuple[float, float]:
    """The least cost of a plan met, infinite if none was, and a lower bound of any plan.

    Both are equal if the search is completed within `max_nodes`, about.
    """
    options, last = search.options, len(search.kinds.rate) - 1
    best, level, nodes, is_new = np.inf, 0, 0, True
    while level >= 0:
        if is_new:
            if nodes >= max_nodes:
                break
            nodes += _list_options(search, level)
            is_new = False
        at = options.tried[level]
        if at == options.listed[level] or options.bound[level, at] >= best:
            level -= 1
            continue
        options.tried[level] += 1
        if level == last:
            best = options.bound[level, at]
            continue
        _place(search, level, options.session[level, at], options.group[level, at])
        level, is_new = level + 1, True
    if level == 0:
        return best, 0.0
    bound = best
    for above in range(level):  # the option taken there, which is not finished, and the next
        for at in range(
            options.tried[above] - 1, min(options.tried[above] + 1, options.listed[above])
        ):
            bound = min(bound, options.bound[above, at])
    return best, bound
