"""`distributary plan`: files in, a plan folder out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from distributary import cost, planning
from distributary.cli.console import notes, print_json, results, show_progress
from distributary.cli.intake import DemandFiles, intake_document, tell_intake
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    INPUT,
    LIMITS,
    OUTPUT,
    PRICES,
    SEARCH,
    AlgorithmName,
    Json,
    OutputFormat,
    PlannerOptions,
    option,
    reject_bad_values,
)
from distributary.cli.summary import (
    cost_table,
    duplication_sentence,
    headline,
    load_table,
    unicast_sentence,
)
from distributary.files import (
    ReadDemand,
    evaluation_document,
    read_flow_sets,
    read_labels,
    read_pins,
    read_previous,
    read_prices,
    read_receiver_caps,
    save_plan,
    solver_document,
)
from distributary.model import Constraints
from distributary.planning import Move, moves_between

__all__ = ["plan", "tell_extensions"]

MOVES_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFiles(DemandFiles):
    """The tables that a plan is made from, and what to read in them."""

    column: Annotated[
        str | None,
        option("The column of the rates that by-column goes by, such as a market.", INPUT),
    ] = None
    plan_on: Annotated[
        Literal["mean", "peak"],
        option("Count costs in mean rates or in the rates' peak column.", INPUT),
    ] = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverOptions(PlannerOptions):
    """The algorithm and what it takes into account."""

    algorithm: AlgorithmName = planning.DEFAULT_ALGORITHM
    calibration: Annotated[
        Path | None,
        option("Prices that `calibrate` measured, instead of --alpha and --beta.", PRICES),
    ] = None
    messages_per_packet: Annotated[
        float, option("With --calibration: messages in a packet.", PRICES, min=1)
    ] = 8
    objective: Annotated[
        Literal["filtering", "channel"],
        option("The cost to go by where an algorithm chooses between plans.", SEARCH),
    ] = "filtering"
    previous: Annotated[
        Path | None, option("A plan folder to improve; best only.", SEARCH, "--from")
    ] = None
    max_moves: Annotated[
        int | None, option("With --from: the most flows that may move.", LIMITS, min=0)
    ] = None
    max_sent: Annotated[
        float | None,
        option(
            "Let flows travel in several sessions: the most to send, as a multiple.", LIMITS, min=1
        ),
    ] = None

    def make_whole_request(self, unicast: planning.UnicastLimits | None) -> planning.Request:
        """Make the request, but for what has to be read from the tables."""
        return self.make_request(
            algorithm=self.algorithm,
            objective=self.objective,
            prices=self.read_prices(),
            previous=None if self.previous is None else read_previous(self.previous),
            max_moves=self.max_moves,
            max_sent=self.max_sent,
            unicast=unicast,
        )

    def read_prices(self) -> cost.FilteringPrices:
        """The prices named, or those of a calibration."""
        if self.calibration is None:
            return self.select_prices()
        if (self.alpha, self.beta) != (1.0, 1.0):
            raise typer.BadParameter("--calibration replaces --alpha and --beta")
        return read_prices(self.calibration, self.messages_per_packet)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintOptions:
    """What a plan must keep to."""

    group_cap: Annotated[
        float | None,
        option("The most a group may carry (messages/s; at the peak where known).", LIMITS),
    ] = None
    receiver_cap: Annotated[
        float | None, option("The most any receiver may take in (messages/s).", LIMITS)
    ] = None
    receiver_caps: Annotated[
        Path | None, option("A table of receiver, rate: caps of their own.", LIMITS)
    ] = None
    pins: Annotated[Path | None, option("A table of flow, group: where flows must be.", LIMITS)] = (
        None
    )
    together: Annotated[
        Path | None, option("A table of set, flow: each set shares a session.", LIMITS)
    ] = None
    apart: Annotated[
        Path | None, option("A table of set, flow: no two of a set share a group.", LIMITS)
    ] = None

    def read(self, receivers: Sequence[str]) -> Constraints:
        """Read the tables and put the constraints together."""
        caps = {} if self.receiver_cap is None else dict.fromkeys(receivers, self.receiver_cap)
        caps |= read_receiver_caps(self.receiver_caps) if self.receiver_caps else {}
        pinned = read_pins(self.pins) if self.pins else {}
        together = read_flow_sets(self.together) if self.together else ()
        apart = read_flow_sets(self.apart) if self.apart else ()
        with reject_bad_values():
            return Constraints(self.group_cap, caps, pinned, together, apart)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnicastOptions:
    """What may go by unicast."""

    unicast_receivers: Annotated[
        int | None,
        option("Flows with so many receivers or fewer may go by unicast.", LIMITS, min=1),
    ] = None
    unicast_links: Annotated[
        int | None, option("The most (receiver, flow) pairs to send by unicast.", LIMITS, min=0)
    ] = None
    unicast_rate: Annotated[
        float | None,
        option("The most messages/s to send beyond one copy of each flow.", LIMITS, min=0),
    ] = None

    def make_limits(self) -> planning.UnicastLimits | None:
        """Make the limits, if any flow may go by unicast."""
        links, rate = self.unicast_links, self.unicast_rate
        if self.unicast_receivers is not None:
            with reject_bad_values():
                return planning.UnicastLimits(self.unicast_receivers, links, rate)
        if links is not None or rate is not None:
            raise typer.BadParameter("--unicast-links and --unicast-rate need --unicast-receivers")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutput:
    """Where the plan goes, and how."""

    out: Annotated[Path, option("The plan folder to write, or to replace.", OUTPUT)]
    table_format: Annotated[
        OutputFormat, option("How the plan's tables are written.", OUTPUT, "--format")
    ] = OutputFormat.PARQUET
    as_document: Json = False


@takes_groups
def plan(
    files: PlanFiles,
    solver: SolverOptions,
    constraints: ConstraintOptions,
    unicast: UnicastOptions,
    output: PlanOutput,
) -> None:
    """Decide which flow goes where and who joins what."""
    if (files.column is None) == (solver.algorithm.lower() == "by-column"):
        raise typer.BadParameter("--column goes with --algorithm by-column, and only with it")
    request = solver.make_whole_request(unicast.make_limits())
    inputs = files.read(on_peak=files.plan_on == "peak")
    interest = inputs.demand.interest
    limits = constraints.read(interest.receivers)
    with reject_bad_values():
        request = request.replace(constraints=limits)
    if files.column is not None:
        request = request.replace(labels=read_labels(files.rates, files.column, interest.flows))
    with show_progress() as progress, reject_bad_values():
        made = planning.make_plan(inputs.demand, request, progress)
    save_plan(made, inputs, output.out, table_format=output.table_format.value)
    moves = _list_moves(request, made.solution)
    if output.as_document:
        print_json(_document(made, inputs, moves))
        return
    tell_intake(inputs)
    _tell_plan(made)
    if moves is not None:
        _tell_moves(moves)
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
    if moves is not None:
        document["moves"] = [asdict(move) for move in moves]
    return document


def _tell_plan(made: planning.MadePlan) -> None:
    """Say what the plan costs, and how good it is known to be."""
    solution, evaluation = made.solution, made.evaluation
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


def tell_extensions(evaluation: cost.Evaluation) -> None:
    """Say what goes by unicast or in several sessions, if anything does."""
    if evaluation.unicast_flows:
        results.print(unicast_sentence(evaluation))
    if evaluation.duplicated_flows:
        results.print(duplication_sentence(evaluation))


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
