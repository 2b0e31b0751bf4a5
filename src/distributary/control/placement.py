"""The places of flows in force, in step with who wants what, with their exact cost at all times."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from distributary.control.interest import LiveInterest, PairChanges
from distributary.control.status import Waste
from distributary.cost import FilteringPrices
from distributary.model import Demand, IndexArray, IntArray, Plan
from distributary.planning import RunningPlan, Size, place_single

__all__ = ["PlacedFlows", "Placement", "Places"]

_FIRST, _SECOND = FilteringPrices(1.0, 0.0), FilteringPrices(0.0, 1.0)
_SPARE_NAMES = 1_000  # of receivers, or of flows, that left before the tallies are made anew


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The session of each flow by name, and the group of each session."""

    session_of: Mapping[str, int]
    session_group: IndexArray

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """The places in a plan that has each flow in one session."""
        pairs = zip(plan.placement_flow.tolist(), plan.placement_session.tolist(), strict=True)
        return cls({plan.flows[flow]: session for flow, session in pairs}, plan.session_group)

    def keep(self, flows: Container[str]) -> Places:
        """The places of some flows."""
        kept = {flow: at for flow, at in self.session_of.items() if flow in flows}
        return Places(kept, self.session_group)

    def place_of(self, flow: str) -> tuple[int, int] | None:
        """The session and the group of a flow."""
        session = self.session_of.get(flow)
        return None if session is None else (session, int(self.session_group[session]))


@dataclass(frozen=True, slots=True)
class PlacedFlows:
    """Flows that got a place, and that lost theirs because nobody wants them any more; sorted."""

    placed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.placed or self.left)


class Placement:
    """Each wanted flow in one session of one group, by name (`planning.RunningPlan` by number).

    A flow that comes is placed where it adds least; no other one moves.
    """

    def __init__(self, size: Size) -> None:
        self._size = size
        self._clear()

    def _clear(self) -> None:
        self._flows, self._receivers = _Numbers(), _Numbers()
        self._running = RunningPlan(self._size, self._flows.listed)
        self.carried: set[str] = set()

    @property
    def places(self) -> Places:
        """The places of all flows carried."""
        names = sorted(self.carried)
        sessions = self._running.sessions_of(self._flows.find(names))
        return Places(dict(zip(names, sessions.tolist(), strict=True)), self._running.session_group)

    def load(
        self,
        places: Places,
        interest: LiveInterest,
        weights: Mapping[str, int],
        without: Collection[str] = (),
    ) -> PlacedFlows:
        """Take over places and the whole interest, except in some flows; the rest is placed."""
        self._clear()
        known = places.session_of
        flows = sorted((interest.flows | known.keys()) - set(without))
        self._flows.find(flows)  # so that they are numbered in this order
        pairs = [
            (receiver, flow) for flow in flows for receiver in sorted(interest.receivers_of(flow))
        ]
        kept = {flow for flow in flows if flow in known and interest.receivers_of(flow)}
        if not pairs:
            return PlacedFlows()
        session = np.array([known.get(flow, -1) for flow in flows], np.int32)
        receiver, flow = self._number_pairs(pairs)
        # Without a kept flow there is no session to adopt.
        groups = places.session_group if kept else np.empty(0, np.int32)
        step = self._running.adopt(session, groups, _weigh(flows, weights), receiver, flow)
        placed = self._name(step.placed)
        self.carried = kept | set(placed)
        return PlacedFlows(placed, tuple(sorted((known.keys() & set(flows)) - kept)))

    def follow(
        self, changes: PairChanges, weights: Mapping[str, int], changed: Iterable[str] = ()
    ) -> PlacedFlows:
        """Take changed pairs, and the flows whose weights changed."""
        gained, lost = self._number_pairs(changes.gained), self._number_pairs(changes.lost)
        weighed = sorted(
            {flow for _, flow in changes.gained} | {f for f in changed if f in self._flows}
        )
        step = self._running.change(
            *gained, *lost, self._flows.find(weighed), _weigh(weighed, weights)
        )
        placed = PlacedFlows(self._name(step.placed), self._name(step.left))
        self.carried = self.carried.difference(placed.left).union(placed.placed)
        return placed

    def has_stale_names(self, receivers: int, flows: int) -> bool:
        """Whether most of the tallies are of receivers or flows that left: time to load anew."""
        known = ((self._receivers, receivers), (self._flows, flows))
        return any(len(names.listed) > 2 * present + _SPARE_NAMES for names, present in known)

    def waste(self, seconds: float) -> Waste:
        """What receivers get by these places, where weights are messages in so many seconds."""
        received = self._running.cost(seconds, _FIRST)
        accepted = self._running.cost(seconds, _SECOND)
        return Waste(
            wanted=accepted.work - accepted.excess,
            dropped_first=max(0.0, received.excess - accepted.excess),
            dropped_second=accepted.excess,
        )

    def write_plan(self, demand: Demand) -> Plan:
        """The places as a plan for a demand with just the flows carried."""
        sessions = self._running.sessions_of(self._flows.find(demand.interest.flows))
        return place_single(demand, sessions, self._running.session_group)

    def _number_pairs(self, pairs: Iterable[tuple[str, str]]) -> tuple[IndexArray, IndexArray]:
        listed = list(pairs)
        receivers = self._receivers.find(receiver for receiver, _ in listed)
        return receivers, self._flows.find(flow for _, flow in listed)

    def _name(self, flows: IndexArray) -> tuple[str, ...]:
        return tuple(self._flows.listed[flow] for flow in flows.tolist())


class _Numbers:
    """Names and their numbers, from 0 on in the order in which they came."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._numbers: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def find(self, names: Iterable[str]) -> IndexArray:
        """The numbers of names, new or known."""
        return np.array([self._number(name) for name in names], np.int32)

    def _number(self, name: str) -> int:
        found = self._numbers.setdefault(name, len(self.listed))
        if found == len(self.listed):
            self.listed.append(name)
        return found


def _weigh(flows: Iterable[str], weights: Mapping[str, int]) -> IntArray:
    return np.array([max(1, weights.get(flow, 0)) for flow in flows], np.int64)
