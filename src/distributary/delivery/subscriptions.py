"""The sessions that a receiver follows in each plan version, and the tables of its filters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from distributary.delivery._wire_kernels import StreamState, SubscriptionTables
from distributary.delivery.actions import JoinGroup, LeaveGroup
from distributary.delivery.gaps import Gaps
from distributary.delivery.incoming import Following, Incoming
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.routes import (
    CONTROL_GROUP,
    FlowRoute,
    fingerprint_of,
    flow_routes,
    wanted_flows,
)
from distributary.model import Plan

__all__ = ["MOST_VERSIONS", "Progress", "Subscriptions"]

MOST_VERSIONS = 4  # followed at a time
_MOST_PLANS = 8  # that are remembered


class Progress(NamedTuple):
    """How far the receiver has come in an incarnation."""

    next_of: dict[str, int]  # by flow
    last: dict[tuple[int, int], int]  # by version and session


class Subscriptions:
    """The plan versions that are followed and their streams, also as tables for the filters."""

    def __init__(
        self,
        name: str,
        wanted: tuple[str, ...] | None,
        params: ReceiverParams,
        rng: np.random.Generator,
    ) -> None:
        """With `wanted` None the receiver wants all that each plan carries to it."""
        self._name = name
        self._wanted = wanted
        self._served: frozenset[str] | None = None  # flows that the newest version brings
        self._lost: tuple[str, ...] = ()  # what a plan brought before one that brings nothing
        self._place_of: dict[str, int] = {}  # flows that the newest version is to bring
        self._progress = Progress({}, {})
        self._first_number = 0  # of flows that are wanted from now on; 0 where any will do
        self.names: tuple[str, ...] = ()  # flows by place; a place of no use is given to another
        self._params = params
        self._rng = rng
        self._plans: dict[int, Plan] = {}  # by fingerprint, the newest last
        self._joined: set[str] = set()
        self._streams: dict[int, Incoming] = {}  # by place
        self._free: list[int] = []
        self.followings: dict[int, Following] = {}  # by version, ascending
        self.troubled: dict[Incoming, None] = {}  # streams that the timer has to see to
        self.silent: dict[Incoming, None] = {}  # unicast streams that nothing was heard of
        self.unserved: tuple[str, ...] = wanted or ()  # wanted flows that do not come
        self.changes = 0  # of the tables
        self.tables = SubscriptionTables(
            np.full(MOST_VERSIONS, -1, np.int64),
            np.full((MOST_VERSIONS, 0), -1, np.int32),
            np.full((MOST_VERSIONS, 0), -1, np.int32),
            np.full((MOST_VERSIONS, 0), -1, np.int32),
        )
        self.state = StreamState(
            np.zeros(0, np.int64), np.zeros(0, np.bool_), np.zeros(0, np.int64)
        )

    # --- what is wanted ---------------------------------------------------------------------------

    @property
    def wanted(self) -> tuple[str, ...]:
        """The wanted flows, by the newest version that is followed, or else by the latest plan."""
        if self._wanted is not None:
            return self._wanted
        if self._served is None and self._plans:
            return wanted_flows(next(reversed(self._plans.values())), self._name)
        return tuple(self._place_of)

    def want(self, wanted: tuple[str, ...]) -> None:
        """Change the wanted flows, for versions that are followed from now on."""
        self._wanted = wanted
        self._find_unserved()

    def _find_unserved(self) -> None:
        """Find the wanted flows that the newest version (or else the latest plan) lacks."""
        if self._wanted is None:
            self.unserved = self._lost
            return
        served = self._served
        if served is None:
            plan = next(reversed(self._plans.values()), None)
            routes = [] if plan is None else flow_routes(plan, self._name, self._wanted)
            served = frozenset(route.flow for route in routes)
        self.unserved = tuple(flow for flow in self._wanted if flow not in served)

    def progress(self) -> Progress:
        """The progress of flows and sessions, for when this incarnation is followed again."""
        numbers = self.state.next_of
        return Progress(
            {flow: int(numbers[place]) for flow, place in self._place_of.items()},
            {
                (stream.version, stream.session): int(self.state.last[stream.place])
                for stream in self._streams.values()
                if stream.started
            },
        )

    def change_incarnation(self, first_number: int, progress: Progress) -> None:
        """Change to an incarnation whose flows begin with `first_number`; 0 takes any number.

        Flows in `progress` continue from there instead.
        """
        self._first_number = first_number
        self._progress = progress
        self.state.next_of[:] = first_number
        for flow, place in self._place_of.items():
            self.state.next_of[place] = progress.next_of.get(flow, first_number)

    def _places_for(self, plan: Plan, *, newest: bool) -> dict[str, int]:
        """The places of all wanted flows of a plan; newly wanted ones get a new place."""
        wanted = wanted_flows(plan, self._name) if self._wanted is None else self._wanted
        known = self._place_of
        free = self._free_places(sum(flow not in known for flow in wanted))
        places = {flow: known[flow] if flow in known else next(free) for flow in wanted}
        names = list(self.names)
        for flow, place in places.items():
            if flow not in known:
                names[place] = flow
                self.state.next_of[place] = self._progress.next_of.get(flow, self._first_number)
        self.names = tuple(names)
        if newest:
            self._lost = self._lost or tuple(known) if not wanted else ()
            self._place_of, self._first_number = places, 0
        return places

    def _free_places(self, n: int) -> Iterator[int]:
        """`n` places that neither the newest flows nor any version uses."""
        if not n:
            return iter(())
        in_use = self.tables.flow_of[self.tables.versions >= 0]
        used = np.union1d(in_use, np.array([-1, *self._place_of.values()]))
        free = np.setdiff1d(np.arange(len(self.names)), used)[:n].tolist()
        more = n - len(free)
        free += range(len(self.names), len(self.names) + more)
        self.names += ("",) * more
        next_of = np.concatenate((self.state.next_of, np.zeros(more, np.int64)))
        self.state = self.state._replace(next_of=next_of)
        return iter(free)

    # --- streams and plans ------------------------------------------------------------------------

    def streams(self) -> Iterator[Incoming]:
        """All streams of all versions."""
        return iter(self._streams.values())

    def stream(self, place: int) -> Incoming:
        """The stream at a place."""
        return self._streams[place]

    def remember(self, plan: Plan) -> None:
        """Keep a plan for when it is announced."""
        fingerprint = fingerprint_of(plan)
        self._plans.pop(fingerprint, None)
        self._plans[fingerprint] = plan
        if len(self._plans) > _MOST_PLANS:
            del self._plans[next(iter(self._plans))]
        if self._served is None:
            self._find_unserved()

    def find_plan(self, fingerprint: int) -> Plan | None:
        """The plan of that fingerprint, if it was learnt."""
        return self._plans.get(fingerprint)

    def follow(self, version: int, plan: Plan, *, from_start: bool) -> Following:
        """Start to follow a plan version; fewer than `MOST_VERSIONS` are followed."""
        self.changes += 1
        newest = version > max(self.followings, default=0)
        places = self._places_for(plan, newest=newest)
        row = int(np.flatnonzero(self.tables.versions == -1)[0])
        routes = flow_routes(plan, self._name, places)
        following = Following(version, row, {})
        by_session: dict[int, Incoming] = {}
        for route in routes:
            if route.session not in by_session:
                stream = self._begin(version, route, from_start)
                by_session[route.session] = following.streams[stream.place] = stream
        self._fill_row(following, plan, routes, by_session, places)
        self.followings[version] = following
        self.followings = dict(sorted(self.followings.items()))
        if newest:
            self._served = frozenset(route.flow for route in routes)
            self._find_unserved()
        return following

    def end(self, stream: Incoming) -> None:
        """Stop following a stream."""
        self.changes += 1
        following = self.followings[stream.version]
        del following.streams[stream.place], self._streams[stream.place]
        self._free.append(stream.place)
        self.state.smooth[stream.place] = False
        self.tables.stream_of[following.row, stream.session] = -1
        self.troubled.pop(stream, None)
        self.silent.pop(stream, None)

    def forget(self, version: int) -> None:
        """Stop following a version whose streams have all ended."""
        self.changes += 1
        following = self.followings.pop(version)
        self.tables.versions[following.row] = -1

    def change_groups(self) -> list[JoinGroup | LeaveGroup]:
        """Join and leave groups as the streams need it; returns the changes."""
        groups = {stream.group for stream in self._streams.values() if stream.group is not None}
        groups.add(CONTROL_GROUP)
        joined, self._joined = self._joined, groups
        return [
            *(JoinGroup(group) for group in sorted(groups - joined)),
            *(LeaveGroup(group) for group in sorted(joined - groups)),
        ]

    def _begin(self, version: int, route: FlowRoute, from_start: bool) -> Incoming:
        params = self._params
        if not self._free:
            self._grow()
        place = self._free.pop()
        last = self._progress.last.get((version, route.session))
        self.state.last[place] = last or 0
        self.state.smooth[place] = False
        gaps = Gaps(
            self._rng,
            params.back_off,
            params.receivers,
            params.repair_wait,
            params.longest_wait,
            params.tries,
            [],
        )
        started = from_start or last is not None
        stream = Incoming(version, route.session, route.group, place, gaps, started)
        self._streams[place] = stream
        if route.group is None:
            self.silent[stream] = None
        return stream

    def _grow(self) -> None:
        old = len(self.state.last)
        more = max(16, old)
        self.state = self.state._replace(
            last=np.concatenate((self.state.last, np.zeros(more, np.int64))),
            smooth=np.concatenate((self.state.smooth, np.zeros(more, np.bool_))),
        )
        self._free = list(range(old + more - 1, old - 1, -1))

    def _fill_row(
        self,
        following: Following,
        plan: Plan,
        routes: list[FlowRoute],
        by_session: dict[int, Incoming],
        places: dict[str, int],
    ) -> None:
        n_sessions = plan.n_sessions + len(plan.receivers)
        self.tables = SubscriptionTables(
            self.tables.versions,
            _widen(self.tables.stream_of, n_sessions, following.row),
            _widen(self.tables.flow_of, len(plan.flows), following.row),
            _widen(self.tables.flow_stream, len(plan.flows), following.row),
        )
        row = following.row
        self.tables.versions[row] = following.version
        for session, stream in by_session.items():
            self.tables.stream_of[row, session] = stream.place
        for route in routes:
            self.tables.flow_of[row, route.number] = places[route.flow]
            self.tables.flow_stream[row, route.number] = by_session[route.session].place


def _widen(table: np.ndarray, width: int, row: int) -> np.ndarray:
    """Give a table at least `width` columns, and clear one row."""
    if table.shape[1] < width:
        wider = np.full((len(table), width), -1, table.dtype)
        wider[:, : table.shape[1]] = table
        table = wider
    table[row] = -1
    return table
