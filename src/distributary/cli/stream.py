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
    Alpha,
    Beta,
    Seed,
    filtering_prices,
    parse_seconds,
    parse_settings,
    parse_share,
)

if TYPE_CHECKING:
    from distributary.pipeline.ledger import State

__all__ = ["pipeline_stream"]


def pipeline_stream(
    subscriptions: Annotated[
        str, typer.Option(help="The folder that subscription logs come into, or kafka://.")
    ],
    publications: Annotated[
        str, typer.Option(help="The folder that publication logs come into, or kafka://.")
    ],
    groups: Annotated[int, typer.Option(min=1, help="The most multicast groups there may be.")],
    out: Annotated[Path, typer.Option(help="The stream's own folder; go on from what is there.")],
    sessions: Annotated[
        int | None,
        typer.Option(min=1, help="The most sessions there may be; one per group without it."),
    ] = None,
    trigger: Annotated[str, typer.Option(help="How often to look for new files.")] = "10s",
    rate_window: Annotated[str, typer.Option(help="Rates are over so long a time.")] = "1h",
    late: Annotated[
        str, typer.Option(help="Messages older than the latest by more than this are put aside.")
    ] = "10m",
    drift: Annotated[
        str, typer.Option(help="Move flows when the excess grew by more than this share.")
    ] = "10%",
    max_moves: Annotated[
        int | None, typer.Option(min=0, help="The most flows to move at once; 2 % without it.")
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when all files that are there were read.")
    ] = False,
    alpha: Alpha = 1.0,
    beta: Beta = 1.0,
    budget: Annotated[str, typer.Option(help="How long to search for the first plan.")] = "30s",
    master: Annotated[
        str | None,
        typer.Option(help="Where Spark runs; this machine with all its cores without it."),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", help="A setting of Spark as key=value; repeatable."),
    ] = None,
    seed: Seed = 0,
    as_document: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line for each batch.")
    ] = False,
) -> None:
    """Follow folders of logs, and publish a new version of the plan when it no longer fits.

    End it with Ctrl-C or in any other way, and start it again with the same OUT: it goes on where
    it was, and no row is lost or counted twice.
    """
    from distributary.pipeline.interruptible import call_interruptibly
    from distributary.pipeline.spark import running_spark, ui_address
    from distributary.pipeline.stream import StreamJob, stream

    try:
        job = StreamJob(
            out=out,
            subscriptions=subscriptions,
            publications=publications,
            request=planning.Request(
                groups=groups,
                sessions=sessions,
                prices=filtering_prices(alpha, beta),
                seed=seed,
                budget_s=parse_seconds(budget),
            ),
            trigger=timedelta(seconds=parse_seconds(trigger)),
            rate_window=timedelta(seconds=parse_seconds(rate_window)),
            late=timedelta(seconds=parse_seconds(late)),
            drift=parse_share(drift),
            max_moves=max_moves,
            until_idle=until_idle,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    teller, settings = _Teller(as_document), parse_settings(conf)

    def work() -> State:
        with running_spark(master, settings) as spark:
            address = ui_address(spark)
            if address and notes.is_terminal:
                notes.print(f"Spark shows its work at {address}", markup=False)
            return stream(spark, job, teller.tell, teller.step)

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
