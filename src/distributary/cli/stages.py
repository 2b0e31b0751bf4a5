"""Show Spark's progress as a bar on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

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
from distributary.planning import Step
from distributary.planning.progress import Progress as Steps
from distributary.planning.progress import silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["show_stages"]

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


def _watch(session: SparkSession, bar: Progress, task: TaskID, done: Event) -> None:
    from distributary.pipeline.spark import active_stages

    while not done.wait(_REFRESH_S):
        try:
            stages = active_stages(session)
        except (
            Exception
        ):  # a stopping session does not answer; a progress bar must not fail the job
            return
        if stages:
            bar.update(
                task,
                description=stages[0].name,
                completed=sum(stage.done for stage in stages),
                total=sum(stage.total for stage in stages),
            )
