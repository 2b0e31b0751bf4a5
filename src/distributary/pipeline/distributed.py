"""Planning on executors, for an interest too large for one machine.

The cost is a sum over groups, so groups dealt into classes are independent problems
(`planning.classes`). Each round deals the groups anew and gives each class, with all its flows, to
one task. The task anneals the class with the planner's kernels and keeps the result only if its
exact cost fell; so the total cost, the sum over the classes, never rises, and no task works with
stale counts. Classes are as large as the memory of a task allows, because a flow can only move to
the groups of its class.

The rounds start from a plan that is itself made in tasks (`first_plan`).

The pairs are stored once (`flow_store`); a round is a file with the session of each flow. A lost
executor repeats its own task; a killed job continues from the last complete step of the same
inputs. The result of a task depends on the seed, the round and the flows of its class, and not on
the number of executors or partitions.

The driver holds the plan (flows, and receivers times the sessions they subscribe to) and, for the
groups of the start, a sample of the pairs. A task holds its class: its share of the pairs, and 5
bytes for each receiver times the sessions and groups of the class.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkContext
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from distributary.cost import Totals
from distributary.model import IndexArray, IntArray, Plan, distinct
from distributary.pipeline.first_plan import Problem, make_first_plan, run_tasks
from distributary.pipeline.flow_store import replace_file, store_flows
from distributary.pipeline.writing import read_back
from distributary.planning import Request
from distributary.planning.classes import part_of
from distributary.planning.hierarchy import Maps
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.two_level import BITS, TwoLevel

__all__ = ["MOST_ROUNDS", "DistributedPlan", "plan_on_executors"]

MOST_ROUNDS = 30
ENOUGH = 3e-4  # of the cost: a round that saves less is the last, or the last warm one
HOTTEST, COOLING, COLDEST = 0.03, 0.8, 0.003  # of the first plan's mean cost of a flow
QUENCH = (1.0, 0.5, 0.25)  # of a round's heat, in its sweeps
PAIRS_PER_TASK = 1_000_000  # about, of those that collect the subscriptions
_LAYOUT = 2  # of the files of a job


@dataclass(frozen=True, slots=True, eq=False)
class DistributedPlan:
    """The plan, its totals, and the work after each round, beginning with the start."""

    plan: Plan
    totals: Totals
    rounds: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Round:
    """The maps after a round, and their exact cost."""

    maps: Maps
    work: float

    def save(self, path: Path) -> None:
        session, group = self.maps.session, self.maps.group
        replace_file(
            path, lambda file: np.savez(file, session=session, group=group, work=self.work)
        )

    @classmethod
    def load(cls, path: Path) -> _Round:
        with np.load(path) as told:
            return cls(Maps(told["session"], told["group"]), float(told["work"]))


def plan_on_executors(
    interest: DataFrame,
    rates: DataFrame,
    request: Request,
    work: Path,
    progress: Progress = silent,
) -> DistributedPlan:
    """Plan as `best` does, on executors; they must all see `work`, the folder for the rounds."""
    context = interest.sparkSession.sparkContext
    _resume_or_clear(work, _identify_job(interest, rates, request))
    receivers = interest.select("receiver").distinct()
    number = F.row_number().over(Window.orderBy("receiver")) - 1
    numbered = _write_once(receivers.withColumn("n", number), work / "receivers")
    n_receivers = numbered.count()
    progress(Step("receivers numbered", 1, 1))
    scale = _choose_scale(rates, n_receivers)
    flows = _flows(interest, rates, numbered, scale)
    store = store_flows(flows, n_receivers, interest.count(), work / "flows")
    progress(Step("flows stored", 1, 1))
    n_sessions = min(request.size.most_sessions, store.n_flows)
    n_groups = min(request.size.groups, n_sessions)
    problem = Problem(
        store,
        n_sessions,
        n_groups,
        request.search.seed,
        request.linear_prices,
    )
    spent = _run_rounds(context, work, problem, progress)
    last = _Round.load(_round_file(work, len(spent) - 1)).maps
    plan, placed = _collect_plan(context, work, problem, last, numbered)
    progress(Step("subscriptions collected", 1, 1))
    return DistributedPlan(plan, _sum_totals(plan, problem, placed, scale), tuple(spent))


def _identify_job(interest: DataFrame, rates: DataFrame, request: Request) -> dict[str, Any]:
    """What makes two jobs the same: the request, and sums of hashes, independent of order."""

    def mark(frame: DataFrame, *columns: str) -> str:
        low = F.pmod(F.xxhash64(*columns), F.lit(2**40))
        return str(frame.agg(F.sum(low.cast("decimal(38,0)"))).collect()[0][0])

    return {
        "layout": _LAYOUT,
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


def _round_file(work: Path, round_: int) -> Path:
    return work / f"round-{round_:03d}.npz"


def _run_rounds(
    context: SparkContext, work: Path, problem: Problem, progress: Progress
) -> list[float]:
    """Run rounds until cold ones save next to nothing; return the costs, the start's first."""
    spent: list[float] = []
    for round_ in range(MOST_ROUNDS + 1):
        path = _round_file(work, round_)
        heat = _choose_heat(spent)
        if not path.exists():
            if round_:
                unit = spent[0] / problem.store.n_flows
                _improve_round(context, work, problem, round_, heat * unit).save(path)
            else:
                _Round(*make_first_plan(context, problem, progress)).save(path)
        spent.append(_Round.load(path).work)
        progress(Step("rounds on executors", round_, MOST_ROUNDS, spent[-1]))
        if heat <= COLDEST and _saved_little(spent, round_):
            break
    return spent


def _choose_heat(spent: list[float]) -> float:
    """The heat of the next round: ever cooler, and coldest once a round has saved little."""
    rounds = len(spent)
    if any(_saved_little(spent, round_) for round_ in range(1, rounds)):
        return COLDEST
    return max(COLDEST, HOTTEST * COOLING ** max(0, rounds - 1))


def _saved_little(spent: list[float], round_: int) -> bool:
    return round_ > 0 and spent[round_ - 1] - spent[round_] < ENOUGH * spent[round_ - 1]


def _improve_round(
    context: SparkContext, work: Path, problem: Problem, round_: int, heat: float
) -> _Round:
    """Improve each class in its own task."""
    before = _round_file(work, round_ - 1)
    old = _Round.load(before).maps
    class_of_group = problem.deal_groups(round_, np.bincount(old.group, minlength=problem.n_groups))
    quench = [heat * share for share in QUENCH]

    def improve(c: int) -> tuple[IntArray, IndexArray, float]:
        rng = np.random.default_rng([problem.seed, round_, c])
        return _improve_class(problem, _Round.load(before).maps, class_of_group, c, quench, rng)

    session, spent = old.session.copy(), 0.0
    for flows, found, cost in run_tasks(context, int(class_of_group.max()) + 1, improve):
        session[flows] = found
        spent += cost
    return _Round(Maps(session, old.group), spent)


def _improve_class(
    problem: Problem,
    maps: Maps,
    class_of_group: IntArray,
    c: int,
    heats: list[float],
    rng: np.random.Generator,
) -> tuple[IntArray, IndexArray, float]:
    """The flows of class c, their sessions after annealing, and the cost of the class."""
    flows = np.flatnonzero(class_of_group[maps.flow_group] == c)
    if not len(flows):
        return flows, maps.session[flows], 0.0
    things = problem.store.read_things(flows).narrow()
    part = part_of(things, Maps(maps.session[flows], maps.group), class_of_group, c, flows)
    state = TwoLevel(part.things, part.maps, problem.prices, len(part.groups))
    before, n = state.work, len(flows)
    for heat in heats:
        state.sweep(rng.permutation(n), rng.random(n), heat)
    state.descend_once(np.arange(n))
    if state.work >= before:
        return flows, maps.session[flows], before
    return flows, part.sessions[state.maps.session].astype(np.int32), state.work


def _collect_plan(
    context: SparkContext, work: Path, problem: Problem, maps: Maps, numbered: DataFrame
) -> tuple[Plan, IndexArray]:
    """The plan on the driver, without empty sessions and groups; and each stored flow's session."""
    names = problem.store.read_names().to_pylist()
    order = np.array(sorted(range(len(names)), key=names.__getitem__))
    compact = Maps(maps.session[order], maps.group).compact()
    placed = np.empty(len(order), np.int32)
    placed[order] = compact.session
    subscriptions = _collect_subscriptions(
        context, work / "subscriptions", problem, placed, len(compact.group)
    )
    receivers = numbered.toArrow().sort_by("n")["receiver"].to_pylist()
    flows = tuple(names[flow] for flow in order.tolist())
    every = np.arange(len(order), dtype=np.int32)
    plan = Plan(tuple(receivers), flows, every, compact.session, compact.group, *subscriptions)
    return plan, placed


def _collect_subscriptions(
    context: SparkContext, folder: Path, problem: Problem, placed: IndexArray, n_sessions: int
) -> tuple[IndexArray, IndexArray]:
    """Who subscribes to which session, ascending; tasks write files, and the driver joins them."""
    folder.mkdir(exist_ok=True)
    known = context.broadcast(placed)
    n_tasks = max(1, min(n_sessions, math.ceil(problem.store.pairs / PAIRS_PER_TASK)))

    def write(task: int) -> int:
        own = np.flatnonzero(known.value.astype(np.int64) * n_tasks // n_sessions == task)
        things = problem.store.read_things(own)
        session = np.repeat(known.value[own], np.diff(things.offsets))
        keys = distinct(things.members.astype(np.int64) * n_sessions + session)
        replace_file(folder / f"{task:05d}.npy", lambda file: np.save(file, keys))
        return len(keys)

    sizes = run_tasks(context, n_tasks, write)
    known.destroy()
    keys = np.empty(sum(sizes), np.int64)
    end = 0
    for task, size in enumerate(sizes):
        keys[end : end + size] = np.load(folder / f"{task:05d}.npy")
        end += size
    keys.sort()
    return (keys // n_sessions).astype(np.int32), (keys % n_sessions).astype(np.int32)


def _sum_totals(plan: Plan, problem: Problem, placed: IndexArray, scale: int) -> Totals:
    """The totals of the plan; `placed` is the session of each flow, as they are stored."""
    weight, sizes = problem.store.read_weights()
    rate = weight * 2.0**-scale
    session_rate = np.bincount(placed, weights=rate)
    group_rate = np.bincount(plan.session_group, weights=session_rate)
    _, joined = plan.group_joins()
    return Totals(
        receivers=problem.store.n_receivers,
        received=float(group_rate @ np.bincount(joined)),
        accepted=float(session_rate @ np.bincount(plan.subscription_session)),
        wanted=float(rate @ sizes),
        sent=problem.store.weight * 2.0**-scale,
    )
