"""The steps of a run, announced to Spark and to those who watch.

Watching happens on a thread of its own. It never fails the run: if Spark does not answer, its rows
are no longer counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Protocol, Self
from weakref import WeakKeyDictionary

from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

from distributary.pipeline.progress import RunSummary, StageCount, StepState, Tracker
from distributary.pipeline.stages import SparkStages
from distributary.planning.progress import Step

__all__ = ["Observer", "RunEnd", "RunEnding", "StepWatch", "say"]

_POLL_S = 0.5
_PATIENCE_S = 10.0

_watches: WeakKeyDictionary[SparkContext, list[StepWatch]] = WeakKeyDictionary()
"""Who watches a Spark context, as its own listeners do."""


def say(spark: SparkSession, step: str | None) -> None:
    """Announce the step that begins; None: the present one ends, and none begins."""
    spark.sparkContext.setJobDescription(step)  # type: ignore[arg-type]
    for watch in tuple(_watches.get(spark.sparkContext, ())):
        watch.begin(step)


class RunEnding(StrEnum):
    """How a run ends."""

    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended, why if it failed, and what it took."""

    ending: RunEnding
    error: BaseException | None
    summary: RunSummary


class Observer(Protocol):
    """Who is told what happens, in order: the start, each step with its progress, and the end."""

    def start_run(self) -> None:
        """Learn that the run starts."""

    def begin_step(self, step: StepState) -> None:
        """Learn that a step begins."""

    def move_step(self, step: StepState) -> None:
        """Learn how far the present step is, about twice a second."""

    def end_step(self, step: StepState) -> None:
        """Learn what a step took, when Spark has counted all its rows."""

    def end_run(self, end: RunEnd) -> None:
        """Learn how the run ended."""


class StageSource(Protocol):
    """Where Spark's counts come from."""

    def read(self, *, complete: bool = False) -> list[StageCount]: ...


class StepWatch:
    """Watches a run for the `with` block that it is used in, and tells observers about it."""

    def __init__(self, observers: Sequence[Observer] = (), tracker: Tracker | None = None) -> None:
        self.tracker = tracker or Tracker()
        self._observers = observers
        self._source: StageSource | None = None
        self._turn, self._wake, self._over = Lock(), Event(), Event()
        self._told_begun = self._told_ended = 0
        self._thread = Thread(target=self._watch, name="distributary-watch", daemon=True)

    def __enter__(self) -> Self:
        for observer in self._observers:
            observer.start_run()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.tracker.begin(None)
        self._over.set()
        self._wake.set()
        self._thread.join(_PATIENCE_S)
        self._take_turn()
        ending = RunEnding.FINISHED if kind is None else RunEnding.FAILED
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            ending = RunEnding.INTERRUPTED
        end = RunEnd(ending, error, self.tracker.summarize())
        for observer in self._observers:
            observer.end_run(end)

    def begin(self, step: str | None) -> None:
        """Begin a step, which ends the present one."""
        self.tracker.begin(step)
        self._wake.set()

    def report(self, step: Step) -> None:
        """Take a report of work on the driver."""
        self.tracker.report(step)

    def summarize(self) -> RunSummary:
        """The time so far by steps, with all that Spark has counted for those that have ended."""
        self._take_turn()
        return self.tracker.summarize()

    @contextmanager
    def follow(self, spark: SparkSession) -> Iterator[Self]:
        """Take the steps and the counts of a session while the block runs."""
        context = spark.sparkContext
        with suppress(Exception):
            self._source = SparkStages(spark)
        _watches.setdefault(context, []).append(self)
        try:
            yield self
            self.tracker.begin(None)
            self._take_turn()
        finally:
            self._source = None
            _watches[context].remove(self)

    def _watch(self) -> None:
        while not self._over.is_set():
            self._wake.wait(_POLL_S)
            self._wake.clear()
            self._take_turn()

    def _take_turn(self) -> None:
        """Read Spark's counts, and tell the observers what is new."""
        if not self._turn.acquire(timeout=_PATIENCE_S):
            return
        try:
            ended = self.tracker.ended()
            self._read_counts(complete=ended > self._told_ended)
            with suppress(OSError):  # of a terminal that is gone
                self._tell(ended)
        finally:
            self._turn.release()

    def _read_counts(self, *, complete: bool) -> None:
        source = self._source
        if source is None:
            return
        try:
            self.tracker.count(source.read(complete=complete))
        except Exception:
            self._source = None  # a Spark that stops does not answer

    def _tell(self, ended: int) -> None:
        """Tell of the steps that had ended before the counts were read, and of the present one."""
        begun = self._told_begun > self._told_ended
        for state in self.tracker.states(self._told_ended, ended):
            for observer in self._observers:
                if not begun:
                    observer.begin_step(StepState(state.name, 0.0))
                observer.end_step(state)
            begun = False
        self._told_ended = ended
        self._told_begun = max(self._told_begun, ended)
        state_now = self.tracker.present()
        if state_now is None or self.tracker.ended() != ended:
            return  # it has ended too: the next turn tells
        for observer in self._observers:
            if self._told_begun == ended:
                observer.begin_step(state_now)
            else:
                observer.move_step(state_now)
        self._told_begun = ended + 1
