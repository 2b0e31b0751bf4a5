"""`distributary pipeline stream`: a plan that follows the logs as they come in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from distributary.cli.console import results
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    INPUT,
    LIMITS,
    OUTPUT,
    SEARCH,
    PlannerOptions,
    SparkOptions,
    duration_option,
    option,
    reject_bad_values,
    share_option,
)
from distributary.cli.quantities import Seconds, Share
from distributary.cli.stages import tell_address

if TYPE_CHECKING:
    from distributary.pipeline.ledger import LedgerState

__all__ = ["pipeline_stream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFolders:
    """Where logs come in, and how they are read."""

    subscriptions: Annotated[
        str, option("The folder that subscription logs come into, or kafka://.", INPUT)
    ]
    publications: Annotated[
        str, option("The folder that publication logs come into, or kafka://.", INPUT)
    ]
    trigger: Annotated[Seconds, duration_option("How often to look for new files.", INPUT)] = (
        Seconds("10s")
    )
    rate_window: Annotated[
        Seconds, duration_option("The time that rates are averaged over.", INPUT)
    ] = Seconds("1h")
    late: Annotated[
        Seconds,
        duration_option("Put messages aside that are older than the latest by more.", INPUT),
    ] = Seconds("10m")
    until_idle: Annotated[
        bool, option("End when all files that are there were read.", INPUT, "--until-idle")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingOptions(PlannerOptions):
    """How the first plan is made, and when it changes."""

    budget: Annotated[
        Seconds, duration_option("How long to search for the first plan.", SEARCH)
    ] = Seconds("30s")
    drift: Annotated[
        Share, share_option("Move flows when the excess grew by more than this share.", SEARCH)
    ] = Share("10%")
    max_moves: Annotated[
        int | None, option("The most flows to move at once; 2 % without it.", LIMITS, min=0)
    ] = None


@takes_groups
def pipeline_stream(
    logs: LogFolders,
    planner: FollowingOptions,
    out: Annotated[Path, option("The stream's own folder; go on from what is there.", OUTPUT)],
    spark: SparkOptions,
    as_document: Annotated[
        bool, option("Print one JSON object a line for each batch.", OUTPUT, "--json")
    ] = False,
) -> None:
    """Follow folders of logs, and publish a new version of the plan when it no longer fits.

    End it with Ctrl-C or in any other way, and start it again with the same OUT: it goes on where
    it was, and no row is lost or counted twice.
    """
    from distributary.pipeline.interruptible import call_interruptibly
    from distributary.pipeline.spark import use_spark
    from distributary.pipeline.stream import StreamHooks, StreamJob, stream

    with reject_bad_values():
        job = StreamJob(
            out=out,
            subscriptions=logs.subscriptions,
            publications=logs.publications,
            request=planner.make_request(),
            trigger=timedelta(seconds=logs.trigger),
            rate_window=timedelta(seconds=logs.rate_window),
            late=timedelta(seconds=logs.late),
            drift=float(planner.drift),
            max_moves=planner.max_moves,
            until_idle=logs.until_idle,
        )
    teller, settings = _Teller(as_document), spark.parse_settings()

    def work() -> LedgerState:
        with use_spark(spark.master, settings) as running:
            tell_address(running)
            return stream(running, job, StreamHooks(teller.tell, teller.step))

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
