"""Looks into the plan in force: its groups, the path of one flow, one receiver."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from distributary.control.counts import FlowCounts
from distributary.control.interest import LiveInterest
from distributary.control.placement import Places
from distributary.control.plan_keeper import PlanKeeper
from distributary.control.requests import Refusal
from distributary.control.roster import Roster
from distributary.control.status import FlowPath, GroupView, PlanView, ReceiverView, SessionView

__all__ = ["Views"]

_FEW = 200  # flows of a receiver
_NAMED, _LEAST_NAMED = 50, 5  # flows of a session
_ALL_NAMED = 10_000  # of all sessions, unless each has only the least


@dataclass(slots=True)
class _Load:
    """What a session or a group carries, and to whom."""

    flows: list[str]
    rate: float
    members: set[str]


class Views:
    """Answers with who wants and gets what now; `addresses` gives those of groups."""

    def __init__(
        self,
        keeper: PlanKeeper,
        interest: LiveInterest,
        counts: FlowCounts,
        roster: Roster,
        addresses: Callable[[int], str],
    ) -> None:
        self._keeper, self._interest, self._counts = keeper, interest, counts
        self._roster, self._addresses = roster, addresses

    def describe_plan(self, now: float) -> PlanView | Refusal:
        """The groups of the plan in force, with their sessions."""
        if self._keeper.plan is None:
            return Refusal("no plan is in force yet; wait until receivers want something")
        places = self._keeper.places
        flows_of: dict[int, list[str]] = {}
        for flow, session in places.session_of.items():
            flows_of.setdefault(session, []).append(flow)
        sessions: dict[int, list[tuple[int, _Load]]] = {}
        for session, flows in sorted(flows_of.items()):
            group = int(places.session_group[session])
            sessions.setdefault(group, []).append((session, self._add_up(flows, now)))
        most = min(_NAMED, max(_LEAST_NAMED, _ALL_NAMED // max(1, len(flows_of))))
        groups = [
            self._describe_group(group, found, most) for group, found in sorted(sessions.items())
        ]
        return PlanView(self._keeper.version, groups)

    def describe_flow(self, flow: str, now: float) -> FlowPath | Refusal:
        """Where a flow travels, who wants it, and who throws it away."""
        wanting, places = set(self._interest.receivers_of(flow)), self._keeper.places
        place = places.place_of(flow) if wanting else None
        rate = self._counts.rate_of(flow, now)
        pinned = self._keeper.settings.pins.get(flow)
        if place is None:
            if not wanting:
                return Refusal(f"flow {flow!r} is not in the plan, and nobody wants it")
            return FlowPath(flow, None, None, "", rate, sorted(wanting), [], [], pinned)
        session, group = place
        subscribed, joined = self._find_audience(places, session, group)
        return FlowPath(
            flow=flow,
            session=session,
            group=group,
            address=self._addresses(group),
            rate=rate,
            wanted_by=sorted(wanting),
            dropped_first_by=sorted(joined - subscribed),
            dropped_second_by=sorted(subscribed - wanting),
            pinned=pinned,
        )

    def describe_receiver(self, name: str, now: float) -> ReceiverView | Refusal:
        """A receiver with its flows, and its last minutes."""
        receiver = self._roster.receivers.get(name)
        if receiver is None or receiver.record is None:
            return Refusal(f"no receiver is called {name!r}")
        flows, places = sorted(self._interest.flows_of(name)), self._keeper.places
        found = (places.place_of(flow) for flow in flows)
        joined = {place[1] for place in found if place is not None}
        status = receiver.describe(is_alive=not self._roster.is_gone(receiver, now))
        return ReceiverView(status, flows[:_FEW], sorted(joined), list(receiver.blocks))

    def _find_audience(self, places: Places, session: int, group: int) -> tuple[set[str], set[str]]:
        """Who subscribes to a session, and who joins a group."""
        subscribed: set[str] = set()
        joined: set[str] = set()
        for other, at in places.session_of.items():
            if at == session:
                subscribed.update(self._interest.receivers_of(other))
            elif int(places.session_group[at]) == group:
                joined.update(self._interest.receivers_of(other))
        return subscribed, joined | subscribed

    def _add_up(self, flows: Iterable[str], now: float) -> _Load:
        load = _Load(sorted(flows), 0.0, set())
        for flow in load.flows:
            load.rate += self._counts.rate_of(flow, now)
            load.members.update(self._interest.receivers_of(flow))
        return load

    def _describe_group(
        self, group: int, sessions: list[tuple[int, _Load]], most_named: int
    ) -> GroupView:
        limits = self._keeper.terms.constraints.limits
        members: set[str] = set()
        for _, load in sessions:
            members |= load.members
        most = [limits.group_members, *(step.members for step in limits.group_packets[-1:])]
        return GroupView(
            group=group,
            address=self._addresses(group),
            flows=sum(len(load.flows) for _, load in sessions),
            rate=sum(load.rate for _, load in sessions),
            members=len(members),
            most_members=min((each for each in most if each is not None), default=None),
            most_rate=limits.group_rate,
            sessions=[
                SessionView(
                    session,
                    len(load.flows),
                    load.rate,
                    len(load.members),
                    load.flows[:most_named],
                )
                for session, load in sessions
            ],
        )
