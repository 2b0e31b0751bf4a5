"""`distributary filter check`: a filter's normal form, and how it relates to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from distributary.cli.console import notes, print_json, results
from distributary.cli.options import INPUT, TABLE, Json, option
from distributary.errors import InputError
from distributary.files import read_events, read_filter_texts, read_filters
from distributary.matching import event_schema, infer_schema, parse_filter, print_filter
from distributary.model import Filter, Schema, covers, equivalent, intersects

__all__ = ["app"]

app = typer.Typer(help="Explain and compare SQL filters.", no_args_is_help=True)
MOST_SHOWN = 20


@app.callback()
def _group() -> None:
    """Explain and compare SQL filters."""


@app.command()
def check(
    text: Annotated[str, typer.Argument(help="SQL filter, such as \"symbol = 'IBM'\".")],
    against: Annotated[
        Path | None,
        option(
            f"Table of filters to compare with, with columns receiver, filter. {TABLE}.",
            INPUT,
            "--against",
        ),
    ] = None,
    events: Annotated[
        Path | None,
        option(
            "Table of events whose columns give the types of attributes.",
            INPUT,
            "--events",
            show_default="inferred from the constants",
        ),
    ] = None,
    as_document: Json = False,
) -> None:
    """Print a filter's normal form, and which others it equals, covers, is covered by or meets.

    A filter covers another if it matches every event that the other matches; two filters meet if
    some event may match both.
    """
    texts = () if against is None else read_filter_texts(against)
    schema = _choose_schema(text, texts, events)
    found = _parse(text, schema)
    explanation: dict[str, Any] = {
        "filter": text,
        "normal_form": print_filter(found),
        "alternatives": len(found.boxes),
        "attributes": _list_attributes(found),
    }
    if against is not None:
        explanation |= _compare(found, against, schema)
    if as_document:
        print_json(explanation)
    else:
        _print_result(explanation)


def _parse(text: str, schema: Schema) -> Filter:
    try:
        return parse_filter(text, schema)
    except InputError as error:
        raise InputError(
            f"the filter cannot be used: {error.reason}", value=text, remedy="correct that part"
        ) from None


def _choose_schema(text: str, others: tuple[str, ...], events: Path | None) -> Schema:
    if events is not None:
        return event_schema(read_events(events).schema)
    return infer_schema((text, *others))


def _list_attributes(found: Filter) -> dict[str, str]:
    used = sorted({at for box in found.boxes for at in box.attributes})
    return {
        attribute.name: attribute.kind.value
        for attribute in (found.schema.attributes[at] for at in used)
    }


def _compare(found: Filter, against: Path, schema: Schema) -> dict[str, Any]:
    """Sort the other filters, by row number from 0, into one relation each to this filter."""
    others = read_filters(against, schema)
    explanation: dict[str, Any] = {
        "equals": [],
        "covers": [],
        "covered_by": [],
        "meets": [],
        "apart": [],
    }
    for row, other in zip(others.rows, others.filters, strict=True):
        if equivalent(found, other):
            relation = "equals"
        elif covers(found, other):
            relation = "covers"
        elif covers(other, found):
            relation = "covered_by"
        else:
            relation = "meets" if intersects(found, other) else "apart"
        explanation[relation].append(row)
    return {**explanation, "refused": [each.row for each in others.refused]}


def _print_result(explanation: dict[str, Any]) -> None:
    results.print(explanation["normal_form"], markup=False)
    if explanation["alternatives"] != 1:
        results.print(f"{explanation['alternatives']} alternatives")
    for name, kind in explanation["attributes"].items():
        notes.print(f"{name} is {kind}", markup=False)
    words = {
        "covered_by": "is covered by",
        "meets": "meets, without covering,",
        "apart": "is apart from",
        "refused": "cannot be compared with",
    }
    for relation in ("equals", "covers", "covered_by", "meets", "apart", "refused"):
        rows = explanation.get(relation)
        if rows:
            more = ", …" if len(rows) > MOST_SHOWN else ""
            listed = ", ".join(map(str, rows[:MOST_SHOWN])) + more
            results.print(f"{words.get(relation, relation)} {len(rows):,} (rows {listed})")
