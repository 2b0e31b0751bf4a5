"""`distributary pipeline stream`: keep a plan current while logs arrive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from distributary.cli.console import notes, results
from distributary.cli.log_shapes import ShapeOptions
from distributary.cli.multicast_options import MetricsOptions
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    INPUT,
    LIMITS,
    OUTPUT,
    SEARCH,
    SPARK,
    ProgressFile,
    SparkOptions,
    duration_option,
    option,
    reject_bad_values,
    share_option,
)
from distributary.cli.planner_options import PlannerOptions
from distributary.cli.quantities import ByteCount, Seconds, Share
from distributary.cli.stages import Shown, View, call_on_spark, print_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from distributary.pipeline.ledger import LedgerState

__all__ = ["pipeline_stream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFolders(ShapeOptions):
    """Where logs come in, and how they are read."""

    subscriptions: Annotated[
        str, option("Folder where subscription logs arrive, or kafka://.", INPUT)
    ]
    publications: Annotated[
        str, option("Folder where publication logs arrive, or kafka://.", INPUT)
    ]
    trigger: Annotated[Seconds, duration_option("How often to look for new files.", INPUT)] = (
        Seconds("10s")
    )
    rate_window: Annotated[
        Seconds, duration_option("Time over which rates are averaged.", INPUT)
    ] = Seconds("1h")
    late: Annotated[
        Seconds,
        duration_option("Quarantine messages older than the latest by more than this.", INPUT),
    ] = Seconds("10m")
    base: Annotated[
        str | None,
        option(
            "Plan folder, on a disk, to go on from whenever the plan in it changes; looked at "
            "before each batch.",
            INPUT,
            metavar="PATH",
        ),
    ] = None
    until_idle: Annotated[
        bool, option("Exit when all files that are there have been read.", INPUT, "--until-idle")
    ] = False


@dataclass(frozen=True, kw_only=True)
class FollowingOptions(PlannerOptions):
    """How the first plan is made, and when it changes."""

    drift: Annotated[
        Share,
        share_option(
            "Change the plan when its wasted work has grown by more than this share.", SEARCH
        ),
    ] = Share("10%")
    max_moves: Annotated[
        int | None,
        option(
            "Maximum number of flows that move in one change of the plan.",
            LIMITS,
            min=0,
            show_default="2% of the flows",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverOptions(SparkOptions):
    """Where Spark runs, and the memory that the driver plans with."""

    driver_limit: Annotated[
        ByteCount,
        option(
            "Memory to plan with on the driver; larger interest ends the stream.",
            SPARK,
            parser=ByteCount,
            metavar="SIZE",
        ),
    ] = ByteCount("4GiB")


@takes_groups
def pipeline_stream(
    logs: LogFolders,
    planner: FollowingOptions,
    out: Annotated[
        str,
        option(
            "Folder of the stream, on a disk; an earlier stream in it is continued.",
            OUTPUT,
            metavar="PATH",
        ),
    ],
    spark: DriverOptions,
    metrics: MetricsOptions,
    as_document: Annotated[
        bool, option("Print one JSON object per line for each batch.", OUTPUT, "--json")
    ] = False,
    events: ProgressFile = None,
) -> None:
    """Follow folders of logs, and write a new version of the plan when the old no longer fits.

    Stop it with Ctrl-C or kill it; started again with the same --out, it continues where it was,
    and no row is lost or counted twice.
    """
    from distributary.pipeline.places import resolve_base_folder, resolve_stream_folder
    from distributary.pipeline.stream import StreamHooks, StreamJob, stream

    folder = resolve_stream_folder(out)
    base = None if logs.base is None else resolve_base_folder(logs.base)
    with reject_bad_values():
        job = StreamJob(
            out=folder,
            subscriptions=logs.subscriptions,
            publications=logs.publications,
            request=planner.read_request(),
            shapes=logs.read_shapes(),
            trigger=timedelta(seconds=logs.trigger),
            rate_window=timedelta(seconds=logs.rate_window),
            late=timedelta(seconds=logs.late),
            drift=float(planner.drift),
            max_moves=planner.max_moves,
            until_idle=logs.until_idle,
            driver_limit=int(spark.driver_limit),
            base=base,
        )
    printer = _BatchPrinter(as_document)

    def work(running: SparkSession, shown: Shown) -> LedgerState:
        def print_batch(entry: Mapping[str, Any]) -> None:
            with shown.make_way():
                printer.print_batch(entry)

        def print_note(line: str) -> None:
            with shown.make_way():
                notes.print(line, markup=False)

        print_address(running)
        with _serve(metrics) as show:
            hooks = StreamHooks(print_batch, show, printer.note_step, print_note)
            return stream(running, job, hooks)

    view = View(events, keep=False, idle="waiting for the next batch")
    state = call_on_spark(spark, view, work)
    if not as_document:
        _print_counts(state.counts)
        results.print(f"plan: {folder / 'plan'}   history: {folder / 'drift.jsonl'}", markup=False)


@contextmanager
def _serve(metrics: MetricsOptions) -> Iterator[Callable[[LedgerState], None]]:
    """Serve metrics while the block runs, if a port is given; what shows them a state."""
    if metrics.metrics is None:
        yield lambda state: None
        return
    from distributary.pipeline.metrics import StreamMetrics

    served = StreamMetrics()
    with metrics.serve_by(served.serve):
        yield served.take


class _BatchPrinter:
    """Prints the counts of each batch, and how long it took."""

    def __init__(self, as_document: bool) -> None:
        self._as_document = as_document
        self._began = perf_counter()
        self._planning_since: float | None = None
        self._planning = 0.0  # seconds of this batch

    def note_step(self, name: str) -> None:
        now = perf_counter()
        if name == "listing the files":
            self._began, self._planning, self._planning_since = now, 0.0, None
        self._end_planning(now)
        if name == "planning":
            self._planning_since = now

    def _end_planning(self, now: float) -> None:
        if self._planning_since is not None:
            self._planning += now - self._planning_since
            self._planning_since = None

    def print_batch(self, entry: Mapping[str, Any]) -> None:
        now = perf_counter()
        self._end_planning(now)
        seconds = now - self._began
        if self._as_document:
            times = {"seconds": round(seconds, 3), "planning_seconds": round(self._planning, 3)}
            print(json.dumps({**entry, **times}), flush=True)
            return
        results.print(_batch_line(entry, seconds), markup=False)


def _batch_line(entry: Mapping[str, Any], seconds: float) -> str:
    parts = [
        f"batch {entry['batch']}: {entry['files']} files",
        f"{entry['subscriptions']:,} subscriptions, {entry['publications']:,} publications",
    ]
    if entry["quarantined"]:
        parts.append(f"{entry['quarantined']:,} quarantined")
    if "refused" in entry:
        parts.append(f"version {entry['version']} stays: {entry['refused']}")
        parts.append(f"{entry['unserved']:,} wanted pairs are not served")
    elif entry["excess"] is None:
        parts.append("nobody wants anything")
    else:
        parts.append(f"Cx/Cf {entry['excess']:.4f}")
        if entry["drift"] is not None:
            parts.append(f"drift {entry['drift']:+.1%}, costs {entry['drift_cost']:.3g}/s")
        parts.append(f"{entry['moves']:,} flows moved, {entry['new']:,} new")
        if entry["moves"] and entry["saved"] is not None:
            parts.append(f"{entry['saved']:.3g}/s saved")
        if "base" in entry:
            parts.append("from another base")
        parts.append(f"version {entry['version']}, planned {entry['age_batches']:,} batches ago")
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
