"""The events that a receiver wants, found in the messages of a plan's flows."""

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
    """What a receiver wants: the events of its own filters, or of other conditions.

    It keeps the plan and the table that it begins with.
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
        """The object that is printed for a message; None if its event is not wanted."""
        before = self._filter.foreign
        found = self._filter.find(message.flow, message.sequence, message.payload)
        if not before and self._filter.foreign:
            said = (
                f"messages come that are not events of {self._content}, and are left out; put the "
                "publisher's plan and content here"
            )
            notes.print(f"[bold yellow]note:[/] {escape(said)}")
        if found is None:
            return None
        place = {"flow": found.flow, "sequence": found.sequence, "number": found.number}
        return {**place, **describe_payload(found.payload)}


def _find_flows(
    table: FlowFilters, conditions: Sequence[str]
) -> tuple[list[Filter], tuple[str, ...]]:
    """The conditions parsed, and all flows that may have events for them."""
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
            said = (
                f"events that match {text!r} and no filter of the plan are not published; plan "
                "again with this filter to get them too"
            )
            notes.print(f"[bold yellow]note:[/] {escape(said)}")
    return filters, tuple(sorted(flows))
