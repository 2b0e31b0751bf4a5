"""The flows that a receiver wants, the streams that it follows, and the tables of its filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from distributary.delivery._wire_kernels import StreamState, SubscriptionTables
from distributary.delivery.actions import JoinGroup, LeaveGroup
from distributary.delivery.directory_wire import MOST_FLOWS, MOST_STREAMS, Place
from distributary.delivery.gaps import Gaps
from distributary.delivery.incoming import (
    IncomingFlow,
    IncomingStream,
    Numbering,
    PublisherIdentity,
)
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.routes import CONTROL_GROUP, group_name

__all__ = ["Subscriptions"]

_MOST_KNOWN = 65_536  # numbers of flows that are remembered while they are not taken


class Subscriptions:
    """Wanted flows and followed streams by slot, also as tables for the filters."""

    def __init__(self, params: ReceiverParams, rng: np.random.Generator) -> None:
        self._params = params
        self._rng = rng
        self.flows: dict[str, IncomingFlow] = {}  # the wanted ones
        self._flow_at: list[IncomingFlow | None] = []  # by slot
        self._free_flows: list[int] = []
        self._known: dict[tuple[str, Numbering], int] = {}  # next numbers, for when they go on
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
        self._resumable: dict[int, dict[int, int]] = {}  # last packets of streams, by row
        self.tables = SubscriptionTables(
            np.full(1, -1, np.int64),
            np.zeros(1, np.int64),
            np.full((1, 0), -1, np.int32),
            np.full((1, 0), -1, np.int32),
            np.full((1, 0), -1, np.int32),
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
            self.state.next_of[slot] = 0
            self.state.guarded[slot] = False
        self.names = tuple(named)

    def forget(self, flow: IncomingFlow) -> None:
        """Stop wanting a flow; its number is remembered, so that nothing of it comes twice."""
        del self.flows[flow.name]
        self._flow_at[flow.slot] = None
        self._free_flows.append(flow.slot)
        if flow.placed:
            self.changes += 1
            self._displace(flow)
        self.state.guarded[flow.slot] = False
        if flow.numbering is not None:
            self._remember(flow, flow.numbering, -abs(int(self.state.next_of[flow.slot])))

    def flow(self, slot: int) -> IncomingFlow | None:
        """The flow at a slot."""
        return self._flow_at[slot]

    def place(self, flow: IncomingFlow) -> None:
        """Note by which numbers publishers send a flow, and from which stream it is taken."""
        self.changes += 1
        self._displace(flow)
        for leg in flow.legs:
            row, number = leg.stream.publisher.row, leg.number
            if number >= self.tables.flow_of.shape[1]:
                self.tables = self.tables._replace(
                    flow_of=_widen(self.tables.flow_of, number, MOST_FLOWS),
                    flow_stream=_widen(self.tables.flow_stream, number, MOST_FLOWS),
                )
            self.tables.flow_of[row, number] = flow.slot
            self.tables.flow_stream[row, number] = flow.legs[0].stream.slot
            flow.placed.append((row, number))
        self.state.guarded[flow.slot] = flow.guarded

    def _displace(self, flow: IncomingFlow) -> None:
        for row, number in flow.placed:
            if self.tables.flow_of[row, number] == flow.slot:
                self.tables.flow_of[row, number] = -1
        flow.placed.clear()

    def number(self, flow: IncomingFlow, numbering: Numbering, first: int) -> None:
        """Have a flow go on where its numbers stood, or begin with `first`; 0 takes any number."""
        if flow.numbering == numbering:
            return
        if flow.numbering is not None:
            self._remember(flow, flow.numbering, int(self.state.next_of[flow.slot]))
        flow.numbering = numbering
        self.state.next_of[flow.slot] = self._known.pop((flow.name, numbering), first)

    def knows(self, flow: IncomingFlow, numbering: Numbering) -> bool:
        """Whether messages of a flow came by other numbers before, which may go on."""
        return (flow.name, numbering) in self._known

    def _remember(self, flow: IncomingFlow, numbering: Numbering, number: int) -> None:
        self._known[flow.name, numbering] = number
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    # --- publishers -------------------------------------------------------------------------------

    def find_row(self) -> int:
        """A row of the tables that is not in use."""
        free = np.flatnonzero(self.tables.publishers < 0)
        if not len(free):
            old = len(self.tables.publishers)
            self.changes += 1
            self.tables = SubscriptionTables(*(_lengthen(table) for table in self.tables))
            return old
        return int(free[0])

    def follow_publisher(self, identity: PublisherIdentity, resumable: dict[int, int]) -> None:
        """Follow an incarnation of a publisher.

        Streams in `resumable` go on behind these packets, since they were followed before.
        """
        self.changes += 1
        self.tables.publishers[identity.row] = identity.number
        self.tables.incarnations[identity.row] = identity.incarnation
        self._resumable[identity.row] = resumable

    def forget_publisher(self, row: int) -> None:
        """Stop following the publisher in that row."""
        self.changes += 1
        self.tables.publishers[row] = -1
        self.tables.incarnations[row] = 0
        self._resumable.pop(row, None)

    def fix_numbers(self, row: int) -> None:
        """Have all messages reported missing before the next one of each flow of a publisher.

        Where no message of a subscribed flow has come yet it is not known with which one it
        begins: those from before the subscription are then reported too.
        """
        next_of = self.state.next_of
        for flow in self.flows.values():
            if flow.row == row and flow.served and flow.legs[0].stream.started:
                next_of[flow.slot] = max(1, abs(int(next_of[flow.slot])))

    def last_packets(self, row: int) -> dict[int, int]:
        """The last packet of each stream of a publisher, for when it is followed again."""
        return {
            stream.number: int(self.state.last[stream.slot])
            for stream in self._streams.values()
            if stream.started and stream.publisher.row == row
        }

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

    def flows_in(self, stream: IncomingStream) -> list[str]:
        """The names of wanted flows that have a leg in a stream, sorted."""
        if self._stream_at.get(stream.slot) is not stream:  # the journal
            return []
        tables, row = self.tables, stream.publisher.row
        slots = set(tables.flow_of[row][tables.flow_stream[row] == stream.slot].tolist())
        for slot in np.flatnonzero(self.state.guarded).tolist():  # those that move
            flow = self._flow_at[slot]
            if flow is not None and any(leg.stream is stream for leg in flow.legs):
                slots.add(slot)
        return sorted(self.names[slot] for slot in slots if slot >= 0)

    def find(self, row: int, number: int) -> IncomingStream | None:
        """A publisher's stream of that number, if it is followed."""
        return self._streams.get((row, number))

    def note_heard(self, stream: IncomingStream) -> None:
        """Note that something came by a stream."""
        self.unheard.pop(stream, None)

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
        last = self._resumable.get(publisher.row, {}).get(place.stream)
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


def _lengthen(table: np.ndarray) -> np.ndarray:
    """Give a table twice as many rows."""
    return np.concatenate((table, np.full_like(table, -1)))


def _widen(table: np.ndarray, number: int, most: int) -> np.ndarray:
    """Give a table a column for that number, and some more, but not above `most`."""
    width = min(most, max(64, number + number // 2 + 1))
    wider = np.full((len(table), width), -1, table.dtype)
    wider[:, : table.shape[1]] = table
    return wider
