"""Find the events that a receiver wants among the messages of a plan's flows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from distributary.cli.console import notes
from distributary.cli.multicast_lines import describe_payload
from distributary.errors import InputError

if TYPE_CHECKING:
    from distributary.delivery import Message
    from distributary.delivery.content import EventFilter
    from distributary.files import FlowFilters
    from distributary.model import Filter, Plan

__all__ = ["WantedEvents"]

_MOST_TABLES = 4  # contents that are known at a time: messages of the last ones may be repaired
_MOST_MESSAGES = 65_536  # that wait for their content
_MOST_HELD = 32 << 20  # bytes of them


class WantedEvents:
    """Select the events that match a receiver's own filters, or the given conditions.

    The content of each plan is read when the plan is. Messages of content that is not known wait,
    up to a limit, until it is.
    """

    def __init__(self, content: Path, name: str, conditions: Sequence[str]) -> None:
        self._content = content
        self._name = name
        self._conditions = conditions
        self._filters: dict[str, EventFilter] = {}  # by the digest of the content
        self._held: deque[tuple[str, Message]] = deque()
        self._held_bytes = 0
        self._lost = 0
        self.unserved: frozenset[str] = frozenset()  # flows that the last plan lacks
        self.on_unknown: Callable[[], None] = lambda: None  # content that is not known came

    def choose(self, plan: Plan) -> tuple[str, ...]:
        """Read the content of a plan, and find the flows that may carry wanted events."""
        from distributary.delivery.content import EventFilter, check_content
        from distributary.delivery.content_routes import flows_for_owner
        from distributary.delivery.routes import unserved_flows
        from distributary.files import read_flow_filters

        table = read_flow_filters(self._content)
        check_content(table, plan, path=str(self._content))
        if self._conditions:
            filters, flows = _find_flows(table, self._conditions)
        else:
            filters = [table.filters[at] for at in sorted(table.owners.get(self._name, ()))]
            flows = flows_for_owner(table, self._name)
        self.unserved = frozenset(unserved_flows(plan, self._name, flows))
        served = [flow for flow in flows if flow not in self.unserved]
        known = {**self._filters, table.digest: EventFilter(table, filters, served)}
        while len(known) > _MOST_TABLES:
            del known[next(iter(known))]
        self._filters = known
        return flows

    def find(self, message: Message) -> list[dict[str, object]]:
        """Return the objects to print, now that a message came: its event, and those that waited.

        Events that wait for their content keep their place before later ones.
        """
        from distributary.delivery.content import read_digest

        digest = read_digest(message.payload)
        if digest is None:
            self._note_lost()
            return self.find_held()
        if digest not in self._filters or self._held:
            self._hold(digest, message)
            return self.find_held()
        return self._find_in(digest, message)

    def find_held(self) -> list[dict[str, object]]:
        """Return the objects to print of messages whose content has become known."""
        found: list[dict[str, object]] = []
        while self._held and self._held[0][0] in self._filters:
            digest, message = self._held.popleft()
            self._held_bytes -= len(message.payload)
            found += self._find_in(digest, message)
        return found

    @property
    def waiting(self) -> int:
        """How many messages wait for their content."""
        return len(self._held)

    def _find_in(self, digest: str, message: Message) -> list[dict[str, object]]:
        events = self._filters[digest]
        before = events.foreign
        found = events.find(message.flow, message.sequence, message.payload)
        if events.foreign > before:
            self._note_lost()
        if found is None:
            return []
        place = {"flow": found.flow, "sequence": found.sequence, "number": found.number}
        return [{**place, **describe_payload(found.payload)}]

    def _hold(self, digest: str, message: Message) -> None:
        self._held.append((digest, message))
        self._held_bytes += len(message.payload)
        if len(self._held) == 1:
            self.on_unknown()
        while self._held_bytes > _MOST_HELD or len(self._held) > _MOST_MESSAGES:
            self._held_bytes -= len(self._held.popleft()[1].payload)
            self._note_lost()

    def _note_lost(self) -> None:
        self._lost += 1
        if self._lost == 1:
            warning = (
                f"some messages are no events of {self._content} and are ignored; use the "
                "publisher's plan and content"
            )
            notes.print(f"[bold yellow]note:[/] {escape(warning)}")


def _find_flows(
    table: FlowFilters, conditions: Sequence[str]
) -> tuple[list[Filter], tuple[str, ...]]:
    """Parse the conditions, and find all flows that may carry events for them."""
    from distributary.delivery.content_routes import flows_for_condition
    from distributary.matching import parse_filter

    filters: list[Filter] = []
    flows: set[str] = set()
    for text in conditions:
        try:
            filters.append(parse_filter(text, table.schema))
        except InputError as error:
            raise InputError(
                f"--filter cannot be used: {error.reason}",
                value=text,
                remedy=error.remedy or "see the language in docs/matching.md",
            ) from None
        found, complete = flows_for_condition(table, filters[-1])
        flows.update(found)
        if not complete:
            warning = (
                f"events that match {text!r} but no filter of the plan are not published; add "
                "this filter and plan again to get them"
            )
            notes.print(f"[bold yellow]note:[/] {escape(warning)}")
    return filters, tuple(sorted(flows))
