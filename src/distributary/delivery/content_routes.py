"""Which flows an event goes to, and which flows somebody who wants events subscribes to.

An event matches a set of filters. The flow that was made of exactly this set takes it. Without one
it goes to a flow that has all of its filters, the one with the fewest receivers. Without such a
flow it goes to several that have its filters together, if possible such that no receiver subscribes
to two of them. Every filter has a flow, so nobody misses an event.

A receiver that subscribes to several flows of the same event takes the first copy that is listed
for it. So it needs no memory of events, and gets each of them once.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from distributary.files import FlowFilters
from distributary.model import Filter, covers, equivalent, intersects

__all__ = ["ContentRoute", "ContentRoutes", "RouteKind", "flows_for_condition", "flows_for_owner"]

_MOST_KNOWN = 1 << 16  # sets of filters whose routes are kept
_MOST_STEPS = 200  # of a search for flows without a common receiver, and so its depth


class RouteKind(Enum):
    """How the flows of a set of filters were found."""

    EXACT = "exact"
    COVERED = "covered"
    SEVERAL = "several"


class ContentRoute(NamedTuple):
    """The flows that an event with some set of filters goes to."""

    kind: RouteKind
    flows: tuple[str, ...]


class ContentRoutes:
    """Finds the flows for sets of filters."""

    def __init__(self, table: FlowFilters) -> None:
        self._flows = table.flows
        self._exact: dict[frozenset[int], str] = {}
        for flow, filters in sorted(table.own.items(), reverse=True):
            self._exact[filters] = flow
        owners: dict[int, set[str]] = {}
        for receiver, wanted in table.owners.items():
            for at in wanted:
                owners.setdefault(at, set()).add(receiver)
        self._receivers = {
            flow: frozenset(name for at in filters for name in owners.get(at, ()))
            for flow, filters in table.flows.items()
        }
        self._holders: dict[int, list[str]] = {}
        for flow in sorted(table.flows, key=lambda flow: (len(self._receivers[flow]), flow)):
            for at in table.flows[flow]:
                self._holders.setdefault(at, []).append(flow)
        self._known: dict[frozenset[int], ContentRoute] = {}

    def find(self, filters: frozenset[int]) -> ContentRoute:
        """The route of events that match exactly these filters, at least one."""
        route = self._known.get(filters)
        if route is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            route = self._known[filters] = self._search(filters)
        return route

    def _search(self, filters: frozenset[int]) -> ContentRoute:
        if filters in self._exact:
            return ContentRoute(RouteKind.EXACT, (self._exact[filters],))
        # Any filter's flows will do, and they are sorted by their number of receivers.
        fewest = min((self._holders[at] for at in filters), key=len)
        for flow in fewest:
            if filters <= self._flows[flow]:
                return ContentRoute(RouteKind.COVERED, (flow,))
        found = self._find_disjoint(filters, frozenset(), [_MOST_STEPS])
        return ContentRoute(RouteKind.SEVERAL, found or self._cover_greedily(filters))

    def _find_disjoint(
        self, filters: frozenset[int], reached: frozenset[str], left: list[int]
    ) -> tuple[str, ...] | None:
        """Flows that have the filters together and no common receiver; None if none were found."""
        if not filters:
            return ()
        for flow in min((self._holders[at] for at in sorted(filters)), key=len):
            left[0] -= 1
            if left[0] < 0:
                return None
            receivers = self._receivers[flow]
            if reached.isdisjoint(receivers):
                rest = self._find_disjoint(filters - self._flows[flow], reached | receivers, left)
                if rest is not None:
                    return (flow, *rest)
        return None

    def _cover_greedily(self, filters: frozenset[int]) -> tuple[str, ...]:
        """Flows that have the filters together, the most of them first."""
        found: list[str] = []
        while filters:
            flows = {flow for at in filters for flow in self._holders[at]}
            best = min(
                flows,
                key=lambda flow: (
                    -len(filters & self._flows[flow]),
                    len(self._receivers[flow]),
                    flow,
                ),
            )
            found.append(best)
            filters -= self._flows[best]
        return tuple(found)


def flows_for_owner(table: FlowFilters, receiver: str) -> tuple[str, ...]:
    """The flows that may have events for a receiver of the table: those with a filter of its."""
    wanted = table.owners.get(receiver, frozenset())
    return tuple(flow for flow, filters in table.flows.items() if not wanted.isdisjoint(filters))


def flows_for_condition(table: FlowFilters, condition: Filter) -> tuple[tuple[str, ...], bool]:
    """The flows that may have events that match a filter, and whether all such events come.

    Events come only if they match some filter of the table, so for a filter that those of the table
    do not cover the answer is False.
    """
    same = {at for at, each in enumerate(table.filters) if equivalent(each, condition)}
    near = same or {at for at, each in enumerate(table.filters) if intersects(each, condition)}
    flows = tuple(flow for flow, filters in table.flows.items() if not near.isdisjoint(filters))
    return flows, bool(same) or _is_covered(condition, (table.filters[at] for at in near))


def _is_covered(condition: Filter, filters: Iterable[Filter]) -> bool:
    boxes = [box for each in filters for box in each.boxes]
    return covers(Filter.of(boxes, condition.schema), condition)
