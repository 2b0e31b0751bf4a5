"""One run of the pipeline: from logs to a plan with its tables, or no change at all.

All output is made in a folder beside its place and moved there at the end by one rename. The same
inputs and parameters give the same bytes of plan, whatever the partitioning, and the same rows in
the same files of all other tables (Java writes their footers in an order of its own).

An interest that fits into the driver (`driver_need`) is planned there, otherwise on executors
(`distributed`). The estimate is 140 bytes per pair, measured from Parquet to plan, and 5 bytes per
receiver for each session and group.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from distributary import __version__
from distributary.cost import PacketPrices
from distributary.errors import InputError, PlanError
from distributary.files import (
    ReadDemand,
    evaluation_document,
    plan_document,
    read_demand,
    read_plan,
    read_previous,
    save_plan,
    totals_document,
    write_plan,
)
from distributary.model import Demand, Plan
from distributary.pipeline.catalog import (
    REPLAY_TABLES,
    RUN_TABLES,
    CatalogTables,
    complete_rates,
)
from distributary.pipeline.diff import KINDS as DIFF_KINDS
from distributary.pipeline.diff import plan_diff
from distributary.pipeline.distributed import plan_on_executors
from distributary.pipeline.folders import OutputFolder, fill_folder, rounds_folder
from distributary.pipeline.ingest import (
    Log,
    TimeWindow,
    read_interest,
    read_publications,
)
from distributary.pipeline.inputs import Inputs, counts_document, prepare_inputs
from distributary.pipeline.job import Job, Outcome, driver_need
from distributary.pipeline.places import PlanFolder, find_plan_in, open_plan, resolve_output
from distributary.pipeline.plans import (
    PlanTables,
    plan_tables,
    read_plan_tables,
)
from distributary.pipeline.rates import (
    publication_counts,
    publication_digest,
)
from distributary.pipeline.replay import Replay, activity, references, replay
from distributary.pipeline.restarts import cheapest_seed
from distributary.pipeline.shapes import AS_DOCUMENTED, LogShape
from distributary.pipeline.sources import report_read_faults, resolve_source
from distributary.pipeline.steps import StepWatch, say
from distributary.pipeline.stores import Place, copy_to_local, remove_folder
from distributary.pipeline.tables import (
    bucket_count,
    group_table,
    receiver_table,
    write_group_table,
    write_receiver_table,
)
from distributary.pipeline.versions import Pointers, new_run_id
from distributary.pipeline.writing import stage_frame, tidy, write_arrow, write_json
from distributary.planning import MadePlan, Request, Solution, make_plan, price_solution
from distributary.planning.progress import Progress

__all__ = ["MANIFEST", "replay_plan", "run"]

FORMAT_VERSION = 1
MANIFEST = "manifest.json"


def run(
    spark: SparkSession,
    job: Job,
    finish: Callable[[Outcome, Path], None] = lambda outcome, folder: None,
    watch: StepWatch | None = None,
) -> Outcome:
    """Run the pipeline; `finish` may add to the folder before it is moved to its place.

    `watch` follows the session already; without it the run watches itself, for its manifest.
    """
    if watch is None:
        with StepWatch() as own, own.follow(spark):
            return run(spark, job, finish, own)
    place = resolve_output(spark, job.out)
    tables = None if job.out_table is None else CatalogTables(spark, job.out_table, RUN_TABLES)
    with (
        _open_previous(spark, job, place) as previous,
        fill_folder(spark, place, _is_ours, "pipeline output") as folder,
        _clear_session(spark),
    ):
        inputs = prepare_inputs(spark, job, folder)
        outcome = _make_plan(spark, job, inputs, folder, previous, watch.report)
        if tables is not None or not isinstance(place, Path):
            # What has versions says which; a folder that is replaced has the same bytes each time.
            outcome.manifest.update(run=folder.run, tables=job.out_table)
        say(spark, "writing the pages")
        finish(_add_stages(outcome, watch), folder.local)
        if tables is not None:  # before part files get other names
            say(spark, "writing the tables of the catalog")
            tables.write(_tables_of_run(spark, inputs, outcome), folder.run)
        say(spark, "tidying up")
        tidy(folder)
        outcome = _add_stages(outcome, watch)
        write_json(folder.local / MANIFEST, outcome.manifest)
    rounds = rounds_folder(place, job.shared)
    if rounds is not None:
        remove_folder(rounds)
    return replace(outcome, folder=str(folder.final))


def replay_plan(
    spark: SparkSession,
    plan_folder: Path | str,
    publications: str,
    interest: str,
    window: TimeWindow,
    out: Path | str | None = None,
    out_table: str | None = None,
    shape: LogShape = AS_DOCUMENTED,
) -> dict[str, Any]:
    """Replay a log under an existing plan.

    The tables are written to the folder `out` and to a catalog, as `out_table` names them there, if
    given.
    """
    pointers = Pointers()
    place = None if out is None else resolve_output(spark, out)
    catalog = None if out_table is None else CatalogTables(spark, out_table, REPLAY_TABLES)
    with open_plan(spark, plan_folder, pointers) as plan, _clear_session(spark):
        say(spark, "reading the interest")
        tables = read_plan_tables(spark, plan.place)
        wanted = read_interest_table(spark, interest, pointers).persist()
        say(spark, "reading the publications")
        log = read_publications(spark, publications, window, shape=shape)
        with report_read_faults(log.source.path):
            document, ours = _replay_under(spark, log, tables, wanted)
            return {**document, **_write_replay(spark, ours, place, catalog)}


def _replay_under(
    spark: SparkSession, log: Log, tables: PlanTables, wanted: DataFrame
) -> tuple[dict[str, Any], Replay]:
    counts = publication_counts(publication_digest(log.rows).persist())
    say(spark, "replaying the log")
    counted = activity(log.messages).persist()
    ours = replay(counted, tables, wanted, DataFrame.persist)
    receivers = wanted.select("receiver").distinct().count()
    document = {
        "publications": counts_document(log, counts),
        "replay": {"plan": ours.totals(), **references(ours, receivers)},
    }
    return document, ours


def _write_replay(
    spark: SparkSession, ours: Replay, place: Place | None, catalog: CatalogTables | None
) -> dict[str, str]:
    """Write the tables of a replay to a folder and to a catalog; return where they are."""
    if place is None and catalog is None:
        return {}
    say(spark, "writing the tables")
    minutes = ours.minutes.toArrow().sort_by("minute")
    receivers = ours.receivers.toArrow().sort_by("receiver")
    run_id, told = new_run_id(), {}
    with ExitStack() as open_folder:
        if place is not None:
            folder = open_folder.enter_context(fill_folder(spark, place, _is_replay, "replay"))
            write_arrow(minutes, folder.local / "minutes.parquet")
            write_arrow(receivers, folder.local / "receivers.parquet")
            run_id, told["folder"] = folder.run, str(folder.final)
        if catalog is not None:
            found = {"replay_minutes": minutes, "replay_receivers": receivers}
            catalog.write({name: spark.createDataFrame(one) for name, one in found.items()}, run_id)
            told["run"] = run_id
    return told


def _add_stages(outcome: Outcome, watch: StepWatch) -> Outcome:
    """The outcome with the time of its steps in the manifest."""
    return replace(outcome, manifest={**outcome.manifest, "stages": watch.summarize().document()})


def read_interest_table(
    spark: SparkSession, source: str, pointers: Pointers | None = None
) -> DataFrame:
    """Read the interest from any source that a log can have; pairs without a name are refused."""
    log = read_interest(spark, resolve_source(spark, source, pointers))
    bad = log.quarantined.count()
    if bad:
        raise InputError(f"{bad:,} rows lack a receiver or a flow", path=log.source.path)
    return log.valid.select("receiver", "flow").distinct()


def _is_ours(folder: Place) -> bool:
    return (folder / MANIFEST).is_file()


def _is_replay(folder: Place) -> bool:
    return (folder / "minutes.parquet").is_file()


@contextmanager
def _open_previous(spark: SparkSession, job: Job, out: Place) -> Iterator[PlanFolder | None]:
    """The plan to compare with, checked before any work is done; None if there is none."""
    asked = job.previous or find_plan_in(out, must=job.max_moves is not None)
    if asked is None:
        if job.max_moves is not None:
            raise InputError(
                "there is no previous plan, so its moves cannot be limited",
                path=str(job.out),
                remedy="run once without --max-moves, or name a plan with --from",
            )
        yield None
        return
    with open_plan(spark, asked, Pointers()) as previous:
        yield previous


def _tables_of_run(spark: SparkSession, inputs: Inputs, outcome: Outcome) -> dict[str, DataFrame]:
    """What a run writes to a catalog, by the names of `RUN_TABLES`."""
    plan = plan_tables(spark, outcome.plan)
    return {
        "interest": inputs.interest,
        "rates": complete_rates(inputs.rates),
        "placements": plan.placements,
        "sessions": plan.sessions,
        "subscriptions": plan.subscriptions,
        "unicast": plan.unicast,
        "replay_minutes": spark.createDataFrame(outcome.minutes),
        "replay_receivers": spark.createDataFrame(outcome.receivers),
    }


@contextmanager
def _clear_session(spark: SparkSession) -> Iterator[None]:
    try:
        yield
    finally:
        spark.catalog.clearCache()
        say(spark, None)


# --- the plan ------------------------------------------------------------------------------------


def _make_plan(
    spark: SparkSession,
    job: Job,
    inputs: Inputs,
    folder: OutputFolder,
    previous: PlanFolder | None,
    progress: Progress,
) -> Outcome:
    told = inputs.facts
    facts = told["interest"]
    size = job.request.size
    need = driver_need(facts["pairs"], facts["receivers"], size.most_sessions, size.groups)
    on_driver = need <= job.driver_limit
    say(spark, "planning")
    demand = evaluation = None
    if on_driver:
        demand, made = _plan_on_driver(spark, job, folder, previous, progress)
        found, evaluation = made.solution.plan, made.evaluation
        document = {
            **evaluation_document(evaluation),
            "algorithm": made.request.solver.name,
            "seed": made.request.search.seed,
        }
    else:
        found, document = _plan_on_executors(spark, job, inputs, folder, progress)
    where = {"where": "driver" if on_driver else "executors", "driver_need": need}

    before = None if previous is None else read_plan_tables(spark, previous.place)
    after = plan_tables(spark, found)
    replays, minutes, receivers = _replay_log(spark, inputs, after, before, folder)
    _check_replay(replays["plan"], folder)
    say(spark, "writing tables of the plan")
    rows = len(found.subscription_receiver)
    table = receiver_table(after, inputs.interest, inputs.rates)
    write_receiver_table(table, str(folder.tables / "receivers"), bucket_count(rows))
    groups = group_table(after, inputs.interest, inputs.rates)
    write_group_table(groups, str(folder.tables / "groups"))
    manifest = {
        "format": FORMAT_VERSION,
        "distributary": __version__,
        **told,
        "plan": {**document, **where},
        "replay": replays,
        "diff": None if before is None else _compare_plans(spark, before, after, folder),
    }
    return Outcome(manifest, found, demand, evaluation, minutes, receivers)


def _plan_on_driver(
    spark: SparkSession,
    job: Job,
    folder: OutputFolder,
    previous: PlanFolder | None,
    progress: Progress,
) -> tuple[Demand, MadePlan]:
    with (
        copy_to_local(folder.tables / "interest") as interest,
        copy_to_local(folder.tables / "rates") as rates,
    ):
        on_peak = job.peak_window is not None
        inputs = read_demand(interest, rates, on_peak=on_peak, count=job.count)
    # A repeated run must give the same bytes, so there is no time limit.
    request, demand = job.request.replace(patience=math.inf), inputs.demand
    unchanged = None
    if job.max_moves is not None and previous is not None:
        request = request.replace(previous=read_previous(previous.local), max_moves=job.max_moves)
        unchanged = _find_unchanged(previous.local, inputs, request)
    if unchanged is not None:
        made = unchanged
    else:
        if job.restarts > 1:
            request = request.replace(seed=cheapest_seed(spark, demand, request, job.restarts))
        made = make_plan(demand, request, progress)
    save_plan(made, inputs, folder.local / "plan")
    return demand, made


def _find_unchanged(previous: Path, inputs: ReadDemand, request: Request) -> MadePlan | None:
    """The previous plan, if it was made from these inputs with the same settings.

    A repeated run must not change anything; another round of moves would.
    """
    before = json.loads((previous / "plan.json").read_text())
    if before.get("inputs") != dict(inputs.fingerprints):
        return None
    solution = Solution(read_plan(previous, inputs.demand.interest).plan)
    made = price_solution(solution, inputs.demand, request)
    now = json.loads(json.dumps(plan_document(made, inputs.fingerprints)["parameters"]))
    return made if before.get("parameters") == now else None


def _plan_on_executors(
    spark: SparkSession, job: Job, inputs: Inputs, folder: OutputFolder, progress: Progress
) -> tuple[Plan, dict[str, Any]]:
    _check_executors_can(job)
    work = rounds_folder(resolve_output(spark, job.out), job.shared)
    if work is None:
        raise InputError(
            "this interest is too large for the driver, and executors plan through files that "
            "all machines have mounted, which this output is not",
            path=str(job.out),
            remedy="name a mounted folder with --shared, or raise --driver-limit",
        )
    made = plan_on_executors(inputs.interest, inputs.rates, job.request, work, progress)
    costs = totals_document(made.plan, made.totals, job.request.prices)
    metadata = {
        "distributary": __version__,
        "algorithm": "best",
        "seed": job.request.search.seed,
        "parameters": {
            "groups": job.request.size.groups,
            "sessions": job.request.size.sessions,
            "objective": job.request.search.objective,
            "alpha": job.request.prices.alpha,
            "beta": job.request.prices.beta,
        },
        "costs": costs,
    }
    write_plan(made.plan, metadata, folder.local / "plan")
    told = {**costs, "algorithm": "best", "seed": job.request.search.seed}
    return made.plan, {**told, "rounds": len(made.rounds) - 1}


def _check_executors_can(job: Job) -> None:
    """Refuse what the search on executors does not know: it sees one class of groups at a time."""
    terms = job.request.terms
    asked = {
        f"--algorithm {job.request.solver.name}": job.request.solver.name != "best",
        "--max-moves": job.max_moves is not None,
        "--restarts": job.restarts > 1,
        "--count bytes": job.count == "bytes",
        "limits, pins and sets of flows": bool(terms.constraints),
        "unicast": terms.unicast is not None,
        "--max-sent": terms.max_sent is not None,
        "weights of receivers": bool(terms.receiver_weights),
        "prices of packets": isinstance(job.request.prices, PacketPrices),
    }
    refused = [name for name, is_asked in asked.items() if is_asked]
    if refused:
        raise InputError(
            "this interest is too large for the driver, and executors cannot plan with "
            f"{' or '.join(refused)}",
            remedy="raise --driver-limit, so that the driver plans, or leave that out",
        )


# --- proof and tables ----------------------------------------------------------------------------


def _replay_log(
    spark: SparkSession,
    inputs: Inputs,
    after: PlanTables,
    before: PlanTables | None,
    folder: OutputFolder,
) -> tuple[dict[str, Any], Any, Any]:
    """Replay the log under the plan and under the plans that it is compared with."""
    say(spark, "replaying the log")
    log = stage_frame(activity(inputs.used), folder.stage / "activity")
    ours = replay(log, after, inputs.interest, DataFrame.persist)
    minutes = ours.minutes.toArrow().sort_by("minute")
    receivers = ours.receivers.toArrow().sort_by("receiver")
    write_arrow(minutes, folder.local / "replay" / "minutes.parquet")
    write_arrow(receivers, folder.local / "replay" / "receivers.parquet")
    totals: dict[str, Any] = {"plan": _sum_minutes(minutes)}
    totals |= references(ours, inputs.facts["interest"]["receivers"])
    if before is not None:
        say(spark, "replaying the previous plan")
        totals["previous"] = replay(log, before, inputs.interest).totals()
    return totals, minutes, receivers


def _sum_minutes(minutes: Any) -> dict[str, Any]:
    return {
        name: sum(value or 0 for value in minutes[name].to_pylist())
        for name in minutes.column_names
        if name != "minute"
    }


def _check_replay(totals: Mapping[str, Any], folder: OutputFolder) -> None:
    """Check that the plan serves every wanted message of the log it was made from."""
    if totals["unserved"]:
        missed = f"{totals['unserved']:,} wanted messages of the log are not delivered"
        raise PlanError((missed,), path=str(folder.local / "plan"))


def _compare_plans(
    spark: SparkSession, before: PlanTables, after: PlanTables, folder: OutputFolder
) -> dict[str, int]:
    """Write the changes as tables; they are no larger than the two plans that the driver holds."""
    say(spark, "comparing with the previous plan")
    diff = plan_diff(before, after)
    counts: dict[str, int] = {}
    to_do: set[str] = set()
    for name, kinds in DIFF_KINDS.items():
        table = getattr(diff, name).toArrow()
        table = table.sort_by([(column, "ascending") for column in table.column_names])
        write_arrow(table, folder.local / "diff" / f"{name}.parquet")
        happened = Counter(table[table.column_names[-1]].to_pylist())
        counts |= {kind: happened[kind] for kind in kinds}
        if name in ("subscriptions", "unicast"):
            to_do |= set(table["receiver"].to_pylist())
    return {**counts, "receivers": len(to_do)}
