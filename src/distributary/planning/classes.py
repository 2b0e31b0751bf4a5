"""A plan cut into parts that do not touch each other.

What receivers take in adds up over groups: a flow's price depends only on the group it is in and on
that group's sessions. So when the groups are dealt into classes, each class with its sessions and
flows is a smaller problem of its own, and improving one never spoils another. Threads and machines
can work on them side by side and get the same answer in any order; dealt anew each round, flows
come to meet all groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributary.model import IndexArray, IntArray
from distributary.planning.hierarchy import Maps
from distributary.planning.things import Things

__all__ = ["Part", "cut", "deal", "join_parts", "part_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One class as a problem of its own, and the numbers that its flows, sessions and groups have
    in the whole."""

    things: Things
    maps: Maps
    flows: IntArray
    sessions: IntArray
    groups: IntArray


def deal(n_groups: int, n_classes: int, rng: np.random.Generator) -> IntArray:
    """A class for each group, all about equally large."""
    return rng.permutation(n_groups) * n_classes // n_groups


def cut(things: Things, maps: Maps, class_of_group: IntArray) -> list[Part]:
    """The classes that have flows, each as a part."""
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
    """Class c as a part, out of its own flows and where they are in the whole."""
    sessions = np.flatnonzero(class_of_group[maps.group] == c)
    groups = np.flatnonzero(class_of_group == c)
    inner = Maps(
        _places(sessions, len(maps.group))[maps.session],
        _places(groups, len(class_of_group))[maps.group[sessions]],
    )
    return Part(things, inner, np.arange(len(things)) if flows is None else flows, sessions, groups)


def join_parts(maps: Maps, parts: list[Part], found: list[Maps]) -> Maps:
    """The whole again, with what was found for each part in its place."""
    session, group = maps.session.copy(), maps.group.copy()
    for part, inner in zip(parts, found, strict=True):
        session[part.flows] = part.sessions[inner.session]
        group[part.sessions] = part.groups[inner.group]
    return Maps(session, group)


def _places(chosen: IntArray, n: int) -> IndexArray:
    """Where each of n numbers stands among the chosen ones."""
    place = np.zeros(n, np.int32)
    place[chosen] = np.arange(len(chosen), dtype=np.int32)
    return place
