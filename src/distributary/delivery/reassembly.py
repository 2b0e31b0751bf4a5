"""Handles packets that the filters leave over: late ones, those behind a gap, and moving flows.

A packet's messages are delivered when every packet of the stream before it arrived or was given up,
or earlier if they are next in their flow. A flow that moves from one stream to another is guarded:
its messages behind the move wait until the stream that it leaves has come to the packet that was
its last one before the move. Moves wait for packets before them alone, so flows that change places
do not wait for one another.
"""

from __future__ import annotations

import numpy as np

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery._wire_kernels import ByteArray, FoundMessages
from distributary.delivery.actions import Gap, Messages, Missing, MulticastAction, Reason
from distributary.delivery.incoming import (
    Entry,
    HeldMessage,
    IncomingFlow,
    IncomingStream,
    Leg,
)
from distributary.delivery.latency import Latencies
from distributary.delivery.lines import Lines
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.subscriptions import Subscriptions
from distributary.delivery.wire import Header, PacketKind, StreamPosition
from distributary.model import IntArray

__all__ = ["Reassembly"]

_MOST_NAMED = 100  # flows in the report of a gap


class Reassembly:
    """Takes packets of streams, and puts the resulting actions into `actions`."""

    def __init__(
        self,
        subs: Subscriptions,
        params: ReceiverParams,
        counts: IntArray,
        lines: Lines,
        latencies: Latencies,
    ) -> None:
        self._subs = subs
        self._lines = lines
        self._latencies = latencies
        self._params = params
        self._counts = counts
        self._held_bytes = 0
        self._held_packets = 0
        self.gaps = 0
        self.gap_packets = 0
        self.retired: list[str] = []  # flows that are over, as the plan brings them no longer
        self.ended: list[IncomingFlow] = []  # flows that travel in no stream any more
        self.actions: list[MulticastAction] = []

    @property
    def held_packets(self) -> int:
        """How many packets wait, behind a gap or for a flow that moves."""
        return self._held_packets

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
            self.start(stream, sequence - 1)
        last = int(state.last[slot])
        if sequence > last:
            if sequence > last + 1:
                self._add_gap(stream, last + 1, sequence - 1, now)
            state.last[slot] = sequence
        elif not stream.gaps.remove(sequence):
            self._counts[self._lines.again] += 1
            return
        elif header.kind == PacketKind.DATA:
            self._lines.note_filled()
        self._counts[self._lines.first] += 1
        self._latencies.record(stream.publisher.row, header.kind, header.sent)
        self._counts[kernels.UNWANTED_MESSAGES] += header.items - len(entries)
        buffer = np.frombuffer(packet, np.uint8)
        if sequence < self._frontier(stream):
            self._commit(stream, sequence, buffer, entries)
        else:
            self._deliver_early(stream, sequence, buffer, entries)
        self.advance(stream)
        self.make_room(stream)

    def take_position(self, stream: IncomingStream, found: StreamPosition, now: float) -> None:
        """Take from a heartbeat the last packet sent, and the first that can be repaired."""
        if not stream.started:
            self.start(stream, found.last)
        self.note_sent(stream, found.last, now)
        self._give_up(stream, stream.gaps.give_up(found.first), "window")
        stream.polls = 0
        self.advance(stream)
        self.make_room(stream)

    def note_sent(self, stream: IncomingStream, last: int, now: float) -> None:
        """Note that a stream has come as far as this packet."""
        known = int(self._subs.state.last[stream.slot])
        if stream.started and last > known:
            self._add_gap(stream, known + 1, last, now)
            self._subs.state.last[stream.slot] = last
            self._subs.state.in_order[stream.slot] = False

    def give_up_unanswered(self, stream: IncomingStream, now: float) -> None:
        """Give up ranges whose NAKs all stayed unanswered."""
        gone = stream.gaps.give_up_unanswered(now)
        if gone:
            self._give_up(stream, gone, "unanswered")
            self.advance(stream)

    # --- streams ----------------------------------------------------------------------------------

    def start(self, stream: IncomingStream, last: int) -> None:
        """Start a stream behind that packet."""
        stream.started = True
        stream.origin = last
        if stream.blind and last:
            self.report_gap(stream, 1, last, "change")
        stream.blind = False
        stream.poll_at = float("inf")
        self._subs.state.last[stream.slot] = last
        self.advance(stream)

    def start_leg(self, leg: Leg, last: int, now: float) -> None:
        """Have all packets of a leg's stream behind `last`, also those that passed before."""
        if not leg.stream.started:
            self.start(leg.stream, last)
        elif leg.unseen > last:
            leg.stream.gaps.insert(last + 1, leg.unseen, now)
            self._subs.pending[leg.stream] = None
            self.advance(leg.stream)
        leg.since = last

    def report_passed(self, leg: Leg) -> None:
        """Report the packets of a leg's stream before it as given up, once they are known."""
        if not leg.stream.started:
            leg.stream.blind = True
        elif leg.unseen:
            self.report_gap(leg.stream, 1, leg.unseen, "change")

    def advance(self, stream: IncomingStream) -> None:
        """Deliver held messages that no gap precedes any more, and let flows go on elsewhere."""
        self._commit_held(stream, self._frontier(stream))
        if not stream.gaps and stream.poll_at == float("inf"):
            self._subs.pending.pop(stream, None)
        for flow in list(stream.leaving):
            self.settle(flow)
        if not stream.legs:
            return  # it has ended
        self._subs.state.in_order[stream.slot] = stream.started and not (
            stream.gaps or stream.holds or stream.leaving
        )

    def _add_gap(self, stream: IncomingStream, first: int, last: int, now: float) -> None:
        stream.gaps.add(first, last, now, self._lines.wait_for_other(now))
        self._subs.pending[stream] = None

    def _frontier(self, stream: IncomingStream) -> int:
        """The sequence number below which every packet arrived or was given up."""
        if stream.gaps:
            return stream.gaps.ranges[0].first
        return int(self._subs.state.last[stream.slot]) + 1

    # --- flows that move --------------------------------------------------------------------------

    def settle(self, flow: IncomingFlow) -> None:
        """Let a flow go on with its next leg, if its first one is complete."""
        before = flow.legs[0].stream if flow.legs else None
        self._release_leg(flow)
        while flow.legs and self._is_complete(flow.legs[0]):
            final = flow.legs[0].final
            self.drop_leg(flow, flow.legs[0])
            if final is not None:
                self._report_tail(flow, final)
            self._release_leg(flow)
        if flow.legs and flow.legs[0].until is not None:
            flow.legs[0].stream.leaving[flow] = None
            self._subs.state.in_order[flow.legs[0].stream.slot] = False
        self._subs.place(flow)
        if not flow.legs:
            self._let_go(flow.held)
            flow.held = []
            self.ended.append(flow)
            if flow.retired:
                self._subs.forget(flow)
                self.retired.append(flow.name)
        elif flow.legs[0].stream is not before:
            self.advance(flow.legs[0].stream)

    def drop_leg(self, flow: IncomingFlow, leg: Leg) -> None:
        """Remove a leg of a flow; its stream ends if no flow needs it."""
        flow.legs.remove(leg)
        stream = leg.stream
        if not any(each.stream is stream and each.until is not None for each in flow.legs[:1]):
            stream.leaving.pop(flow, None)
        stream.legs -= 1
        if not stream.legs:
            self._end(stream)

    def _report_tail(self, flow: IncomingFlow, final: int) -> None:
        """Report messages as missing that a publisher sent last, before it let a flow go."""
        expected = int(self._subs.state.next_of[flow.slot])
        if 0 < expected < final:
            self._counts[kernels.MISSED] += final - expected
            self.report_missed([(flow.slot, expected, final - 1)])
        if abs(expected) < final:
            self._subs.state.next_of[flow.slot] = final if expected > 0 else -final

    def _end(self, stream: IncomingStream) -> None:
        self._let_go([(buffer,) for _, buffer, _ in stream.release(1 << 63)])
        self._subs.end(stream)

    def _is_complete(self, leg: Leg) -> bool:
        if leg.until is None:
            return False
        return not leg.stream.started or self._frontier(leg.stream) > leg.until

    def _release_leg(self, flow: IncomingFlow) -> None:
        """Deliver what is held of the flow's first leg, unless its end may still change."""
        if not flow.legs or not flow.held:
            return
        leg, stay = flow.legs[0], []
        if leg.until is None and len(flow.legs) > 1:
            return
        frontier = self._frontier(leg.stream)
        for held in sorted(flow.held, key=lambda held: held.entry[1]):
            if held.stream is not leg.stream or (leg.until is not None and held.packet > leg.until):
                stay.append(held)
                continue
            self._let_go([held])
            if held.packet < frontier:
                self._deliver_held(held)
            else:
                self._hold(held.stream, held.packet, held.buffer, [held.entry])
        if len(flow.legs) == 1 and leg.until is None:
            self._let_go(stay)  # of a stream that the flow no longer travels in
            stay = []
        flow.held = stay

    def _hold_moving(
        self, stream: IncomingStream, packet: int, buffer: ByteArray, entry: Entry
    ) -> bool:
        """Hold a message that is not next in its flow, if another stream may have those before."""
        flow = self._subs.flow(entry[0])
        if flow is None or not flow.legs:
            return True
        leg = flow.legs[0]
        if leg.stream is stream:
            if not flow.guarded or (leg.until is not None and packet <= leg.until):
                return False
            if leg.until is None and self._subs.state.next_of[flow.slot] <= 0:
                return False
        elif not flow.guarded:
            return True
        if any(each.stream is stream for each in flow.legs):
            flow.held.append(HeldMessage(stream, packet, buffer, entry))
            self._held_packets += 1
            self._held_bytes += len(buffer)
        return True

    # --- giving up --------------------------------------------------------------------------------

    def drop_flow(self, flow: IncomingFlow) -> None:
        """Drop a flow that is not wanted any more, and the streams that no other flow needs."""
        for stream in {leg.stream for leg in flow.legs}:
            gone = stream.drop_flow(flow.slot)
            self._let_go([(packet,) for packet in gone])
        streams = [leg.stream for leg in flow.legs]
        for leg in list(flow.legs):
            self.drop_leg(flow, leg)
        self._let_go(flow.held)
        flow.held = []
        self._subs.forget(flow)
        for stream in streams:
            if stream.legs:
                self.advance(stream)

    def abandon(self, row: int, reason: Reason) -> None:
        """Give up all streams of a publisher, and deliver what is held."""
        for stream in list(self._subs.streams()):
            if stream.publisher.row == row:
                last = int(self._subs.state.last[stream.slot])
                self._give_up(stream, stream.gaps.give_up(last + 1), reason)
                self._commit_held(stream, last + 1)
        for flow in list(self._subs.flows.values()):
            if any(leg.stream.publisher.row == row for leg in flow.legs):
                self.leave_publisher(flow, row)
            if flow.row == row:
                flow.row = -1

    def leave_publisher(self, flow: IncomingFlow, row: int) -> None:
        """Stop taking a flow from a publisher; what is held of it from there is delivered."""
        gone = [held for held in flow.held if held.stream.publisher.row == row]
        flow.held = [held for held in flow.held if held.stream.publisher.row != row]
        self._let_go(gone)
        for held in sorted(gone, key=lambda held: held.entry[1]):
            self._deliver_held(held)
        if flow.legs and flow.legs[-1].stream.publisher.row == row:
            flow.prepared = False
        for leg in [leg for leg in flow.legs if leg.stream.publisher.row == row]:
            self.drop_leg(flow, leg)
        self.settle(flow)

    def _give_up_move(self, flow: IncomingFlow) -> None:
        """Deliver what is held of a flow, whatever is missing before it."""
        held, flow.held = sorted(flow.held, key=lambda held: held.entry[1]), []
        self._let_go(held)
        for found in held:
            self._deliver_held(found)

    def make_room(self, stream: IncomingStream) -> None:
        """Give up gaps while more is missing or held than the settings allow."""
        params = self._params
        while len(stream.gaps.ranges) > params.missing_ranges:
            self._give_up_first(stream)
        while self._held_packets > params.held_packets or self._held_bytes > params.held_bytes:
            fullest = max(self._subs.streams(), key=lambda found: found.holds)
            if fullest.holds:
                self._give_up_first(fullest)
                continue
            flow = max(self._subs.flows.values(), key=lambda found: len(found.held))
            if not flow.held:
                break
            leaves = flow.legs[0].stream
            if leaves.gaps:
                self._give_up_first(leaves)
            else:
                self._give_up_move(flow)

    def give_up_leg(self, flow: IncomingFlow) -> None:
        """Give up what is missing of a flow's first leg, since the flow moves too often."""
        leg = flow.legs[0]
        assert leg.until is not None
        self._counts[kernels.OVER_LIMIT] += 1
        self._give_up(leg.stream, leg.stream.gaps.give_up(leg.until + 1), "room")
        self.advance(leg.stream)

    def note_refused(self) -> None:
        """Count something that a limit refuses."""
        self._counts[kernels.OVER_LIMIT] += 1

    def _give_up_first(self, stream: IncomingStream) -> None:
        self._counts[kernels.OVER_LIMIT] += 1
        first = stream.gaps.ranges[0]
        self._give_up(stream, stream.gaps.give_up(first.last + 1), "room")
        self.advance(stream)

    def _give_up(self, stream: IncomingStream, gone: list[tuple[int, int]], reason: Reason) -> None:
        for first, last in gone:
            self.report_gap(stream, first, last, reason)

    def report_gap(
        self, stream: IncomingStream, first: int, last: int | None, reason: Reason
    ) -> None:
        """Report packets that are given up."""
        self.gaps += 1
        self.gap_packets += 0 if last is None else last - first + 1
        _, _, incarnation, publisher = stream.publisher
        flows = self._subs.flows_in(stream)
        named, more = tuple(flows[:_MOST_NAMED]), max(0, len(flows) - _MOST_NAMED)
        self.actions.append(
            Gap(publisher, incarnation, stream.number, first, last, reason, named, more)
        )

    # --- messages ---------------------------------------------------------------------------------

    def deliver_found(self, buffer: ByteArray, found: FoundMessages, begin: int, end: int) -> None:
        """Deliver messages that the compiled filters accepted."""
        if end > begin:
            self.actions.append(
                Messages(
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
        for slot, first, last in runs:
            flow = self._subs.flow(slot)
            assert flow is not None
            assert flow.numbering is not None
            source = flow.legs[0].stream.publisher.name if flow.legs else flow.publisher
            self.actions.append(Missing(source, flow.numbering[1], flow.name, first, last))

    def _commit(
        self, stream: IncomingStream, packet: int, buffer: ByteArray, entries: list[Entry]
    ) -> None:
        """Deliver a packet's messages; every packet before it arrived or was given up."""
        next_of, new = self._subs.state.next_of, []
        for entry in entries:
            flow, sequence = entry[:2]
            expected = int(next_of[flow])
            beyond = sequence != expected and sequence >= abs(expected)
            if beyond and self._hold_moving(stream, packet, buffer, entry):
                continue
            if self._accept(flow, sequence):
                new.append(entry)
        self.deliver(buffer, new)

    def _deliver_held(self, held: HeldMessage) -> None:
        """Deliver a message that was held; those before it that did not arrive are missing."""
        if self._accept(*held.entry[:2]):
            self.deliver(held.buffer, [held.entry])

    def _accept(self, flow: int, sequence: int) -> bool:
        """Whether a message is new; reports those of its flow that are missing before it."""
        expected = int(self._subs.state.next_of[flow])
        if sequence < abs(expected):
            self._counts[kernels.DUPLICATE] += 1
            return False
        if sequence > expected > 0:
            room = kernels.MOST_COUNTED - int(self._counts[kernels.MISSED])
            self._counts[kernels.MISSED] += min(sequence - expected, room)
            self.report_missed([(flow, expected, sequence - 1)])
        self._subs.state.next_of[flow] = sequence + 1
        self._counts[kernels.DELIVERED] += 1
        return True

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
            elif number >= abs(expected):
                rest.append(entry)
            else:
                self._counts[kernels.DUPLICATE] += 1
        self._counts[kernels.DELIVERED] += len(new)
        self.deliver(buffer, new)
        if rest:
            self._hold(stream, sequence, buffer, rest)

    def _hold(
        self, stream: IncomingStream, sequence: int, buffer: ByteArray, entries: list[Entry]
    ) -> None:
        if stream.hold(sequence, buffer, entries):
            self._held_packets += 1
            self._held_bytes += len(buffer)

    def _commit_held(self, stream: IncomingStream, below: int) -> None:
        for sequence, buffer, entries in stream.release(below):
            self._held_packets -= 1
            self._held_bytes -= len(buffer)
            self._commit(stream, sequence, buffer, entries)

    def _let_go(self, held: list[HeldMessage] | list[tuple[ByteArray]]) -> None:
        """Take packets that are held no longer out of the count."""
        for found in held:
            buffer = found.buffer if isinstance(found, HeldMessage) else found[0]
            self._held_packets -= 1
            self._held_bytes -= len(buffer)
