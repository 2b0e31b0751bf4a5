"""Read events to publish by content, sort them into flows, and count what became of them."""

from __future__ import annotations

from io import FileIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from distributary.cli.console import notes
from distributary.errors import InputError

if TYPE_CHECKING:
    from distributary.delivery.content import ContentCounts, EventSorter
    from distributary.delivery.udp import Publisher
    from distributary.model import Plan

__all__ = ["EventIntake", "open_stdin"]

_MOST_SORTERS = 4  # plans may follow one another before the first of them takes effect


def open_stdin() -> FileIO:
    """Open stdin, not sys.stdin: a thread that still reads that at the end crashes the process."""
    return open(0, "rb", buffering=0, closefd=False)


class EventIntake:
    """The events of one publisher, and the content of its plans, which it reads as they come."""

    def __init__(self, content: Path, max_bad: float) -> None:
        self._content = content
        self._sorters: dict[int, EventSorter] = {}  # by fingerprint; of the last plans
        self._left: list[EventSorter] = []  # that are not used any more
        self._numbers = count(1)
        self._max_bad = max_bad
        self._first_bad: InputError | None = None

    def prepare(self, plan: Plan) -> None:
        """Read the content that belongs to a plan, or raise `InputError`."""
        from distributary.delivery.content import EventSorter, check_content
        from distributary.delivery.routes import fingerprint_of
        from distributary.files import read_flow_filters

        table = read_flow_filters(self._content)
        check_content(table, plan, path=str(self._content))
        fingerprint = fingerprint_of(plan)
        known = self._sorters.get(fingerprint)
        if known is not None and known.digest == table.digest:
            return
        sorters = {**self._sorters, fingerprint: EventSorter(table, self._numbers)}
        if known is not None:
            self._left.append(known)
        while len(sorters) > _MOST_SORTERS:
            self._left.append(sorters.pop(next(iter(sorters))))
        self._sorters = sorters

    async def publish(self, publisher: Publisher, source: str, rate: float | None) -> None:
        """Read events from a file, or as JSON lines from stdin, and publish them."""
        from distributary.delivery.udp.events import publish_events, read_event_lines, read_events
        from distributary.delivery.udp.records import feed_chunks

        if source != "-":
            chunks, name = read_events(source), source
        else:
            chunks, name = read_event_lines(open_stdin(), "stdin"), "stdin"
        find = lambda fingerprint: self._sorters[fingerprint]  # noqa: E731
        await publish_events(publisher, feed_chunks(chunks), find, self._note_bad, name, rate)

    def _note_bad(self, error: InputError) -> None:
        if self._max_bad == 0:
            raise error
        self._first_bad = self._first_bad or error

    def count(self) -> ContentCounts:
        """Count what became of the events, by whatever content."""
        from distributary.delivery.content import ContentCounts

        total = ContentCounts()
        for sorter in (*self._left, *self._sorters.values()):
            total.add(sorter.counts)
        return total

    def document(self) -> dict[str, Any]:
        """Count what became of the events, for JSON output."""
        from distributary.delivery.content_routes import RouteKind

        counts = self.count()
        return {
            "events": counts.events,
            "published": counts.routed.total(),
            "unwanted": counts.unwanted,
            "bad": counts.bad,
            **{kind.value: counts.routed[kind] for kind in RouteKind},
            "combinations": [
                {"filters": sorted(filters), "events": events}
                for filters, events in counts.combinations.most_common(10)
            ],
        }

    def print_notes(self) -> None:
        """Print which events had no flow of their own, and which were left out."""
        counts = self.count()
        if counts.unwanted:
            notes.print(f"{counts.unwanted:,} events match no filter and were not published")
        if counts.unforeseen:
            filters, events = counts.combinations.most_common(1)[0]
            named = " and ".join(repr(text) for text in sorted(filters)[:3])
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
        counts, first = self.count(), self._first_bad
        if first is not None and counts.bad > self._max_bad * counts.events:
            raise InputError(
                f"{counts.bad:,} of {counts.events:,} events cannot be used, more than "
                f"{self._max_bad:.2%}; the first: {first.reason}",
                path=first.path,
                row=first.row,
                value=first.value,
                remedy="correct these events, or raise --max-bad",
            )
