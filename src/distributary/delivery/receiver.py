"""The receiver: packets in, messages of wanted flows out, each once and in its flow's order.

Packets pass two filters (`_wire_kernels.py`): by session, then by flow. The filters accept packets
that arrive in order; `reassembly.py` handles the others. Messages behind a gap are delivered if
they are next in their flow, else held until the gap is closed or given up. The receiver reports a
gap that it gives up at once, as a range of packets, and again as a range of messages of a flow when
the flow's next message arrives.

Each plan version has sessions of its own. A version is opened when all sessions of the version
before it have ended; until then its messages are held, unless they are next in their flow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery import _wire_reference as reference
from distributary.delivery._wire_kernels import Expected, PacketBatch
from distributary.delivery.actions import MulticastAction, Rival, Unserved
from distributary.delivery.authentication import Authenticator
from distributary.delivery.feedback import Feedback
from distributary.delivery.filters import Filters
from distributary.delivery.incoming import Entry, IncomingStream
from distributary.delivery.plan_versions import PlanVersions
from distributary.delivery.reassembly import Reassembly
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.senders import SenderClaim, Senders
from distributary.delivery.subscriptions import Subscriptions
from distributary.delivery.wire import (
    HEADER_SIZE,
    KIND_AT,
    Announcement,
    Header,
    PacketKind,
    WireError,
    decode_announcement,
    decode_header,
    decode_heartbeat,
    decode_ranges,
)
from distributary.machines.actions import SetTimer
from distributary.model import Plan

__all__ = ["ReceiverMachine", "ReceiverMachineStatistics"]

WAKE = "wake"
_NEVER = float("inf")
_MOST_REPEATED = 3  # old announcements in a row, after which the receiver probes the sender


@dataclass(frozen=True, slots=True)
class ReceiverMachineStatistics:
    """A snapshot of a receiver's counters."""

    messages: int  # delivered
    packets: int  # received, of any kind
    unwanted_packets: int  # dropped by the first filter
    unwanted_messages: int  # dropped by the second
    duplicates: int  # packets, or messages of a packet, that had arrived before
    malformed: int
    unauthenticated: int
    stale: int  # packets of another incarnation
    strangers: int  # packets from an address, or by a socket, from which they are not accepted
    naks: int
    gaps: int  # ranges of packets that were given up
    gap_packets: int  # in the gaps whose end is known
    missing_messages: int  # reported as `Missing`
    held_packets: int  # that wait now, behind a gap or a plan change
    missing_ranges: int  # of packets, for which the receiver now sends NAKs


class ReceiverMachine:
    """The receiver's state machine. Call `start` once, then `on_packet` or `on_packets`."""

    def __init__(
        self,
        name: str,
        wanted: Iterable[str] | None,
        *,
        rng: np.random.Generator,
        params: ReceiverParams | None = None,
        key: bytes | None = None,
        incarnation: int = 0,
    ) -> None:
        """With `wanted` None the receiver wants all that each plan carries to it.

        Packets of senders before `incarnation`, the last one known, are refused as replayed."""
        self.name = name
        flows = None if wanted is None else tuple(sorted(set(wanted)))
        self.params = params = ReceiverParams() if params is None else params
        self._authenticator = Authenticator(key)
        self._subs = Subscriptions(name, flows, params, rng)
        self._feedback = Feedback(name, params, self._authenticator)
        self._senders = Senders(self._feedback, params, rng)
        self._counts = np.zeros(kernels.COUNTS, np.int64)
        self._filters = Filters(self._subs, self._authenticator, self._counts)
        self._reassembly = Reassembly(self._subs, params, self._counts)
        self._reassembly.incarnation = incarnation
        self._versions = PlanVersions(self._subs, self._reassembly, self._feedback, params)
        self._announced: Announcement | None = None
        self._announcements = 0
        self._repeated = 0  # announcements in a row whose number was not new
        self._strangers = 0
        self._packets = 0
        self._wake_at = _NEVER
        self._changes_seen = 0
        self._unserved: tuple[str, ...] = ()  # as last reported

    # --- calls ---------------------------------------------------------------------------------

    @property
    def incarnation(self) -> int:
        """The incarnation of the sender that is followed, or else the one given at the start."""
        return self._reassembly.incarnation

    @property
    def statistics(self) -> ReceiverMachineStatistics:
        """A snapshot of the counters."""
        counts = self._counts.tolist()
        streams = list(self._subs.streams())
        return ReceiverMachineStatistics(
            messages=counts[kernels.DELIVERED],
            packets=self._packets,
            unwanted_packets=counts[kernels.UNWANTED_PACKETS],
            unwanted_messages=counts[kernels.UNWANTED_MESSAGES],
            duplicates=counts[kernels.DUPLICATE],
            malformed=counts[kernels.MALFORMED],
            unauthenticated=self._filters.unauthenticated,
            stale=counts[kernels.STALE],
            strangers=self._strangers,
            naks=self._feedback.naks,
            gaps=self._reassembly.gaps,
            gap_packets=self._reassembly.gap_packets,
            missing_messages=counts[kernels.MISSED],
            held_packets=sum(stream.holds for stream in streams),
            missing_ranges=sum(len(stream.gaps.ranges) for stream in streams),
        )

    @property
    def versions(self) -> tuple[int, ...]:
        """The plan versions that the receiver follows."""
        return tuple(self._subs.versions)

    @property
    def flows(self) -> tuple[str, ...]:
        """The wanted flows, by the newest plan version that is followed."""
        return self._subs.wanted

    @property
    def unserved(self) -> tuple[str, ...]:
        """Wanted flows that the newest plan does not carry."""
        return self._subs.unserved

    def prepare(self) -> None:
        """Compile the filters, or load them compiled, before the first packets arrive."""
        self._filters.prepare()

    def start(self, now: float) -> list[MulticastAction]:
        """Join the control group, and ask for the plan."""
        self._reassembly.actions += self._subs.change_groups()
        self._feedback.start_plan_requests(now)
        self._reassembly.actions += self._feedback.make_due_plan_request(now)
        return self._finish()

    def learn_plan(self, plan: Plan, now: float) -> list[MulticastAction]:
        """Take a plan, before or after the sender announces it."""
        self._subs.remember(plan)
        if self._announced is not None:
            self._versions.adopt(self._announced, now)
        self._report_unserved()
        return self._finish()

    def knows(self, fingerprint: int) -> bool:
        """Whether the receiver has the plan of that fingerprint."""
        return self._subs.find_plan(fingerprint) is not None

    def want(self, wanted: Iterable[str]) -> list[MulticastAction]:
        """Change the wanted flows; new ones start with the next plan version."""
        self._subs.want(tuple(sorted(set(wanted))))
        self._report_unserved()
        return self._finish()

    def on_message(self, sender: str, message: bytes, now: float) -> list[MulticastAction]:
        """Take a packet from `sender`."""
        return self.on_packet(message, now, sender)

    def on_packet(
        self, packet: bytes, now: float, source: str | None = None
    ) -> list[MulticastAction]:
        """Take one packet, with the plain filters."""
        self._packets += 1
        subs = self._subs
        kept = reference.keep_sessions([packet], subs.tables, self._counts)
        if kept and self._filters.accepts(packet):
            at, found, waiting, missed = reference.take_packets(
                [packet],
                kept,
                Expected(self.incarnation, self._authenticator.size),
                subs.tables,
                subs.state,
                self._counts,
            )
            self._reassembly.report_missed(missed)
            buffer = np.frombuffer(packet, np.uint8)
            self._reassembly.deliver(buffer, [entry for _, entry in found])
            if at == 0:
                self._handle_packet(packet, kept[0][2], waiting, now, source)
        return self._finish()

    def on_packets(
        self,
        batch: PacketBatch,
        now: float,
        sources: Sequence[str] | None = None,
        *,
        control: bool = True,
    ) -> list[MulticastAction]:
        """Take a batch of packets, in order, with the compiled filters.

        Announcements and replies are accepted only with `control`: for packets from the control
        group or from the sender's own address. The resulting `Messages` refer to the buffer of the
        batch, and are valid until the next call.
        """
        self._packets += len(batch.offsets)
        at = 0
        while at < len(batch.offsets):
            at = self._take_until_change(batch, at, now, sources, control)
            if at < len(batch.offsets):
                self._filters.renew()
        return self._finish()

    def on_stranger(self, packet: bytes, source: str, now: float) -> list[MulticastAction]:
        """Take a unicast packet that does not come from the sender that is followed.

        Only a reply to a request of this receiver is accepted; it may come from a rival.
        """
        self._packets += 1
        tag = self._authenticator.size
        if packet[KIND_AT : KIND_AT + 1] != bytes([PacketKind.REPLY]):
            self._strangers += 1
        elif self._filters.accepts(packet):
            try:
                self._take_reply(decode_header(packet, tag), now, source)
            except WireError:
                self._counts[kernels.MALFORMED] += 1
        return self._finish()

    def is_sender(self, address: str) -> bool:
        """Whether the sender that is followed is at that address."""
        return self._senders.is_followed(address)

    def on_timer(self, name: str, now: float) -> list[MulticastAction]:
        """The machine's only timer has expired."""
        if name != WAKE:
            raise ValueError(f"there is no timer {name!r}")
        actions = self._reassembly.actions
        self._wake_at = _NEVER
        if self._announced is not None and not self._subs.unheard:
            self._feedback.stop_plan_requests()
        actions += self._feedback.make_due_plan_request(now)
        for rival in self._senders.undecided_rivals():
            self._decide_on_rival(rival, now)
        for stream in list(self._subs.pending):
            if stream not in self._subs.pending:
                continue  # it ended together with another stream
            self._reassembly.give_up_unanswered(stream, now)
            if stream in self._subs.pending:
                actions += self._feedback.make_due_naks(stream, self.incarnation, now)
                self._poll(stream, now)
        return self._finish()

    # --- filters ----------------------------------------------------------------------------------

    def _take_until_change(
        self,
        batch: PacketBatch,
        begin: int,
        now: float,
        sources: Sequence[str] | None,
        control: bool,
    ) -> int:
        """Take packets from `begin` on until the tables change; returns where to continue."""
        filters, subs, reassembly = self._filters, self._subs, self._reassembly
        changes = subs.changes
        kept, found = filters.keep(batch, begin), filters.found
        at = used = 0
        while at < len(kept.packets):
            start = used
            at, used, end, n_missed = filters.take(batch, kept, (at, used), self.incarnation)
            if n_missed:
                reassembly.report_missed(found.missed[:n_missed].tolist())
            reassembly.deliver_found(batch.buffer, found, start, used)
            if at < len(kept.packets):
                packet, stream = int(kept.packets[at]), int(kept.streams[at])
                offset = int(batch.offsets[packet])
                if stream == kernels.CONTROL and not control:
                    self._strangers += 1
                else:
                    copied = batch.buffer[offset : offset + int(batch.lengths[packet])].tobytes()
                    source = None if sources is None else sources[packet]
                    entries = filters.entries(used, end, offset)
                    self._handle_packet(copied, stream, entries, now, source)
                at += 1
                if subs.changes != changes:
                    filters.uncount(kept, packet + 1)
                    return packet + 1
        return len(batch.offsets)

    # --- packets that the filters leave to Python ---------------------------------------------

    def _handle_packet(
        self, packet: bytes, slot: int, entries: list[Entry], now: float, source: str | None
    ) -> None:
        header = decode_header(packet)
        body = packet[HEADER_SIZE : len(packet) - self._authenticator.size]
        try:
            if slot == kernels.CONTROL:
                self._take_control(header, body, now, source)
            elif header.kind <= PacketKind.REPAIR:
                self._note_heard(slot)
                self._reassembly.take_data(self._subs.stream(slot), header, packet, entries, now)
            else:
                self._take_heartbeat_or_confirmation(slot, header, body, now)
        except WireError:
            self._counts[kernels.MALFORMED] += 1

    def _take_heartbeat_or_confirmation(
        self, slot: int, header: Header, body: bytes, now: float
    ) -> None:
        """Take a heartbeat or a confirmation."""
        stream = self._subs.stream(slot)
        if header.kind == PacketKind.HEARTBEAT:
            found = decode_heartbeat(body)
            if found.first > header.sequence + 1:
                raise WireError("a window that begins behind the last packet")
            self._note_heard(slot)
            self._reassembly.take_heartbeat(stream, header, found, now)
        elif header.kind == PacketKind.CONFIRM:
            for first, last in decode_ranges(body, header.items):
                stream.gaps.confirm(first, last, now)
        else:
            raise WireError("a packet that only senders accept")

    def _note_heard(self, slot: int) -> None:
        self._subs.unheard.pop(self._subs.stream(slot), None)

    # --- plans ------------------------------------------------------------------------------------

    def _take_control(self, header: Header, body: bytes, now: float, source: str | None) -> None:
        if header.kind == PacketKind.PLAN:
            self._take_plan(header, decode_announcement(body), now, source)
        elif header.kind == PacketKind.REPLY:
            self._take_reply(header, now, source)
        else:
            raise WireError("a packet that only senders accept")

    def _take_plan(
        self, header: Header, announced: Announcement, now: float, source: str | None
    ) -> None:
        """Take an announcement of the sender that is followed, or of a rival."""
        senders = self._senders
        if header.incarnation < self.incarnation:
            self._counts[kernels.STALE] += 1
        elif senders.followed is None:
            self._follow_sender(senders.note_claim(header, announced, source, now), now)
            return
        elif header.incarnation == self.incarnation:
            if source is None or senders.is_followed(source):
                self._hear_sender(senders.followed, header, announced, now)
            else:
                self._strangers += 1
            return
        self._decide_on_rival(senders.note_claim(header, announced, source, now), now)

    def _hear_sender(
        self, followed: SenderClaim, header: Header, announced: Announcement, now: float
    ) -> None:
        """Take an announcement of the sender that is followed."""
        if header.sequence <= self._announcements:
            self._counts[kernels.DUPLICATE] += 1
            self._repeated += 1
            if self._repeated >= _MOST_REPEATED:  # a forged one may have raised the number
                self._reassembly.actions += self._senders.probe(followed, now)
            return
        self._announcements, self._repeated = header.sequence, 0
        followed.heard_at = now
        self._announced = announced
        self._versions.adopt(announced, now)
        if not self._subs.unheard:
            self._feedback.stop_plan_requests()
        if not followed.proven:
            self._reassembly.actions += self._senders.probe(followed, now)

    def _take_reply(self, header: Header, now: float, source: str | None) -> None:
        """Take a reply, by which a sender proves that it is alive."""
        claim = self._senders.take_reply(header, source, now)
        if claim is None:
            self._strangers += 1
        elif claim is not self._senders.followed:
            self._decide_on_rival(claim, now)
        elif self._repeated >= _MOST_REPEATED:
            self._announcements = self._repeated = 0

    def _decide_on_rival(self, rival: SenderClaim, now: float) -> None:
        """Follow a rival if it replaces the sender; else probe it and the followed sender."""
        senders, followed = self._senders, self._senders.followed
        unknown = rival.address is None and rival.incarnation > self.incarnation
        if unknown or senders.replaces(rival, now):
            self._follow_sender(rival, now)
            return
        actions = self._reassembly.actions
        actions += senders.probe(rival, now)
        if rival.proven and followed is not None:
            actions += senders.probe(followed, now)
            if not rival.reported:
                rival.reported = True
                actions.append(Rival(followed.incarnation, rival.incarnation, rival.address or ""))

    def _follow_sender(self, claim: SenderClaim, now: float) -> None:
        """Follow another sender, or the first one."""
        if claim.incarnation != self.incarnation:
            restarted = self._senders.followed is not None
            self._versions.change_incarnation(
                claim.incarnation, claim.announced, restarted=restarted
            )
        self._senders.follow(claim)
        self._announcements, self._announced = claim.sequence, claim.announced
        self._repeated = 0
        self._versions.adopt(claim.announced, now)
        if not self._subs.unheard:
            self._feedback.stop_plan_requests()
        if not claim.proven:
            self._reassembly.actions += self._senders.probe(claim, now)

    # --- the timer --------------------------------------------------------------------------------

    def _poll(self, stream: IncomingStream, now: float) -> None:
        if stream.poll_at > now:
            return
        if stream.polls < self.params.tries:
            self._reassembly.actions += self._feedback.make_poll(stream, self.incarnation, now)
        else:
            self._reassembly.give_up_end(stream)

    def _report_unserved(self) -> None:
        """Report the wanted flows that no plan carries, if they changed."""
        unserved = self._subs.unserved
        if unserved is not self._unserved and unserved != self._unserved:
            version = max(self._subs.versions, default=0)
            self._reassembly.actions.append(Unserved(version, unserved))
        self._unserved = unserved

    def _finish(self) -> list[MulticastAction]:
        """Update groups and timer, and return all actions."""
        reassembly, subs = self._reassembly, self._subs
        for version, followed in list(subs.versions.items()):
            done = self._announced is not None and version < self._announced.current
            if done and not followed.streams:
                subs.forget(version)
        if subs.changes != self._changes_seen:
            self._changes_seen = subs.changes
            reassembly.actions += subs.change_groups()
            if self._subs.versions:
                self._report_unserved()
        at = min(self._feedback.next_at(subs.pending), self._senders.next_at())
        if at != self._wake_at:
            self._wake_at = at
            reassembly.actions.append(SetTimer(WAKE, None if at == _NEVER else at))
        actions, reassembly.actions = reassembly.actions, []
        return actions
