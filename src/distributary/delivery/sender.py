"""The sender: packs messages into packets, sends them to groups, and repairs what receivers miss.

At the start, as at a plan change, the sender announces the plan, waits for the grace time so that
receivers can join, and only then sends by it. A message waits in its session's packet until the
packet is full or `max_age` old; the packet then waits in the queue until the pacing lets it pass.
Repairs go before new packets, but use only a share of the rate. A receiver that asks too often
cannot harm others: each packet is repaired at most once in the hold-off time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from distributary.delivery.authentication import Authenticator
from distributary.delivery.heartbeats import Heartbeats
from distributary.delivery.outgoing import OutgoingStream, OutgoingVersion
from distributary.delivery.pacing import TokenBucket
from distributary.delivery.packing import largest_payload
from distributary.delivery.repairs import Repairs
from distributary.delivery.routes import CONTROL_GROUP
from distributary.delivery.sender_params import SenderParams
from distributary.delivery.wire import (
    CONTROL_SESSION,
    HEADER_SIZE,
    Announcement,
    Header,
    PacketKind,
    WireError,
    decode_header,
    decode_ranges,
    decode_request,
    encode_announcement,
    encode_heartbeat,
    encode_ranges,
)
from distributary.errors import DistributaryError
from distributary.machines.actions import Send, SetTimer
from distributary.model import Plan

__all__ = ["FullError", "SenderAction", "SenderMachine", "SenderMachineStatistics"]

SenderAction = Send | SetTimer
WAKE = "wake"
_NEVER = float("inf")
_MOST_NAMES = 10_000  # flows outside the plan that are counted one by one


class FullError(DistributaryError):
    """The sender's queue is full and did not take the message; offer it again after a timer."""


@dataclass(frozen=True, slots=True)
class SenderMachineStatistics:
    """A snapshot of a sender's counters; they count packets unless they say messages or bytes."""

    messages: int = 0
    unplanned_messages: int = 0  # of flows outside the plan
    packets: int = 0
    packet_bytes: int = 0
    repairs: int = 0
    heartbeats: int = 0
    announcements: int = 0
    naks: int = 0
    curbed_naks: int = 0  # cut short, since the requester had used up its allowance
    confirms: int = 0
    malformed: int = 0
    unauthenticated: int = 0
    refused: int = 0  # messages offered while full
    outranked: int = 0  # requests of receivers that follow a later incarnation


class SenderMachine:
    """The sender's state machine. Call `start` once; each start needs a higher `incarnation`."""

    def __init__(
        self,
        plan: Plan,
        incarnation: int,
        *,
        params: SenderParams | None = None,
        key: bytes | None = None,
        where: str = "",
        addresses: Mapping[str, str] | None = None,
    ) -> None:
        """`addresses` has fixed unicast addresses of receivers; the sender learns others.

        A receiver's request shows its address. Until then the sender addresses its packets to the
        receiver's name, which the caller resolves or drops.
        """
        if not 0 < incarnation < 1 << 63:
            raise ValueError(f"an incarnation is a number from 1 to 2^63 - 1, not {incarnation}")
        self.params = params = SenderParams() if params is None else params
        self.incarnation = incarnation
        self._authenticator = Authenticator(key)
        self._where = where
        self._fixed_addresses = frozenset(addresses or ())
        self._addresses = dict(addresses or {})
        self._counts = dict.fromkeys(SenderMachineStatistics.__slots__, 0)
        del self._counts["curbed_naks"]  # the repairs count these
        self._next_of: dict[str, int] = {}
        self._unplanned: Counter[str] = Counter()
        self._versions: dict[int, OutgoingVersion] = {}
        self._current = self._make_version(1, plan)
        self._upcoming: OutgoingVersion | None = None
        self._previous = 0  # the version before the current one
        self._starts_at = _NEVER  # when the first version begins
        self._changed_at = -_NEVER  # when a version began last
        self._changes_at = _NEVER  # when the following version takes effect
        self._ageing: deque[tuple[float, OutgoingStream]] = deque()
        self._queue: deque[tuple[OutgoingStream, int, bytes]] = deque()
        self._repairs = Repairs(params, self._authenticator)
        self._heartbeats = Heartbeats(params.heartbeat_min, params.heartbeat_max)
        self._pace = TokenBucket(params.rate, params.burst)
        self._announce_at = _NEVER
        self._announced_at = float("-inf")
        self._announcements = 0
        self._wake_at: float | None = None

    # --- calls ---------------------------------------------------------------------------------

    @property
    def statistics(self) -> SenderMachineStatistics:
        """A snapshot of the counters."""
        return replace(SenderMachineStatistics(), **self._counts, curbed_naks=self._repairs.curbed)

    @property
    def unplanned(self) -> dict[str, int]:
        """How many messages of each flow outside the plan were dropped.

        It lists at most 10,000 flows; `unplanned_messages` of the statistics counts all.
        """
        return dict(self._unplanned)

    @property
    def version(self) -> int:
        """The plan version that messages are sent by."""
        return self._current.number

    @property
    def changing(self) -> bool:
        """Whether an announced plan has not taken effect yet."""
        return self._upcoming is not None or self._starts_at < _NEVER

    @property
    def waiting(self) -> int:
        """How many packets wait for the pacing."""
        return len(self._queue)

    def start(self, now: float) -> list[SenderAction]:
        """Announce the plan; messages are sent after the grace time."""
        self._starts_at = now + self.params.grace
        self._announce_at = now
        return self._do_what_is_due(now)

    def offer(self, flow: str, payload: bytes, now: float) -> list[SenderAction]:
        """Take a message of a flow, or raise `FullError`."""
        number = self._current.numbers.get(flow)
        if number is None:
            self._count_unplanned(flow)
            return []
        if len(payload) > self.largest_message:
            raise ValueError(
                f"a message of {len(payload)} bytes does not fit into a packet: at most "
                f"{self.largest_message}"
            )
        if len(self._queue) >= self.params.queue_packets:
            self._counts["refused"] += 1
            raise FullError(
                f"{len(self._queue)} packets wait to be sent; offer the message again later"
            )
        sequence = self._next_of.get(flow, 1)
        self._next_of[flow] = sequence + 1
        self._counts["messages"] += 1
        changed = False
        for stream in self._current.route(number):
            changed |= self._pack(stream, number, sequence, payload, now)
        return self._do_what_is_due(now) if changed else []

    @property
    def largest_message(self) -> int:
        """The longest payload that can be offered."""
        return largest_payload(self.params.packet_size - self._authenticator.size)

    def flush(self, now: float) -> list[SenderAction]:
        """Queue the packets that are not full yet."""
        for stream in self._current.streams.values():
            self._close_packet(stream)
        return self._do_what_is_due(now)

    def change_plan(self, plan: Plan, now: float) -> list[SenderAction]:
        """Announce another plan, which takes over after the grace time; the last call wins."""
        number = 1 + max(self._versions)
        if self._upcoming is not None:
            del self._versions[self._upcoming.number]
        self._upcoming = self._make_version(number, plan)
        opened = now if self._starts_at == _NEVER else self._starts_at
        self._changes_at = opened + self.params.grace
        self._announce_at = now
        return self._do_what_is_due(now)

    def on_message(self, sender: str, message: bytes, now: float) -> list[SenderAction]:
        """Take a packet of a receiver; `sender` is its address."""
        tag = self._authenticator.size
        if not self._authenticator.accepts(message):
            self._counts["unauthenticated"] += 1
            return []
        try:
            header = decode_header(message, tag)
            return self._take(sender, header, message[HEADER_SIZE : len(message) - tag], now)
        except WireError:
            self._counts["malformed"] += 1
            return []

    def on_timer(self, name: str, now: float) -> list[SenderAction]:
        """The machine's only timer has expired."""
        if name != WAKE:
            raise ValueError(f"there is no timer {name!r}")
        self._wake_at = None
        return self._do_what_is_due(now)

    def _take(self, sender: str, header: Header, body: bytes, now: float) -> list[SenderAction]:
        if header.kind == PacketKind.REQUEST:
            return self._take_request(header, decode_request(body), sender, now)
        if header.kind == PacketKind.NAK:
            return self._take_nak(sender, header, decode_ranges(body, header.items), now)
        raise WireError("a packet that only receivers accept")

    def _count_unplanned(self, flow: str) -> None:
        self._counts["unplanned_messages"] += 1
        if flow in self._unplanned or len(self._unplanned) < _MOST_NAMES:
            self._unplanned[flow] += 1

    # --- packing ----------------------------------------------------------------------------------

    def _make_version(self, number: int, plan: Plan) -> OutgoingVersion:
        params = self.params
        room = params.packet_size - HEADER_SIZE - self._authenticator.size
        window = params.window_packets, params.window_bytes
        version = OutgoingVersion.from_plan(number, plan, room, params.messages_per_packet, window)
        self._versions[number] = version
        return version

    def _pack(
        self, stream: OutgoingStream, number: int, sequence: int, payload: bytes, now: float
    ) -> bool:
        """Add a message to its session's packet; returns whether anything is due earlier now."""
        packer, changed = stream.packer, False
        if not packer.fits(len(payload)):
            self._close_packet(stream)
            changed = True
        packer.add(number, sequence, payload, now)
        if packer.count == 1:
            self._ageing.append((now + self.params.max_age, stream))
            changed = True
        if packer.full:
            self._close_packet(stream)
            changed = True
        return changed

    def _close_packet(self, stream: OutgoingStream) -> None:
        """Close the session's packet and queue it."""
        if not stream.packer.count:
            return
        count, body = stream.packer.take()
        stream.last_packed += 1
        packet = self._build_packet(
            PacketKind.DATA, body, count=count, stream=stream, sequence=stream.last_packed
        )
        self._queue.append((stream, stream.last_packed, packet))

    def _build_packet(
        self,
        kind: PacketKind,
        body: bytes,
        *,
        count: int = 0,
        stream: OutgoingStream | None = None,
        sequence: int = 0,
    ) -> bytes:
        version, session = 0, CONTROL_SESSION
        if stream is not None:
            version, session = stream.version, stream.session
        header = Header(kind, 0, count, version, session, self.incarnation, sequence)
        return self._authenticator.encode_packet(header, body)

    # --- what is due ------------------------------------------------------------------------------

    def _do_what_is_due(self, now: float) -> list[SenderAction]:
        """Do all that is due, and set the timer for what comes next."""
        actions: list[SenderAction] = []
        if now >= self._starts_at:
            self._starts_at = _NEVER
            self._open_version(self._current, now)
        if self._upcoming is not None and now >= self._changes_at:
            self._change_version(now)
        self._close_aged_packets(now)
        self._send_repairs(now, actions)
        self._send_queued_packets(now, actions)
        self._send_heartbeats(now, actions)
        self._drop_expired_versions(now)
        self._announce(now, actions)
        at = self._due_at(now)
        if at != self._wake_at:
            self._wake_at = at
            actions.append(SetTimer(WAKE, at))
        return actions

    def _due_at(self, now: float) -> float | None:
        at = min(self._starts_at, self._changes_at, self._announce_at, self._heartbeats.next_at())
        while self._ageing and not self._ageing[0][1].packer.count:
            self._ageing.popleft()
        if self._ageing:
            at = min(at, self._ageing[0][0])
        if self._queue and self._starts_at == _NEVER:
            at = min(at, self._pace.ready_at(now))
        if self._repairs:
            at = min(at, max(self._pace.ready_at(now), self._repairs.ready_at(now)))
        for version in self._versions.values():
            at = min(at, version.expires_at)
        return None if at == _NEVER else at

    def _close_aged_packets(self, now: float) -> None:
        while self._ageing and self._ageing[0][0] <= now:
            _, stream = self._ageing.popleft()
            # A packet that was started later has its own entry further back.
            if stream.packer.count and stream.packer.started_at + self.params.max_age <= now:
                self._close_packet(stream)

    def _send(self, stream: OutgoingStream, packet: bytes, actions: list[SenderAction]) -> None:
        to = self._addresses.get(stream.to, stream.to) if stream.unicast else stream.to
        actions.append(Send(to, packet))

    def _send_queued_packets(self, now: float, actions: list[SenderAction]) -> None:
        if self._starts_at < _NEVER:
            return
        while self._queue and self._pace.ready_at(now) <= now:
            stream, sequence, packet = self._queue.popleft()
            stream.last_sent = sequence
            stream.window.add(sequence, packet)
            self._pace.take(len(packet), now)
            self._send(stream, packet, actions)
            self._counts["packets"] += 1
            self._counts["packet_bytes"] += len(packet)
            if stream.finished:
                self._versions[stream.version].expires_at = now + self.params.linger
            self._heartbeats.put_off(stream, now)

    # --- heartbeats -------------------------------------------------------------------------------

    def _send_heartbeats(self, now: float, actions: list[SenderAction]) -> None:
        for stream in self._heartbeats.take_due(now):
            self._send_heartbeat(stream, now, actions)

    def _send_heartbeat(
        self, stream: OutgoingStream, now: float, actions: list[SenderAction]
    ) -> None:
        stream.heartbeat_sent_at = now
        body = encode_heartbeat(stream.window.first, stream.finished)
        packet = self._build_packet(
            PacketKind.HEARTBEAT, body, stream=stream, sequence=stream.last_sent
        )
        self._send(stream, packet, actions)
        self._counts["heartbeats"] += 1

    # --- repairs ----------------------------------------------------------------------------------

    def _take_nak(
        self, asker: str, header: Header, ranges: list[tuple[int, int]], now: float
    ) -> list[SenderAction]:
        version = self._versions.get(header.version)
        stream = version.streams.get(header.session) if version else None
        if stream is None or header.incarnation != self.incarnation:
            return []  # the receiver learns from announcements what can be repaired
        self._counts["naks"] += 1
        sent = self._counts["packets"]
        streams = sum(len(version.streams) for version in self._versions.values())
        kept = min(sent, streams * self.params.window_packets)
        asked = self._repairs.queue(asker, stream, ranges, sent=sent, kept=kept, now=now)
        actions: list[SenderAction] = []
        beyond = any(first < stream.window.first for first, _ in ranges)
        if (beyond or not ranges) and now >= stream.heartbeat_sent_at + self.params.hold_off:
            self._send_heartbeat(stream, now, actions)
        actions += self._do_what_is_due(now)
        self._send_confirmation(stream, asked, actions)
        return actions

    def _send_confirmation(
        self, stream: OutgoingStream, asked: list[int], actions: list[SenderAction]
    ) -> None:
        """Confirm repairs that have to wait for the pacing, so that other receivers do not ask."""
        ranges = self._repairs.find_waiting(stream, asked)
        if ranges:
            packet = self._build_packet(
                PacketKind.CONFIRM, encode_ranges(ranges), count=len(ranges), stream=stream
            )
            self._send(stream, packet, actions)
            self._counts["confirms"] += 1

    def _send_repairs(self, now: float, actions: list[SenderAction]) -> None:
        repairs = self._repairs
        while repairs and max(self._pace.ready_at(now), repairs.ready_at(now)) <= now:
            found = repairs.take(now)
            if found is not None:
                stream, packet = found
                self._pace.take(len(packet), now)
                self._send(stream, packet, actions)
                self._counts["repairs"] += 1

    # --- plans ------------------------------------------------------------------------------------

    def _take_request(
        self, header: Header, name: str, address: str, now: float
    ) -> list[SenderAction]:
        """Announce the plan, or return the request's nonce; and learn the receiver's address."""
        self._counts["outranked"] += header.incarnation > self.incarnation
        if name not in self._fixed_addresses and self._is_unicast(name):
            self._addresses[name] = address
        if header.sequence:
            return [
                Send(address, self._build_packet(PacketKind.REPLY, b"", sequence=header.sequence))
            ]
        self._announce_at = min(
            self._announce_at, max(now, self._announced_at + self.params.hold_off)
        )
        return self._do_what_is_due(now)

    def _is_unicast(self, name: str) -> bool:
        """Whether a plan in use sends unicast to the receiver of that name."""
        return any(name in version.unicast for version in self._versions.values())

    def _announce(self, now: float, actions: list[SenderAction]) -> None:
        if now < self._announce_at:
            return
        self._announcements += 1
        packet = self._build_packet(
            PacketKind.PLAN, encode_announcement(self._announcement()), sequence=self._announcements
        )
        actions.append(Send(CONTROL_GROUP, packet))
        self._counts["announcements"] += 1
        self._announced_at = now
        soon = self.changing or now < self._changed_at + self.params.grace
        self._announce_at = now + (
            self.params.announce_soon if soon else self.params.announce_every
        )

    def _announcement(self) -> Announcement:
        floor = min(self._versions)
        if self._starts_at < _NEVER:  # version 1 has not taken effect; a change waits until it has
            first = self._current
            return Announcement(0, 0, first.number, floor, 0, first.fingerprint, self._where)
        current, following = self._current, self._upcoming
        return Announcement(
            self._previous,
            current.number,
            0 if following is None else following.number,
            floor,
            current.fingerprint,
            0 if following is None else following.fingerprint,
            self._where,
        )

    def _open_version(self, version: OutgoingVersion, now: float) -> None:
        for stream in version.streams.values():
            self._heartbeats.put_off(stream, now)
        self._announce_at = self._changed_at = now

    def _change_version(self, now: float) -> None:
        """End all sessions of the current plan, and change to the next one."""
        assert self._upcoming is not None
        old = self._current
        for stream in old.streams.values():
            self._close_packet(stream)
            stream.ended = True
            self._heartbeats.put_off(stream, now)
        old.expires_at = now + self.params.linger
        self._previous = old.number
        self._current, self._upcoming, self._changes_at = self._upcoming, None, _NEVER
        self._open_version(self._current, now)

    def _drop_expired_versions(self, now: float) -> None:
        """Drop plan versions whose sessions ended more than `linger` ago."""
        for number, version in list(self._versions.items()):
            if version.expires_at > now:
                continue
            if not all(stream.finished for stream in version.streams.values()):
                version.expires_at = now + self.params.linger
                continue
            del self._versions[number]
            streams = set(version.streams.values())
            self._heartbeats.drop(streams)
            self._repairs.drop(streams)
            self._addresses = {
                name: address
                for name, address in self._addresses.items()
                if name in self._fixed_addresses or self._is_unicast(name)
            }
            self._announce_at = now
