"""`distributary plan`: files in, a plan folder out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from distributary import cost, planning
from distributary.cli.console import notes, print_json, results, show_progress
from distributary.cli.intake import DemandFiles, intake_document, print_intake
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    INPUT,
    LIMITS,
    OUTPUT,
    SEARCH,
    Json,
    OutputFormat,
    option,
    reject_bad_values,
)
from distributary.cli.planner_options import AlgorithmName, PlannerOptions
from distributary.cli.summary import (
    cost_table,
    duplication_sentence,
    gap_sentence,
    headline,
    limit_table,
    load_tables,
    unicast_sentence,
)
from distributary.files import (
    ReadDemand,
    evaluation_document,
    read_labels,
    read_previous,
    save_plan,
    solver_document,
)
from distributary.model import Demand, LimitUse, Unit, limit_uses
from distributary.planning import BY_UNICAST, Move, Request, count_moved, moves_between

__all__ = ["plan", "print_extensions"]

MOVES_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFiles(DemandFiles):
    """The tables that a plan is made from, and what to read in them."""

    column: Annotated[
        str | None,
        option(
            "With by-column: keep flows together that have the same value in this column.", INPUT
        ),
    ] = None
    plan_on: Annotated[
        Literal["mean", "peak"],
        option("Compute costs from the mean rates, or from the peak column of the rates.", INPUT),
    ] = "mean"


@dataclass(frozen=True, kw_only=True)
class SolverOptions(PlannerOptions):
    """The algorithm, and the plan that it starts from."""

    algorithm: AlgorithmName = planning.DEFAULT_ALGORITHM
    previous: Annotated[
        Path | None, option("Plan folder to start from and improve (best only).", SEARCH, "--from")
    ] = None
    max_moves: Annotated[
        int | None,
        option(
            "With --from: maximum number of flows that move.",
            LIMITS,
            min=0,
            show_default="no limit",
        ),
    ] = None

    def read_whole_request(self, count: Unit) -> Request:
        """Make the request, but for what has to be read from the rates."""
        return self.read_request(
            count,
            algorithm=self.algorithm,
            previous=None if self.previous is None else read_previous(self.previous),
            max_moves=self.max_moves,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutput:
    """Where the plan goes, and how."""

    out: Annotated[Path, option("Plan folder to write or replace.", OUTPUT)]
    table_format: Annotated[
        OutputFormat, option("File format of the plan's tables.", OUTPUT, "--format")
    ] = OutputFormat.PARQUET
    as_document: Json = False


@takes_groups
def plan(
    files: PlanFiles,
    solver: SolverOptions,
    output: PlanOutput,
) -> None:
    """Decide which session and group carry each flow, and which groups each receiver joins."""
    if (files.column is None) == (solver.algorithm.lower() == "by-column"):
        raise typer.BadParameter("--algorithm by-column needs --column, and no other takes it")
    request = solver.read_whole_request(files.count or "messages")
    inputs = files.read(on_peak=files.plan_on == "peak")
    interest = inputs.demand.interest
    solver.check_receivers(inputs.demand)
    if files.column is not None:
        request = request.replace(labels=read_labels(files.rates, files.column, interest.flows))
    with show_progress() as progress, reject_bad_values():
        made = planning.make_plan(inputs.demand, request, progress)
        made = planning.bound_plan(made, inputs.demand)
    save_plan(made, inputs, output.out, table_format=output.table_format.value)
    moves = _list_moves(request, made.solution)
    if output.as_document:
        print_json(_document(made, inputs, moves))
        return
    print_intake(inputs)
    _print_plan(made)
    if request.terms.constraints.limits:
        results.print(limit_table(_measure_limits(made, inputs.demand)))
    if moves is not None:
        _print_moves(moves)
    results.print(
        f"{request.solver.label} took {made.seconds:.2f} s; the plan is in {output.out}",
        markup=False,
    )


def _list_moves(request: planning.Request, solution: planning.Solution) -> list[Move] | None:
    """List what moves, if there was a plan before."""
    previous = request.change.previous
    if previous is None:
        return None
    return moves_between(previous, solution.plan, solution.session_origin)


def _document(
    made: planning.MadePlan, inputs: ReadDemand, moves: list[Move] | None
) -> dict[str, Any]:
    document = {
        **evaluation_document(made.evaluation),
        **solver_document(made),
        "seconds": made.seconds,
        "intake": intake_document(inputs),
    }
    if made.request.terms.constraints.limits:
        document["limits"] = [asdict(use) for use in _measure_limits(made, inputs.demand)]
    if moves is not None:
        document["moves"] = [asdict(move) for move in moves]
    return document


def _measure_limits(made: planning.MadePlan, demand: Demand) -> tuple[LimitUse, ...]:
    request = made.request
    limits = request.terms.constraints.limits
    return limit_uses(made.solution.plan, demand, limits, request.packing)


def _print_plan(made: planning.MadePlan) -> None:
    """Print what the plan costs, and how good it is known to be."""
    solution, evaluation = made.solution, made.evaluation
    results.print(headline(evaluation))
    results.print(cost_table(evaluation))
    for table in load_tables(evaluation):
        results.print(table)
    print_extensions(evaluation)
    _print_proof(solution)
    if solution.channel_lower_bound is None or made.request.search.objective == "filtering":
        results.print(gap_sentence(made))
    if solution.cut_short:
        notes.print(
            "cut short: the search ran out of time, so another run with this seed may give another "
            'plan; plan.json has "cut_short": true'
        )


def print_extensions(evaluation: cost.Evaluation) -> None:
    """Print what goes by unicast and what travels in several sessions."""
    if evaluation.unicast_flows:
        results.print(unicast_sentence(evaluation))
    if evaluation.duplicated_flows:
        results.print(duplication_sentence(evaluation))


def _print_proof(solution: planning.Solution) -> None:
    if solution.proven:
        results.print("proven: no plan of this kind has a lower channel cost")
    elif solution.channel_lower_bound is not None:
        results.print(
            f"not proven within --budget: no plan has a channel cost below "
            f"{solution.channel_lower_bound:,.6g}; a longer --budget may prove more"
        )


def _say_place(place: tuple[int, int]) -> str:
    return "unicast" if place == BY_UNICAST else "session {}, group {}".format(*place)


def _print_moves(moves: list[Move]) -> None:
    """Print how many flows move, and the first few by name."""
    new = {move.flow for move in moves if move.before is None}
    results.print(f"{count_moved(moves):,} flows move, {len(new):,} are new")
    for move in moves[:MOVES_SHOWN]:
        before = "new" if move.before is None else _say_place(move.before)
        results.print(f"  {move.flow}: {before} -> {_say_place(move.after)}", markup=False)
    if len(moves) > MOVES_SHOWN:
        results.print(f"  and {len(moves) - MOVES_SHOWN:,} more: --json lists them all")
