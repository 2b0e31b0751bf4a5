"""Show Spark's progress as a bar on stderr."""

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

__all__ = ["call_on_spark", "print_address", "show_stages"]

T = TypeVar("T")

_REFRESH_S = 0.2


@contextmanager
def show_stages(session: SparkSession, console: Console = notes) -> Iterator[Steps]:
    """Show the current stage and its tasks on a terminal while the block runs.

    A stage is named by the job description that was set when it started. The block gets a callback
    for the progress of work on the driver, so that one bar shows both.
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
    """Start Spark, run the work on it, and show its progress."""
    from distributary.pipeline.interruptible import call_interruptibly
    from distributary.pipeline.spark import use_spark

    def run() -> T:
        with use_spark(options.master, options.parse_settings()) as spark, show_stages(spark):
            return work(spark)

    return call_interruptibly(run)


def print_address(session: SparkSession) -> None:
    """Print the address of Spark's web interface, on a terminal."""
    from distributary.pipeline.spark import ui_address

    address = ui_address(session)
    if address and notes.is_terminal:
        notes.print(f"Spark's web interface is at {address}", markup=False)


def _watch(session: SparkSession, bar: Progress, task: TaskID, done: Event) -> None:
    from distributary.pipeline.spark import active_stages

    while not done.wait(_REFRESH_S):
        try:
            stages = active_stages(session)
        except Exception:
            return  # a stopping session does not answer; a progress bar must not fail the job
        if stages:
            bar.update(
                task,
                description=stages[0].name,
                completed=sum(stage.done for stage in stages),
                total=sum(stage.total for stage in stages),
            )
