"""A publisher that a receiver follows: its incarnation, its directory, and the flows it sends.

The receiver learns from announcements that the publisher is there, from blocks of the directory
where the wanted flows travel, and from the journal how that changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery.actions import Back, Gone, Left, Reason, Restarted, Rival
from distributary.delivery.clock import PublisherClock
from distributary.delivery.directory_wire import (
    Block,
    CancelRecord,
    FlowClaim,
    LeaveRecord,
    MarkRecord,
    SwitchRecord,
    block_number,
    decode_block,
)
from distributary.delivery.gaps import draw_back_off
from distributary.delivery.holders import Holders
from distributary.delivery.incoming import IncomingFlow, PublisherIdentity
from distributary.delivery.incoming_journal import (
    IncomingJournal,
    NumberedRecord,
    decode_records,
)
from distributary.delivery.lookup import DirectoryView
from distributary.delivery.portion_wire import decode_portion_part
from distributary.delivery.portions import PortionView
from distributary.delivery.presence import Presence, PresenceState
from distributary.delivery.receiver_parts import ReceiverParts
from distributary.delivery.senders import SenderClaim, Senders
from distributary.delivery.wire import (
    Announcement,
    Header,
    PacketKind,
    WireError,
    decode_announcement,
    decode_heartbeat,
    decode_ranges,
)

__all__ = ["OF_RECEIVERS", "FollowedPublisher"]

OF_RECEIVERS = (PacketKind.NAK, PacketKind.REQUEST, PacketKind.LOOKUP, PacketKind.INQUIRY)
_MOST_REPEATED = 3  # old announcements in a row, after which the receiver probes the sender
_MOST_RESUMABLE = 4  # incarnations whose last packets are kept
_MOST_MARKS = 4_096  # of streams that are not followed, since other publishers have the flows
_MOST_POLLS = 8  # of a stream that stay unanswered, after which its flows are looked up again


class FollowedPublisher:
    """Takes the packets of one publisher that belong to no stream, and follows its directory."""

    def __init__(self, parts: ReceiverParts, identity: PublisherIdentity, holders: Holders) -> None:
        """The publisher's incarnation is the last one that is known; earlier ones are refused."""
        self.identity = identity
        self.announced: Announcement | None = None
        self.portions = PortionView(parts.params, parts.rng)
        self.senders = Senders(identity.row, parts.feedback, parts.params, parts.rng)
        self.clock = PublisherClock(parts.params.clock_every, parts.rng.spawn(1)[0])
        self.presence = Presence(self.senders, parts.params)
        self.marks_of: dict[str, Mapping[int, int]] = {}  # when flows began to travel as they do
        self.contested: set[str] = set()  # flows that it claims while another publisher has them
        self._started = False
        self.strangers = 0  # packets that are not accepted from where they came
        self._subs = parts.subs
        self._reassembly = parts.reassembly
        self._holders = holders
        self._router = parts.router
        self._feedback = parts.feedback
        self._lines = parts.lines
        self._latencies = parts.latencies
        self._params = parts.params
        self._counts = parts.counts
        self._rng = parts.rng
        self._view = DirectoryView(parts.router.key, parts.params, parts.rng, parts.counts)
        self._journal: IncomingJournal | None = None
        self._marks: dict[int, int] = {}  # last packets before the upcoming switch, by stream
        self._fresh: set[str] = set()  # flows to be had from the first packet of their streams on
        self._from_start = False  # whether that is so for the next incarnation: one was followed
        self._hurried: set[str] = set()  # flows for which somebody waits
        self._whole = False  # whether all of this incarnation is to be had
        self._starting = False  # until then, of an incarnation whose flows are had so
        self._version = 0  # as the journal's last switch says, or a later announcement
        self._announcements = 0  # number of the last one
        self._doubtful = False  # whether a forged packet may have spoken of the journal
        self._behind: tuple[int, float] | None = None  # an announcement that knows of less
        self._repeated = 0  # announcements in a row whose number was not new
        self._resumable: dict[int, dict[int, int]] = {}  # last packets, by earlier incarnation

    @property
    def row(self) -> int:
        """The publisher's row in the tables."""
        return self.identity.row

    @property
    def incarnation(self) -> int:
        """The incarnation that is followed, or else the one given at the start."""
        return self.identity.incarnation

    @property
    def started(self) -> bool:
        """Whether the publisher has begun to send, and its directory is known as of then."""
        return self._started

    @property
    def version(self) -> int:
        """The plan version that the publisher uses; 0 before it sends by its first."""
        return self._version

    # --- what the receiver wants ------------------------------------------------------------------

    def want(self, names: Iterable[str], now: float) -> None:
        """Look flows up, and take them from where they travel."""
        names = list(names)
        if self._starting:
            self._fresh.update(names)
        self._view.want(names, now)

    def forget(self, names: Iterable[str]) -> None:
        """Stop following flows."""
        names = list(names)
        self._view.forget(names)
        self._fresh.difference_update(names)
        for name in names:
            self.marks_of.pop(name, None)
        self._hurried.difference_update(names)

    @property
    def complete(self) -> bool:
        """Whether it is known of all wanted flows if the publisher has them."""
        return self.announced is not None and (self._view.complete or not self.is_there)

    def has_answered(self, name: str) -> bool:
        """Whether it is known if the publisher has a flow."""
        return name in self._view.routes or not self.is_there

    @property
    def is_there(self) -> bool:
        """Whether the publisher was heard, and nothing speaks against its being there."""
        return self.announced is not None and self.presence.state is PresenceState.THERE

    def offers(self, name: str) -> bool:
        """Whether the publisher sends a flow to this receiver, or will by its upcoming plan."""
        over = self.presence.state in (PresenceState.GONE, PresenceState.LEFT)
        return not over and self._router.is_offered(self._view.routes.get(name))

    def has_released(self, name: str) -> bool:
        """Whether the publisher let a flow go for another one to take, and its plan did not."""
        entry = self._view.routes.get(name)
        return entry is not None and entry.released

    def claim_on(self, name: str) -> FlowClaim:
        """Since when the publisher has a flow, and how the flow's numbers go on."""
        entry = self._view.routes.get(name)
        if entry is not None and entry.claim is not None:
            return entry.claim
        _, number, incarnation, _ = self.identity
        return FlowClaim(incarnation, number, incarnation, 1)

    def give_up(self, flow: IncomingFlow) -> None:
        """Stop taking a flow; it is not known what was sent of it behind the last packets."""
        for leg in flow.legs:
            if leg.stream.publisher.row == self.row and leg.until is None and leg.stream.started:
                last = int(self._subs.state.last[leg.stream.slot])
                self._reassembly.report_gap(leg.stream, last + 1, None, "change")
        self._reassembly.leave_publisher(flow, self.row)

    def note_lost(self, flow: IncomingFlow) -> None:
        """Note that a flow is taken from another publisher before this one has sent anything."""
        if self._whole and not self._started:
            self._fresh.add(flow.name)

    def _lacks(self, name: str) -> bool:
        """Whether it is known that the publisher does not send a flow to this receiver."""
        return self._view.has_answered(name) and not self.offers(name)

    def takes_from_start(self, flow: IncomingFlow) -> bool:
        """Whether all packets of the streams that carry a flow are to be had, from 1 on."""
        return flow.name in self._fresh or (self._params.history and not flow.legs)

    # --- packets ----------------------------------------------------------------------------------

    def take_packet(self, header: Header, body: bytes, now: float, source: str | None) -> None:
        """Take a packet that belongs to no stream, or to the journal."""
        if header.kind == PacketKind.ANNOUNCEMENT:
            self._take_announcement(header, decode_announcement(body), now, source)
        elif header.kind == PacketKind.REPLY:
            self.take_reply(header, now, source)
        elif header.kind in OF_RECEIVERS:
            raise WireError("a packet that only senders accept")
        elif (header.publisher, header.incarnation) != self.identity[1:3]:
            self._counts[kernels.STALE] += 1
        elif header.kind == PacketKind.HEARTBEAT:
            for position in decode_heartbeat(body, header.items):
                stream = self._subs.find(self.identity.row, position.stream)
                if stream is not None:
                    self._subs.note_heard(stream)
                    self._reassembly.take_position(stream, position, now)
        elif header.kind == PacketKind.BLOCK:
            if self._view.awaits(block_number(body)):  # most are for others
                self._take_block(decode_block(body, header.items), now)
        elif header.kind == PacketKind.PORTION:
            self.portions.take(decode_portion_part(body), now)
        elif self._journal is None:
            raise WireError("a record of a directory that was not announced")
        elif header.kind == PacketKind.CONFIRM:
            for first, last in decode_ranges(body, header.items):
                self._journal.stream.gaps.confirm(first, last, now)
        else:
            if not header.sequence:
                raise WireError("a journal's packet without a number")
            records = decode_records(body, header.items)
            self._take_records(self._journal.take_packet(header.sequence, records, now), now)

    # --- the directory ----------------------------------------------------------------------------

    def _take_block(self, block: Block, now: float) -> None:
        # Before the publisher sends anything no stream has a packet, wherever flows travel.
        unsent = self.announced is not None and not self.announced.current
        marks = dict.fromkeys(self._subs.last_packets(self.row), 0) if unsent else None
        for name in sorted(self._view.take_block(block)):
            if self._started and self._lacks(name):
                self._fresh.discard(name)  # what it sends later goes on from some number
            self._holders.take_route(self, name, now, marks)
        if self._view.complete:
            self._starting = False

    def _take_records(self, records: Iterable[NumberedRecord], now: float) -> None:
        for number, record in records:
            if number <= self._view.record:
                continue
            if number > self._view.record + 1:
                self._start_over(number - 1, now)
            changed = sorted(self._view.take_record(number, record))
            if isinstance(record, MarkRecord):
                followed = self._subs.find(self.identity.row, record.stream) is not None
                if followed or len(self._marks) < _MOST_MARKS:
                    self._marks[record.stream] = record.last
                continue
            if isinstance(record, SwitchRecord):
                self._version = record.version
            for name in changed:
                self._holders.take_route(self, name, now, self._marks)
            if isinstance(record, SwitchRecord | CancelRecord | LeaveRecord):
                self._marks = {}
            if isinstance(record, LeaveRecord):
                self._leave(now)
        self._note_started(now)

    def _note_started(self, now: float) -> None:
        """Let the publisher's claims count once it sends, and the journal was read so far."""
        announced = self.announced
        if self._started or announced is None or not announced.current:
            return
        if self._view.record >= announced.record:
            self._started = True
            self._fresh = {name for name in self._fresh if not self._lacks(name)}
            self._holders.check_claims(self, self._view.routes, now)

    def _start_over(self, record: int, now: float) -> None:
        """Look all flows up again, since records of the journal are lost.

        A flow may have moved to another stream and back meanwhile, which no block tells.
        """
        self._marks = {}
        self.marks_of.clear()
        self._subs.fix_numbers(self.identity.row)
        self._view.start_over(record, now)

    def _leave(self, now: float) -> None:
        """Take the publisher's word that it sends nothing more."""
        self.presence.state = PresenceState.LEFT
        self._reassembly.actions.append(Left(self.identity.name, self.incarnation))
        for name in list(self._view.routes):  # those of which the directory was not heard
            self._holders.take_route(self, name, now, None)

    def follow(self, flow: IncomingFlow, now: float, marks: Mapping[int, int] | None) -> None:
        """Take a flow from where the directory says."""
        name, from_start = flow.name, self.takes_from_start(flow)
        self._fresh.discard(name)
        self._router.follow(
            flow, self.identity, self._view.routes[name], now, marks=marks, from_start=from_start
        )
        for leg in flow.legs:
            stream = leg.stream
            if stream in self._subs.unheard:
                self._feedback.start_requests(now)
            if not stream.started:
                wait = 0.0 if name in self._hurried else self._draw()
                stream.poll_at = min(stream.poll_at, now + wait)
                self._subs.pending[stream] = None
        self._hurried.discard(name)

    def hasten(self, names: Iterable[str], now: float) -> None:
        """Look these flows up at once, and ask at which packets their streams stand."""
        self._hurried.update(names)
        self._view.hasten(names, now)

    def _draw(self) -> float:
        return draw_back_off(self._params.back_off, self._params.receivers, self._rng)

    # --- which incarnation is followed ------------------------------------------------------------

    def _take_announcement(
        self, header: Header, announced: Announcement, now: float, source: str | None
    ) -> None:
        """Take an announcement of the sender that is followed, or of a rival."""
        senders = self.senders
        if header.incarnation < self.incarnation:
            self._counts[kernels.STALE] += 1
        elif senders.followed is None:
            self._follow_sender(senders.note_claim(header, announced, source, now), now)
            return
        elif header.incarnation == self.incarnation:
            if source is None or senders.is_followed(source):
                self._hear_sender(senders.followed, header, announced, now)
            else:
                self.strangers += 1
            return
        self._decide_on_rival(senders.note_claim(header, announced, source, now), now)

    def _hear_sender(
        self, followed: SenderClaim, header: Header, announced: Announcement, now: float
    ) -> None:
        """Take an announcement of the sender that is followed."""
        if header.sequence <= self._announcements:
            self._counts[self._lines.again] += 1
            self._repeated += 1
            if self._repeated >= _MOST_REPEATED:  # a forged one may have raised the number
                self._reassembly.actions += self.senders.probe(followed, now)
            return
        self._announcements, self._repeated = header.sequence, 0
        followed.heard_at = now
        self._adopt(announced, now)
        if self.presence.state is PresenceState.GONE:
            self._come_back(now)
        if not followed.proven:
            self._reassembly.actions += self.senders.probe(followed, now)

    def take_reply(self, header: Header, now: float, source: str | None) -> None:
        """Take a reply, by which a sender proves that it is alive."""
        proven = self.presence.is_proven
        claim = self.senders.take_reply(header, source, now)
        if claim is None:
            self.strangers += 1
            return
        if claim is not self.senders.followed:
            self._decide_on_rival(claim, now)
            return
        self._compare_clocks(claim, header, now)
        if self.presence.state is PresenceState.DOUBTFUL:
            self.presence.state = PresenceState.THERE
        if not proven:
            self._holders.check_claims(self, self._view.routes, now)
        if self.presence.state is PresenceState.GONE:
            self._come_back(now)
        if self._repeated >= _MOST_REPEATED:
            self._announcements = self._repeated = 0
            self._doubtful = True

    def _compare_clocks(self, claim: SenderClaim, reply: Header, now: float) -> None:
        """Estimate the offset of the followed sender's clock anew."""
        stamp = self._latencies.stamp
        self.clock.take_reply(reply.sequence, reply.sent, stamp, claim.asked_since, now)
        estimate = self.clock.estimate(now)
        if estimate is not None:
            self._latencies.correct(self.identity.row, estimate)

    def _decide_on_rival(self, rival: SenderClaim, now: float) -> None:
        """Follow a rival if it replaces the sender; else probe it and the followed sender."""
        senders, followed = self.senders, self.senders.followed
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
                actions.append(
                    Rival(
                        self.identity.name,
                        followed.incarnation,
                        rival.incarnation,
                        rival.address or "",
                    )
                )

    def _follow_sender(self, claim: SenderClaim, now: float) -> None:
        """Follow another sender, or the first one."""
        if claim.incarnation != self.incarnation or self._journal is None:
            self._change_incarnation(claim, now)
        self.senders.follow(claim)
        self._announcements, self._repeated = claim.sequence, 0
        self._adopt(claim.announced, now)
        self._latencies.begin(self.identity.row)
        self.clock.begin(now)
        if not claim.proven:
            self._reassembly.actions += self.senders.probe(claim, now)
            self.clock.note_asked(now)

    def _change_incarnation(self, claim: SenderClaim, now: float) -> None:
        """Change to another incarnation: give up what is missing of the old one, and drop it."""
        old, reassembly, announced = self.incarnation, self._reassembly, claim.announced
        row, name = self.row, self.identity.name
        last_packets = self._subs.last_packets(row)
        reassembly.abandon(row, "restart")
        if self.senders.followed is not None:
            reassembly.actions.append(Restarted(name, old, claim.incarnation))
            self._resumable[old] = last_packets
            if len(self._resumable) > _MOST_RESUMABLE:
                del self._resumable[next(iter(self._resumable))]
        # A receiver that followed another incarnation, or heard this one before its first packet,
        # starts with message 1 of each flow. Others start with the first message that arrives.
        from_start = self._from_start or announced.current == 0
        self._from_start = True
        self._fresh = set(self._subs.flows) if from_start else set()
        self._starting = self._whole = from_start
        self.presence.begin(now)
        self._version, self._started = 0, False
        self.contested.clear()
        self.marks_of.clear()
        self.identity = PublisherIdentity(row, claim.publisher, claim.incarnation, name)
        known = self._resumable.pop(claim.incarnation, {})
        self._subs.follow_publisher(self.identity, known)
        self._read_journal(announced.journal_last)
        self._view = DirectoryView(self._router.key, self._params, self._rng, self._counts)
        self._view.want(self._subs.flows, now)
        self._view.begin(announced.blocks, announced.record, now)

    def _read_journal(self, last: int) -> None:
        """Read the journal behind that packet."""
        self._marks = {}
        self._doubtful = False
        self._behind = None
        self._journal = IncomingJournal(
            self.identity,
            self._subs.make_gaps(),
            last,
            self._params.missing_ranges,
            self._counts,
        )

    def _adopt(self, announced: Announcement, now: float) -> None:
        """Take from an announcement what the journal does not tell."""
        self.announced = announced
        if self._is_contradicted(announced, now):
            self._read_journal(announced.journal_last)
            self._start_over(announced.record, now)
        assert self._journal is not None
        self._view.resize(announced.blocks, now)
        self._journal.note_sent(announced.journal_last, now)
        self._give_up_records(self._journal.stream.gaps.give_up(announced.journal_first), "window")
        self._take_records(self._journal.take_ready(), now)
        if not self._journal.stream.gaps and announced.record > self._view.record:
            self._start_over(announced.record, now)
        if announced.record >= self._view.record:  # else it was sent before the journal's records
            self._version = announced.current
        self._note_started(now)
        if not self._subs.unheard:
            self._feedback.stop_requests()

    def _is_contradicted(self, announced: Announcement, now: float) -> bool:
        """Whether the journal, or a block, told of more than the publisher wrote: it was forged.

        Announcements have to say so for a while, since one of them may be late.
        """
        assert self._journal is not None
        more = (
            announced.journal_last < self._journal.last or announced.record < self._view.latest
        ) and announced.current > 0  # before that what is written waits
        certain, self._doubtful = self._doubtful, False
        if not more or self._behind is None or self._behind[0] != announced.record:
            self._behind = (announced.record, now) if more else None
        if self._behind is None:
            return False
        return certain or now - self._behind[1] >= self._params.gone_after

    def _give_up_records(self, gone: list[tuple[int, int]], reason: Reason) -> None:
        assert self._journal is not None
        for first, last in gone:
            self._reassembly.report_gap(self._journal.stream, first, last, reason)

    # --- silence ----------------------------------------------------------------------------------

    @property
    def _alone(self) -> bool:
        return len(self._holders.publishers) == 1

    def _check_presence(self, now: float) -> None:
        """Probe the publisher if it is silent; if it does not reply either, it is gone."""
        before = self.presence.state
        self._reassembly.actions += self.presence.check(now, alone=self._alone)
        if self.presence.state is before:
            return
        self._subs.changes += 1  # have it told if it had flows that others lack
        if self.presence.state is PresenceState.GONE:
            last_packets = self._subs.last_packets(self.row)
            flows = self._holders.abandon(self, now)
            self._subs.follow_publisher(self.identity, last_packets)
            self._reassembly.actions.append(Gone(self.identity.name, self.incarnation, flows))

    def _come_back(self, now: float) -> None:
        """Take the flows of a publisher that was gone again, unless others have them."""
        self.presence.state = PresenceState.THERE
        self._reassembly.actions.append(Back(self.identity.name, self.incarnation))
        self._holders.check_claims(self, self._view.routes, now)

    # --- the timer --------------------------------------------------------------------------------

    def next_at(self) -> float:
        """When the timer has to ring for this publisher."""
        at = min(self.senders.next_at(), self.presence.next_at(alone=self._alone))
        if self.presence.state is PresenceState.GONE:
            return at
        at = min(at, self._view.next_at(), self.portions.next_at())
        if self._latencies.measures:
            at = min(at, self.clock.ask_at)
        return at if self._journal is None else min(at, self._journal.stream.gaps.next_at())

    def on_timer(self, now: float) -> None:
        """Do what is due: decide on rivals, look flows up, ask for the time and the journal."""
        actions = self._reassembly.actions
        for rival in self.senders.undecided_rivals():
            self._decide_on_rival(rival, now)
        self._check_presence(now)
        gone = self.presence.state is PresenceState.GONE
        if self._journal is None or self.senders.followed is None or gone:
            return
        if self._latencies.measures and self.clock.ask_at <= now:
            actions += self.senders.probe(self.senders.followed, now)
            self.clock.note_asked(now)
        self._doubt_silent_streams(now)
        actions += self._feedback.make_lookups(self.identity, self._view.due(now))
        actions += self._feedback.make_inquiries(self.identity, self.portions.due(now))
        stream = self._journal.stream
        self._give_up_records(stream.gaps.give_up_unanswered(now), "unanswered")
        self._take_records(self._journal.take_ready(), now)
        actions += self._feedback.make_due_naks(stream, now)

    def _doubt_silent_streams(self, now: float) -> None:
        """Look flows up again if nobody says where their streams stand: there may be none."""
        for stream in self._subs.pending:
            if stream.publisher.row != self.row:
                continue
            if stream.polls >= _MOST_POLLS and stream.poll_at <= now:
                stream.polls = 0
                flows = self._subs.flows.values()
                names = [
                    flow.name for flow in flows if any(leg.stream is stream for leg in flow.legs)
                ]
                self._view.look_up_again(names, now)
