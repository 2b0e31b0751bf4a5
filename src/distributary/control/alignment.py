"""Two plans side by side: which sessions are the same ones, and which flows moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import numpy as np

from distributary.control.placement import Places

__all__ = ["align_places", "find_moved"]

Key = TypeVar("Key", bound=Hashable)


def align_places(places: Places, before: Places, most_sessions: int) -> Places:
    """The same places, with the numbers that sessions and groups had before where they are alike.

    Sessions that have most flows in common are taken for the same, then groups.
    """
    common = [
        (session, before.session_of[flow])
        for flow, session in places.session_of.items()
        if flow in before.session_of
    ]
    session = _match(common, range(len(places.session_group)), range(most_sessions))
    groups = [(int(places.session_group[s]), int(before.session_group[b])) for s, b in common]
    used = sorted(set(places.session_group.tolist()))
    group = _match(groups, used, range(max(len(used), _count_groups(before))))
    session_group = np.zeros(max(session.values(), default=-1) + 1, np.int32)
    for one, other in session.items():
        session_group[other] = group[int(places.session_group[one])]
    return Places({flow: session[at] for flow, at in places.session_of.items()}, session_group)


def find_moved(places: Places, before: Places) -> list[str]:
    """The flows, sorted, whose session or group is not what it was before."""
    return sorted(
        flow
        for flow in places.session_of.keys() & before.session_of.keys()
        if places.place_of(flow) != before.place_of(flow)
    )


def _count_groups(places: Places) -> int:
    return int(places.session_group.max(initial=-1)) + 1


def _match(
    common: Iterable[tuple[int, int]], ours: Iterable[int], free: Iterable[int]
) -> Mapping[int, int]:
    """Give each of our numbers one of the free ones: the one that it has most in common with."""
    counted = Counter(common)
    matched: dict[int, int] = {}
    taken: set[int] = set()
    for one, other in sorted(counted, key=lambda pair: (-counted[pair], pair)):
        if one not in matched and other not in taken:
            matched[one] = other
            taken.add(other)
    rest = iter(sorted(set(free) - taken))
    for one in ours:
        if one not in matched:
            matched[one] = next(rest)
    return matched
