"""What receivers write down and report: who is there, and what each gets and drops."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from distributary.control.members import Member
from distributary.control.reports import InterestRecord, ReceiverReport
from distributary.control.status import Block, ReceiverStatus, Waste

__all__ = ["NOTHING", "Receiver", "add_wastes"]

NOTHING = Waste(0.0, 0.0, 0.0)
_BLOCK_S = 10.0
_BLOCKS = 90  # 15 minutes
_LEAST_SHARE = 0.6  # of a judgement, that reports of a receiver must cover
_LONGEST_REPORT = 3.0  # seconds; a longer one says little about when
_SENSIBLE = 1e9


@dataclass(slots=True)
class _Sums:
    """Messages in a run of reports."""

    seconds: float = 0.0
    wanted: float = 0.0
    dropped_first: float = 0.0
    dropped_second: float = 0.0

    def add(self, report: ReceiverReport, per_packet: float) -> None:
        self.seconds += report.seconds
        self.wanted += report.wanted
        self.dropped_first += report.dropped_packets * per_packet
        self.dropped_second += report.dropped_messages

    def rates(self) -> Waste:
        if self.seconds <= 0:
            return NOTHING
        return Waste(
            self.wanted / self.seconds,
            self.dropped_first / self.seconds,
            self.dropped_second / self.seconds,
        )


@dataclass(slots=True)
class Receiver(Member):
    """A receiver, from what it wants and its reports."""

    record: InterestRecord | None = None
    last: ReceiverReport | None = None
    waste: Waste = NOTHING  # of its last report
    lost: int = 0  # messages reported as missing, over all its incarnations
    lost_at: float | None = None  # when that last grew
    delivered_at: float | None = None  # when a report last had messages that it wanted
    unserved_since: float | None = None
    blocks: deque[Block] = field(default_factory=lambda: deque(maxlen=_BLOCKS))
    _block: _Sums = field(default_factory=_Sums)
    _judged: _Sums | None = None

    def take(self, report: ReceiverReport, per_packet: float, now: float) -> None:
        """Take a report, unless it is a copy; a packet has so many messages on average."""
        last, self.heard_at = self.last, now
        # What one lost before this service heard of it is not known.
        before = report.missing if last is None and report.number else 0
        if last is not None and last.incarnation == report.incarnation:
            if report.number <= last.number:
                return
            before = last.missing
        else:
            self._judged, self.claims = None, 0
        if not (0 <= report.seconds <= _SENSIBLE and 0 <= report.cpu_share <= _SENSIBLE):
            return  # also what is no number
        self.last = report
        is_known = last is not None or not report.number
        self.take_claims(report.claims, report.claimed_by, now, is_news=is_known)
        if report.missing > before:
            self.lost += report.missing - before
            self.lost_at = now
        if report.wanted:
            self.delivered_at = now
        if not report.unserved:
            self.unserved_since = None
        elif self.unserved_since is None:
            self.unserved_since = now
        one = _Sums()
        one.add(report, per_packet)
        self.waste = one.rates()
        if report.seconds > _LONGEST_REPORT:
            self._judged = None
        if self._judged is not None:
            self._judged.add(report, per_packet)
        self._block.add(report, per_packet)
        if self._block.seconds >= _BLOCK_S:
            waste = self._block.rates()
            self.blocks.append(Block(now, waste, report.groups, report.gaps, report.cpu_share))
            self._block = _Sums()

    def begin_judging(self) -> None:
        """Begin to add up for a judgement."""
        self._judged = _Sums()

    def leave_judging(self) -> None:
        """Take no part in the judgement that is under way: it wants something else now."""
        self._judged = None

    def end_judging(self, seconds: float) -> Waste | None:
        """What it measured since it was to begin; None if that is not what happened meanwhile."""
        judged, self._judged = self._judged, None
        if judged is None or not _LEAST_SHARE <= judged.seconds / seconds <= 1 / _LEAST_SHARE:
            return None
        return judged.rates()

    def describe(self, *, is_alive: bool) -> ReceiverStatus:
        """The receiver for a status."""
        record, last = self.record, self.last
        return ReceiverStatus(
            name=self.name,
            alive=is_alive,
            heard_at=self.heard_at,
            where="" if record is None else record.where,
            wants=0 if record is None else len(record.flows),
            unserved=[] if last is None else list(last.unserved),
            groups=0 if last is None else last.groups,
            waste=self.waste if is_alive else NOTHING,
            gaps=0 if last is None else last.gaps,
            missing=0 if last is None else last.missing,
            repairs=0 if last is None else last.repairs,
            cpu_share=0.0 if last is None else last.cpu_share,
        )


def add_wastes(wastes: Iterable[Waste]) -> Waste:
    """The sum."""
    listed = list(wastes)
    return Waste(
        sum(waste.wanted for waste in listed),
        sum(waste.dropped_first for waste in listed),
        sum(waste.dropped_second for waste in listed),
    )
