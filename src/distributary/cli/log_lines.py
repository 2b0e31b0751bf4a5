"""The option for structured logs, and where the lines go: to stderr."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from rich.markup import escape

from distributary.cli.console import notes
from distributary.cli.multicast_table import statistics_table
from distributary.cli.options import OUTPUT, option
from distributary.errors import DistributaryError, LiveError, OutputError

if TYPE_CHECKING:
    from distributary.machines.real.log_lines import Log, LogLine

__all__ = ["LogOptions"]

_COLOURS = {"warning": "yellow", "error": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How the command logs what happens."""

    log_json: Annotated[
        bool,
        option(
            "Log to stderr as JSON lines, each with time, level, what and its values.",
            OUTPUT,
            "--log-json",
        ),
    ] = False

    def make_log(self) -> Log:
        """Make the log."""
        return _print_json if self.log_json else _print_text

    def tell(self, what: str, says: str, facts: Mapping[str, Any] | None = None) -> None:
        """Say something that the user should know: a note, or a line for programs."""
        self._tell("note", what, says, facts)

    def tell_fault(self, error: DistributaryError) -> None:
        """Say what could not be done, and that the command goes on."""
        match error:
            case OutputError():
                heading = "not written yet"
            case LiveError():
                heading = "warning"
            case _:  # a new plan or table of interest that cannot be used
                heading = "keeping the previous one"
        self._tell(heading, type(error).__name__, str(error), {})

    def end(self, statistics: Mapping[str, Any]) -> None:
        """Show a member's statistics at its end."""
        from distributary.machines.real.log_lines import LogLine

        if self.log_json:
            _print_json(LogLine("info", "ended", facts=statistics))
        else:
            notes.print(statistics_table(dict(statistics)))

    def _tell(self, heading: str, what: str, says: str, facts: Mapping[str, Any] | None) -> None:
        from distributary.machines.real.log_lines import LogLine

        if self.log_json:
            _print_json(LogLine("warning", what, says, facts or {}))
        else:
            notes.print(f"[bold yellow]{heading}:[/] {escape(says)}")


def _print_json(line: LogLine) -> None:
    notes.out(line.as_json(time.time()), highlight=False)


def _print_text(line: LogLine) -> None:
    text, colour = escape(line.as_text()), _COLOURS.get(line.level)
    notes.print(f"[{colour}]{text}[/]" if colour else text)
