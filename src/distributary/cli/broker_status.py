"""`distributary broker status`: show a broker, and the network as seen from it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from distributary.cli.broker_client import BROKER, BrokerChoice
from distributary.cli.console import print_json, wide_results
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import Json, option

__all__ = ["render_status", "status"]

_SHOWN = 50  # rows of a table


@takes_groups
def status(
    choice: BrokerChoice,
    name: Annotated[
        str, option("Name to ask under, where brokers want names to be proved.", BROKER, "--as")
    ] = "status",
    as_document: Json = False,
) -> None:
    """Show a broker's tables, queues, links and clients, and the network as seen from it."""
    from distributary.content.tcp import fetch_status

    within = min(float(choice.timeout), 10.0)
    found = asyncio.run(fetch_status(choice.broker, choice.make_credentials(name), within=within))
    if as_document:
        print_json(found)
    else:
        wide_results.print(render_status(found))


def render_status(found: Mapping[str, Any]) -> Group:
    """Make the network as a tree, and tables of counts, links and clients."""
    tables: list[RenderableType] = [_draw_network(found), _list_counts(found)]
    tables += [
        _make_table(title, found[name], columns)
        for name, title, columns in (
            ("links", "links", _LINK_COLUMNS),
            ("clients", "clients", _CLIENT_COLUMNS),
        )
        if found.get(name)
    ]
    return Group(*tables)


# The keys of a broker's status, and their titles.
_LINK_COLUMNS = {
    "neighbour": "to",
    "connected": "up",
    "forwarded": "sent",
    "received": "received",
    "unneeded": "unneeded",
    "waiting": "waiting",
    "unfinished": "unfinished",
    "subscriptions_sent": "asked for",
    "subscriptions_received": "asked by it",
}
_CLIENT_COLUMNS = {
    "client": "name",
    "connected": "here",
    "subscriptions": "subscriptions",
    "published": "published",
    "delivered": "delivered",
    "outbox": "kept",
    "dropped": "dropped",
    "waiting": "waiting",
}
_ABOVE = ("name", "incarnation", "policy", "network", "links", "clients")


def _draw_network(found: Mapping[str, Any]) -> Tree:
    """Draw all brokers that are known, from this one outwards."""
    name = str(found.get("name", "broker"))
    start, policy = found.get("incarnation", "?"), found.get("policy", "?")
    tree = Tree(escape(f"{name}: start number {start}, policy {policy}"))
    ends: dict[str, list[str]] = {}
    for low, high in found.get("network", ()):
        ends.setdefault(low, []).append(high)
        ends.setdefault(high, []).append(low)
    seen, open_ends = {name}, [(name, tree)]
    while open_ends:
        broker, branch = open_ends.pop()
        for other in sorted(ends.get(broker, ())):
            if other not in seen:
                seen.add(other)
                open_ends.append((other, branch.add(escape(other))))
    return tree


def _list_counts(found: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in found.items():
        values = value if isinstance(value, Mapping) else {name: value}
        for each, count in values.items() if name not in _ABOVE else ():
            table.add_row(escape(each.replace("_", " ")), escape(_show(count)))
    return table


def _make_table(title: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Table:
    table = Table(box=None, header_style="bold", title=title, title_justify="left")
    for key, column in columns.items():
        is_number = not isinstance(rows[0].get(key), str | bool)
        table.add_column(column, justify="right" if is_number else "left")
    for row in rows[:_SHOWN]:
        table.add_row(*(escape(_show(row.get(key))) for key in columns))
    if len(rows) > _SHOWN:
        table.add_row(f"and {len(rows) - _SHOWN:,} more")
    return table


def _show(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "-"
        case int() | float():
            return f"{value:,}"
    return str(value)
