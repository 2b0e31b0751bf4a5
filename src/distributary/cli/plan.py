"""`distributary plan`: files in, a plan folder out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from distributary import cost, planning
from distributary.cli.console import notes, print_json, results, show_progress
from distributary.cli.intake import intake_document, read_inputs, tell_intake
from distributary.cli.options import (
    INPUT,
    LIMITS,
    OUTPUT,
    SEARCH,
    AlgorithmName,
    Alpha,
    Beta,
    Budget,
    CalibrationFile,
    Floor,
    Groups,
    InterestFile,
    Json,
    MaxBad,
    MessagesPerPacket,
    OutputFormat,
    Quarantine,
    RatesFile,
    Seed,
    Sessions,
    select_prices,
)
from distributary.cli.quantities import Seconds, Share
from distributary.cli.summary import (
    cost_table,
    duplication_sentence,
    headline,
    load_table,
    unicast_sentence,
)
from distributary.files import (
    evaluation_document,
    read_flow_sets,
    read_labels,
    read_pins,
    read_previous,
    read_receiver_caps,
    save_plan,
    solver_document,
)
from distributary.model import Constraints
from distributary.planning import Move, moves_between

__all__ = ["plan", "tell_extensions"]

MOVES_SHOWN = 10
T = TypeVar("T")


def plan(
    interest: InterestFile,
    rates: RatesFile,
    groups: Groups,
    out: Annotated[
        Path, typer.Option(help="The plan folder to write, or to replace.", rich_help_panel=OUTPUT)
    ],
    sessions: Sessions = None,
    algorithm: AlgorithmName = planning.DEFAULT_ALGORITHM,
    alpha: Alpha = 1.0,
    beta: Beta = 1.0,
    calibration: CalibrationFile = None,
    messages_per_packet: MessagesPerPacket = 8,
    column: Annotated[
        str | None,
        typer.Option(
            help="The column of the rates that by-column goes by, such as a market.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    objective: Annotated[
        Literal["filtering", "channel"],
        typer.Option(
            help="The cost to go by where an algorithm chooses between plans.",
            rich_help_panel=SEARCH,
        ),
    ] = "filtering",
    budget: Budget = Seconds("30s"),
    previous: Annotated[
        Path | None,
        typer.Option("--from", help="A plan folder to improve; best only.", rich_help_panel=SEARCH),
    ] = None,
    max_moves: Annotated[
        int | None,
        typer.Option(
            min=0, help="With --from: the most flows that may move.", rich_help_panel=LIMITS
        ),
    ] = None,
    plan_on: Annotated[
        Literal["mean", "peak"],
        typer.Option(
            "--plan-on",
            help="Count costs in mean rates or in the rates' peak column.",
            rich_help_panel=INPUT,
        ),
    ] = "mean",
    group_cap: Annotated[
        float | None,
        typer.Option(
            help="The most a group may carry (messages/s; at the peak where known).",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    receiver_cap: Annotated[
        float | None,
        typer.Option(
            help="The most any receiver may take in (messages/s).", rich_help_panel=LIMITS
        ),
    ] = None,
    receiver_caps: Annotated[
        Path | None,
        typer.Option(help="A table of receiver, rate: caps of their own.", rich_help_panel=LIMITS),
    ] = None,
    pins: Annotated[
        Path | None,
        typer.Option(help="A table of flow, group: where flows must be.", rich_help_panel=LIMITS),
    ] = None,
    together: Annotated[
        Path | None,
        typer.Option(
            help="A table of set, flow: each set shares a session.", rich_help_panel=LIMITS
        ),
    ] = None,
    apart: Annotated[
        Path | None,
        typer.Option(
            help="A table of set, flow: no two of a set share a group.", rich_help_panel=LIMITS
        ),
    ] = None,
    max_sent: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Let flows travel in several sessions: the most to send, as a multiple.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    unicast_receivers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Flows with so many receivers or fewer may go by unicast.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    unicast_links: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="The most (receiver, flow) pairs to send by unicast.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    unicast_rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="The most messages/s to send beyond one copy of each flow.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    max_bad: MaxBad = Share("0%"),
    floor: Floor = None,
    quarantine: Quarantine = None,
    seed: Seed = 0,
    table_format: Annotated[
        OutputFormat,
        typer.Option("--format", help="How the plan's tables are written.", rich_help_panel=OUTPUT),
    ] = OutputFormat.PARQUET,
    as_document: Json = False,
) -> None:
    """Decide which flow goes where and who joins what."""
    if (column is None) == (algorithm.lower() == "by-column"):
        raise typer.BadParameter("--column goes with --algorithm by-column, and only with it")
    request = _make_from_options(
        planning.Request,
        groups=groups,
        sessions=sessions,
        algorithm=algorithm,
        objective=objective,
        prices=select_prices(alpha, beta, calibration, messages_per_packet),
        seed=seed,
        budget_s=float(budget),
        previous=None if previous is None else read_previous(previous),
        max_moves=max_moves,
        max_sent=max_sent,
        unicast=_unicast_limits(unicast_receivers, unicast_links, unicast_rate),
    )
    inputs = read_inputs(interest, rates, max_bad, floor, quarantine, on_peak=plan_on == "peak")
    everybody = () if receiver_cap is None else inputs.demand.interest.receivers
    caps = dict.fromkeys(everybody, receiver_cap)
    request = _make_from_options(
        request.replace,
        constraints=_make_from_options(
            Constraints,
            group_rate=group_cap,
            receiver_rate={**caps, **(read_receiver_caps(receiver_caps) if receiver_caps else {})},
            pinned=read_pins(pins) if pins else {},
            together=read_flow_sets(together) if together else (),
            apart=read_flow_sets(apart) if apart else (),
        ),
    )
    if column is not None:
        labels = read_labels(rates, column, inputs.demand.interest.flows)
        request = request.replace(labels=labels)
    with show_progress() as progress:
        made = _make_from_options(planning.make_plan, inputs.demand, request, progress)
    save_plan(made, inputs, out, table_format=table_format.value)
    solution, evaluation = made.solution, made.evaluation
    moves = (
        []
        if request.change.previous is None
        else moves_between(request.change.previous, solution.plan, solution.session_origin)
    )
    if as_document:
        document = {
            **evaluation_document(evaluation),
            **solver_document(made),
            "seconds": made.seconds,
            "intake": intake_document(inputs),
        }
        if request.change.previous is not None:
            document["moves"] = [asdict(move) for move in moves]
        print_json(document)
        return
    tell_intake(inputs)
    results.print(headline(evaluation))
    results.print(cost_table(evaluation))
    results.print(load_table(evaluation))
    tell_extensions(evaluation)
    _tell_proof(solution)
    if solution.cut_short:
        notes.print(
            "cut short: the clock ended the search before its work was done, so another run with "
            "this seed may give another plan; plan.json says so too"
        )
    if request.change.previous is not None:
        _tell_moves(moves)
    results.print(
        f"{request.solver.label} took {made.seconds:.2f} s; the plan is in {out}", markup=False
    )


def tell_extensions(evaluation: cost.Evaluation) -> None:
    """Say what goes by unicast or in several sessions, if anything does."""
    if evaluation.unicast_flows:
        results.print(unicast_sentence(evaluation))
    if evaluation.duplicated_flows:
        results.print(duplication_sentence(evaluation))


def _unicast_limits(
    receivers: int | None, links: int | None, rate: float | None
) -> planning.UnicastLimits | None:
    if receivers is not None:
        return _make_from_options(planning.UnicastLimits, receivers, links, rate)
    if links is not None or rate is not None:
        raise typer.BadParameter("--unicast-links and --unicast-rate need --unicast-receivers")
    return None


def _make_from_options(make: Callable[..., T], *values: Any, **asked: Any) -> T:
    """Make a noun from options; what it does not allow is wrong usage."""
    try:
        return make(*values, **asked)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _tell_proof(solution: planning.Solution) -> None:
    if solution.proven:
        results.print("proven: no plan of this kind has a lower channel cost")
    elif solution.channel_lower_bound is not None:
        results.print(
            f"not proven in time: no plan has a channel cost below "
            f"{solution.channel_lower_bound:,.6g}; a longer --budget may prove more"
        )


def _tell_moves(moves: list[Move]) -> None:
    """Say what moves: all in numbers, the first few by name."""
    new = sum(move.before is None for move in moves)
    results.print(f"{len(moves) - new:,} flows move, {new:,} are new")
    for move in moves[:MOVES_SHOWN]:
        before = "new" if move.before is None else "session {}, group {}".format(*move.before)
        after = "session {}, group {}".format(*move.after)
        results.print(f"  {move.flow}: {before} -> {after}", markup=False)
    if len(moves) > MOVES_SHOWN:
        results.print(f"  and {len(moves) - MOVES_SHOWN:,} more: --json lists them all")
