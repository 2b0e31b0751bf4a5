"""Judges a version that moved flows by what receivers measured after it took over.

What they measured is compared with what they should have got, second by second, by the plans in
force and the messages that publishers counted. So a change of interest or of rates, or a flow that
is placed meanwhile, does not speak against a plan. Four things besides:

- Receivers that wanted something else meanwhile, started anew or were silent take no part; nor do
  their shares of the prediction.
- Members take a version up some time after it came into force. In the seconds around that, the plan
  with the higher prediction counts.
- Clocks differ, and reports are late. The counts are shifted by up to two seconds either way, and
  the shift with the highest prediction counts.
- What was measured beyond the prediction before the version took over is not its fault: by that
  factor, too, the measurement may exceed the prediction.

While a publisher cannot be heard, its messages are in no count: then a new window begins.

Under drift, planned versions follow each other faster than one can be judged. Those that come while
one is judged are judged together, right after it. So each is measured for a whole window, by which
the plans of all are compared with what they promised, and no proposal waits for a judgement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np

from distributary.control.counts import FlowCounts
from distributary.control.history import TrafficHistory, dropped
from distributary.control.messages import Decision
from distributary.control.prediction import predict_seconds
from distributary.control.receivers import add_wastes
from distributary.control.roster import Roster
from distributary.control.settings import ControlSettings
from distributary.control.status import AuditEntry, Kind, Waste
from distributary.model import FloatArray, Plan

__all__ = ["Judge", "Judgement", "Unjudged"]

_COUNTS_LATE = 2.0  # seconds until the counts of a window are there
_SHIFT = 2  # seconds, of clocks and until members take up a version
_LATE = 5.0  # seconds before a window, in which plans still matter to it
_MOST_WINDOWS = 12


@dataclass(frozen=True, slots=True)
class Judgement:
    """What versions were predicted to waste, what they do, and whether that is too much.

    They are those from `first` to `version` that moved flows: mostly a single one.
    """

    first: int
    version: int
    predicted: Waste
    measured: Waste
    allowed: float
    lost: int
    is_worse: bool
    receivers: int

    @property
    def versions(self) -> str:
        """The versions in words."""
        return (
            str(self.version) if self.first == self.version else f"{self.first} to {self.version}"
        )

    def say(self) -> str:
        """The judgement in a sentence."""
        return (
            f"{_count(self.receivers, 'receiver')} dropped {dropped(self.measured):,.1f} messages "
            f"a second; {dropped(self.predicted):,.1f} were predicted with the interest and rates "
            f"of the time, and up to {self.allowed:,.1f} are tolerated"
        )


@dataclass(frozen=True, slots=True)
class Unjudged:
    """The last of the versions that could not be judged: why, and what was lost meanwhile."""

    version: int
    why: str
    lost: int


class _Phase(Enum):
    BEFORE = auto()  # it has just taken over
    OPEN = auto()  # receivers add up
    AFTER = auto()  # the last counts are on their way


@dataclass(slots=True)
class _Case:
    """The versions that are judged; times are when their present window begins and ends."""

    first: int
    version: int  # the last one
    kind: Kind
    lost_before: int
    bias: float
    begins: float
    ends: float = math.inf
    phase: _Phase = _Phase.BEFORE
    windows: int = 0
    measured: dict[str, Waste] = field(default_factory=dict)  # by receivers that take part
    wants: dict[str, frozenset[str]] = field(default_factory=dict)  # of the same, in the window
    trouble: str = "there was no time for it"

    @property
    def seconds(self) -> tuple[int, int]:
        """The first whole second of the window, and how many there are."""
        return math.floor(self.begins), max(1, round(self.ends - self.begins))


@dataclass(slots=True)
class _Later:
    """The planned versions that came since a case began, which are judged after it."""

    first: int
    version: int
    bias: float


class Judge:
    """Follows versions that moved flows until they are judged."""

    def __init__(self, settings: ControlSettings, roster: Roster, history: TrafficHistory) -> None:
        self._settings, self._roster, self._history = settings, roster, history
        self._case: _Case | None = None
        self._later: _Later | None = None
        self._plans: list[tuple[float, Plan]] = []  # since when each is in force

    def follow(self, decision: Decision, now: float) -> Unjudged | None:
        """Judge a version that has come into force, at once or after the case under way.

        Only planned versions are judged together. Another one ends the case: returns what was not
        judged then.
        """
        version, case = decision.version, self._case
        if case is not None and case.kind == decision.kind == "planned":
            if self._later is None:
                self._later = _Later(version, version, self._find_bias_now(now))
            self._later.version = version
            return None
        before = self.give_up(f"version {version} replaced it too soon")
        lost = self._roster.lost
        self._begin(version, version, decision.kind, lost, self._find_bias_now(now), now)
        return before

    def resume(
        self, first: int, version: int, kind: Kind, last: AuditEntry | None, now: float
    ) -> None:
        """Judge versions that another service put in force; all losses heard of are their own.

        `last` is the last judgement.
        """
        bias = 1.0
        if last is not None and last.measured is not None and last.predicted is not None:
            bias = self._find_bias(last.measured, last.predicted)
        self._begin(first, version, kind, 0, bias, now)

    def give_up(self, why: str) -> Unjudged | None:
        """Stop judging."""
        case, later = self._case, self._later
        self._case = self._later = None
        if case is None:
            return None
        version = case.version if later is None else later.version
        return Unjudged(version, why, self._roster.lost - case.lost_before)

    def note_plan(self, plan: Plan, now: float) -> None:
        """Note a plan that came into force, whether it moved flows or not."""
        before = (now if self._case is None else min(now, self._case.begins)) - _LATE
        while len(self._plans) > 1 and self._plans[1][0] < before:
            del self._plans[0]
        self._plans.append((now, plan))

    def disturb(self, why: str, now: float) -> None:
        """Begin a new window, since what is measured in this one is not comparable."""
        if self._case is not None:
            self._case.trouble = why
            self._open_later(self._case, now)

    def tick(self, counts: FlowCounts, now: float) -> Judgement | Unjudged | None:
        """Go on judging; returns the end of it."""
        case = self._case
        if case is None or self._roster.hearing.deaf_at is not None:
            return None
        if case.phase is _Phase.BEFORE and now >= case.begins:
            self._open(case, now)
        if case.phase is _Phase.OPEN and now >= case.ends:
            self._close(case, now)
        if case.phase is not _Phase.AFTER or now < case.ends + _COUNTS_LATE:
            return None
        trouble = self._find_trouble(case, counts)
        if not trouble:
            self._go_on(now)
            return self._judge(case, counts)
        self.disturb(trouble, now)
        case.windows += 1
        if case.windows < _MOST_WINDOWS:
            return None
        self._go_on(now)
        return Unjudged(case.version, trouble, self._roster.lost - case.lost_before)

    # --- inside -----------------------------------------------------------------------------------

    def _begin(
        self, first: int, version: int, kind: Kind, lost: int, bias: float, now: float
    ) -> None:
        begins = now + self._settings.judge_after
        self._case, self._later = _Case(first, version, kind, lost, bias, begins), None

    def _go_on(self, now: float) -> None:
        """End the case; what came since is the next one."""
        later, self._case = self._later, None
        if later is not None:
            lost = self._roster.lost
            self._begin(later.first, later.version, "planned", lost, later.bias, now)

    def _open_later(self, case: _Case, now: float) -> None:
        case.begins, case.ends = now + self._settings.judge_after, math.inf
        case.phase, case.measured, case.wants = _Phase.BEFORE, {}, {}

    def _open(self, case: _Case, now: float) -> None:
        case.begins, case.ends = now, now + self._settings.judge_over
        case.phase = _Phase.OPEN
        for receiver in self._roster.receivers.values():
            receiver.begin_judging()

    def _close(self, case: _Case, now: float) -> None:
        case.ends, case.phase = now, _Phase.AFTER
        for name, receiver in self._roster.receivers.items():
            waste = receiver.end_judging(case.ends - case.begins)
            if waste is not None and receiver.record is not None and receiver.record.flows:
                case.measured[name] = waste
                case.wants[name] = frozenset(receiver.record.flows)

    def _find_trouble(self, case: _Case, counts: FlowCounts) -> str:
        """Why the window says nothing, if so."""
        if not case.measured:
            return "no receiver wanted the same, and reported, all the time"
        for publisher in self._roster.list_publishers():
            if publisher.heard_at < case.ends:
                return f"publisher {publisher.name!r} reported no counts"
            for at in (publisher.missing_at, publisher.uncounted_at):
                if at is not None and at >= case.begins:
                    return f"counts of publisher {publisher.name!r} are missing"
        return self._find_uncounted(case, counts)

    def _find_uncounted(self, case: _Case, counts: FlowCounts) -> str:
        """Who got more of what it wants than was counted: some publisher cannot be heard."""
        first, seconds = case.seconds
        totals = [
            counts.add_up(first + shift, first + shift + seconds)
            for shift in range(-_SHIFT, _SHIFT + 1)
        ]
        for name, waste in case.measured.items():
            flows = case.wants[name]
            counted = max(sum(total[flow] for flow in flows) for total in totals) / seconds
            if waste.wanted > counted * (1 + self._settings.tolerance) + self._settings.slack:
                return f"receiver {name!r} got messages that no publisher counted"
        return ""

    def _judge(self, case: _Case, counts: FlowCounts) -> Judgement:
        settings = self._settings
        predicted = self._predict(case, counts)
        measured = add_wastes(case.measured.values())
        allowed = dropped(predicted) * case.bias * (1 + settings.tolerance) + settings.slack
        return Judgement(
            case.first,
            case.version,
            predicted,
            measured,
            allowed,
            self._roster.lost - case.lost_before,
            dropped(measured) > allowed,
            len(case.measured),
        )

    def _predict(self, case: _Case, counts: FlowCounts) -> Waste:
        """What the judged receivers should have got in the window."""
        first, seconds = case.seconds
        moments = range(first - _SHIFT, first + seconds + _SHIFT)
        by_second = [counts.add_up(at, at + 1) for at in moments]
        by_plan = [predict_seconds(plan, case.wants, by_second) for _, plan in self._plans]
        plans = [self._find_plans(first + at) for at in range(seconds)]
        found = []
        for shift in range(2 * _SHIFT + 1):
            parts = [
                max((by_plan[plan][at + shift] for plan in some), key=_dropped_of)
                for at, some in enumerate(plans)
            ]
            found.append(Waste(*(float(part) / seconds for part in np.sum(parts, axis=0))))
        return max(found, key=dropped)

    def _find_plans(self, second: int) -> list[int]:
        """Which of the plans members may have gone by in a second."""
        ends = [*(at for at, _ in self._plans[1:]), math.inf]
        return [
            number
            for number, ((begins, _), end) in enumerate(zip(self._plans, ends, strict=True))
            if (number == 0 or begins < second + 1 + _SHIFT) and end > second - _SHIFT
        ]

    def _find_bias_now(self, now: float) -> float:
        """By what factor more was measured than predicted, before a version that comes now."""
        measured, predicted, _ = self._history.average(now - self._settings.judge_over, now)
        return self._find_bias(measured, predicted)

    def _find_bias(self, measured: Waste, predicted: Waste) -> float:
        least = max(dropped(predicted), self._settings.slack)
        return max(1.0, dropped(measured) / least) if least else 1.0


def _dropped_of(part: FloatArray) -> float:
    return float(part[1] + part[2])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
