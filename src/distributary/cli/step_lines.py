"""A run on a terminal: a line for each step, the present one alive, and a table at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from distributary.pipeline.progress import RunSummary, StepState, Tracker
    from distributary.pipeline.steps import RunEnd

__all__ = ["StepLines", "ended_line", "idle_line", "present_line", "summary_table"]

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNS_PER_S = 8
_NAME, _ROWS, _RATE, _TIME = 32, 18, 15, 11
_FIGURES = 22  # the columns seconds and share of the table
_GAP = "  "


class StepLines:
    """Draws the steps that a tracker knows on a terminal.

    With `keep` each step leaves a line when it ends; a stream would leave too many. Between steps
    it shows `idle`.
    """

    def __init__(
        self, tracker: Tracker, console: Console, *, keep: bool = True, idle: str = ""
    ) -> None:
        self._tracker, self._console, self._keep, self._idle = tracker, console, keep, idle
        self._live = Live(
            console=console,
            get_renderable=self._draw,
            refresh_per_second=_TURNS_PER_S,
            transient=True,
            redirect_stdout=False,  # results may go to a file
            redirect_stderr=False,
        )

    def start_run(self) -> None:
        """Begin to draw."""
        self._live.start()

    def begin_step(self, step: StepState) -> None:
        """Do nothing: the present line is drawn from the tracker."""

    def move_step(self, step: StepState) -> None:
        """Do nothing: the present line is drawn from the tracker."""

    def end_step(self, step: StepState) -> None:
        """Leave the line of the step."""
        if self._keep:
            self._console.print(ended_line(step, self._console.width))

    def end_run(self, end: RunEnd) -> None:
        """Draw no more; print the table of a run that finished."""
        self._live.stop()
        if end.ending == "finished":
            self._console.print(summary_table(end.summary, self._console.width))

    @contextmanager
    def make_way(self) -> Iterator[None]:
        """Take the present line away while the block prints."""
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def _draw(self) -> Text:
        step, width = self._tracker.present(), self._console.width
        if step is not None:
            return present_line(step, width)
        return idle_line(self._idle, time.monotonic(), width) if self._idle else Text("")


def ended_line(step: StepState, width: int) -> Text:
    """A step that has ended: name, rows read, rows/s and time, as many of them as fit."""
    columns = [
        _show_rows(step.rows).rjust(_ROWS),
        _show_rate(step.rows_per_s).rjust(_RATE),
        _show_time(step.seconds).rjust(_TIME),
    ]
    if width < _NAME + _ROWS + _RATE + _TIME:
        del columns[1]
    if width < _NAME + _ROWS + _TIME:
        del columns[0]
    room = min(_NAME, width - sum(map(len, columns)))
    return _one_line(_cut(step.name, room).ljust(room) + "".join(columns), width)


def present_line(step: StepState, width: int) -> Text:
    """A step at work: also the share that is done and the time left, where they are known."""
    name = step.name
    if step.detail and step.detail != step.name:
        name = f"{name}: {step.detail}"
    parts = {
        "name": f"{_turn(step.seconds)} {name}",
        "rows": _show_rows(step.rows),
        "rate": _show_rate(step.rows_per_s),
        "time": _show_time(step.seconds),
        "share": "" if step.share is None else f"{int(100 * step.share)} %",
        "left": "" if step.seconds_left is None else f"{_show_left(step.seconds_left)} left",
    }
    for dropped in ("rate", "rows", "time"):
        if len(_GAP.join(filter(None, parts.values()))) < width:
            break
        parts[dropped] = ""
    rest = sum(len(_GAP) + len(part) for key, part in parts.items() if part and key != "name")
    parts["name"] = _cut(parts["name"], max(1, width - 1 - rest))
    return _one_line(_GAP.join(filter(None, parts.values())), width)


def idle_line(text: str, seconds: float, width: int) -> Text:
    """What is shown between steps, at a time that turns the spinner."""
    return _one_line(_cut(f"{_turn(seconds)} {text}", width), width)


def summary_table(summary: RunSummary, width: int) -> Table:
    """Where the time of a run went; the seconds and shares add up to the whole."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("step", no_wrap=True, overflow="ellipsis")
    for title in ("seconds", "share"):
        table.add_column(title, justify="right", no_wrap=True, min_width=len(title))
    wide = width >= _NAME + _ROWS + _TIME
    if wide:
        table.add_column("rows read", justify="right", no_wrap=True)
    room = max(1, width - _FIGURES)
    for step in summary.steps:
        rows = "" if step.rows is None else f"{step.rows:,}"
        cells = (Text(_cut(step.name, room)), f"{step.seconds:,.1f}", f"{step.share:.1%}", rows)
        table.add_row(*cells[: 4 if wide else 3])
    table.add_section()
    table.add_row(_cut("the whole run", room), f"{summary.seconds:,.1f}", "100.0%")
    return table


def _turn(seconds: float) -> str:
    return _SPINNER[int(seconds * _TURNS_PER_S) % len(_SPINNER)]


def _one_line(text: str, width: int) -> Text:
    return Text(text[:width], no_wrap=True)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"


def _show_rows(rows: int | None) -> str:
    return "" if rows is None else f"{_show_amount(rows)} rows read"


def _show_rate(rate: float | None) -> str:
    return "" if rate is None else f"{_show_amount(rate)} rows/s"


def _show_amount(value: float) -> str:
    """950, 12.3 k, 5.0 M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.99995 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f}"


def _show_time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 99.95 else _show_left(seconds)


def _show_left(seconds: float) -> str:
    """A time to the second, or to the minute if it is long."""
    whole = math.ceil(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
