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
        Path | None,
        option(
            "Table of matches to write, with columns event, filter, receiver.",
            OUTPUT,
            "--out",
            show_default="only count them",
        ),
    ] = None,
    quarantine: Annotated[
        Path | None,
        option(
            "Leave out filters that cannot be used, and write them to this table.",
            OUTPUT,
            "--quarantine",
            show_default="they are an error",
        ),
    ] = None,
    threads: Annotated[int, option("Number of threads.", "Run", min=1)] = 2,
    as_document: Json = False,
) -> None:
    """Match a table of events against a table of SQL filters.

    Events and filters are identified by their row number, from 0.
    """
    table = read_events(events)
    schema = event_schema(table.schema)
    filter_table = read_filters(filters, schema)
    if filter_table.refused and quarantine is None:
        raise filter_table.fault()
    if quarantine is not None:
        _write_refused(filter_table, quarantine)
    matcher = Matcher(schema, filter_table.filters)
    rows = event_table(table, schema, path=str(events))
    if out is None:
        counts = matcher.count_table(rows, threads=threads)
        summary = _summarize(filter_table, counts, None)
    else:
        event, number = matcher.match_table(rows, threads=threads)
        write_table(_make_pairs(event, number, filter_table), out)
        counts = np.bincount(event, minlength=rows.num_rows)
        summary = _summarize(filter_table, counts, number)
    if as_document:
        print_json(summary)
        return
    if filter_table.refused:
        notes.print(
            f"{len(filter_table.refused):,} filters cannot be used; they are in {quarantine}"
        )
    results.print(_make_table(summary))


def _make_pairs(event: Any, number: Any, filter_table: FilterTable) -> pa.Table:
    names = sorted(set(filter_table.receivers))
    place = {name: at for at, name in enumerate(names)}
    owner = np.array([place[name] for name in filter_table.receivers], np.int32)
    return pa.table(
        {
            "event": pa.array(event, pa.int64()),
            "filter": pa.array(np.array(filter_table.rows, np.int64)[number], pa.int64()),
            "receiver": pa.DictionaryArray.from_arrays(owner[number], names).cast(pa.string()),
        }
    )


def _write_refused(filter_table: FilterTable, path: Path) -> None:
    columns = {
        "row": pa.array([each.row for each in filter_table.refused], pa.int64()),
        "receiver": pa.array([each.receiver for each in filter_table.refused], pa.string()),
        "filter": pa.array([each.text for each in filter_table.refused], pa.string()),
        "reason": pa.array([each.reason for each in filter_table.refused], pa.string()),
    }
    write_table(pa.table(columns), path)


def _summarize(filter_table: FilterTable, counts: Any, number: Any) -> dict[str, Any]:
    summary = {
        "events": len(counts),
        "filters": len(filter_table.filters),
        "refused": len(filter_table.refused),
        "matches": int(counts.sum()),
        "matched_events": int(np.count_nonzero(counts)),
    }
    return summary if number is None else {**summary, "matched_filters": len(np.unique(number))}


def _make_table(summary: dict[str, Any]) -> Table:
    table = Table(show_header=False, box=None)
    for name, value in summary.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    return table
