"""Makes a member's reports: one at a time, the next one when the one before is stored.

A report that may not have been stored is repeated as it is, under its number. What happens
meanwhile waits, and goes into the next report. So a service that leaves out numbers that it has
seen counts each message once.
"""

from __future__ import annotations

from typing import NamedTuple

from distributary.control.reports import NAMES_EVERY, PublisherReport, ReceiverReport
from distributary.control.tally import FlowTally, TallyLimits

__all__ = ["PublisherFigures", "PublisherReporter", "ReceiverFigures", "ReceiverReporter"]

_FEW = 10  # unserved flows that a report names


class PublisherFigures(NamedTuple):
    """A publisher's counters since its start."""

    at: float
    plan_version: int = 0
    unplanned: int = 0
    messages: int = 0
    packets: int = 0
    cpu_seconds: float = 0.0
    claims: int = 0
    claimed_by: str = ""


class ReceiverFigures(NamedTuple):
    """A receiver's counters since its start."""

    at: float
    wanted: int = 0
    dropped_packets: int = 0
    dropped_messages: int = 0
    groups: int = 0
    gaps: int = 0
    missing: int = 0
    repairs: int = 0
    cpu_seconds: float = 0.0
    unserved: tuple[str, ...] = ()
    claims: int = 0
    claimed_by: str = ""


class PublisherReporter:
    """Makes the reports of a publisher."""

    def __init__(self, incarnation: str, limits: TallyLimits | None = None) -> None:
        self._incarnation = incarnation
        self.tally = FlowTally(limits)
        self._number = 0
        self._pending: PublisherReport | None = None
        self._figures: PublisherFigures | None = None  # as last noted
        self._reported: PublisherFigures | None = None  # as of the last report
        self._noted = False  # figures that no report has

    def note(self, second: int, figures: PublisherFigures) -> None:
        """End a second, with the counters now: there is something to report."""
        self.tally.close_second(second)
        self._figures = figures
        if self._reported is None:
            self._reported = figures._replace(unplanned=0, messages=0, packets=0)
        self._noted = True

    @property
    def kept(self) -> int:
        """How many messages are counted, and not known to be stored."""
        found = self.tally.messages
        if self._pending is not None:
            found += self._pending.uncounted + sum(n for _, _, n in self._pending.counts)
        return found

    def next_report(self) -> PublisherReport | None:
        """The report to store now: again the one before, unless it was confirmed."""
        is_due = self._noted or not self.tally.is_empty
        if self._pending is None and self._figures is not None and is_due:
            if self._number % NAMES_EVERY == 0:
                self.tally.name_again()
            self._pending = self._make(self._figures)
        return self._pending

    def confirm(self) -> None:
        """The report is stored."""
        self._pending = None

    def _make(self, now: PublisherFigures) -> PublisherReport:
        before = self._reported
        assert before is not None
        portion = self.tally.take_portion()
        packets = now.packets - before.packets
        report = PublisherReport(
            self._incarnation,
            self._number,
            portion.names,
            portion.first_second,
            portion.counts,
            now.plan_version,
            now.unplanned - before.unplanned,
            (now.messages - before.messages) / packets if packets else 0.0,
            _share(now.cpu_seconds - before.cpu_seconds, now.at - before.at),
            portion.first_name,
            portion.uncounted,
            now.claims,
            now.claimed_by,
        )
        self._reported, self._noted = now, False
        self._number += 1
        return report


class ReceiverReporter:
    """Makes the reports of a receiver."""

    def __init__(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._number = 0
        self._pending: ReceiverReport | None = None
        self._figures: ReceiverFigures | None = None
        self._reported: ReceiverFigures | None = None

    def note(self, figures: ReceiverFigures) -> None:
        """Note the counters now: there is something to report."""
        if self._reported is None:
            self._reported = ReceiverFigures(figures.at, cpu_seconds=figures.cpu_seconds)
        self._figures = figures

    @property
    def kept(self) -> int:
        """How many messages were delivered that are not known to be reported."""
        if self._figures is None or self._reported is None:
            return self._pending.wanted if self._pending else 0
        pending = self._pending.wanted if self._pending else 0
        return self._figures.wanted - self._reported.wanted + pending

    def next_report(self) -> ReceiverReport | None:
        """The report to store now: again the one before, unless it was confirmed."""
        if self._pending is None and self._figures is not None:
            now, before = self._figures, self._reported
            assert before is not None
            self._pending = self._make(now, before)
            self._reported, self._figures = now, None
            self._number += 1
        return self._pending

    def confirm(self) -> None:
        """The report is stored."""
        self._pending = None

    def _make(self, now: ReceiverFigures, before: ReceiverFigures) -> ReceiverReport:
        return ReceiverReport(
            self._incarnation,
            self._number,
            now.at - before.at,
            now.wanted - before.wanted,
            now.dropped_packets - before.dropped_packets,
            now.dropped_messages - before.dropped_messages,
            now.groups,
            now.gaps,
            now.missing,
            now.repairs,
            now.unserved[:_FEW],
            _share(now.cpu_seconds - before.cpu_seconds, now.at - before.at),
            now.claims,
            now.claimed_by,
        )


def _share(cpu_seconds: float, seconds: float) -> float:
    return cpu_seconds / seconds if seconds > 0 else 0.0
