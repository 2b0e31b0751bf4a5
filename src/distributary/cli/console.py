"""Results go to stdout, everything else to stderr."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from distributary.planning import Progress, Step

__all__ = ["notes", "print_json", "results", "show_progress", "warn", "wide_results"]

results = Console(highlight=False, soft_wrap=True)
# Wide enough for every figure: a narrow terminal wraps the lines but truncates no number.
wide_results = Console(highlight=False, soft_wrap=True, width=120)
notes = Console(stderr=True, highlight=False, soft_wrap=True)


def warn(line: str) -> None:
    """Print a warning on stderr."""
    notes.print(f"[bold yellow]warning:[/] {escape(line)}")


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on stdout."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False), flush=True)


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Show progress and the best cost so far on stderr while the block runs, on a terminal."""
    with Bars(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[best]}"),
        TimeElapsedColumn(),
        console=notes,
        transient=True,
        disable=not notes.is_terminal,
    ) as bars:
        task = bars.add_task("starting", total=None, best="")

        def show(step: Step) -> None:
            best = "" if step.best is None else f"best cost {step.best:,.4g}"
            bars.update(
                task, description=step.stage, completed=step.done, total=step.total, best=best
            )

        yield show
