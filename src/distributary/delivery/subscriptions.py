"""The sessions that a receiver follows in each plan version, and the tables of its filters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from distributary.delivery._wire_kernels import StreamState, SubscriptionTables
from distributary.delivery.actions import JoinGroup, LeaveGroup
from distributary.delivery.gaps import Gaps
from distributary.delivery.incoming import FollowedVersion, IncomingStream
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
        self._served: frozenset[str] | None = None  # flows that the newest version carries
        self._lost: tuple[
            str, ...
        ] = ()  # flows of the last plan that carried any, if this has none
        self._slot_of: dict[str, int] = {}  # wanted flows of the newest version
        self._progress = Progress({}, {})
        self._first_number = 0  # of newly wanted flows; 0 accepts any number
        self.names: tuple[str, ...] = ()  # flows by slot; a slot is reused when no version needs it
        self._params = params
        self._rng = rng
        self._plans: dict[int, Plan] = {}  # by fingerprint, the newest last
        self._joined: set[str] = set()
        self._streams: dict[int, IncomingStream] = {}  # by slot
        self._free: list[int] = []
        self.versions: dict[int, FollowedVersion] = {}  # by version, ascending
        self.pending: dict[IncomingStream, None] = {}  # streams with gaps or polls, for the timer
        self.unheard: dict[
            IncomingStream, None
        ] = {}  # unicast streams from which nothing has arrived
        self.unserved: tuple[str, ...] = wanted or ()  # wanted flows that the plan does not carry
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
        return tuple(self._slot_of)

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
            {flow: int(numbers[slot]) for flow, slot in self._slot_of.items()},
            {
                (stream.version, stream.session): int(self.state.last[stream.slot])
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
        for flow, slot in self._slot_of.items():
            self.state.next_of[slot] = progress.next_of.get(flow, first_number)

    def _slots_for(self, plan: Plan, *, newest: bool) -> dict[str, int]:
        """The slots of all wanted flows of a plan; newly wanted ones get a new slot."""
        wanted = wanted_flows(plan, self._name) if self._wanted is None else self._wanted
        known = self._slot_of
        free = self._free_slots(sum(flow not in known for flow in wanted))
        slots = {flow: known[flow] if flow in known else next(free) for flow in wanted}
        names = list(self.names)
        for flow, slot in slots.items():
            if flow not in known:
                names[slot] = flow
                self.state.next_of[slot] = self._progress.next_of.get(flow, self._first_number)
        self.names = tuple(names)
        if newest:
            self._lost = self._lost or tuple(known) if not wanted else ()
            self._slot_of, self._first_number = slots, 0
        return slots

    def _free_slots(self, n: int) -> Iterator[int]:
        """`n` slots that neither the newest flows nor any version uses."""
        if not n:
            return iter(())
        in_use = self.tables.flow_of[self.tables.versions >= 0]
        used = np.union1d(in_use, np.array([-1, *self._slot_of.values()]))
        free = np.setdiff1d(np.arange(len(self.names)), used)[:n].tolist()
        more = n - len(free)
        free += range(len(self.names), len(self.names) + more)
        self.names += ("",) * more
        next_of = np.concatenate((self.state.next_of, np.zeros(more, np.int64)))
        self.state = self.state._replace(next_of=next_of)
        return iter(free)

    # --- streams and plans ------------------------------------------------------------------------

    def streams(self) -> Iterator[IncomingStream]:
        """All streams of all versions."""
        return iter(self._streams.values())

    def stream(self, slot: int) -> IncomingStream:
        """The stream at a slot."""
        return self._streams[slot]

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

    def follow(self, version: int, plan: Plan, *, from_start: bool) -> FollowedVersion:
        """Start to follow a plan version; fewer than `MOST_VERSIONS` are followed."""
        self.changes += 1
        newest = version > max(self.versions, default=0)
        slots = self._slots_for(plan, newest=newest)
        row = int(np.flatnonzero(self.tables.versions == -1)[0])
        routes = flow_routes(plan, self._name, slots)
        followed = FollowedVersion(version, row, {})
        by_session: dict[int, IncomingStream] = {}
        for route in routes:
            if route.session not in by_session:
                stream = self._begin_stream(version, route, from_start)
                by_session[route.session] = followed.streams[stream.slot] = stream
        self._fill_row(followed, plan, routes, by_session, slots)
        self.versions[version] = followed
        self.versions = dict(sorted(self.versions.items()))
        if newest:
            self._served = frozenset(route.flow for route in routes)
            self._find_unserved()
        return followed

    def end(self, stream: IncomingStream) -> None:
        """Stop following a stream."""
        self.changes += 1
        followed = self.versions[stream.version]
        del followed.streams[stream.slot], self._streams[stream.slot]
        self._free.append(stream.slot)
        self.state.in_order[stream.slot] = False
        self.tables.stream_of[followed.row, stream.session] = -1
        self.pending.pop(stream, None)
        self.unheard.pop(stream, None)

    def forget(self, version: int) -> None:
        """Stop following a version whose streams have all ended."""
        self.changes += 1
        followed = self.versions.pop(version)
        self.tables.versions[followed.row] = -1

    def change_groups(self) -> list[JoinGroup | LeaveGroup]:
        """Join and leave groups as the streams need it; returns the changes."""
        groups = {stream.group for stream in self._streams.values() if stream.group is not None}
        groups.add(CONTROL_GROUP)
        joined, self._joined = self._joined, groups
        return [
            *(JoinGroup(group) for group in sorted(groups - joined)),
            *(LeaveGroup(group) for group in sorted(joined - groups)),
        ]

    def _begin_stream(self, version: int, route: FlowRoute, from_start: bool) -> IncomingStream:
        params = self._params
        if not self._free:
            self._grow()
        slot = self._free.pop()
        last = self._progress.last.get((version, route.session))
        self.state.last[slot] = last or 0
        self.state.in_order[slot] = False
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
        stream = IncomingStream(version, route.session, route.group, slot, gaps, started)
        self._streams[slot] = stream
        if route.group is None:
            self.unheard[stream] = None
        return stream

    def _grow(self) -> None:
        old = len(self.state.last)
        more = max(16, old)
        self.state = self.state._replace(
            last=np.concatenate((self.state.last, np.zeros(more, np.int64))),
            in_order=np.concatenate((self.state.in_order, np.zeros(more, np.bool_))),
        )
        self._free = list(range(old + more - 1, old - 1, -1))

    def _fill_row(
        self,
        followed: FollowedVersion,
        plan: Plan,
        routes: list[FlowRoute],
        by_session: dict[int, IncomingStream],
        slots: dict[str, int],
    ) -> None:
        n_sessions = plan.n_sessions + len(plan.receivers)
        self.tables = SubscriptionTables(
            self.tables.versions,
            _widen(self.tables.stream_of, n_sessions, followed.row),
            _widen(self.tables.flow_of, len(plan.flows), followed.row),
            _widen(self.tables.flow_stream, len(plan.flows), followed.row),
        )
        row = followed.row
        self.tables.versions[row] = followed.version
        for session, stream in by_session.items():
            self.tables.stream_of[row, session] = stream.slot
        for route in routes:
            self.tables.flow_of[row, route.number] = slots[route.flow]
            self.tables.flow_stream[row, route.number] = by_session[route.session].slot


def _widen(table: np.ndarray, width: int, row: int) -> np.ndarray:
    """Give a table at least `width` columns, and clear one row."""
    if table.shape[1] < width:
        wider = np.full((len(table), width), -1, table.dtype)
        wider[:, : table.shape[1]] = table
        table = wider
    table[row] = -1
    return table
