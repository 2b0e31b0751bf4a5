"""Cut a plan into independent parts.

The intake of receivers adds up over groups: the price of a flow depends only on its group and on
the sessions of that group. So if the groups are dealt into classes, each class with its sessions
and flows is a smaller problem of its own, and improving one class never makes another worse.
Threads and machines can work on the classes in parallel and get the same answer in any order. The
classes are dealt anew in each round, so that every flow can reach every group in time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributary.model import IndexArray, IntArray
from distributary.planning.hierarchy import Maps
from distributary.planning.things import Things

__all__ = ["Part", "cut_parts", "deal", "join_parts", "part_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One class as a problem of its own.

    `flows`, `sessions` and `groups` are the numbers that its flows, sessions and groups have in the
    whole plan.
    """

    things: Things
    maps: Maps
    flows: IntArray
    sessions: IntArray
    groups: IntArray


def deal(n_groups: int, n_classes: int, rng: np.random.Generator) -> IntArray:
    """Assign each group to a class at random; classes are about equally large."""
    return rng.permutation(n_groups) * n_classes // n_groups


def cut_parts(things: Things, maps: Maps, class_of_group: IntArray) -> list[Part]:
    """Make a part of each class that has flows."""
    class_of_flow = class_of_group[maps.flow_group]
    parts = []
    for c in range(int(class_of_group.max()) + 1):
        flows = np.flatnonzero(class_of_flow == c)
        if len(flows):
            of_flows = Maps(maps.session[flows], maps.group)
            parts.append(part_of(things.subset(flows), of_flows, class_of_group, c, flows))
    return parts


def part_of(
    things: Things, maps: Maps, class_of_group: IntArray, c: int, flows: IntArray | None = None
) -> Part:
    """Make a part of class c from its own flows and their places in the whole plan."""
    sessions = np.flatnonzero(class_of_group[maps.group] == c)
    groups = np.flatnonzero(class_of_group == c)
    inner = Maps(
        _places(sessions, len(maps.group))[maps.session],
        _places(groups, len(class_of_group))[maps.group[sessions]],
    )
    return Part(things, inner, np.arange(len(things)) if flows is None else flows, sessions, groups)


def join_parts(maps: Maps, parts: list[Part], found: list[Maps]) -> Maps:
    """Put the maps found for the parts back into the whole plan."""
    session, group = maps.session.copy(), maps.group.copy()
    for part, inner in zip(parts, found, strict=True):
        session[part.flows] = part.sessions[inner.session]
        group[part.sessions] = part.groups[inner.group]
    return Maps(session, group)


def _places(chosen: IntArray, n: int) -> IndexArray:
    """The position of each of n numbers among the chosen ones."""
    place = np.zeros(n, np.int32)
    place[chosen] = np.arange(len(chosen), dtype=np.int32)
    return place
