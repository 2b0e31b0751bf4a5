"""Run work on Spark so that one can watch it: on a terminal, and in a file of events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from distributary.cli.console import notes
from distributary.cli.options import SparkOptions
from distributary.cli.step_events import StepEvents
from distributary.cli.step_lines import StepLines

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from distributary.pipeline.steps import Observer, StepWatch

__all__ = ["Shown", "View", "call_on_spark", "print_address", "show_run"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """Where a run is shown: on a terminal, if `console` is one, and in the file `events`.

    With `keep` each step leaves a line on the terminal when it ends; `idle` is shown between steps.
    """

    events: Path | None = None
    keep: bool = True
    idle: str = ""
    console: Console = notes


@dataclass(frozen=True, slots=True)
class Shown:
    """A run that is shown: its watch, and a way to print while it runs."""

    watch: StepWatch
    make_way: Callable[[], AbstractContextManager[None]]


def call_on_spark(options: SparkOptions, view: View, work: Callable[[SparkSession, Shown], T]) -> T:
    """Start Spark, run the work on it, and show its steps."""
    from distributary.pipeline.interruptible import call_interruptibly
    from distributary.pipeline.spark import use_spark

    settings = options.parse_settings()

    def run() -> T:
        shown.watch.begin("starting Spark")
        with use_spark(options.master, settings) as spark, shown.watch.follow(spark):
            shown.watch.begin(None)
            return work(spark, shown)

    with show_run(view) as shown:
        return call_interruptibly(run)


@contextmanager
def show_run(view: View) -> Iterator[Shown]:
    """Show the steps of a run while the block runs, and how it ends."""
    from distributary.pipeline.progress import Tracker
    from distributary.pipeline.steps import StepWatch

    tracker = Tracker()
    observers: list[Observer] = []
    make_way: Callable[[], AbstractContextManager[None]] = nullcontext
    if view.events is not None:
        observers.append(StepEvents(view.events))
    if view.console.is_terminal:
        lines = StepLines(tracker, view.console, keep=view.keep, idle=view.idle)
        observers.append(lines)
        make_way = lines.make_way
    with StepWatch(observers, tracker) as watch:
        yield Shown(watch, make_way)


def print_address(session: SparkSession) -> None:
    """Print the address of Spark's web interface, on a terminal."""
    from distributary.pipeline.spark import ui_address

    address = ui_address(session)
    if address and notes.is_terminal:
        notes.print(f"Spark's web interface is at {address}", markup=False)
