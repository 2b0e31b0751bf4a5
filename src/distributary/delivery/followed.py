"""A publisher that a receiver follows: its incarnation, its directory, and the flows it sends.

The receiver learns from announcements that the publisher is there, from blocks of the directory
where the wanted flows travel, and from the journal how that changes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery.actions import Reason, Restarted, Rival
from distributary.delivery.clock import PublisherClock
from distributary.delivery.directory_wire import (
    Block,
    CancelRecord,
    MarkRecord,
    SwitchRecord,
    block_number,
    decode_block,
)
from distributary.delivery.feedback import Feedback
from distributary.delivery.flow_router import FlowRouter
from distributary.delivery.gaps import draw_back_off
from distributary.delivery.incoming import IncomingStream, PublisherIdentity
from distributary.delivery.incoming_journal import (
    IncomingJournal,
    NumberedRecord,
    decode_records,
)
from distributary.delivery.latency import Latencies
from distributary.delivery.lines import Lines
from distributary.delivery.lookup import DirectoryView
from distributary.delivery.portion_wire import decode_portion_part
from distributary.delivery.portions import PortionView
from distributary.delivery.reassembly import Reassembly
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.senders import SenderClaim, Senders
from distributary.delivery.subscriptions import Progress, Subscriptions
from distributary.delivery.wire import (
    Announcement,
    Header,
    PacketKind,
    WireError,
    decode_announcement,
    decode_heartbeat,
    decode_ranges,
)
from distributary.model import IntArray

__all__ = ["FollowedPublisher"]

_OF_RECEIVERS = (PacketKind.NAK, PacketKind.REQUEST, PacketKind.LOOKUP, PacketKind.INQUIRY)
_MOST_REPEATED = 3  # old announcements in a row, after which the receiver probes the sender
_MOST_PROGRESS = 4  # incarnations whose progress is kept
_MOST_POLLS = 8  # of a stream that stay unanswered, after which its flows are looked up again


class FollowedPublisher:
    """Takes the packets of one publisher that belong to no stream, and follows its directory."""

    def __init__(
        self,
        row: int,
        incarnation: int,
        subs: Subscriptions,
        reassembly: Reassembly,
        router: FlowRouter,
        feedback: Feedback,
        lines: Lines,
        latencies: Latencies,
        params: ReceiverParams,
        counts: IntArray,
        rng: np.random.Generator,
    ) -> None:
        """`row` is the publisher's row in the tables; it is not known yet which one that is."""
        self.identity = PublisherIdentity(row, 0, incarnation)
        self.announced: Announcement | None = None
        self.portions = PortionView(params, rng)
        self.senders = Senders(feedback, params, rng)
        self.clock = PublisherClock(params.clock_every, rng.spawn(1)[0])
        self.strangers = 0  # packets that are not accepted from where they came
        self._subs = subs
        self._reassembly = reassembly
        self._router = router
        self._feedback = feedback
        self._lines = lines
        self._latencies = latencies
        self._params = params
        self._counts = counts
        self._rng = rng
        self._view = DirectoryView(router.key, params, rng, counts)
        self._journal: IncomingJournal | None = None
        self._marks: dict[int, int] = {}  # last packets before the upcoming switch, by stream
        self._fresh: set[str] = set()  # flows to be had from the first packet of their streams on
        self._from_start = False  # whether that is so for the next incarnation: one was followed
        self._hurried: set[str] = set()  # flows for which somebody waits
        self._starting = False  # until then, of an incarnation whose flows are had so
        self._version = 0  # as the journal's last switch says, or a later announcement
        self._announcements = 0  # number of the last one
        self._doubtful = False  # whether a forged packet may have spoken of the journal
        self._behind: tuple[int, float] | None = None  # an announcement that knows of less
        self._repeated = 0  # announcements in a row whose number was not new
        self._progress: dict[int, Progress] = {}  # of incarnations that were followed before

    @property
    def incarnation(self) -> int:
        """The incarnation that is followed, or else the one given at the start."""
        return self.identity.incarnation

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
        self._hurried.difference_update(names)

    @property
    def complete(self) -> bool:
        """Whether it is known of all wanted flows where they travel, or that they do not."""
        return self.announced is not None and self._view.complete

    def lacks(self, name: str) -> bool:
        """Whether it is known that the publisher does not send a flow to this receiver."""
        flow = self._subs.flows.get(name)
        return name in self._view.routes and (flow is None or not flow.served)

    # --- packets ----------------------------------------------------------------------------------

    def take_packet(self, header: Header, body: bytes, now: float, source: str | None) -> None:
        """Take a packet that belongs to no stream, or to the journal."""
        if header.kind == PacketKind.ANNOUNCEMENT:
            self._take_announcement(header, decode_announcement(body), now, source)
        elif header.kind == PacketKind.REPLY:
            self.take_reply(header, now, source)
        elif header.kind in _OF_RECEIVERS:
            raise WireError("a packet that only senders accept")
        elif (header.publisher, header.incarnation) != self.identity[1:]:
            self._counts[kernels.STALE] += 1
        elif header.kind == PacketKind.HEARTBEAT:
            for position in decode_heartbeat(body, header.items):
                stream = self._subs.find(self.identity.row, position.stream)
                if stream is not None:
                    self.note_heard(stream)
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

    def note_heard(self, stream: IncomingStream) -> None:
        """Note that something came by a stream."""
        self._subs.unheard.pop(stream, None)

    # --- the directory ----------------------------------------------------------------------------

    def _take_block(self, block: Block, now: float) -> None:
        for name in sorted(self._view.take_block(block)):
            self._route(name, now, marks=None)
        if self._starting and self._view.complete:
            self._starting = False
            self._subs.take_new_flows()

    def _take_records(self, records: Iterable[NumberedRecord], now: float) -> None:
        for number, record in records:
            if number <= self._view.record:
                continue
            if number > self._view.record + 1:
                self._start_over(number - 1, now)
            changed = sorted(self._view.take_record(number, record))
            if isinstance(record, MarkRecord):
                if self._subs.find(self.identity.row, record.stream) is not None:
                    self._marks[record.stream] = record.last
                continue
            if isinstance(record, SwitchRecord):
                self._version = record.version
            for name in changed:
                self._route(name, now, marks=self._marks)
            if isinstance(record, SwitchRecord | CancelRecord):
                self._marks = {}

    def _start_over(self, record: int, now: float) -> None:
        """Look all flows up again, since records of the journal are lost.

        A flow may have moved to another stream and back meanwhile, which no block tells.
        """
        self._marks = {}
        self._subs.fix_numbers(self.identity.row)
        self._view.start_over(record, now)

    def _route(self, name: str, now: float, *, marks: dict[int, int] | None) -> None:
        """Take a flow from where the directory says."""
        flow = self._subs.flows.get(name)
        if flow is None or flow.retired:
            return
        from_start = name in self._fresh or (self._params.history and not flow.legs)
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
        elif (header.publisher, header.incarnation) == self.identity[1:]:
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
        if not followed.proven:
            self._reassembly.actions += self.senders.probe(followed, now)

    def take_reply(self, header: Header, now: float, source: str | None) -> None:
        """Take a reply, by which a sender proves that it is alive."""
        claim = self.senders.take_reply(header, source, now)
        if claim is None:
            self.strangers += 1
        elif claim is not self.senders.followed:
            self._decide_on_rival(claim, now)
        else:
            self._compare_clocks(claim, header, now)
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
                actions.append(Rival(followed.incarnation, rival.incarnation, rival.address or ""))

    def _follow_sender(self, claim: SenderClaim, now: float) -> None:
        """Follow another sender, or the first one."""
        if (claim.publisher, claim.incarnation) != self.identity[1:] or self._journal is None:
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
        progress = self._subs.progress()
        reassembly.abandon_all("restart")
        if self.senders.followed is not None:
            reassembly.actions.append(Restarted(old, claim.incarnation))
            self._progress[old] = self._subs.progress()._replace(last=progress.last)
            if len(self._progress) > _MOST_PROGRESS:
                del self._progress[next(iter(self._progress))]
        # A receiver that followed another incarnation, or heard this one before its first packet,
        # starts with message 1 of each flow. Others start with the first message that arrives.
        from_start = self._from_start or announced.current == 0
        self._from_start = True
        self._fresh = set(self._subs.flows) if from_start else set()
        self._starting = from_start
        self.identity = PublisherIdentity(self.identity.row, claim.publisher, claim.incarnation)
        known = self._progress.pop(claim.incarnation, Progress({}, {}))
        self._subs.follow_publisher(self.identity, int(from_start), known)
        reassembly.incarnation = claim.incarnation
        self._read_journal(announced.journal_last)
        self._view = DirectoryView(self._router.key, self._params, self._rng, self._counts)
        self._view.want(self._subs.flows, now)
        self._view.begin(announced.blocks, announced.record, now)

    def _read_journal(self, last: int) -> None:
        """Read the journal behind that packet."""
        self._marks = {}
        self._doubtful = False
        self._behind = None
        self._journal = IncomingJournal(self.identity, self._subs.make_gaps(), last, self._counts)

    def _adopt(self, announced: Announcement, now: float) -> None:
        """Take from an announcement what the journal does not tell."""
        self.announced = announced
        if self._doubtful or self._is_contradicted(announced, now):
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
        if not self._subs.unheard:
            self._feedback.stop_requests()

    def _is_contradicted(self, announced: Announcement, now: float) -> bool:
        """Whether the journal, or a block, told of more than the publisher wrote: it was forged.

        Announcements say so for a while, since one of them may be late.
        """
        assert self._journal is not None
        more = (
            announced.journal_last < self._journal.last or announced.record < self._view.latest
        ) and announced.current > 0  # before that what is written waits
        if not more or self._behind is None or self._behind[0] != announced.record:
            self._behind = (announced.record, now) if more else None
        return self._behind is not None and now - self._behind[1] >= self._params.gone_after

    def _give_up_records(self, gone: list[tuple[int, int]], reason: Reason) -> None:
        assert self._journal is not None
        for first, last in gone:
            self._reassembly.report_gap(self._journal.stream, first, last, reason)

    # --- the timer --------------------------------------------------------------------------------

    def next_at(self) -> float:
        """When the timer has to ring for this publisher."""
        at = min(self.senders.next_at(), self._view.next_at(), self.portions.next_at())
        if self._latencies.measures:
            at = min(at, self.clock.ask_at)
        return at if self._journal is None else min(at, self._journal.stream.gaps.next_at())

    def on_timer(self, now: float) -> None:
        """Do what is due: decide on rivals, look flows up, ask for the time and the journal."""
        actions = self._reassembly.actions
        for rival in self.senders.undecided_rivals():
            self._decide_on_rival(rival, now)
        if self._journal is None or self.senders.followed is None:
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
            if stream.polls >= _MOST_POLLS and stream.poll_at <= now:
                stream.polls = 0
                flows = self._subs.flows.values()
                names = [
                    flow.name for flow in flows if any(leg.stream is stream for leg in flow.legs)
                ]
                self._view.look_up_again(names, now)
