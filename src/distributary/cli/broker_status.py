"""`distributary broker status`: show a broker, and the network as seen from it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from distributary.cli.broker_client import BROKER, BrokerChoice
from distributary.cli.console import print_json, results
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
        results.print(render_status(found))


def render_status(found: Mapping[str, Any]) -> Group:
    """Make tables of a status: one of the plain values, and one of each list of mappings."""
    plain = Table(box=None, show_header=False)
    plain.add_column()
    plain.add_column(justify="right")
    tables: list[Table] = [plain]
    for name, value in _flatten(found):
        if _is_table(value):
            tables.append(_make_table(name, value))
        elif isinstance(value, list | tuple):
            plain.add_row(_say(name), escape(", ".join(map(_show, value)) or "none"))
        else:
            plain.add_row(_say(name), escape(_show(value)))
    return Group(*tables)


def _flatten(found: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested mappings, under the joined names; mappings of mappings are tables."""
    for name, value in found.items():
        whole = f"{above} {name}".strip()
        if not isinstance(value, Mapping):
            yield whole, value
        elif value and all(isinstance(each, Mapping) for each in value.values()):
            yield whole, [{"name": key, **each} for key, each in value.items()]
        else:
            yield from _flatten(value, whole)


def _is_table(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Mapping)


def _make_table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold", title=_say(name), title_justify="left")
    columns = list(dict.fromkeys(key for row in rows for key, _ in _flatten(row)))
    flat = [dict(_flatten(row)) for row in rows[:_SHOWN]]
    for column in columns:
        numbers = all(isinstance(row.get(column, 0), int | float) for row in flat)
        table.add_column(_say(column), justify="right" if numbers else "left")
    for row in flat:
        table.add_row(*(escape(_show(row.get(column, ""))) for column in columns))
    if len(rows) > _SHOWN:
        table.add_row(f"and {len(rows) - _SHOWN:,} more")
    return table


def _say(name: str) -> str:
    return escape(name.replace("_", " "))


def _show(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "-"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3g}" if abs(value) < 1_000 else f"{value:,.0f}"
        case list() | tuple():
            return ", ".join(map(_show, value))
    return str(value)
