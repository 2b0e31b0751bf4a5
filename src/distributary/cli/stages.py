"""Spark's progress as one bar on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from distributary.cli.console import notes
from distributary.cli.options import SparkOptions
from distributary.planning import Step
from distributary.planning.progress import Progress as Steps
from distributary.planning.progress import silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["call_on_spark", "show_stages", "tell_address"]

T = TypeVar("T")

_PAUSE_S = 0.2


@contextmanager
def show_stages(session: SparkSession, console: Console = notes) -> Iterator[Steps]:
    """Show the current stage and its tasks while the block runs, on a terminal.

    A stage is named by the job description that was set when it started. The block gets a callback
    for the steps of work on the driver, so that one bar shows both.
    """
    if not console.is_terminal:
        yield silent
        return
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as bar:
        done, task = Event(), bar.add_task("starting", total=None)
        watcher = Thread(target=_watch, args=(session, bar, task, done))
        watcher.start()

        def show(step: Step) -> None:
            bar.update(task, description=step.stage, completed=step.done, total=step.total)

        try:
            yield show
        finally:
            done.set()
            watcher.join()


def call_on_spark(options: SparkOptions, work: Callable[[SparkSession], T]) -> T:
    """Start Spark and work on it, with its progress shown."""
    from distributary.pipeline.interruptible import call_interruptibly
    from distributary.pipeline.spark import use_spark

    def run() -> T:
        with use_spark(options.master, options.parse_settings()) as spark, show_stages(spark):
            return work(spark)

    return call_interruptibly(run)


def tell_address(session: SparkSession) -> None:
    """Say on a terminal where Spark shows its work."""
    from distributary.pipeline.spark import ui_address

    address = ui_address(session)
    if address and notes.is_terminal:
        notes.print(f"Spark shows its work at {address}", markup=False)


def _watch(session: SparkSession, bar: Progress, task: TaskID, done: Event) -> None:
    from distributary.pipeline.spark import active_stages

    while not done.wait(_PAUSE_S):
        try:
            stages = active_stages(session)
        except Exception:  # a session that stops cannot be asked, and a bar is not worth a failure
            return
        if stages:
            bar.update(
                task,
                description=stages[0].name,
                completed=sum(stage.done for stage in stages),
                total=sum(stage.total for stage in stages),
            )
