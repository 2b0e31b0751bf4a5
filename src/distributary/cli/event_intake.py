"""Read events to publish by content, sort them into flows, and count what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from distributary.cli.console import notes
from distributary.errors import InputError

if TYPE_CHECKING:
    from distributary.delivery.udp.records import Record

__all__ = ["EventIntake"]


def _open_stdin() -> FileIO:
    """Not sys.stdin: a thread that still reads it when Python exits would crash the process."""
    return open(0, "rb", buffering=0, closefd=False)


class EventIntake:
    """The events of one publisher. The plan and its content are read once, at the start."""

    def __init__(self, content: Path, plan: Path, max_bad: float) -> None:
        from distributary.delivery.content import EventSorter, check_content
        from distributary.files import read_flow_filters, read_plan

        self._table = read_flow_filters(content)
        self.plan = read_plan(plan).plan
        check_content(self._table, self.plan, path=str(content))
        self._sorter = EventSorter(self._table)
        self._max_bad = max_bad
        self._first_bad: InputError | None = None

    def read(self, source: str) -> Iterator[list[Record]]:
        """Read events from a file, or as JSON lines from stdin, and yield their messages."""
        from distributary.delivery.udp.events import read_event_lines, read_events, sort_events

        if source != "-":
            return sort_events(self._sorter, read_events(source), self._note_bad, source)
        lines = read_event_lines(_open_stdin(), "stdin")
        return sort_events(self._sorter, lines, self._note_bad, "stdin")

    def _note_bad(self, error: InputError) -> None:
        if self._max_bad == 0:
            raise error
        self._first_bad = self._first_bad or error

    def document(self) -> dict[str, Any]:
        """Count what became of the events, for JSON output."""
        from distributary.delivery.content_routes import RouteKind

        counts = self._sorter.counts
        return {
            "events": counts.events,
            "published": counts.routed.total(),
            "unwanted": counts.unwanted,
            "bad": counts.bad,
            **{kind.value: counts.routed[kind] for kind in RouteKind},
            "combinations": [
                {"filters": [self._table.texts[at] for at in sorted(filters)], "events": events}
                for filters, events in counts.combinations.most_common(10)
            ],
        }

    def print_notes(self) -> None:
        """Print which events had no flow of their own, and which were left out."""
        counts = self._sorter.counts
        if counts.unwanted:
            notes.print(f"{counts.unwanted:,} events match no filter and were not published")
        if counts.unforeseen:
            filters, events = counts.combinations.most_common(1)[0]
            named = " and ".join(repr(self._table.texts[at]) for at in sorted(filters)[:3])
            more = f" and {len(filters) - 3:,} more" if len(filters) > 3 else ""
            note = (
                f"{counts.unforeseen:,} events match {len(counts.combinations):,} combinations of "
                f"filters that have no flow of their own, most often ({events:,} events) "
                f"{named}{more}; they were sent in flows that reach all of their receivers. Plan "
                "again with these events to give them flows"
            )
            notes.print(f"[bold yellow]note:[/] {escape(note)}")
        if self._first_bad is not None:
            note = f"{counts.bad:,} events cannot be used, the first: {self._first_bad}"
            notes.print(f"[bold yellow]left out:[/] {escape(note)}")

    def check(self) -> None:
        """Raise an error if more events were bad than allowed."""
        counts, first = self._sorter.counts, self._first_bad
        if first is not None and counts.bad > self._max_bad * counts.events:
            raise InputError(
                f"{counts.bad:,} of {counts.events:,} events cannot be used, more than "
                f"{self._max_bad:.2%}; the first: {first.reason}",
                path=first.path,
                row=first.row,
                value=first.value,
                remedy="correct these events, or raise --max-bad",
            )
