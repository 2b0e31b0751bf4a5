"""`distributary up`: a whole running system on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import strftime
from typing import TYPE_CHECKING, Annotated, Any, Self

from rich.live import Live
from rich.markup import escape
from rich.text import Text

from distributary.cli.console import notes, print_json, results
from distributary.cli.control_serve import SESSIONS_PER_GROUP, ApproveName, SparkName
from distributary.cli.multicast_options import run_until_signal
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    LIMITS,
    OUTPUT,
    Json,
    duration_option,
    option,
    reject_bad_values,
    seed_option,
)
from distributary.cli.quantities import Seconds

if TYPE_CHECKING:
    from distributary.control.status import ControlStatus
    from distributary.machines.real.log_lines import LogLine
    from distributary.system import RunningSystem, SystemSettings
    from distributary.workloads import ShiftingFloor

__all__ = ["StatusLine", "describe_status", "find_folder", "run_settings", "up"]

CONTROL, FLOOR, PAGES = "Control plane", "Simulated trading floor", "Pages"
_COLORS = {"info": "default", "warning": "yellow", "error": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlOptions:
    """How the control plane plans."""

    groups: Annotated[int, option("Maximum number of multicast groups.", LIMITS, min=1)] = 8
    sessions: Annotated[
        int | None,
        option(
            "Maximum number of sessions: channels inside groups, which receivers filter by.",
            LIMITS,
            min=1,
            show_default=f"{SESSIONS_PER_GROUP} per group",
        ),
    ] = None
    approve: Annotated[
        ApproveName,
        option("Put a better plan in force at once, or wait for approval on a page.", CONTROL),
    ] = ApproveName.AUTO
    spark: Annotated[
        SparkName,
        option("Plan with Spark: run it, print the command to run it by, or do without.", CONTROL),
    ] = SparkName.EMBEDDED


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorOptions:
    """The trading floor to simulate."""

    simulate: Annotated[
        bool,
        option(
            "Run a trading floor, too: publishers and receivers on the loopback, whose interests "
            "shift over minutes.",
            FLOOR,
            "--simulate",
        ),
    ] = False
    desks: Annotated[int, option("With --simulate: receivers; each is a process.", FLOOR)] = 8
    rate: Annotated[
        float, option("With --simulate: messages/s of all publishers together.", FLOOR)
    ] = 400.0
    theme: Annotated[
        Seconds,
        duration_option(
            "With --simulate: how long desks stay with a theme, on average; there are four "
            "themes at a time.",
            FLOOR,
        ),
    ] = Seconds("4m")
    seed: Annotated[int, seed_option(FLOOR)] = 0

    def make_floor(self) -> ShiftingFloor | None:
        """The floor, if one is to be simulated."""
        from distributary.workloads import ShiftingFloor

        if not self.simulate:
            return None
        with reject_bad_values():
            return ShiftingFloor(desks=self.desks, theme_s=float(self.theme), rate=self.rate)


@takes_groups
def up(
    control: ControlOptions,
    floor: FloorOptions,
    out: Annotated[
        Path | None,
        option(
            "Folder to keep everything in; another run goes on with it.",
            OUTPUT,
            show_default="a temporary one, removed at the end",
        ),
    ] = None,
    port: Annotated[
        int,
        option(
            "Port of the pages, on this machine only; 0 picks a free one.", PAGES, min=0, max=65_535
        ),
    ] = 8_088,
    as_document: Json = False,
) -> None:
    """Run a whole system on this machine: control plane, Spark's stream, web pages.

    Ctrl-C ends everything that was started. No packet leaves this machine.
    """
    from distributary.system import SystemSettings

    params = floor.make_floor()
    with find_folder(out) as folder:
        settings = SystemSettings(
            folder,
            groups=control.groups,
            sessions=control.sessions or SESSIONS_PER_GROUP * control.groups,
            approve=control.approve.value,
            spark=control.spark.value,
            port=port,
            floor=params,
            seed=floor.seed,
        )
        run_settings(settings, as_document=as_document)


def run_settings(settings: SystemSettings, *, as_document: bool) -> None:
    """Run a system until a signal comes."""
    from distributary.system import run_system

    with ExitStack() as stack:
        line = StatusLine()

        def show(found: RunningSystem) -> None:
            if as_document:
                print_json(_describe(found, settings))
            else:
                _print_ways_in(found, settings)
            stack.enter_context(line)

        system = run_system(settings, on_ready=show, tell=_print_line, on_status=line.take)
        run_until_signal(lambda stop: _run_until(system, stop))


class StatusLine:
    """A line at the bottom of the terminal that says how it goes; none if there is no terminal."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if notes.is_terminal:
            self._live = Live(console=notes, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._live is not None:
            self._live.stop()

    def take(self, found: ControlStatus | None) -> None:
        """Show a status."""
        if self._live is not None:
            self._live.update(
                Text(describe_status(found), "dim", overflow="ellipsis"), refresh=True
            )


def describe_status(found: ControlStatus | None) -> str:
    """The status of a control plane in a line."""
    if found is None:
        return "the control plane does not answer"
    force, waste = found.force, found.waste
    dropped = waste.dropped_first + waste.dropped_second
    share = f" ({dropped / (waste.wanted + dropped):.0%})" if dropped else ""
    alive = sum(each.alive for each in found.receivers)
    publishing = sum(each.alive for each in found.publishers)
    parts = [
        "no plan yet" if force is None else f"plan {force.version} ({force.kind})",
        f"{alive} receivers, {publishing} publishers",
        f"wanted {waste.wanted:,.0f}/s, thrown away {dropped:,.0f}/s{share}",
    ]
    if found.proposal is not None:
        parts.append(f"proposal {found.proposal.number} waits for approval")
    if found.alarms:
        parts.append("1 alarm" if len(found.alarms) == 1 else f"{len(found.alarms)} alarms")
    return " · ".join(parts)


@contextmanager
def find_folder(out: Path | None) -> Iterator[Path]:
    """The folder that was asked for, or a temporary one."""
    from distributary.machines.real.temporary_folder import make_temporary_folder
    from distributary.system import LOCK

    if out is not None:
        yield out
        return
    with make_temporary_folder("distributary-up-", LOCK) as folder:
        yield folder


async def _run_until(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Work until it ends by itself, or the event is set."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        else:
            notes.print("ending everything; Ctrl-C again does not wait for it", style="dim")
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.wait((working, stopping))


def _describe(found: RunningSystem, settings: SystemSettings) -> dict[str, str]:
    return {
        "page": found.page,
        "operator_page": found.operator_page,
        "control": str(settings.state),
        "logs": str(settings.logs),
    }


def _print_ways_in(found: RunningSystem, settings: SystemSettings) -> None:
    for what, where in (
        ("page", found.page),
        ("operator", f"{found.operator_page}  (may approve and roll back)"),
        ("control", f"{settings.state}  (what members name with --control)"),
        ("logs", f"{settings.logs}"),
        ("end", "Ctrl-C"),
    ):
        results.print(f"{what:<9} {where}", markup=False)


def _print_line(line: LogLine) -> None:
    """One line for each thing that happens."""
    part, _, what = line.what.partition(": ")
    says = f"{what}: {line.says}" if what and line.says else what or line.says
    color = _COLORS[line.level]
    notes.print(f"[dim]{strftime('%H:%M:%S')}[/] [bold]{part:<9}[/] [{color}]{escape(says)}[/]")
