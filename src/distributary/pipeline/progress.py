"""How far a run is: its steps, the rows that Spark has read for each, and the time that is left.

A *step* is what a run announces before it begins (`steps.say`). Spark calls each of its stages by
the step that was announced when it was submitted; names come again in a stream, so a stage belongs
to the latest step of its name that had begun by then. Work on the driver reports itself.

**Rows** are those that Spark reads from files. It does not count those that it shuffles, and counts
cached tables by batches of thousands. A step that reads its input twice counts it twice.
**The share** and the time left are of the work known so far: Spark finds out some of its stages
while it works, so the share can fall.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from distributary.planning.progress import Step

__all__ = ["OTHER", "RunSummary", "StageCount", "StepState", "StepTotal", "Tracker"]

OTHER = "other"
"""What the time between steps is called."""

# Less of a step than this says nothing about the rest of it.
_LEAST_SECONDS, _LEAST_SHARE = 1.0, 0.05
# A stream takes steps without end.
_MOST_ENTRIES = 200


@dataclass(frozen=True, slots=True)
class StageCount:
    """What Spark has done of one attempt at a stage; it was submitted at a Unix time in ms."""

    stage: int
    attempt: int
    name: str
    submitted_ms: int
    done: int
    total: int
    rows: int


@dataclass(frozen=True, slots=True)
class StepState:
    """A step so far. `rows`, `share` and `seconds_left` are None where they are not known.

    `detail` is what the driver works on within the step.
    """

    name: str
    seconds: float
    rows: int | None = None
    share: float | None = None
    seconds_left: float | None = None
    detail: str = ""

    @property
    def rows_per_s(self) -> float | None:
        """The rows read per second of the step; None if none were counted."""
        return None if self.rows is None or self.seconds <= 0 else self.rows / self.seconds


@dataclass(frozen=True, slots=True)
class StepTotal:
    """All steps of a name: their seconds, the share of the whole run, and the rows read."""

    name: str
    seconds: float
    share: float
    rows: int | None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The time of a run by its steps, in order; the time between them is `OTHER`, the last."""

    seconds: float
    steps: tuple[StepTotal, ...]

    def document(self) -> dict[str, Any]:
        """The summary as JSON."""
        return {
            "seconds": round(self.seconds, 3),
            "steps": [
                {
                    "step": step.name,
                    "seconds": round(step.seconds, 3),
                    "share": round(step.share, 4),
                    "rows": step.rows,
                }
                for step in self.steps
            ],
        }


@dataclass(slots=True)
class _Reported:
    """The last report of the driver, and when its stage began to report and how far it was."""

    step: Step
    since: float
    share: float


@dataclass(slots=True)
class _Entry:
    """A step, with the attempts at its stages."""

    name: str
    began: float
    began_ms: int
    ended: float | None = None
    attempts: dict[int, dict[int, StageCount]] = field(default_factory=dict)
    reported: _Reported | None = None


class Tracker:
    """Adds up what is known of each step. It can be used from several threads.

    `clock` measures, in seconds; `calendar` gives the Unix time, which Spark's stages are dated by.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        calendar: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._calendar = clock, calendar
        self._lock = Lock()
        self._began = clock()
        self._entries: list[_Entry] = []
        self._folded = 0  # steps before the first entry, of which only the sums are kept
        self._seconds: dict[str, float] = {}
        self._rows: dict[str, int] = {}

    def begin(self, name: str | None) -> None:
        """End the present step and begin another; with None, nothing begins."""
        with self._lock:
            now = self._clock()
            if self._entries and self._entries[-1].ended is None:
                self._entries[-1].ended = now
            if name is not None:
                self._entries.append(_Entry(name, now, int(self._calendar() * 1000)))
            while len(self._entries) > _MOST_ENTRIES:
                self._add_up(self._entries.pop(0), self._seconds, self._rows)
                self._folded += 1

    def report(self, step: Step) -> None:
        """Take a report of the driver on the present step."""
        with self._lock:
            if not self._entries or self._entries[-1].ended is not None:
                return
            entry = self._entries[-1]
            last = entry.reported
            if last is not None and last.step.stage == step.stage and step.done >= last.step.done:
                last.step = step
            else:
                entry.reported = _Reported(step, self._clock(), _share_of(step) or 0.0)

    def count(self, stages: Iterable[StageCount]) -> None:
        """Take Spark's counts; a later count of the same attempt replaces the earlier one."""
        with self._lock:
            for stage in stages:
                for entry in reversed(self._entries):
                    if entry.name == stage.name and entry.began_ms <= stage.submitted_ms:
                        entry.attempts.setdefault(stage.stage, {})[stage.attempt] = stage
                        break

    def ended(self) -> int:
        """The number of steps that have ended: the first ones."""
        with self._lock:
            running = bool(self._entries) and self._entries[-1].ended is None
            return self._folded + len(self._entries) - running

    def states(self, first: int, last: int) -> list[StepState]:
        """The states of the steps from number `first`, up to but without number `last`.

        Steps that ended long ago are left out.
        """
        with self._lock:
            some = slice(max(0, first - self._folded), max(0, last - self._folded))
            return [self._describe(entry) for entry in self._entries[some]]

    def present(self) -> StepState | None:
        """The state of the present step; None between steps."""
        with self._lock:
            if not self._entries or self._entries[-1].ended is not None:
                return None
            return self._describe(self._entries[-1])

    def summarize(self) -> RunSummary:
        """The time so far by the names of the steps."""
        with self._lock:
            now = self._clock()
            seconds, rows = dict(self._seconds), dict(self._rows)
            for entry in self._entries:
                self._add_up(entry, seconds, rows)
            whole = now - self._began
            seconds[OTHER] = max(0.0, whole - sum(seconds.values()))
        return RunSummary(
            whole,
            tuple(
                StepTotal(name, spent, spent / whole if whole else 0.0, rows.get(name) or None)
                for name, spent in seconds.items()
            ),
        )

    def _add_up(self, entry: _Entry, seconds: dict[str, float], rows: dict[str, int]) -> None:
        spent = (self._clock() if entry.ended is None else entry.ended) - entry.began
        seconds[entry.name] = seconds.get(entry.name, 0.0) + spent
        rows[entry.name] = rows.get(entry.name, 0) + _sum_rows(entry)

    def _describe(self, entry: _Entry) -> StepState:
        now = self._clock() if entry.ended is None else entry.ended
        seconds, rows = now - entry.began, _sum_rows(entry) or None
        if entry.ended is not None:
            return StepState(entry.name, seconds, rows)
        told = entry.reported
        if told is None:
            left = _estimate_stages(entry, int(self._calendar() * 1000))
            return StepState(entry.name, seconds, rows, _share_of_tasks(entry), left)
        share = _share_of(told.step)
        left = _estimate(now - told.since, told.share, share)
        return StepState(entry.name, seconds, rows, share, left, told.step.stage)


def _estimate(seconds: float, before: float, share: float | None) -> float | None:
    """The seconds left if it goes on as it did from the share `before` until now."""
    if share is None or seconds < _LEAST_SECONDS or share - before < _LEAST_SHARE:
        return None
    return seconds * (1 - share) / (share - before)


def _share_of(step: Step) -> float | None:
    """The share that the driver reports; None if it knows no total, or is done with it."""
    if not step.total or step.done >= step.total:
        return None
    return max(0.0, step.done / step.total)


def _share_of_tasks(entry: _Entry) -> float | None:
    """The share of the tasks of the known stages that are done; None if no stage is at work."""
    done = total = 0
    for attempts in entry.attempts.values():
        most = max(attempt.total for attempt in attempts.values())
        done += min(most, sum(attempt.done for attempt in attempts.values()))
        total += most
    return done / total if done < total else None


def _estimate_stages(entry: _Entry, now_ms: int) -> float | None:
    """The seconds left of the stages at work, going on as they did since the first of them began.

    Those that have ended say nothing: other stages have other tasks.
    """
    latest = [attempts[max(attempts)] for attempts in entry.attempts.values()]
    at_work = [stage for stage in latest if stage.done < stage.total]
    if not at_work:
        return None
    share = sum(stage.done for stage in at_work) / sum(stage.total for stage in at_work)
    since_ms = min(stage.submitted_ms for stage in at_work)
    return _estimate((now_ms - since_ms) / 1000, 0.0, share)


def _sum_rows(entry: _Entry) -> int:
    return sum(_rows_of_stage(list(attempts.values())) for attempts in entry.attempts.values())


def _rows_of_stage(attempts: list[StageCount]) -> int:
    """The rows of a stage, of which a repeated attempt counts only tasks that were not done.

    An attempt that takes over the remaining tasks adds to the earlier ones. An attempt that repeats
    tasks whose results were lost reads the same rows again.
    """
    repeats = sum(one.done for one in attempts) > max(one.total for one in attempts)
    rows = [one.rows for one in attempts]
    return max(rows) if repeats else sum(rows)
