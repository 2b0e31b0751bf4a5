"""What a sender sends by its streams: packets as they fill, repairs, heartbeats; and the pacing.

A message waits in the packet of its stream until the packet is full or `max_age` old; the packet
then waits in the queue until the pacing lets it pass. Repairs go before new packets, but use only a
share of the rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from distributary.delivery.authentication import Authenticator
from distributary.delivery.directory_wire import Record, encode_record
from distributary.delivery.heartbeats import Heartbeats
from distributary.delivery.outgoing import OutgoingStream
from distributary.delivery.outgoing_streams import OutgoingStreams
from distributary.delivery.pacing import TokenBucket
from distributary.delivery.packet_builder import PacketBuilder
from distributary.delivery.packing import unpack_messages
from distributary.delivery.repairs import Repairs
from distributary.delivery.sender_params import SenderParams
from distributary.delivery.wire import (
    HEADER_SIZE,
    POSITION_SIZE,
    PacketKind,
    encode_heartbeat,
    encode_ranges,
)
from distributary.machines.actions import Send

__all__ = ["Outbox"]

_NEVER = float("inf")


class Outbox:
    """The streams of a sender, and the packets that wait; `counts` are the sender's."""

    def __init__(
        self,
        params: SenderParams,
        packets: PacketBuilder,
        authenticator: Authenticator,
        addresses: Mapping[str, str],
        counts: dict[str, int],
    ) -> None:
        self._params = params
        self._packets = packets
        self._counts = counts
        self.room = params.packet_size - HEADER_SIZE - authenticator.size
        self.streams = OutgoingStreams(params, self.room, addresses)
        self.journal = self.streams.journal
        self.heartbeats = Heartbeats(params.heartbeat_min, params.heartbeat_max)
        self.repairs = Repairs(params, authenticator)
        self.is_open = False  # whether packets of streams may be sent
        self.records_sent = 0  # of the journal
        self._ageing: deque[tuple[float, OutgoingStream]] = deque()
        self._queue: deque[tuple[OutgoingStream, int, int, bytes]] = deque()
        self._pace = TokenBucket(params.rate, params.burst)

    def __len__(self) -> int:
        return len(self._queue)

    # --- packing ----------------------------------------------------------------------------------

    def pack(
        self, stream: OutgoingStream, number: int, sequence: int, payload: bytes, now: float
    ) -> bool:
        """Add a message to its stream's packet; returns whether anything is due earlier now."""
        packer, changed = stream.packer, False
        if not packer.fits(len(payload)):
            self.close_packet(stream)
            changed = True
        packer.add(number, sequence, payload, now)
        if packer.count == 1:
            self._ageing.append((now + self._params.max_age, stream))
            changed = True
        if packer.full:
            self.close_packet(stream)
            changed = True
        return changed

    def close_packet(self, stream: OutgoingStream) -> None:
        """Close the stream's packet and queue it."""
        if stream.packer.count:
            stream.last_packed += 1
            self._queue.append((stream, stream.last_packed, *stream.packer.take()))

    def drop_flows(self, flows: set[int], now: float) -> int:
        """Drop messages of flows by number, before anything was sent; returns how many."""
        assert not self.is_open
        self.close_packets()
        queue, self._queue = self._queue, deque()
        for stream in self.streams:
            stream.last_packed = 0
        dropped = 0
        for stream, _, count, body in queue:
            if stream is self.journal:
                stream.last_packed += 1
                self._queue.append((stream, stream.last_packed, count, body))
                continue
            for flow, sequence, payload in unpack_messages(count, body):
                if flow in flows:
                    dropped += 1
                else:
                    self.pack(stream, flow, sequence, payload, now)
        return dropped

    def close_packets(self) -> None:
        """Queue the packets of all streams that are not full yet."""
        for stream in self.streams:
            self.close_packet(stream)

    def write(self, records: list[Record], last: int) -> None:
        """Append records to the journal; `last` is the number of the last of them."""
        number = last - len(records)
        for record in records:
            number += 1
            kind, body = encode_record(record)
            if not self.journal.packer.fits(len(body)):
                self.close_packet(self.journal)
            self.journal.packer.add(kind, number, body, 0.0)
        self.close_packet(self.journal)

    def open(self, now: float) -> None:
        """Begin to send."""
        self.is_open = True
        for stream in self.streams:
            if stream is not self.journal:
                self.heartbeats.put_off(stream, now)

    def stop(self, streams: set[OutgoingStream]) -> None:
        """Stop heartbeats and repairs of streams."""
        if streams:
            self.heartbeats.drop(streams)
            self.repairs.drop(streams)

    # --- what is due ------------------------------------------------------------------------------

    def next_at(self, now: float, *, answers: bool) -> float:
        """When there is something to send; with `answers` there are such that wait, too."""
        at = min(self.heartbeats.next_at(), self.streams.next_at())
        while self._ageing and not self._ageing[0][1].packer.count:
            self._ageing.popleft()
        if self._ageing:
            at = min(at, self._ageing[0][0])
        if self._queue and self.is_open:
            at = min(at, self._pace.ready_at(now))
        if self.repairs or answers:
            at = min(at, self.answer_at(now))
        return at

    def close_aged_packets(self, now: float) -> None:
        """Queue packets that have waited for long enough."""
        while self._ageing and self._ageing[0][0] <= now:
            _, stream = self._ageing.popleft()
            # A packet that was started later has its own entry further back.
            if stream.packer.count and stream.packer.started_at + self._params.max_age <= now:
                self.close_packet(stream)

    def send_queued_packets(self, now: float) -> list[Send]:
        """Send new packets, as far as the pacing lets them pass."""
        sent: list[Send] = []
        while self.is_open and self._queue and self._pace.ready_at(now) <= now:
            stream, sequence, count, body = self._queue.popleft()
            packet = self._packets.build(
                PacketKind.DATA, body, count=count, stream=stream, sequence=sequence
            )
            stream.last_sent = sequence
            stream.window.add(sequence, packet)
            self._pace.take(len(packet), now)
            sent.append(self._send(stream, packet))
            if stream is self.journal:
                self.records_sent += count
                self._counts["journal_packets"] += 1
                continue
            self._counts["packets"] += 1
            self._counts["packet_bytes"] += len(packet)
            if stream.finished:
                self.streams.note_sent(stream, now)
            self.heartbeats.put_off(stream, now)
        return sent

    def send_heartbeats(self, now: float) -> list[Send]:
        """Send the heartbeats that are due."""
        return [
            packet
            for streams in self.heartbeats.take_due(now)
            for packet in self._send_heartbeat(streams, now)
        ]

    def _send_heartbeat(self, streams: list[OutgoingStream], now: float) -> list[Send]:
        """Tell how far streams of one group have come."""
        sent = []
        most = self.room // POSITION_SIZE
        for begin in range(0, len(streams), most):
            some = streams[begin : begin + most]
            body = encode_heartbeat(stream.position for stream in some)
            packet = self._packets.build(PacketKind.HEARTBEAT, body, count=len(some))
            sent.append(self._send(some[0], packet))
            self._counts["heartbeats"] += 1
        for stream in streams:
            stream.heartbeat_sent_at = now
        return sent

    def _send(self, stream: OutgoingStream, packet: bytes) -> Send:
        to = stream.to
        if stream.unicast:
            to = self.streams.addresses.get(to, to)
        return Send(to, packet)

    # --- repairs and answers ----------------------------------------------------------------------

    def take_nak(
        self, asker: str, stream: OutgoingStream, ranges: list[tuple[int, int]], now: float
    ) -> tuple[list[Send], list[int]]:
        """Queue repairs; returns a heartbeat, if one is due, and the packets to confirm."""
        self._counts["naks"] += 1
        sent = self._counts["packets"]
        kept = min(sent, len(self.streams) * self._params.window_packets)
        asked = self.repairs.queue(asker, stream, ranges, sent=sent, kept=kept, now=now)
        beyond = any(first < stream.window.first for first, _ in ranges)
        if (beyond or not ranges) and now >= stream.heartbeat_sent_at + self._params.hold_off:
            return self._send_heartbeat([stream], now), asked
        return [], asked

    def confirm(self, stream: OutgoingStream, asked: list[int]) -> list[Send]:
        """Confirm repairs that have to wait for the pacing, so that other receivers do not ask."""
        ranges = self.repairs.find_waiting(stream, asked)
        if not ranges:
            return []
        packet = self._packets.build(
            PacketKind.CONFIRM, encode_ranges(ranges), count=len(ranges), stream=stream
        )
        self._counts["confirms"] += 1
        return [self._send(stream, packet)]

    def send_repairs(self, now: float) -> list[Send]:
        """Send repairs, as far as their share of the rate allows."""
        sent = []
        while self.repairs and self.answer_at(now) <= now:
            found = self.repairs.take(now)
            if found is not None:
                stream, packet = found
                self._pace.take(len(packet), now)
                sent.append(self._send(stream, packet))
                self._counts["repairs"] += 1
        return sent

    def answer_at(self, now: float) -> float:
        """When a repair or an answer may be sent."""
        return max(self._pace.ready_at(now), self.repairs.ready_at(now))

    def send_answer(self, to: str, packet: bytes, now: float) -> Send:
        """Send an answer in the repairs' share of the rate."""
        self._pace.take(len(packet), now)
        self.repairs.spend(len(packet), now)
        return Send(to, packet)
