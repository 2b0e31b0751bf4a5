"""The flows that a receiver wants, the streams that it follows, and the tables of its filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from distributary.delivery._wire_kernels import StreamState, SubscriptionTables
from distributary.delivery.actions import JoinGroup, LeaveGroup
from distributary.delivery.directory_wire import MOST_FLOWS, MOST_STREAMS, Place
from distributary.delivery.gaps import Gaps
from distributary.delivery.incoming import IncomingFlow, IncomingStream, PublisherIdentity
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.routes import CONTROL_GROUP, group_name

__all__ = ["MOST_PUBLISHERS", "Progress", "Subscriptions"]

MOST_PUBLISHERS = 4  # followed at a time
_MOST_LEFT = 65_536  # flows that were unsubscribed, and whose numbers are remembered


class Progress(NamedTuple):
    """How far the receiver has come in an incarnation."""

    next_of: dict[str, int]  # by flow
    last: dict[int, int]  # by stream


_NO_PROGRESS = Progress({}, {})


class Subscriptions:
    """Wanted flows and followed streams by slot, also as tables for the filters."""

    def __init__(self, params: ReceiverParams, rng: np.random.Generator) -> None:
        self._params = params
        self._rng = rng
        self.flows: dict[str, IncomingFlow] = {}  # the wanted ones
        self._flow_at: list[IncomingFlow | None] = []  # by slot
        self._free_flows: list[int] = []
        self._progress = _NO_PROGRESS
        self._first_number = 0  # of flows that are wanted now; 0 accepts any number
        self._left: dict[str, int] = {}  # next numbers of flows that were unsubscribed
        self.names: tuple[str, ...] = ()  # flows by slot
        self._joined: set[str] = set()
        self._streams: dict[tuple[int, int], IncomingStream] = {}  # by row and number
        self._stream_at: dict[int, IncomingStream] = {}  # by slot
        self._free_streams: list[int] = []
        self.pending: dict[IncomingStream, None] = {}  # streams with gaps or polls, for the timer
        self.unheard: dict[
            IncomingStream, None
        ] = {}  # unicast streams from which nothing has arrived
        self.changes = 0  # of the tables
        self.tables = SubscriptionTables(
            np.full(MOST_PUBLISHERS, -1, np.int64),
            np.zeros(MOST_PUBLISHERS, np.int64),
            np.full((MOST_PUBLISHERS, 0), -1, np.int32),
            np.full((MOST_PUBLISHERS, 0), -1, np.int32),
            np.full((MOST_PUBLISHERS, 0), -1, np.int32),
        )
        self.state = StreamState(
            np.zeros(0, np.int64),
            np.zeros(0, np.bool_),
            np.zeros(0, np.int64),
            np.zeros(0, np.bool_),
        )

    # --- flows ------------------------------------------------------------------------------------

    def want(self, names: Iterable[str]) -> None:
        """Give slots to flows that were not wanted before."""
        found = [name for name in names if name not in self.flows]
        while len(self._free_flows) < len(found):
            self._grow_flows(len(found) - len(self._free_flows))
        named = list(self.names)
        for name in found:
            slot = self._free_flows.pop()
            self.flows[name] = self._flow_at[slot] = IncomingFlow(name, slot)
            named[slot] = name
            first = -self._left.pop(name, 0) or self._first_number
            self.state.next_of[slot] = self._progress.next_of.get(name, first)
            self.state.guarded[slot] = False
        self.names = tuple(named)

    def forget(self, flow: IncomingFlow) -> None:
        """Stop wanting a flow; its number is remembered, so that nothing of it comes twice."""
        del self.flows[flow.name]
        self._flow_at[flow.slot] = None
        self._free_flows.append(flow.slot)
        if flow.number >= 0:
            self.changes += 1
            self.tables.flow_of[flow.row, flow.number] = -1
        self.state.guarded[flow.slot] = False
        self._left.pop(flow.name, None)
        self._left[flow.name] = abs(int(self.state.next_of[flow.slot]))
        if len(self._left) > _MOST_LEFT:
            del self._left[next(iter(self._left))]

    def flow(self, slot: int) -> IncomingFlow | None:
        """The flow at a slot."""
        return self._flow_at[slot]

    def place(self, flow: IncomingFlow, row: int, number: int) -> None:
        """Note by which number a publisher sends a flow, and from which stream it is taken."""
        self.changes += 1
        if (flow.row, flow.number) != (row, number) and flow.number >= 0:
            self.tables.flow_of[flow.row, flow.number] = -1
        flow.row, flow.number = row, number
        if number < 0:
            return
        if number >= self.tables.flow_of.shape[1]:
            self.tables = self.tables._replace(
                flow_of=_widen(self.tables.flow_of, number, MOST_FLOWS),
                flow_stream=_widen(self.tables.flow_stream, number, MOST_FLOWS),
            )
        self.tables.flow_of[row, number] = flow.slot if flow.legs else -1
        self.tables.flow_stream[row, number] = flow.legs[0].stream.slot if flow.legs else -1
        self.state.guarded[flow.slot] = flow.guarded

    # --- publishers -------------------------------------------------------------------------------

    def follow_publisher(
        self, identity: PublisherIdentity, first_number: int, progress: Progress
    ) -> None:
        """Follow an incarnation whose flows begin with `first_number`; 0 takes any number.

        Flows in `progress` continue from there instead.
        """
        self.changes += 1
        self.tables.publishers[identity.row] = identity.number
        self.tables.incarnations[identity.row] = identity.incarnation
        self._first_number, self._progress = first_number, progress
        self._left.clear()
        for name, flow in self.flows.items():
            self.state.next_of[flow.slot] = progress.next_of.get(name, first_number)

    def take_new_flows(self) -> None:
        """Let flows that are wanted from now on begin with any number."""
        self._first_number = 0

    def fix_numbers(self, row: int) -> None:
        """Have all messages reported missing before the next one of each flow of a publisher.

        Where no message of a subscribed flow has come yet it is not known with which one it
        begins: those from before the subscription are then reported too.
        """
        next_of = self.state.next_of
        for flow in self.flows.values():
            if flow.row == row and flow.served and flow.legs[0].stream.started:
                next_of[flow.slot] = max(1, abs(int(next_of[flow.slot])))

    def progress(self) -> Progress:
        """The progress of flows and streams, for when this incarnation is followed again."""
        return Progress(
            {name: int(self.state.next_of[flow.slot]) for name, flow in self.flows.items()},
            {
                stream.number: int(self.state.last[stream.slot])
                for stream in self._streams.values()
                if stream.started
            },
        )

    # --- streams ----------------------------------------------------------------------------------

    def streams(self) -> Iterator[IncomingStream]:
        """All streams."""
        return iter(self._streams.values())

    def stream(self, slot: int) -> IncomingStream:
        """The stream at a slot."""
        return self._stream_at[slot]

    @property
    def full(self) -> bool:
        """Whether as many streams are followed as the settings allow."""
        return len(self._streams) >= self._params.streams

    def find(self, row: int, number: int) -> IncomingStream | None:
        """A publisher's stream of that number, if it is followed."""
        return self._streams.get((row, number))

    def has_joined(self, group: int) -> bool:
        """Whether the group of that number is joined."""
        return group_name(group) in self._joined

    def begin(self, publisher: PublisherIdentity, place: Place) -> IncomingStream:
        """Start to follow a stream."""
        self.changes += 1
        if not self._free_streams:
            self._grow_streams()
        slot = self._free_streams.pop()
        group = None if place.group is None else group_name(place.group)
        stream = IncomingStream(publisher, place.stream, group, slot, self.make_gaps())
        last = self._progress.last.get(place.stream)
        if last is not None:
            stream.started = stream.resumed = True
            stream.origin = last
        self.state.last[slot] = last or 0
        self.state.in_order[slot] = stream.started
        self._streams[publisher.row, place.stream] = self._stream_at[slot] = stream
        if place.stream >= self.tables.stream_of.shape[1]:
            wider = _widen(self.tables.stream_of, place.stream, MOST_STREAMS)
            self.tables = self.tables._replace(stream_of=wider)
        self.tables.stream_of[publisher.row, place.stream] = slot
        if group is None:
            self.unheard[stream] = None
        return stream

    def end(self, stream: IncomingStream) -> None:
        """Stop following a stream."""
        self.changes += 1
        row = stream.publisher.row
        del self._streams[row, stream.number], self._stream_at[stream.slot]
        self._free_streams.append(stream.slot)
        self.state.in_order[stream.slot] = False
        self.tables.stream_of[row, stream.number] = -1
        self.pending.pop(stream, None)
        self.unheard.pop(stream, None)

    def make_gaps(self) -> Gaps:
        """The missing ranges of a stream that begins."""
        params = self._params
        return Gaps(
            self._rng,
            params.back_off,
            params.receivers,
            params.repair_wait,
            params.longest_wait,
            params.tries,
            [],
        )

    def change_groups(self) -> list[JoinGroup | LeaveGroup]:
        """Join and leave groups as the streams need it; returns the changes."""
        groups = {stream.group for stream in self._streams.values() if stream.group is not None}
        groups.add(CONTROL_GROUP)
        joined, self._joined = self._joined, groups
        return [
            *(JoinGroup(group) for group in sorted(groups - joined)),
            *(LeaveGroup(group) for group in sorted(joined - groups)),
        ]

    # --- arrays -----------------------------------------------------------------------------------

    def _grow_flows(self, least: int) -> None:
        old = len(self._flow_at)
        more = max(16, least, old)
        self._flow_at += [None] * more
        self.names += ("",) * more
        self._free_flows += range(old + more - 1, old - 1, -1)
        self.state = self.state._replace(
            next_of=np.concatenate((self.state.next_of, np.zeros(more, np.int64))),
            guarded=np.concatenate((self.state.guarded, np.zeros(more, np.bool_))),
        )

    def _grow_streams(self) -> None:
        old = len(self.state.last)
        more = max(16, old)
        self.state = self.state._replace(
            last=np.concatenate((self.state.last, np.zeros(more, np.int64))),
            in_order=np.concatenate((self.state.in_order, np.zeros(more, np.bool_))),
        )
        self._free_streams = list(range(old + more - 1, old - 1, -1))


def _widen(table: np.ndarray, number: int, most: int) -> np.ndarray:
    """Give a table a column for that number, and some more, but not above `most`."""
    width = min(most, max(64, number + number // 2 + 1))
    wider = np.full((len(table), width), -1, table.dtype)
    wider[:, : table.shape[1]] = table
    return wider
