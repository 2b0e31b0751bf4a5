"""`distributary sweep`: plan with several numbers of groups, and find the knee."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from distributary import planning
from distributary.cli.console import print_json, results, show_progress, wide_results
from distributary.cli.intake import DemandFiles, intake_document, print_intake
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    LIMITS,
    OUTPUT,
    PRICES,
    SEARCH,
    Json,
    Seed,
    duration_option,
    filtering_prices,
    option,
    reject_bad_values,
)
from distributary.cli.planner_options import (
    BUDGET_HELP,
    AlgorithmName,
    ObjectiveName,
    TermOptions,
)
from distributary.cli.price_options import ChannelOptions, PacketOptions
from distributary.cli.quantities import Seconds
from distributary.cost import FilteringPrices, Prices
from distributary.extras import require
from distributary.files import replace_file
from distributary.planning.sweep import (
    ONE_PER_GROUP,
    SessionLimit,
    SweepCurve,
    SweepPoint,
    SweepResult,
)
from distributary.planning.sweep import sweep as run_sweep
from distributary.report.sweep_page import knee_sentence, notes_on, render_sweep
from distributary.report.wording import NARROW_SPACE, number, prices_in_words

__all__ = ["sweep"]

CSV_FILE, PAGE_FILE = "sweep.csv", "sweep.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveOptions:
    """The numbers to plan with: several of each."""

    groups: Annotated[
        str,
        option("Numbers of groups to plan with, such as 10,20,50,100.", LIMITS, metavar="N,N,..."),
    ]
    sessions: Annotated[
        str | None,
        option("Maximum numbers of sessions; each gives a curve.", LIMITS, metavar="N,N,..."),
    ] = None
    sessions_per_group: Annotated[
        str | None,
        option(
            "Maximum numbers of sessions per group, instead of --sessions.",
            LIMITS,
            metavar="N,N,...",
            show_default="1",
        ),
    ] = None
    alpha: Annotated[
        str,
        option(
            "Costs of one message at the session filter; each gives a curve.",
            PRICES,
            metavar="A,A,...",
        ),
    ] = "1"
    beta: Annotated[
        str,
        option(
            "Costs of one message at the flow filter: one for all, or one for each alpha.",
            PRICES,
            metavar="B,B,...",
        ),
    ] = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How each of the plans is made."""

    algorithm: AlgorithmName = planning.DEFAULT_ALGORITHM
    objective: ObjectiveName = "filtering"
    budget: Annotated[
        Seconds,
        duration_option(f"For each plan: {BUDGET_HELP[0].lower()}{BUDGET_HELP[1:]}", SEARCH),
    ] = Seconds("5s")
    seed: Seed = 0


@takes_groups
def sweep(
    files: DemandFiles,
    curves: CurveOptions,
    search: SearchOptions,
    terms: TermOptions,
    packets: PacketOptions,
    channel: ChannelOptions,
    out: Annotated[
        Path | None,
        option(f"Folder to write {CSV_FILE} and {PAGE_FILE} to.", OUTPUT, file_okay=False),
    ] = None,
    as_document: Json = False,
) -> None:
    """Plan with several numbers of groups, and find the knee beyond which more buy little.

    Each number of sessions and each pair of alpha and beta gives a curve of its own.
    """
    if out is not None:
        require("report")
    numbers = _parse_whole_numbers("--groups", curves.groups)
    limits = _parse_limits(curves.sessions, curves.sessions_per_group)
    prices: Sequence[Prices] = _parse_prices(curves.alpha, curves.beta)
    if packets.calibration is not None:
        if len(prices) > 1:
            raise typer.BadParameter("--calibration replaces --alpha and --beta: give one of them")
        prices = [packets.choose(filtering_prices(prices[0].alpha, prices[0].beta))]
    settings: planning.RequestSettings = {
        "algorithm": search.algorithm,
        "objective": search.objective,
        "channel": channel.make_prices(),
        "packing": None if packets.calibration else packets.packing,
        "seed": search.seed,
        "budget_s": float(search.budget),
        **terms.read_terms(files.count or "messages"),
    }
    with reject_bad_values():
        request = planning.Request(groups=1, **settings)
    inputs = files.read()
    terms.check_receivers(inputs.demand)
    with show_progress() as progress:
        result = run_sweep(inputs.demand, request, numbers, limits, prices, progress)
    if not result.points:
        raise typer.BadParameter(
            "every number of sessions is below every number of groups, but a group needs a session",
            param_hint="'--groups' / '--sessions'",
        )
    if out is not None:
        given = {
            "interest": str(files.interest),
            "rates": str(files.rates),
            **{name.replace("_", "-"): value for name, value in asdict(curves).items()},
            **_given_options(terms, packets, channel),
            "count": files.count,
            "algorithm": request.solver.name,
            "objective": None if search.objective == "filtering" else search.objective,
            "budget": str(search.budget),
            "max-bad": str(files.max_bad) if inputs.bad else None,
            "floor": str(files.floor) if inputs.floored else None,
            "seed": str(search.seed),
        }
        _write_files(result, out, {option: value for option, value in given.items() if value})
    if as_document:
        print_json({**_document(result), "intake": intake_document(inputs)})
        return
    print_intake(inputs)
    _print_result(result)
    if out is not None:
        results.print(f"written: {out / CSV_FILE}, {out / PAGE_FILE}", markup=False)


def _given_options(
    terms: TermOptions, packets: PacketOptions, channel: ChannelOptions
) -> dict[str, str | None]:
    """The terms and prices that are not as by default, as words of a command line."""
    given = {**asdict(terms), **asdict(packets), **asdict(channel)}
    usual = {**asdict(TermOptions()), **asdict(PacketOptions()), **asdict(ChannelOptions())}
    return {
        name.replace("_", "-"): None if value == usual[name] else str(value)
        for name, value in given.items()
    }


def _parse_whole_numbers(option: str, text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise typer.BadParameter(
            f"{text!r} is not a list of whole numbers above 0, such as 10,20,50",
            param_hint=f"'{option}'",
        )
    return numbers


def _parse_numbers(option: str, text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of numbers, such as 0.1,1,1.6", param_hint=f"'{option}'"
        ) from None


def _parse_limits(sessions: str | None, per_group: str | None) -> list[SessionLimit]:
    if sessions is not None and per_group is not None:
        raise typer.BadParameter(
            "give one of them, not both", param_hint="'--sessions' / '--sessions-per-group'"
        )
    if sessions is not None:
        return [SessionLimit(number) for number in _parse_whole_numbers("--sessions", sessions)]
    if per_group is not None:
        numbers = _parse_whole_numbers("--sessions-per-group", per_group)
        return [SessionLimit(number, per_group=True) for number in numbers]
    return [ONE_PER_GROUP]


def _parse_prices(alpha: str, beta: str) -> list[FilteringPrices]:
    """Pair the prices; a single one goes with every one of the other list."""
    alphas, betas = _parse_numbers("--alpha", alpha), _parse_numbers("--beta", beta)
    if 1 not in (len(alphas), len(betas)) and len(alphas) != len(betas):
        raise typer.BadParameter(
            f"{len(alphas)} alphas and {len(betas)} betas cannot be paired: give as many, or one",
            param_hint="'--alpha' / '--beta'",
        )
    count = max(len(alphas), len(betas))
    alphas, betas = (prices * count if len(prices) == 1 else prices for prices in (alphas, betas))
    return [filtering_prices(*pair) for pair in zip(alphas, betas, strict=True)]


def _print_result(result: SweepResult) -> None:
    results.print(
        f"{result.flows:,} flows to {result.receivers:,} receivers, algorithm "
        f"{result.algorithm}; saved: share of the work that flooding wastes",
        markup=False,
    )
    several = len({curve.prices for curve in result.curves}) > 1
    for prices, curves in groupby(result.curves, key=lambda curve: curve.prices):
        if several:
            results.print(f"[bold]{prices_in_words(prices, 'alpha', 'beta')}[/]")
        panel = list(curves)
        wide_results.print(_table(panel))
        for curve in panel:
            sentence = knee_sentence(curve).replace(NARROW_SPACE, "")
            results.print(f"{curve.limit.label}: {sentence}", markup=False)
        results.print()
    for note in notes_on(result):
        results.print(note, markup=False)


def _table(curves: list[SweepCurve]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("groups", "sessions", "Cx/Cf", "saved", "per added group", "messages/s", ""):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for nth, curve in enumerate(curves):
        if nth:
            table.add_row()
        for point in curve.points:
            knee = curve.knee is not None and point.groups == curve.knee.groups
            table.add_row(*_cells(point, knee=knee), style="bold" if knee else None)
    return table


def _cells(point: SweepPoint, *, knee: bool) -> list[str]:
    marks = ["knee"] if knee else []
    marks += [f"worse than {point.compared_with:,}"] if point.worse else []
    if point.used_groups < point.groups:
        marks.append(f"uses {point.used_groups:,}")
    share, messages = point.saved_share_per_group, number(point.saved_per_group)
    return [
        f"{point.groups:,}",
        f"{point.sessions:,}",
        f"{point.relative_excess:.4f}",
        f"{1 - point.relative_excess:.1%}",
        "" if share is None else f"{number(100 * share)}%",
        "" if share is None else messages,
        ", ".join(marks),
    ]


def _document(result: SweepResult) -> dict[str, Any]:
    return {
        "algorithm": result.algorithm,
        "seed": result.seed,
        "receivers": result.receivers,
        "flows": result.flows,
        "asked": result.asked,
        "capped": result.capped,
        "repeated": result.repeated,
        "skipped": result.skipped,
        "infeasible": [asdict(point) for point in result.infeasible],
        "points": _rows(result),
        "knees": [
            {
                **_curve_keys(curve),
                "groups": curve.knee and curve.knee.groups,
                "saved_share_per_group_before": curve.knee and curve.knee.share_before,
                "saved_share_per_group_after": curve.knee and curve.knee.share_after,
                "explained": knee_sentence(curve).replace(NARROW_SPACE, ""),
            }
            for curve in result.curves
        ],
    }


def _rows(result: SweepResult) -> list[dict[str, Any]]:
    return [
        {
            **asdict(point),
            **_curve_keys(curve),
            "knee": curve.knee is not None and point.groups == curve.knee.groups,
        }
        for curve in result.curves
        for point in curve.points
    ]


def _curve_keys(curve: SweepCurve) -> dict[str, Any]:
    """The keys of a curve: its prices, and its sessions in all or per group."""
    limit = curve.limit
    return {
        "alpha": curve.prices.alpha,
        "beta": curve.prices.beta,
        "most_sessions": None if limit.per_group else limit.number,
        "most_sessions_per_group": limit.number if limit.per_group else None,
    }


def _write_files(result: SweepResult, folder: Path, given: dict[str, str]) -> None:
    """Write the table and the page, both or neither."""
    words = [word for option, value in given.items() for word in (f"--{option}", value)]
    command = shlex.join(["distributary", "sweep", *words])
    facts = {name: given[name] for name in ("interest", "rates", "budget")}
    page = render_sweep(result, given["interest"], facts, command)
    with (
        replace_file(folder / CSV_FILE) as csv_file,
        replace_file(folder / PAGE_FILE) as page_file,
    ):
        csv_file.write(_csv(_rows(result)).encode())
        page_file.write(page.encode())


def _csv(rows: list[dict[str, Any]]) -> str:
    """Format rows as CSV: all digits of numbers, 1 and 0 for true and false, empty for None."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: int(v) if isinstance(v, bool) else v for k, v in row.items()})
    return file.getvalue()
