"""`distributary pipeline stream`: keep a plan current while logs arrive."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distributary import planning
from distributary.cli.console import notes, results
from distributary.cli.options import (
    INPUT,
    LIMITS,
    OUTPUT,
    SEARCH,
    Alpha,
    Beta,
    Conf,
    Groups,
    Master,
    Seed,
    Sessions,
    duration_option,
    filtering_prices,
    parse_settings,
    reject_bad_values,
    share_option,
)
from distributary.cli.quantities import Seconds, Share

if TYPE_CHECKING:
    from distributary.pipeline.ledger import LedgerState

__all__ = ["pipeline_stream"]


def pipeline_stream(
    subscriptions: Annotated[
        str,
        typer.Option(
            help="Folder where subscription logs arrive, or kafka://.", rich_help_panel=INPUT
        ),
    ],
    publications: Annotated[
        str,
        typer.Option(
            help="Folder where publication logs arrive, or kafka://.", rich_help_panel=INPUT
        ),
    ],
    groups: Groups,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of the stream; an earlier stream in it is continued.",
            rich_help_panel=OUTPUT,
        ),
    ],
    sessions: Sessions = None,
    trigger: Annotated[
        Seconds, duration_option("How often to look for new files.", INPUT)
    ] = Seconds("10s"),
    rate_window: Annotated[
        Seconds, duration_option("Time over which rates are averaged.", INPUT)
    ] = Seconds("1h"),
    late: Annotated[
        Seconds,
        duration_option("Quarantine messages older than the latest by more than this.", INPUT),
    ] = Seconds("10m"),
    drift: Annotated[
        Share,
        share_option(
            "Change the plan when its wasted work has grown by more than this share.", SEARCH
        ),
    ] = Share("10%"),
    max_moves: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Maximum number of flows that move in one change of the plan.",
            show_default="2% of the flows",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    until_idle: Annotated[
        bool,
        typer.Option(
            "--until-idle",
            help="Exit when all files that are there have been read.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    alpha: Alpha = 1.0,
    beta: Beta = 1.0,
    budget: Annotated[
        Seconds, duration_option("How long to search for the first plan, as in `plan`.", SEARCH)
    ] = Seconds("30s"),
    master: Master = None,
    conf: Conf = None,
    seed: Seed = 0,
    as_document: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object per line for each batch.", rich_help_panel=OUTPUT
        ),
    ] = False,
) -> None:
    """Follow folders of logs, and write a new version of the plan when the old no longer fits.

    Stop it with Ctrl-C or kill it; started again with the same --out, it continues where it was,
    and no row is lost or counted twice.
    """
    from distributary.pipeline.interruptible import call_interruptibly
    from distributary.pipeline.spark import ui_address, use_spark
    from distributary.pipeline.stream import StreamHooks, StreamJob, stream

    with reject_bad_values():
        job = StreamJob(
            out=out,
            subscriptions=subscriptions,
            publications=publications,
            request=planning.Request(
                groups=groups,
                sessions=sessions,
                prices=filtering_prices(alpha, beta),
                seed=seed,
                budget_s=float(budget),
            ),
            trigger=timedelta(seconds=trigger),
            rate_window=timedelta(seconds=rate_window),
            late=timedelta(seconds=late),
            drift=float(drift),
            max_moves=max_moves,
            until_idle=until_idle,
        )
    printer, settings = _BatchPrinter(as_document), parse_settings(conf)

    def work() -> LedgerState:
        with use_spark(master, settings) as spark:
            address = ui_address(spark)
            if address and notes.is_terminal:
                notes.print(f"Spark's web interface is at {address}", markup=False)
            return stream(spark, job, StreamHooks(printer.print_batch, printer.note_step))

    state = call_interruptibly(work)
    if not as_document:
        _print_counts(state.counts)
        results.print(f"plan: {out / 'plan'}   history: {out / 'drift.jsonl'}", markup=False)


class _BatchPrinter:
    """Prints the counts of each batch, and how long it took."""

    def __init__(self, as_document: bool) -> None:
        self._as_document = as_document
        self._began = perf_counter()

    def note_step(self, name: str) -> None:
        if name == "listing the files":
            self._began = perf_counter()

    def print_batch(self, entry: Mapping[str, Any]) -> None:
        seconds = perf_counter() - self._began
        if self._as_document:
            print(json.dumps({**entry, "seconds": round(seconds, 3)}), flush=True)
            return
        results.print(_batch_line(entry, seconds), markup=False)


def _batch_line(entry: Mapping[str, Any], seconds: float) -> str:
    parts = [
        f"batch {entry['batch']}: {entry['files']} files",
        f"{entry['subscriptions']:,} subscriptions, {entry['publications']:,} publications",
    ]
    if entry["quarantined"]:
        parts.append(f"{entry['quarantined']:,} quarantined")
    if entry["excess"] is None:
        parts.append("nobody wants anything")
    else:
        parts.append(f"Cx/Cf {entry['excess']:.4f}")
        if entry["drift"] is not None:
            parts.append(f"drift {entry['drift']:+.1%}")
        parts.append(f"{entry['moves']:,} flows moved, {entry['new']:,} new")
        parts.append(f"version {entry['version']}")
    return "; ".join([*parts, f"{seconds:.1f} s"])


def _print_counts(counts: Mapping[str, Mapping[str, Any]]) -> None:
    for log, found in counts.items():
        used, duplicates, bad = found["used"], found["duplicates"], sum(found["reasons"].values())
        results.print(
            f"{log}: {used + duplicates + bad:,} rows = {used:,} used + {duplicates:,} duplicates "
            f"+ {bad:,} quarantined"
        )
        for reason, number in found["reasons"].items():
            results.print(f"  {number:,} x {reason}", markup=False)
