"""Planning on executors, for an interest too large for one machine.

The cost is a sum over groups, so groups dealt into classes are independent problems
(`planning.classes`). Each round deals the groups anew and gives each class, with all its flows, to
one task. The task anneals the class with the planner's kernels and keeps the result only if its
exact cost fell; so the total cost, the sum over the classes, never rises, and no task works with
stale counts.

The start is a plan of a sample of the flows, made on the driver; each other flow then goes to the
session that is cheapest beside the sample.

Every round is a Parquet folder. A lost executor repeats its own task; a killed job continues from
the last complete round of the same inputs. The result of a task depends on the seed, the round and
the flows of its class, sorted by name, and not on the number of executors or partitions.

The driver holds the plan (flows, and receivers times the sessions they subscribe to), never the
pairs. A task holds its class: its share of the pairs, and 5 bytes for each receiver times the
sessions and groups of the class.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from distributary.cost import FilteringPrices, Totals
from distributary.model import IndexArray, Plan
from distributary.pipeline.writing import read_back
from distributary.planning import Request
from distributary.planning.best import Allowance, best
from distributary.planning.classes import deal, part_of
from distributary.planning.hierarchy import Maps, TwoLevelProblem
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.things import Things
from distributary.planning.two_level import BITS, TwoLevel, settle

__all__ = ["MOST_ROUNDS", "DistributedPlan", "plan_on_executors"]

MOST_ROUNDS = 30
ENOUGH = 2e-4  # of the cost: a round that saves less is the last
HOTTEST, COLDEST = 0.1, 0.005  # of the mean cost of a flow: in the first round and the last
QUENCH = (1.0, 0.8, 0.6, 0.45, 0.33, 0.25)  # of that heat, in the sweeps of a round
GROUPS_PER_CLASS = 12
SAMPLE_PAIRS = 2_000_000
SAMPLE_SECONDS = 20.0  # of a plain machine
PAIRS_PER_BUCKET = 1_000_000

Batches = Iterator[pa.RecordBatch]
_FLOW = "flow string, weight bigint, members array<int>"
_PLACED = f"{_FLOW}, session int, work double"


@dataclass(frozen=True, slots=True, eq=False)
class DistributedPlan:
    """The plan, its totals, and the work after each round, beginning with the start."""

    plan: Plan
    totals: Totals
    rounds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Problem:
    """What every task needs to know."""

    n_receivers: int
    n_sessions: int
    n_groups: int
    seed: int
    prices: FilteringPrices

    @property
    def n_classes(self) -> int:
        return max(1, self.n_groups // GROUPS_PER_CLASS)

    def classes(self, round_: int) -> np.ndarray[Any, Any]:
        """The class of each group in a round."""
        rng = np.random.default_rng([self.seed, round_])
        return deal(self.n_groups, self.n_classes, rng)


def plan_on_executors(
    interest: DataFrame,
    rates: DataFrame,
    request: Request,
    work: Path,
    progress: Progress = silent,
) -> DistributedPlan:
    """Plan as `best` does, on executors; they must all see `work`, the folder for the rounds."""
    spark = interest.sparkSession
    _resume_or_clear(work, _identify_job(interest, rates, request))
    receivers = interest.select("receiver").distinct()
    number = F.row_number().over(Window.orderBy("receiver")) - 1
    numbered = _write_once(receivers.withColumn("n", number), work / "receivers")
    n_receivers = numbered.count()
    scale = _choose_scale(rates, n_receivers)
    flows = _write_once(_flows(interest, rates, numbered, scale), work / "flows")
    n_flows, pairs, total = flows.agg(
        F.count(F.lit(1)), F.sum(F.size("members")), F.sum("weight")
    ).collect()[0]
    n_sessions = min(request.size.most_sessions, n_flows)
    problem = _Problem(
        n_receivers,
        n_sessions,
        min(request.size.groups, n_sessions),
        request.search.seed,
        request.linear_prices,
    )
    group_file = work / "group.json"
    start = work / "round-000"
    if not (start / "_SUCCESS").exists():
        sample, maps = _sample_plan(flows, pairs, problem)
        group_file.write_text(json.dumps(maps.group.tolist()))
        _place_all(flows, sample, maps, problem, pairs).write.mode("overwrite").parquet(str(start))
    group = np.array(json.loads(group_file.read_text()), np.int32)
    spent = _run_rounds(spark, work, problem, group, progress)
    last = _read_round(spark, work / f"round-{len(spent) - 1:03d}")
    plan = _collect_plan(last, numbered, group)
    return DistributedPlan(plan, _sum_totals(plan, last, scale, total, n_receivers), tuple(spent))


def _identify_job(interest: DataFrame, rates: DataFrame, request: Request) -> dict[str, Any]:
    """What makes two jobs the same: the request, and sums of hashes, independent of order."""

    def mark(frame: DataFrame, *columns: str) -> str:
        low = F.pmod(F.xxhash64(*columns), F.lit(2**40))
        return str(frame.agg(F.sum(low.cast("decimal(38,0)"))).collect()[0][0])

    return {
        "interest": mark(interest, "receiver", "flow"),
        "rates": mark(rates, "flow", "rate"),
        "groups": request.size.groups,
        "sessions": request.size.sessions,
        "seed": request.search.seed,
        "prices": [request.linear_prices.alpha, request.linear_prices.beta],
    }


def _resume_or_clear(work: Path, identity: dict[str, Any]) -> None:
    """Keep the rounds of the same job; remove those of another."""
    told = json.dumps(identity, sort_keys=True)
    file = work / "job.json"
    if not (file.exists() and file.read_text() == told):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        file.write_text(told)


def _write_once(frame: DataFrame, path: Path) -> DataFrame:
    """The frame as a Parquet folder, written unless it is already complete."""
    if not (path / "_SUCCESS").exists():
        frame.write.mode("overwrite").parquet(str(path))
    return read_back(frame, path)


def _choose_scale(rates: DataFrame, n_receivers: int) -> int:
    """The power of two that turns rates into whole numbers whose costs stay exact in doubles."""
    total = rates.agg(F.sum("rate")).collect()[0][0]
    total = float(f"{total:.9g}")  # the last bits depend on the order of addition
    return math.floor(BITS - 1 - math.log2(n_receivers) - math.log2(total))


def _flows(interest: DataFrame, rates: DataFrame, numbered: DataFrame, scale: int) -> DataFrame:
    """flow, weight (the rate as a whole number), members (the receivers' numbers, ascending)."""
    weight = F.greatest(F.rint(F.col("rate") * F.lit(2.0**scale)), F.lit(1.0)).cast("bigint")
    members = F.array_sort(F.collect_list("n")).alias("members")
    audiences = interest.join(numbered, "receiver").groupBy("flow").agg(members)
    return audiences.join(rates, "flow").select("flow", weight.alias("weight"), "members")


def _sample_plan(flows: DataFrame, pairs: int, problem: _Problem) -> tuple[pa.Table, Maps]:
    """Plan a sample of the flows, drawn by a hash of their names; at least as many as sessions."""
    share = max(SAMPLE_PAIRS / pairs, 4 * problem.n_sessions / max(1, flows.count()))
    if share < 1:
        drawn = F.pmod(F.xxhash64("flow", F.lit(problem.seed)), F.lit(1_000_003))
        flows = flows.where(drawn < F.lit(int(share * 1_000_003)))
    # Each flow of the sample stands for 1 / share flows.
    heavier = F.col("weight") * F.lit(max(1, round(1 / share)))
    sample = flows.withColumn("weight", heavier).toArrow().sort_by("flow")
    things = _build_things(sample, problem.n_receivers)
    rng = np.random.default_rng(problem.seed)
    sampled = TwoLevelProblem(things, problem.n_sessions, problem.n_groups, problem.prices)
    # Without a time limit: a slow driver must not change the plan.
    found = best(sampled, rng, Allowance(SAMPLE_SECONDS, patience=math.inf))
    return sample, found.maps


def _place_all(
    flows: DataFrame, sample: pa.Table, maps: Maps, problem: _Problem, pairs: int
) -> DataFrame:
    """Place every flow: those of the sample as planned, the others in their cheapest session."""
    buckets = max(1, pairs // PAIRS_PER_BUCKET)
    context = flows.sparkSession.sparkContext
    known = context.broadcast((sample, maps))
    bucket = F.pmod(F.xxhash64("flow", F.lit(-1)), F.lit(buckets)).cast("int")
    spread = flows.repartitionById(buckets, bucket)
    return spread.mapInArrow(_make_placer(known, problem), _PLACED)


def _make_placer(known: Broadcast[tuple[pa.Table, Maps]], problem: _Problem) -> Callable[..., Any]:
    def place(batches: Batches) -> Batches:
        table = _sort_rows(batches)
        if table is None:
            return
        sample, maps = known.value
        placed = dict(zip(sample["flow"].to_pylist(), maps.session.tolist(), strict=True))
        session = np.array([placed.get(flow, -1) for flow in table["flow"].to_pylist()], np.int32)
        new = np.flatnonzero(session < 0)
        if len(new):
            rest = table.take(pa.array(new)).select(sample.column_names)
            things = _build_things(pa.concat_tables([sample, rest]), problem.n_receivers)
            home = np.concatenate([maps.session, np.full(len(new), -1, np.int32)])
            start = Maps(np.maximum(home, 0), maps.group)
            found = settle(things, start, home, problem.prices, passes=2)
            session[new] = found.session[len(sample) :]
        yield from _emit_rows(table, session, None)

    return place


def _run_rounds(
    spark: SparkSession,
    work: Path,
    problem: _Problem,
    group: IndexArray,
    progress: Progress,
) -> list[float]:
    """Run rounds until one saves next to nothing; return the cost after each, the start first."""
    spent: list[float] = []
    for round_ in range(MOST_ROUNDS + 1):
        folder = work / f"round-{round_:03d}"
        if not (folder / "_SUCCESS").exists():
            before = _read_round(spark, work / f"round-{round_ - 1:03d}")
            class_of = problem.classes(round_)[group]
            sessions = {
                "session": pa.array(np.arange(len(group), dtype=np.int32)),
                "class": pa.array(class_of.astype(np.int32)),
            }
            classes = F.broadcast(spark.createDataFrame(pa.table(sessions)))
            heat = HOTTEST * (COLDEST / HOTTEST) ** (round_ / MOST_ROUNDS)
            improve = _make_improver(problem, group, round_, heat)
            dealt = before.join(classes, "session").repartitionById(
                problem.n_classes, F.col("class")
            )
            moved = dealt.select("flow", "weight", "members", "session").mapInArrow(
                improve, _PLACED
            )
            moved.write.mode("overwrite").parquet(str(folder))
        spent.append(_measure_work(spark, folder, problem, group))
        progress(Step("rounds on executors", round_, MOST_ROUNDS, spent[-1]))
        if round_ and spent[-2] - spent[-1] < ENOUGH * spent[-2]:
            break
    return spent


def _read_round(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.schema(_PLACED).parquet(str(folder))


def _make_improver(
    problem: _Problem, group: IndexArray, round_: int, heat: float
) -> Callable[..., Any]:
    """The function that improves the class of a task; `heat` is in units of a flow's mean cost."""

    def improve(batches: Batches) -> Batches:
        table = _sort_rows(batches)
        if table is None:
            return
        class_of_group = problem.classes(round_)
        where = Maps(table["session"].to_numpy().astype(np.int32), group)
        c = int(class_of_group[group[where.session[0]]])
        part = part_of(_build_things(table, problem.n_receivers), where, class_of_group, c)
        state = TwoLevel(part.things, part.maps, problem.prices, len(part.groups))
        before, found, n = state.work, part.maps, len(part.things)
        rng = np.random.default_rng([problem.seed, round_, c])
        for quench in QUENCH:
            state.sweep(rng.permutation(n), rng.random(n), heat * quench * before / n)
        state.descend_once(np.arange(n))
        if state.work < before:
            found, before = state.maps, state.work
        yield from _emit_rows(table, part.sessions[found.session].astype(np.int32), before)

    return improve


def _sort_rows(batches: Batches) -> pa.Table | None:
    """All rows of a task, sorted by flow name; None if it has none."""
    found = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(found).sort_by("flow").combine_chunks() if found else None


def _build_things(table: pa.Table, n_receivers: int) -> Things:
    members = table["members"].combine_chunks()
    sizes = members.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return Things(
        n_receivers,
        np.concatenate(([0], np.cumsum(sizes))),
        members.flatten().to_numpy().astype(np.int32, copy=False),
        table["weight"].to_numpy(),
    )


def _emit_rows(table: pa.Table, session: IndexArray, work: float | None) -> Batches:
    """The flows with their sessions; the first row carries the work of the class."""
    works = [work, *[None] * (len(table) - 1)]
    told = table.select(["flow", "weight", "members"])
    told = told.append_column("session", pa.array(session, pa.int32()))
    yield from told.append_column("work", pa.array(works, pa.float64())).to_batches(10_000)


def _measure_work(spark: SparkSession, folder: Path, problem: _Problem, group: IndexArray) -> float:
    """The exact cost after a round: the sum over its classes, or counted anew for the start."""
    placed = _read_round(spark, folder)
    told: float | None = placed.agg(F.sum("work")).collect()[0][0]
    if told is not None:
        return told
    audience, total = _session_sums(placed, len(group))
    members, carried = _group_sums(placed, group)
    received, accepted = float(members @ carried), float(audience @ total)
    return problem.prices.work(received, accepted)


def _session_sums(placed: DataFrame, n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return _sums(placed.select("session", "weight", "members"), "session", n)


def _group_sums(
    placed: DataFrame, group: IndexArray
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    pairs = {
        "session": pa.array(np.arange(len(group), dtype=np.int32)),
        "group": pa.array(group.astype(np.int32)),
    }
    groups = F.broadcast(placed.sparkSession.createDataFrame(pa.table(pairs)))
    frame = placed.join(groups, "session").select("group", "weight", "members")
    return _sums(frame, "group", int(group.max()) + 1)


def _sums(frame: DataFrame, by: str, n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The number of receivers and the weight of each session or group."""
    weight = frame.groupBy(by).agg(F.sum("weight").alias("total"))
    members = frame.select(by, F.explode("members").alias("n")).distinct().groupBy(by).count()
    audience, total = np.zeros(n), np.zeros(n)
    for row in weight.join(members, by).toArrow().to_pylist():
        audience[row[by]], total[row[by]] = row["count"], row["total"]
    return audience, total


def _collect_plan(placed: DataFrame, numbered: DataFrame, group: IndexArray) -> Plan:
    """The plan on the driver, with sessions and groups renumbered to leave out empty ones."""
    flows = placed.select("flow", "session").toArrow().sort_by("flow")
    raw = flows["session"].to_numpy().astype(np.int32)
    maps = Maps(raw, group).compact()
    number = np.full(len(group), -1, np.int32)
    number[raw] = maps.session
    heard = placed.select("session", F.explode("members").alias("n")).distinct().toArrow()
    receiver = heard["n"].to_numpy().astype(np.int32)
    session = number[heard["session"].to_numpy()]
    order = np.lexsort((session, receiver))
    names = numbered.toArrow().sort_by("n")["receiver"].to_pylist()
    return Plan(
        tuple(names),
        tuple(flows["flow"].to_pylist()),
        np.arange(len(raw), dtype=np.int32),
        maps.session,
        maps.group,
        receiver[order],
        session[order],
    )


def _sum_totals(plan: Plan, placed: DataFrame, scale: int, total: int, n_receivers: int) -> Totals:
    rows = placed.select("flow", "weight", F.size("members").alias("size")).toArrow()
    rows = rows.sort_by("flow")
    rate = rows["weight"].to_numpy() * 2.0**-scale
    session_rate = np.bincount(plan.placement_session, weights=rate)
    group_rate = np.bincount(plan.session_group, weights=session_rate)
    _, joined = plan.group_joins()
    return Totals(
        receivers=n_receivers,
        received=float(group_rate[joined].sum()),
        accepted=float(session_rate[plan.subscription_session].sum()),
        wanted=float(rate @ rows["size"].to_numpy()),
        sent=total * 2.0**-scale,
    )
