"""`distributary pipeline stream`: a plan that follows the logs as they come in."""

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
            help="The folder that subscription logs come into, or kafka://.", rich_help_panel=INPUT
        ),
    ],
    publications: Annotated[
        str,
        typer.Option(
            help="The folder that publication logs come into, or kafka://.", rich_help_panel=INPUT
        ),
    ],
    groups: Groups,
    out: Annotated[
        Path,
        typer.Option(
            help="The stream's own folder; go on from what is there.", rich_help_panel=OUTPUT
        ),
    ],
    sessions: Sessions = None,
    trigger: Annotated[
        Seconds, duration_option("How often to look for new files.", INPUT)
    ] = Seconds("10s"),
    rate_window: Annotated[
        Seconds, duration_option("The time that rates are averaged over.", INPUT)
    ] = Seconds("1h"),
    late: Annotated[
        Seconds,
        duration_option("Put messages aside that are older than the latest by more.", INPUT),
    ] = Seconds("10m"),
    drift: Annotated[
        Share, share_option("Move flows when the excess grew by more than this share.", SEARCH)
    ] = Share("10%"),
    max_moves: Annotated[
        int | None,
        typer.Option(
            min=0, help="The most flows to move at once; 2 % without it.", rich_help_panel=LIMITS
        ),
    ] = None,
    until_idle: Annotated[
        bool,
        typer.Option(
            "--until-idle",
            help="End when all files that are there were read.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    alpha: Alpha = 1.0,
    beta: Beta = 1.0,
    budget: Annotated[
        Seconds, duration_option("How long to search for the first plan.", SEARCH)
    ] = Seconds("30s"),
    master: Master = None,
    conf: Conf = None,
    seed: Seed = 0,
    as_document: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object a line for each batch.", rich_help_panel=OUTPUT
        ),
    ] = False,
) -> None:
    """Follow folders of logs, and publish a new version of the plan when it no longer fits.

    End it with Ctrl-C or in any other way, and start it again with the same OUT: it goes on where
    it was, and no row is lost or counted twice.
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
    teller, settings = _Teller(as_document), parse_settings(conf)

    def work() -> LedgerState:
        with use_spark(master, settings) as spark:
            address = ui_address(spark)
            if address and notes.is_terminal:
                notes.print(f"Spark shows its work at {address}", markup=False)
            return stream(spark, job, StreamHooks(teller.tell, teller.step))

    state = call_interruptibly(work)
    if not as_document:
        _tell_counts(state.counts)
        results.print(f"plan: {out / 'plan'}   history: {out / 'drift.jsonl'}", markup=False)


class _Teller:
    """Says what became of each batch, and how long it took."""

    def __init__(self, as_document: bool) -> None:
        self._as_document = as_document
        self._began = perf_counter()

    def step(self, name: str) -> None:
        if name == "listing the files":
            self._began = perf_counter()

    def tell(self, entry: Mapping[str, Any]) -> None:
        seconds = perf_counter() - self._began
        if self._as_document:
            print(json.dumps({**entry, "seconds": round(seconds, 3)}), flush=True)
            return
        results.print(_line(entry, seconds), markup=False)


def _line(entry: Mapping[str, Any], seconds: float) -> str:
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


def _tell_counts(counts: Mapping[str, Mapping[str, Any]]) -> None:
    for log, told in counts.items():
        bad = sum(told["reasons"].values())
        results.print(
            f"{log}: {told['used'] + told['duplicates'] + bad:,} rows = {told['used']:,} used + "
            f"{told['duplicates']:,} duplicates + {bad:,} quarantined"
        )
        for reason, number in told["reasons"].items():
            results.print(f"  {number:,} x {reason}", markup=False)
