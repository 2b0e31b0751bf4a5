"""Find the events that a receiver wants among the messages of a plan's flows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from distributary.cli.console import notes
from distributary.cli.multicast_lines import describe_payload
from distributary.errors import InputError

if TYPE_CHECKING:
    from distributary.delivery import Message
    from distributary.files import FlowFilters
    from distributary.model import Filter

__all__ = ["WantedEvents"]


class WantedEvents:
    """Select the events that match a receiver's own filters, or the given conditions.

    The plan and its content are read once, at the start.
    """

    def __init__(self, content: Path, plan: Path, name: str, conditions: Sequence[str]) -> None:
        from distributary.delivery.content import EventFilter, check_content
        from distributary.delivery.content_routes import flows_for_owner
        from distributary.delivery.routes import unserved_flows
        from distributary.files import read_flow_filters, read_plan

        self._content = content
        table = read_flow_filters(content)
        self.plan = read_plan(plan).plan
        check_content(table, self.plan, path=str(content))
        if conditions:
            filters, self.flows = _find_flows(table, conditions)
        else:
            filters = [table.filters[at] for at in sorted(table.owners.get(name, ()))]
            self.flows = flows_for_owner(table, name)
        unserved = set(unserved_flows(self.plan, name, self.flows))
        served = [flow for flow in self.flows if flow not in unserved]
        self._filter = EventFilter(table, filters, served)

    def find(self, message: Message) -> dict[str, object] | None:
        """Return the object to print for a message, or None if its event is not wanted."""
        before = self._filter.foreign
        found = self._filter.find(message.flow, message.sequence, message.payload)
        if not before and self._filter.foreign:
            warning = (
                f"some messages are no events of {self._content} and are ignored; use the "
                "publisher's plan and content"
            )
            notes.print(f"[bold yellow]note:[/] {escape(warning)}")
        if found is None:
            return None
        place = {"flow": found.flow, "sequence": found.sequence, "number": found.number}
        return {**place, **describe_payload(found.payload)}


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
