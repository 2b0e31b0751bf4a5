"""What publishers write down and report: who is there, and what each publishes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from distributary.control.counts import CountRow
from distributary.control.members import Member
from distributary.control.reports import PublisherRecord, PublisherReport
from distributary.control.status import PublisherStatus

__all__ = ["Publisher"]

_RATE_OVER = 5.0  # seconds
_MOST_UNNAMED = 100_000  # counts of flows whose names have not come yet
_MOST_MESSAGES = 1 << 40  # that a report counts
_DAY = 86_400.0  # seconds that a count may be old, or its clock ahead


@dataclass(slots=True)
class Publisher(Member):
    """A publisher, from its record and its reports."""

    record: PublisherRecord | None = None
    last: PublisherReport | None = None
    unplanned: int = 0
    missing_at: float | None = None  # when it was last noticed that reports are missing
    uncounted: int = 0  # messages that are in no count, since its start
    uncounted_at: float | None = None  # when that last grew
    _names: dict[int, str] = field(default_factory=dict)
    _unnamed: deque[tuple[int, int, int]] = field(default_factory=deque)
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def take(self, report: PublisherReport, now: float) -> list[CountRow]:
        """Take a report, unless it is a copy; returns the counts whose flows have names."""
        self.heard_at = now
        is_known = self.last is not None or not report.number
        same = self.last is not None and self.last.incarnation == report.incarnation
        if same and self.last is not None:
            if report.number <= self.last.number:
                return []
            if report.number > self.last.number + 1:
                self.missing_at = now
        else:
            self._names.clear()
            self._unnamed.clear()
            self.unplanned = self.uncounted = self.claims = 0
        self.last = report
        self.take_claims(report.claims, report.claimed_by, now, is_news=is_known)
        self.unplanned += report.unplanned
        self._names.update(enumerate(report.names, report.first_name))
        self._recent.append((now, sum(messages for _, _, messages in report.counts)))
        self._drop_old(now)
        uncounted = report.uncounted + self._take_counts(report, now)
        if uncounted:
            self.uncounted += uncounted
            self.uncounted_at = now
        return self._name_counts()

    @property
    def plan_version(self) -> int:
        """The version that it publishes by; 0 if it has none yet."""
        return 0 if self.last is None else self.last.plan_version

    def rate(self, now: float) -> float:
        """The messages per second of its last reports."""
        self._drop_old(now)
        return sum(messages for _, messages in self._recent) / _RATE_OVER

    def describe(self, now: float, is_alive: bool, version: int) -> PublisherStatus:
        """The publisher for a status; `version` is the one in force."""
        record, plan_version = self.record, self.plan_version
        flows = None if record is None or record.flows is None else len(record.flows)
        return PublisherStatus(
            name=self.name,
            alive=is_alive,
            heard_at=self.heard_at,
            where="" if record is None else record.where,
            flows=flows,
            rate=self.rate(now),
            unplanned=self.unplanned,
            plan_version=plan_version,
            behind=max(0, version - plan_version),
        )

    def _take_counts(self, report: PublisherReport, now: float) -> int:
        """Keep counts until their flows have names; returns the messages that cannot be counted."""
        room, uncounted = _MOST_MESSAGES, 0
        for after, flow, messages in report.counts:
            second = report.first_second + after
            if 0 < messages <= room and abs(second - now) <= _DAY:
                room -= messages
                self._unnamed.append((second, flow, messages))
            else:
                uncounted += messages
        return uncounted

    def _drop_old(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - _RATE_OVER:
            self._recent.popleft()

    def _name_counts(self) -> list[CountRow]:
        """The counts whose flows have names by now; the others wait, the oldest not for ever."""
        waiting, self._unnamed = self._unnamed, deque(maxlen=_MOST_UNNAMED)
        named = []
        for second, flow, messages in waiting:
            name = self._names.get(flow)
            if name is None:
                self._unnamed.append((second, flow, messages))
            else:
                named.append((second, name, messages))
        return named
