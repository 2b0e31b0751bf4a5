"""`distributary match`: which filters each event matches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from rich.table import Table

from distributary.cli.console import notes, print_json, results
from distributary.cli.options import OUTPUT, EventFile, FilterFile, Json, option
from distributary.files import FilterTable, read_events, read_filters, write_table
from distributary.matching import Matcher, event_schema, event_table

__all__ = ["match"]


def match(
    filters: FilterFile,
    events: EventFile,
    out: Annotated[
        Path | None, option("Where to write the pairs: event, filter, receiver.", OUTPUT, "--out")
    ] = None,
    quarantine: Annotated[
        Path | None,
        option("Write filters that cannot be used here, with the reason.", OUTPUT, "--quarantine"),
    ] = None,
    threads: Annotated[int, option("How many threads share the work.", "Run", min=1)] = 2,
    as_document: Json = False,
) -> None:
    """Match a table of events against a table of SQL filters.

    The pairs are row numbers of the two inputs, from 0, and the filter's receiver.
    """
    table = read_events(events)
    schema = event_schema(table.schema)
    found = read_filters(filters, schema)
    if found.refused and quarantine is None:
        raise found.fault()
    if quarantine is not None:
        _write_refused(found, quarantine)
    matcher = Matcher(schema, found.filters)
    rows = event_table(table, schema, path=str(events))
    if out is None:
        counts = matcher.count_table(rows, threads=threads)
        told = _summarize(found, counts, None)
    else:
        event, number = matcher.match_table(rows, threads=threads)
        write_table(_pairs(event, number, found), out)
        counts = np.bincount(event, minlength=rows.num_rows)
        told = _summarize(found, counts, number)
    if as_document:
        print_json(told)
        return
    if found.refused:
        notes.print(f"{len(found.refused):,} filters cannot be used: see {quarantine}")
    results.print(_make_table(told))


def _pairs(event: Any, number: Any, found: FilterTable) -> pa.Table:
    names = sorted(set(found.receivers))
    place = {name: at for at, name in enumerate(names)}
    owner = np.array([place[name] for name in found.receivers], np.int32)
    return pa.table(
        {
            "event": pa.array(event, pa.int64()),
            "filter": pa.array(np.array(found.rows, np.int64)[number], pa.int64()),
            "receiver": pa.DictionaryArray.from_arrays(owner[number], names).cast(pa.string()),
        }
    )


def _write_refused(found: FilterTable, path: Path) -> None:
    columns = {
        "row": pa.array([each.row for each in found.refused], pa.int64()),
        "receiver": pa.array([each.receiver for each in found.refused], pa.string()),
        "filter": pa.array([each.text for each in found.refused], pa.string()),
        "reason": pa.array([each.reason for each in found.refused], pa.string()),
    }
    write_table(pa.table(columns), path)


def _summarize(found: FilterTable, counts: Any, number: Any) -> dict[str, Any]:
    told = {
        "events": len(counts),
        "filters": len(found.filters),
        "refused": len(found.refused),
        "matches": int(counts.sum()),
        "matched_events": int(np.count_nonzero(counts)),
    }
    return told if number is None else {**told, "matched_filters": len(np.unique(number))}


def _make_table(told: dict[str, Any]) -> Table:
    table = Table(show_header=False, box=None)
    for name, value in told.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    return table
