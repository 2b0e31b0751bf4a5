"""The sender: takes messages of flows, and sends them by the streams that its plan says.

Which streams carry a flow is in the sender's directory. A plan change is written to the directory's
journal, which is a stream too; after the grace time, in which receivers can join, the flows that
move are sent by their new streams. Streams that no flow enters or leaves notice nothing. How
packets are sent and repaired is in `outbox.py`; which flows are this publisher's, of several, in
`claims.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from distributary.delivery.actions import Claimed, Refused, Released
from distributary.delivery.announcements import Announcements, make_announcement
from distributary.delivery.authentication import Authenticator
from distributary.delivery.claims import Claims
from distributary.delivery.directory_answers import DirectoryAnswers
from distributary.delivery.directory_log import DirectoryLog
from distributary.delivery.errors import NotHeldError
from distributary.delivery.outbox import Outbox
from distributary.delivery.outgoing import OutgoingStream
from distributary.delivery.packet_builder import PacketBuilder
from distributary.delivery.packing import largest_payload
from distributary.delivery.portion_wire import Inquiry, decode_inquiry
from distributary.delivery.portions import PortionAnswers
from distributary.delivery.routes import CONTROL_GROUP, publisher_number
from distributary.delivery.sender_params import SenderParams
from distributary.delivery.sender_statistics import SenderMachineStatistics
from distributary.delivery.unplanned import UnplannedFlows
from distributary.delivery.wire import (
    HEADER_SIZE,
    MESSAGE_HEADER_SIZE,
    Header,
    PacketKind,
    WireError,
    decode_header,
    decode_lookup,
    decode_ranges,
    decode_request,
    encode_announcement,
)
from distributary.errors import DistributaryError
from distributary.machines.actions import Send, SetTimer
from distributary.model import Plan

__all__ = ["FullError", "SenderAction", "SenderMachine"]

SenderAction = Send | SetTimer | Claimed | Refused | Released
WAKE = "wake"
_NEVER = float("inf")


class FullError(DistributaryError):
    """The sender's queue is full and did not take the message; offer it again after a timer."""


class SenderMachine:
    """The sender's state machine. Call `start` once; each start needs a higher `incarnation`."""

    def __init__(
        self,
        plan: Plan,
        incarnation: int,
        *,
        name: str = "publisher",
        flows: Iterable[str] | None = None,
        params: SenderParams | None = None,
        key: bytes | None = None,
        where: str = "",
        addresses: Mapping[str, str] | None = None,
        wall_clock: Callable[[], int] | None = None,
    ) -> None:
        """`flows` are those that this publisher has, of all that plans carry; None: all of them.

        Those that another publisher has already are refused.

        `addresses` has fixed unicast addresses of receivers; the sender learns others.
        A receiver's request shows its address. Until then the sender addresses its packets to the
        receiver's name, which the caller resolves or drops. `wall_clock` returns nanoseconds since
        1970; with it each packet says when it was sent.
        """
        if not 0 < incarnation < 1 << 63:
            raise ValueError(f"an incarnation is a number from 1 to 2^63 - 1, not {incarnation}")
        self.params = params = SenderParams() if params is None else params
        self.incarnation = incarnation
        self.name = name
        self._authenticator = Authenticator(key)
        self._packets = PacketBuilder(name, incarnation, self._authenticator, wall_clock)
        self._where = where
        self._counts = dict.fromkeys(SenderMachineStatistics.__slots__, 0)
        del self._counts["curbed_naks"], self._counts["over_limit"]  # the repairs count these
        self._next_of: dict[str, int] = {}
        self._unplanned = UnplannedFlows()
        self._outbox = Outbox(
            params, self._packets, self._authenticator, addresses or {}, self._counts
        )
        self._streams = self._outbox.streams
        self._log = DirectoryLog(self._outbox.room - MESSAGE_HEADER_SIZE)
        self._routes: dict[str, tuple[int, tuple[OutgoingStream, ...]]] = {}
        self._starts_at = _NEVER  # when the first packet may be sent
        self._changes_at = _NEVER  # when the plan that is prepared takes effect
        self._answers = DirectoryAnswers(self._log, params.hold_off)
        self._portions = PortionAnswers(self._outbox.room)
        self._announcements = Announcements(params)
        self._wake_at: float | None = None
        self._log.directory.check_room(plan)
        self._plan = plan
        self._leaves = self._left = False
        self._releases: set[str] = set()  # flows to release as soon as anything may be sent
        self._granted: set[str] = set()  # flows that are this publisher's with the next switch
        self._claims = Claims(publisher_number(name), name, incarnation, flows, params)
        self._log.claims = self._claims.claims
        self._log.prepare(plan, self._claims.take_plan(plan, 0.0))
        self._log.switch(lambda stream: 0)
        self._portions.add_plan(self._log.directory.fingerprint, plan, beside=0)
        self._outbox.records_sent = self._log.record  # nobody was there to hear of them
        self._streams.begin(self._log.directory.places)

    # --- calls ---------------------------------------------------------------------------------

    @property
    def statistics(self) -> SenderMachineStatistics:
        """A snapshot of the counters."""
        repairs = self._outbox.repairs
        over_limit = repairs.over_limit + repairs.forgotten
        return replace(
            SenderMachineStatistics(),
            **{**self._counts, "unplanned_messages": self._unplanned.messages},
            curbed_naks=repairs.curbed,
            over_limit=over_limit,
        )

    @property
    def unplanned(self) -> dict[str, int]:
        """How many messages of each flow that the publisher does not carry were dropped.

        It lists at most 10,000 flows; `unplanned_messages` of the statistics counts all.
        """
        return self._unplanned.by_flow()

    @property
    def version(self) -> int:
        """The plan version that messages are sent by."""
        return self._log.directory.version

    @property
    def fingerprint(self) -> int:
        """The fingerprint of the plan that messages are sent by."""
        return self._log.directory.fingerprint

    @property
    def changing(self) -> bool:
        """Whether an announced plan has not taken effect yet."""
        return self._log.directory.following is not None or self._starts_at < _NEVER

    def sends(self, flow: str) -> bool:
        """Whether messages of a flow are sent now: the plan has it, and it is this publisher's."""
        number = self._log.directory.number_of(flow)
        if number is None or self._left or not self._claims.has(flow):
            return False
        return bool(self._log.directory.streams_of(number))

    @property
    def waiting(self) -> int:
        """How many packets wait for the pacing."""
        return len(self._outbox)

    def start(self, now: float) -> list[SenderAction]:
        """Announce the plan; messages are sent after the grace time."""
        self._starts_at = now + self.params.grace
        self._claims.start(now)
        self._announcements.hasten(now)
        return self._do_what_is_due(now)

    def offer(self, flow: str, payload: bytes, now: float) -> list[SenderAction]:
        """Take a message of a flow, or raise `FullError`.

        Raises `NotHeldError` if another publisher has the flow, or this one released it.
        """
        number, streams = self._routes.get(flow) or self._find_route(flow)
        if not streams:
            self._unplanned.count(flow)
            return []
        if len(payload) > self.largest_message:
            raise ValueError(
                f"a message of {len(payload)} bytes does not fit into a packet: at most "
                f"{self.largest_message}"
            )
        if self.is_full:
            self._counts["refused"] += 1
            raise FullError(
                f"{len(self._outbox)} packets wait to be sent; offer the message again later"
            )
        changed = self._pack_message(flow, number, streams, payload, now)
        return self._do_what_is_due(now) if changed else []

    def offer_together(
        self, messages: Iterable[tuple[str, bytes]], now: float
    ) -> list[SenderAction]:
        """Take messages of several flows by one plan, also where the queue is nearly full.

        No other plan takes effect between two of them. Messages have to fit into a packet.
        """
        found = [
            (flow, self._routes.get(flow) or self._find_route(flow), payload)
            for flow, payload in messages
        ]
        for flow, (number, streams), payload in found:
            if streams:
                self._pack_message(flow, number, streams, payload, now)
            else:
                self._unplanned.count(flow)
        return self._do_what_is_due(now)

    @property
    def is_full(self) -> bool:
        """Whether `offer` would raise `FullError`."""
        return len(self._outbox) >= self.params.queue_packets

    @property
    def largest_message(self) -> int:
        """The longest payload that can be offered."""
        return largest_payload(self.params.packet_size - self._authenticator.size)

    def flush(self, now: float) -> list[SenderAction]:
        """Queue the packets that are not full yet."""
        self._outbox.close_packets()
        return self._do_what_is_due(now)

    def change_plan(self, plan: Plan, now: float) -> list[SenderAction]:
        """Announce another plan, which takes over after the grace time; the last call wins."""
        self._log.directory.check_room(plan)
        self._plan = plan
        self._prepare(now)
        return self._do_what_is_due(now)

    def release(self, flows: Iterable[str], now: float) -> list[SenderAction]:
        """Let flows go after the grace time, for another publisher; `Released` says when.

        Before the first packet is sent it waits for that, as others may have these flows.
        """
        if self._starts_at < _NEVER:
            self._releases.update(flows)
            return []
        self._release(flows, now)
        return self._do_what_is_due(now)

    def _release(self, flows: Iterable[str], now: float) -> None:
        released = self._claims.release(flows)
        self._granted.difference_update(released)
        if released:
            self._prepare(now)

    def claim(self, flows: Iterable[str], now: float) -> list[SenderAction]:
        """Have flows from now on: `Claimed` says from when, or `Refused` that another has them."""
        flows = list(flows)
        self._releases.difference_update(flows)
        kept = self._claims.claim(flows, now)
        self._granted.update(kept)
        if kept:
            self._prepare(now)
        return self._do_what_is_due(now)

    def leave(self, now: float) -> list[SenderAction]:
        """Let all flows go at once, and tell receivers which messages were the last.

        Before the first packet is sent it waits for that.
        """
        self._leaves = True
        if self._starts_at == _NEVER:
            self._leave(now)
        return self._do_what_is_due(now)

    def _leave(self, now: float) -> None:
        if self._left:
            return
        self._outbox.close_packets()
        if self._log.directory.following is not None:
            self._outbox.stop(self._streams.drop(self._log.directory.following.begun))
        flows = [flow for flow in self._next_of if self._claims.has(flow)]
        self._claims.release(flows)
        self._end_released()
        ended = [number for number in self._log.directory.places if self._streams.get(number)]
        records = self._log.leave(self._plan, lambda number: self._streams[number].last_packed)
        self._routes.clear()
        self._left, self._changes_at = True, _NEVER
        self._outbox.write(records, self._log.record)
        for number in ended:
            self._outbox.heartbeats.put_off(self._streams.end(number, now), now)
        self._announcements.hasten(now)

    def _prepare(self, now: float) -> None:
        """Prepare the plan, with the flows that this publisher has, to take effect."""
        if self._left:
            return
        directory, plan = self._log.directory, self._plan
        if directory.following is not None:
            self._outbox.stop(self._streams.drop(directory.following.begun))
        records = self._log.prepare(plan, self._claims.take_plan(plan, now))
        assert directory.following is not None
        upcoming = directory.following.fingerprint
        self._portions.add_plan(upcoming, plan, beside=directory.fingerprint)
        begun = {number: directory.places[number] for number in directory.following.begun}
        for stream in self._streams.begin(begun):
            self._outbox.heartbeats.put_off(stream, now)
        self._outbox.write(records, self._log.record)
        opened = now if self._starts_at == _NEVER else self._starts_at
        self._changes_at = opened + self.params.grace
        self._announcements.hasten(now)

    def on_message(self, sender: str, message: bytes, now: float) -> list[SenderAction]:
        """Take a packet of a receiver, or of another publisher; `sender` is its address."""
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
        if header.kind == PacketKind.LOOKUP:
            return self._take_lookup(header, decode_lookup(body, header.items), now)
        if header.kind == PacketKind.INQUIRY:
            return self._take_inquiry(sender, header, decode_inquiry(body), now)
        if self._packets.is_of_publisher(header):
            raise WireError("a packet that only receivers accept")
        if self._claims.take_packet(header, body, sender, now):
            self._announcements.request(now)
        return self._do_what_is_due(now)

    # --- packing ----------------------------------------------------------------------------------

    def _find_route(self, flow: str) -> tuple[int, tuple[OutgoingStream, ...]]:
        """The number of a flow, and the streams that carry it."""
        if flow in self._claims.lost or flow in self._claims.released or self._left:
            raise NotHeldError(flow, self._claims.holder_of(flow))
        number = self._log.directory.number_of(flow)
        if number is None:
            return 0, ()
        streams = self._log.directory.streams_of(number)
        found = self._routes[flow] = number, tuple(self._streams[stream] for stream in streams)
        return found

    def _pack_message(
        self,
        flow: str,
        number: int,
        streams: tuple[OutgoingStream, ...],
        payload: bytes,
        now: float,
    ) -> bool:
        """Number and pack a message; returns whether anything is due earlier now."""
        sequence = self._next_of.get(flow, 1)
        self._next_of[flow] = sequence + 1
        self._counts["messages"] += 1
        changed = False
        for stream in streams:
            changed |= self._outbox.pack(stream, number, sequence, payload, now)
        return changed

    # --- what is due ------------------------------------------------------------------------------

    def _do_what_is_due(self, now: float) -> list[SenderAction]:
        """Do all that is due, and set the timer for what comes next."""
        actions: list[SenderAction] = []
        if self._claims.is_due:
            self._settle_claims(now, actions)
        if now >= self._starts_at and self._claims.open(now):
            self._settle_claims(now, actions)
            self._open(now)
        if now >= self._changes_at:
            self._switch(now, actions)
        self._outbox.close_aged_packets(now)
        actions += self._outbox.send_repairs(now)
        self._send_answers(now, actions)
        actions += self._outbox.send_queued_packets(now)
        actions += self._outbox.send_heartbeats(now)
        self._outbox.stop(self._streams.take_expired(now))
        self._announce(now, actions)
        at = self._due_at(now)
        if at != self._wake_at:
            self._wake_at = at
            actions.append(SetTimer(WAKE, at))
        return actions

    def _due_at(self, now: float) -> float | None:
        at = min(self._changes_at, self._announcements.next_at, self._claims.next_at(now))
        if now < self._starts_at:  # else it waits for answers of others
            at = min(at, self._starts_at)
        answers = bool(self._answers or self._portions)
        at = min(at, self._outbox.next_at(now, answers=answers))
        return None if at == _NEVER else at

    def _take_nak(
        self, asker: str, header: Header, ranges: list[tuple[int, int]], now: float
    ) -> list[SenderAction]:
        stream = self._streams.get(header.stream)
        if stream is None or not self._packets.is_addressed(header):
            return []
        heartbeat, asked = self._outbox.take_nak(asker, stream, ranges, now)
        due = self._do_what_is_due(now)
        return [*heartbeat, *due, *self._outbox.confirm(stream, asked)]

    # --- the directory ----------------------------------------------------------------------------

    def _take_lookup(self, header: Header, blocks: list[int], now: float) -> list[SenderAction]:
        if not self._packets.is_addressed(header):
            return []
        self._counts["lookups"] += 1
        self._answers.queue(blocks, now)
        return self._do_what_is_due(now)

    def _send_answers(self, now: float, actions: list[SenderAction]) -> None:
        """Send blocks of the directory, then portions, in the repairs' share of the rate."""
        while (self._answers or self._portions) and self._outbox.answer_at(now) <= now:
            if self._answers:
                count, body = self._answers.take(now)
                packet = self._packets.build(PacketKind.BLOCK, body, count=count)
                self._counts["directory_packets"] += 1
                actions.append(self._outbox.send_answer(CONTROL_GROUP, packet, now))
            elif (found := self._portions.take()) is not None:
                packet = self._packets.build(PacketKind.PORTION, found[1])
                self._counts["portion_packets"] += 1
                actions.append(self._outbox.send_answer(found[0], packet, now))

    def _take_inquiry(
        self, asker: str, header: Header, inquiry: Inquiry, now: float
    ) -> list[SenderAction]:
        if not self._packets.is_addressed(header):
            return []
        self._counts["inquiries"] += 1
        self._portions.queue(asker, inquiry)
        return self._do_what_is_due(now)

    def _take_request(
        self, header: Header, name: str, address: str, now: float
    ) -> list[SenderAction]:
        """Announce the plan, or return the request's nonce; and learn the receiver's address."""
        self._counts["outranked"] += header.incarnation > self.incarnation
        self._streams.learn_address(name, address)
        if header.sequence:
            return [
                Send(address, self._packets.build(PacketKind.REPLY, b"", sequence=header.sequence))
            ]
        self._announcements.request(now)
        return self._do_what_is_due(now)

    def _announce(self, now: float, actions: list[SenderAction]) -> None:
        if not self._announcements.is_due(now):
            return
        number = self._announcements.note_sent(now, changing=self.changing)
        announced = make_announcement(
            self._log.directory, self._outbox.journal.position, started=self._starts_at == _NEVER
        )._replace(
            blocks=self._log.blocks,
            record=self._outbox.records_sent,
            publisher=self.name,
            where=self._where,
        )
        body = encode_announcement(announced)
        packet = self._packets.build(PacketKind.ANNOUNCEMENT, body, sequence=number)
        actions.append(Send(CONTROL_GROUP, packet))
        self._counts["announcements"] += 1

    def _open(self, now: float) -> None:
        """Begin to send."""
        self._starts_at = _NEVER
        self._outbox.open(now)
        self._announcements.hasten(now)
        self._release(self._releases, now)
        if self._leaves:
            self._leave(now)

    # --- claims -----------------------------------------------------------------------------------

    def _settle_claims(self, now: float, actions: list[SenderAction]) -> None:
        """Ask other publishers for their flows, and decide which are this one's."""
        for to, header, body in self._claims.find_questions(now):
            actions.append(Send(to, self._authenticator.encode_packet(header, body)))
        lost, granted = self._claims.decide(now)
        for holder, flows in lost.items():
            actions.append(Refused(holder, tuple(sorted(flows))))
            self._drop_messages(flows, now)
        for flow in granted:
            self._next_of[flow] = self._claims.find_claim(flow).next
            self._log.released.pop(flow, None)
            self._log.directory.renumber(flow)  # packets from before are of other numbers
        self._granted.update(granted)
        if lost or granted:
            self._prepare(now)
            if self._starts_at < _NEVER:  # nothing was sent yet
                self._switch(now, actions)

    def _drop_messages(self, flows: Iterable[str], now: float) -> None:
        """Take no messages of flows any more, and send none that wait for the start."""
        for flow in flows:
            self._routes.pop(flow, None)
        if self._starts_at < _NEVER:
            numbers = {self._log.directory.number_of(flow) for flow in flows}
            dropped = self._outbox.drop_flows({each for each in numbers if each is not None}, now)
            self._counts["messages"] -= dropped
            self._counts["refused"] += dropped

    def _end_released(self) -> list[str]:
        """Note the last numbers of the flows that go now."""
        gone = [flow for flow, claim in self._claims.released.items() if claim is None]
        for flow in gone:
            following = self._next_of.get(flow, 1)
            self._log.released[flow] = self._claims.end(flow, following)
        return gone

    def _switch(self, now: float, actions: list[SenderAction]) -> None:
        """Let the plan that is prepared take effect."""
        self._changes_at = _NEVER
        for number in self._log.touched():
            self._outbox.close_packet(self._streams[number])
        gone = self._end_released()
        if gone:
            actions.append(Released(tuple(sorted(gone))))
        if self._granted:
            actions.append(Claimed(tuple(sorted(self._granted))))
            self._granted = set()
        change, records = self._log.switch(lambda number: self._streams[number].last_packed)
        self._outbox.write(records, self._log.record)
        for number in change.moved:
            self._routes.pop(self._log.directory.flows[number], None)
        for number in change.ended:
            self._outbox.heartbeats.put_off(self._streams.end(number, now), now)
        self._announcements.hasten(now)
