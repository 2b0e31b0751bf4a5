"""`distributary plan`: files in, a plan folder out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from distributary import cost, planning
from distributary.cli.console import notes, print_json, results, show_progress
from distributary.cli.intake import intake_document, print_intake, read_inputs
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
    reject_bad_values,
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

__all__ = ["plan", "print_extensions"]

MOVES_SHOWN = 10


def plan(
    interest: InterestFile,
    rates: RatesFile,
    groups: Groups,
    out: Annotated[
        Path, typer.Option(help="Plan folder to write or replace.", rich_help_panel=OUTPUT)
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
            help="With by-column: keep flows together that have the same value in this column.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    objective: Annotated[
        Literal["filtering", "channel"],
        typer.Option(
            help="Cost by which an algorithm chooses among the plans it tries.",
            rich_help_panel=SEARCH,
        ),
    ] = "filtering",
    budget: Budget = Seconds("30s"),
    previous: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Plan folder to start from and improve (best only).",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    max_moves: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With --from: maximum number of flows that move.",
            show_default="no limit",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    plan_on: Annotated[
        Literal["mean", "peak"],
        typer.Option(
            "--plan-on",
            help="Compute costs from the mean rates, or from the peak column of the rates.",
            rich_help_panel=INPUT,
        ),
    ] = "mean",
    group_cap: Annotated[
        float | None,
        typer.Option(
            help="Maximum messages/s that a group carries; peak rates count where given.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    receiver_cap: Annotated[
        float | None,
        typer.Option(help="Maximum messages/s that any receiver receives.", rich_help_panel=LIMITS),
    ] = None,
    receiver_caps: Annotated[
        Path | None,
        typer.Option(
            help="Table of caps for single receivers, with columns receiver, rate.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    pins: Annotated[
        Path | None,
        typer.Option(
            help="Table of flows that must be in a given group, with columns flow, group.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    together: Annotated[
        Path | None,
        typer.Option(
            help="Table with columns set, flow: the flows of a set must share a session.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    apart: Annotated[
        Path | None,
        typer.Option(
            help="Table with columns set, flow: no two flows of a set may share a group.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    max_sent: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Allow flows in several sessions, sending at most this multiple of all rates.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    unicast_receivers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Allow unicast for flows with at most this many receivers.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    unicast_links: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Maximum number of (receiver, flow) pairs served by unicast.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    unicast_rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Maximum messages/s sent by unicast beyond one copy of each flow.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    max_bad: MaxBad = Share("0%"),
    floor: Floor = None,
    quarantine: Quarantine = None,
    seed: Seed = 0,
    table_format: Annotated[
        OutputFormat,
        typer.Option("--format", help="File format of the plan's tables.", rich_help_panel=OUTPUT),
    ] = OutputFormat.PARQUET,
    as_document: Json = False,
) -> None:
    """Decide which session and group carry each flow, and which groups each receiver joins."""
    if (column is None) == (algorithm.lower() == "by-column"):
        raise typer.BadParameter("--algorithm by-column needs --column, and no other takes it")
    with reject_bad_values():
        request = planning.Request(
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
    caps: dict[str, float] = {}
    if receiver_cap is not None:
        caps = dict.fromkeys(inputs.demand.interest.receivers, receiver_cap)
    if receiver_caps is not None:
        caps |= read_receiver_caps(receiver_caps)
    with reject_bad_values():
        constraints = Constraints(
            group_rate=group_cap,
            receiver_rate=caps,
            pinned=read_pins(pins) if pins else {},
            together=read_flow_sets(together) if together else (),
            apart=read_flow_sets(apart) if apart else (),
        )
        request = request.replace(constraints=constraints)
    if column is not None:
        labels = read_labels(rates, column, inputs.demand.interest.flows)
        request = request.replace(labels=labels)
    with show_progress() as progress, reject_bad_values():
        made = planning.make_plan(inputs.demand, request, progress)
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
    print_intake(inputs)
    results.print(headline(evaluation))
    results.print(cost_table(evaluation))
    results.print(load_table(evaluation))
    print_extensions(evaluation)
    _print_proof(solution)
    if solution.cut_short:
        notes.print(
            "cut short: the search ran out of time, so another run with this seed may give another "
            'plan; plan.json has "cut_short": true'
        )
    if request.change.previous is not None:
        _print_moves(moves)
    results.print(
        f"{request.solver.label} took {made.seconds:.2f} s; the plan is in {out}", markup=False
    )


def print_extensions(evaluation: cost.Evaluation) -> None:
    """Print what goes by unicast and what travels in several sessions."""
    if evaluation.unicast_flows:
        results.print(unicast_sentence(evaluation))
    if evaluation.duplicated_flows:
        results.print(duplication_sentence(evaluation))


def _unicast_limits(
    receivers: int | None, links: int | None, rate: float | None
) -> planning.UnicastLimits | None:
    if receivers is not None:
        return planning.UnicastLimits(receivers, links, rate)
    if links is not None or rate is not None:
        raise typer.BadParameter("--unicast-links and --unicast-rate need --unicast-receivers")
    return None


def _print_proof(solution: planning.Solution) -> None:
    if solution.proven:
        results.print("proven: no plan of this kind has a lower channel cost")
    elif solution.channel_lower_bound is not None:
        results.print(
            f"not proven within --budget: no plan has a channel cost below "
            f"{solution.channel_lower_bound:,.6g}; a longer --budget may prove more"
        )


def _print_moves(moves: list[Move]) -> None:
    """Print how many flows move, and the first few by name."""
    new = sum(move.before is None for move in moves)
    results.print(f"{len(moves) - new:,} flows move, {new:,} are new")
    for move in moves[:MOVES_SHOWN]:
        before = "new" if move.before is None else "session {}, group {}".format(*move.before)
        after = "session {}, group {}".format(*move.after)
        results.print(f"  {move.flow}: {before} -> {after}", markup=False)
    if len(moves) > MOVES_SHOWN:
        results.print(f"  and {len(moves) - MOVES_SHOWN:,} more: --json lists them all")
