"""Handles packets that the filters leave over: late ones, duplicates, and those behind a gap."""

from __future__ import annotations

import numpy as np

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery._wire_kernels import ByteArray, FoundMessages
from distributary.delivery.actions import Gap, Messages, Missing, MulticastAction, Reason
from distributary.delivery.incoming import Entry, FollowedVersion, IncomingStream
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.subscriptions import Subscriptions
from distributary.delivery.wire import Header, Heartbeat, PacketKind
from distributary.model import IntArray

__all__ = ["Reassembly"]


class Reassembly:
    """Takes packets of streams, and puts the resulting actions into `actions`."""

    def __init__(self, subs: Subscriptions, params: ReceiverParams, counts: IntArray) -> None:
        self._subs = subs
        self._params = params
        self._counts = counts
        self._held_bytes = 0
        self._held_packets = 0
        self.incarnation = 0
        self.gaps = 0
        self.gap_packets = 0
        self.actions: list[MulticastAction] = []

    # --- packets ----------------------------------------------------------------------------------

    def take_data(
        self,
        stream: IncomingStream,
        header: Header,
        packet: bytes,
        entries: list[Entry],
        now: float,
    ) -> None:
        """Take a packet that did not arrive in order; `entries` locate its wanted messages."""
        sequence, state, slot = header.sequence, self._subs.state, stream.slot
        if not stream.started:
            if header.kind == PacketKind.REPAIR:
                return  # for other receivers; this one joined after that packet was sent
            self._start(stream, sequence - 1)
        last = int(state.last[slot])
        if sequence > last:
            if sequence > last + 1:
                stream.gaps.add(last + 1, sequence - 1, now)
                self._subs.pending[stream] = None
            state.last[slot] = sequence
        elif not stream.gaps.remove(sequence):
            self._counts[kernels.DUPLICATE] += 1
            return
        self._counts[kernels.UNWANTED_MESSAGES] += header.items - len(entries)
        buffer = np.frombuffer(packet, np.uint8)
        if self._may_commit(stream) and sequence < self._frontier(stream):
            self._commit(buffer, entries)
        else:
            self._deliver_early(stream, sequence, buffer, entries)
        self.advance(stream)
        self._make_room(stream)

    def take_heartbeat(
        self, stream: IncomingStream, header: Header, found: Heartbeat, now: float
    ) -> None:
        """Take a heartbeat: the last packet sent, the first that can be repaired, and the end."""
        if not stream.started:
            self._start(stream, header.sequence)
        last = int(self._subs.state.last[stream.slot])
        if header.sequence > last:
            stream.gaps.add(last + 1, header.sequence, now)
            self._subs.pending[stream] = None
            self._subs.state.last[stream.slot] = header.sequence
        self._give_up(stream, stream.gaps.give_up(found.first), "window")
        stream.polls = 0
        if found.ended:
            stream.end = header.sequence
            stream.poll_at = float("inf")
        self.advance(stream)

    def give_up_unanswered(self, stream: IncomingStream, now: float) -> None:
        """Give up ranges whose NAKs all stayed unanswered."""
        gone = stream.gaps.give_up_unanswered(now)
        if gone:
            self._give_up(stream, gone, "unanswered")
            self.advance(stream)

    def give_up_end(self, stream: IncomingStream) -> None:
        """End a stream of an old plan at its last known packet, since no poll was answered."""
        last = int(self._subs.state.last[stream.slot])
        stream.poll_at = float("inf")
        if stream.started:
            self._report_gap(stream, last + 1, None, "unanswered")
        stream.end = last
        self.advance(stream)

    # --- streams ----------------------------------------------------------------------------------

    def advance(self, stream: IncomingStream) -> None:
        """Deliver held messages that no gap precedes any more, and end the stream if complete."""
        if self._subs.versions[stream.version].open:
            self._commit_held(stream, self._frontier(stream))
        over = stream.end is not None and self._frontier(stream) > stream.end
        if over and not stream.holds:
            self._subs.end(stream)
            self.open_versions()
            return
        if not stream.gaps and stream.poll_at == float("inf"):
            self._subs.pending.pop(stream, None)
        self._subs.state.in_order[stream.slot] = self._may_commit(stream) and not (
            stream.gaps or stream.holds
        )

    def open_versions(self) -> None:
        """Open each version whose predecessors have no stream left."""
        for followed in list(self._subs.versions.values()):
            if not followed.open:
                followed.open = True
                for stream in list(followed.streams.values()):
                    self.advance(stream)
            if followed.streams:
                return

    def close_versions_after(self, version: int) -> bool:
        """Close later versions for one whose plan arrived late; False if they have begun."""
        later = [found for number, found in self._subs.versions.items() if number > version]
        slots = [slot for followed in later for slot in followed.streams]
        if self._subs.state.last[slots].any():
            return False
        self._subs.state.in_order[slots] = False
        for followed in later:
            followed.open = False
        return True

    def abandon(
        self, followed: FollowedVersion, reason: Reason, *, end_matters: bool = True
    ) -> None:
        """Give up all streams of a version, which has to be the oldest."""
        for stream in list(followed.streams.values()):
            last = int(self._subs.state.last[stream.slot])
            self._give_up(stream, stream.gaps.give_up(last + 1), reason)
            if stream.started and stream.end is None and end_matters:
                self._report_gap(stream, last + 1, None, reason)
            followed.open = True
            self._commit_held(stream, last + 1)
            self._subs.end(stream)

    def _start(self, stream: IncomingStream, last: int) -> None:
        stream.started = True
        self._subs.state.last[stream.slot] = last

    def _may_commit(self, stream: IncomingStream) -> bool:
        return stream.started and self._subs.versions[stream.version].open

    def _frontier(self, stream: IncomingStream) -> int:
        """The sequence number below which every packet arrived or was given up."""
        if stream.gaps:
            return stream.gaps.ranges[0].first
        return int(self._subs.state.last[stream.slot]) + 1

    def _make_room(self, stream: IncomingStream) -> None:
        """Give up gaps while more is missing or held than the settings allow."""
        params = self._params
        while len(stream.gaps.ranges) > params.missing_ranges:
            self._give_up_first(stream)
        while self._held_packets > params.held_packets or self._held_bytes > params.held_bytes:
            fullest = max(self._subs.streams(), key=lambda found: found.holds)
            if self._subs.versions[fullest.version].open:
                self._give_up_first(fullest)
            else:
                self.abandon(next(iter(self._subs.versions.values())), "room")
                self.open_versions()

    def _give_up_first(self, stream: IncomingStream) -> None:
        first = stream.gaps.ranges[0]
        self._give_up(stream, stream.gaps.give_up(first.last + 1), "room")
        self.advance(stream)

    # --- messages ---------------------------------------------------------------------------------

    def deliver_found(self, buffer: ByteArray, found: FoundMessages, begin: int, end: int) -> None:
        """Deliver messages that the compiled filters accepted."""
        if end > begin:
            self.actions.append(
                Messages(
                    self.incarnation,
                    self._subs.names,
                    buffer,
                    found.flow[begin:end],
                    found.sequence[begin:end],
                    found.start[begin:end],
                    found.end[begin:end],
                )
            )

    def deliver(self, buffer: ByteArray, entries: list[Entry]) -> None:
        """Deliver the messages that `entries` locate in a buffer."""
        if entries:
            flow, sequence, start, end = zip(*entries, strict=True)
            self.actions.append(
                Messages(
                    self.incarnation,
                    self._subs.names,
                    buffer,
                    np.array(flow, np.int32),
                    np.array(sequence, np.int64),
                    np.array(start, np.int64),
                    np.array(end, np.int64),
                )
            )

    def report_missed(self, runs: list[tuple[int, int, int]]) -> None:
        """Report ranges of missing messages: flow, first, last."""
        for flow, first, last in runs:
            self.actions.append(Missing(self.incarnation, self._subs.names[flow], first, last))

    def _commit(self, buffer: ByteArray, entries: list[Entry]) -> None:
        """Deliver a packet's messages; every packet before it arrived or was given up."""
        next_of, new = self._subs.state.next_of, []
        for entry in entries:
            flow, sequence = entry[:2]
            expected = int(next_of[flow])
            if sequence < expected:
                self._counts[kernels.DUPLICATE] += 1
                continue
            if sequence > expected > 0:
                self._counts[kernels.MISSED] += sequence - expected
                self.report_missed([(flow, expected, sequence - 1)])
            next_of[flow] = sequence + 1
            new.append(entry)
        self._counts[kernels.DELIVERED] += len(new)
        self.deliver(buffer, new)

    def _deliver_early(
        self, stream: IncomingStream, sequence: int, buffer: ByteArray, entries: list[Entry]
    ) -> None:
        """Deliver messages that are next in their flow despite the gap; hold the others."""
        next_of = self._subs.state.next_of
        new: list[Entry] = []
        rest: list[Entry] = []
        for entry in entries:
            flow, number = entry[:2]
            expected = int(next_of[flow])
            if number == expected:
                next_of[flow] = number + 1
                new.append(entry)
            elif number > expected:
                rest.append(entry)
            else:
                self._counts[kernels.DUPLICATE] += 1
        self._counts[kernels.DELIVERED] += len(new)
        self.deliver(buffer, new)
        if rest:
            stream.hold(sequence, buffer, rest)
            self._held_packets += 1
            self._held_bytes += len(buffer)

    def _commit_held(self, stream: IncomingStream, below: int) -> None:
        for buffer, entries in stream.release(below):
            self._held_packets -= 1
            self._held_bytes -= len(buffer)
            self._commit(buffer, entries)

    def _give_up(self, stream: IncomingStream, gone: list[tuple[int, int]], reason: Reason) -> None:
        for first, last in gone:
            self._report_gap(stream, first, last, reason)

    def _report_gap(
        self, stream: IncomingStream, first: int, last: int | None, reason: Reason
    ) -> None:
        self.gaps += 1
        self.gap_packets += 0 if last is None else last - first + 1
        self.actions.append(
            Gap(self.incarnation, stream.version, stream.session, first, last, reason)
        )
