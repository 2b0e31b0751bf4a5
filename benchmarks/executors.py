"""Planning on executors: against the driver, and for a million receivers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.apart import Size, job_apart
from benchmarks.logs import write_day
from benchmarks.measure import Section
from benchmarks.planner import _plan_apart, _write_floor
from benchmarks.processes import peaks
from distributary import Demand, evaluate
from distributary.files import read_plan
from distributary.model import distinct
from distributary.pipeline.job import driver_need

EXECUTOR_MIB = 4096
DRIVER_LIMIT = 2**30
SIZE = Size(groups=200, sessions=2_000)
KINDS = ("driver's Python", "driver's JVM", "executor's JVM", "Python worker")


# --- against the driver --------------------------------------------------------------------------


def distributed(n_flows: int = 300_000, messages: int = 2_000_000) -> Section:
    """Plans made on one and on two executors against the driver's; then one whole run."""
    rows, load = [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        inputs = _write_floor(n_flows, folder)
        demand = inputs.demand
        alone = _plan_apart(folder, "best")
        least = _work_of(folder / "plan", demand)
        rows.append(
            [
                "driver: `plan --budget 90s`",
                f"{alone['seconds']:.0f} s",
                "",
                f"{least:,.0f}",
                "1",
                f"{alone['gib']:.2f}",
                *["-"] * (len(KINDS) - 1),
            ]
        )
        plans = []
        for n in (1, 2):
            result = job_apart("plan", folder, _cluster(n), SIZE)
            work = _work_of(folder / "plan", demand)
            assert abs(work / result["work"] - 1) < 1e-6
            where = _show_time(result)
            plans.append((folder / "plan" / "placements.parquet").read_bytes())
            name = f"{n} executor{'s' * (n > 1)}"
            rows.append(_job_row(name, result, work, least))
            shutil.rmtree(folder / "rounds")
        assert plans[0] == plans[1]
        write_day(folder / "day", demand, messages)
        sizes = len(demand.interest.receivers), SIZE.sessions, SIZE.groups
        limit = min(DRIVER_LIMIT, driver_need(demand.interest.pairs, *sizes) // 2)
        result = job_apart("run", folder / "day", _cluster(2), SIZE, limit)
        assert result["plan"]["where"] == "executors"
        assert result["interest"]["pairs"] == demand.interest.pairs
        work = _work_of(folder / "day" / "out" / "plan", demand)
        rows.append(_job_row("2 executors, the whole `run`", result, work, least))
    return Section(
        "Planning on executors against the driver",
        f"{len(demand.interest.flows):,} flows x {len(demand.interest.receivers):,} receivers, "
        f"{demand.interest.pairs:,} pairs, 200 groups, 2,000 sessions. Executors are processes "
        f"with one core and {EXECUTOR_MIB} MiB each (`local-cluster`), on the same "
        f"{os.cpu_count()} cores as everything else; each job runs in its own process. One "
        "executor and two give the same placements (asserted). Cw is computed by `evaluate` at "
        f"the demand's rates. The last row is `pipeline run` on a day of logs with {messages:,} "
        f"messages and a driver limit of {limit / 2**30:.2g} GiB: it plans with the rates that it "
        "measured and is priced at those of the demand. Memory is the peak of the largest "
        "process of each kind, in GiB.",
        ["planned by", "time", "rounds", "Cw", "over the driver's", *KINDS],
        rows,
        f"Where the time of two executors goes: {where} The load of the machine was {load:.1f} "
        f"before and {os.getloadavg()[0]:.1f} after.",
    )


def _job_row(name: str, result: dict[str, Any], work: float, least: float) -> list[str]:
    rounds = result.get("rounds") or result["plan"]["rounds"]
    return [
        name,
        f"{result['seconds']:.0f} s",
        str(rounds),
        f"{work:,.0f}",
        f"{work / least:.4f}",
        *(f"{result['gib'].get(kind, 0.0):.2f}" for kind in KINDS),
    ]


def _cluster(executors: int, mib: int = EXECUTOR_MIB) -> str:
    return f"local-cluster[{executors},1,{mib}]"


def _work_of(folder: Path, demand: Demand) -> float:
    cost = evaluate(read_plan(folder, demand.interest).plan, demand)
    assert cost.valid
    return cost.filtering.work


def _show_time(result: dict[str, Any]) -> str:
    """Where the time of a job goes, by its steps; and that of a round, by its parts."""
    steps, parts = result["steps"], result["round"]
    each = steps["rounds on executors"] / result["rounds"]
    nothing, reading = parts.values()
    listed = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in steps.items())
    return (
        f"{listed}. A round takes {each:.1f} s, of which {nothing:.2f} s are Spark's, for tasks "
        f"that do nothing, and {reading - nothing:.2f} s for reading the flows; the rest is "
        "annealing."
    )


# --- a million receivers -------------------------------------------------------------------------

MARKETS = 1_000
FLOWS_PER_RECEIVER = 20
MILLION = Size(groups=500, sessions=5_000)
SMALL_MIB = 1024


def million() -> Section:
    """A tenth of a million receivers by every planner that fits; then a million."""
    rows, where, load = [], "", os.getloadavg()[0]
    for n, ways in ((100_000, ("groups-first", "best")), (1_000_000, ("groups-first",))):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            pairs = _write_markets(folder, n)
            shown = f"{n:,} x {n:,}, {pairs:,} pairs"
            result = job_apart("plan", folder, _cluster(2, SMALL_MIB), MILLION)
            found = {"2 executors": (result["seconds"], result["gib"], _evaluate_apart(folder))}
            where = _show_time(result)
            _record(shown, "2 executors", found["2 executors"], where)
            for algorithm in ways:
                name = f"driver: `{algorithm}`"
                found[name] = (*_plan_here(folder, algorithm), _evaluate_apart(folder))
                _record(shown, name, found[name])
            least = found["driver: `groups-first`"][2]
            for name, (seconds, gib, excess) in found.items():
                memory = [f"{gib[kind]:.2f}" if kind in gib else "-" for kind in KINDS]
                ratio = f"{excess / least:.3f}"
                rows.append([shown, name, f"{seconds:.0f} s", f"{excess:.4f}", ratio, *memory])
    return Section(
        "Planning for a million receivers",
        f"Receivers x flows in {MARKETS:,} markets, large and small; each receiver follows two of "
        f"them and about {FLOWS_PER_RECEIVER} flows. {MILLION.groups} groups, "
        f"{MILLION.sessions:,} sessions. Two executors with one core and a heap of {SMALL_MIB} MiB "
        f"each, a driver with 1 GiB (`local-cluster`), all on the same {os.cpu_count()} cores. The "
        "driver's planners run as `distributary plan`; the budget of `best` is 90 s, and at a "
        "million receivers it would need 28 GB. Cx/Cf is computed by `evaluate`, which also finds "
        "the plan valid (asserted). Memory is the peak of the largest process of each kind, in "
        "GiB.",
        ["receivers x flows", "planned by", "time", "Cx/Cf", "over groups-first", *KINDS],
        rows,
        f"Where the time of the executors goes, at a million receivers: {where} The load of the "
        f"machine was {load:.1f} before and {os.getloadavg()[0]:.1f} after.",
    )


def _record(
    shown: str, name: str, found: tuple[float, dict[str, float], float], where: str = ""
) -> None:
    print(json.dumps([shown, name, *found, where]), file=sys.stderr, flush=True)


def _write_markets(folder: Path, n: int, seed: int = 0) -> int:
    """Write interest and rates of n receivers and n flows; return the number of pairs.

    Markets have flows and receivers in proportion to 1 / (10 + number). The first tenth of a
    market's flows has about 55 % of its rates and of its subscriptions; every flow has at least one
    receiver.
    """
    rng = np.random.default_rng(seed)
    odds = 1 / np.arange(10, 10 + MARKETS)
    bounds = np.round(np.concatenate(([0], np.cumsum(odds / odds.sum()))) * n).astype(np.int64)
    sizes = np.diff(bounds)
    market_of_flow = np.repeat(np.arange(MARKETS), sizes)
    followed = np.searchsorted(bounds, rng.integers(n, size=(n, 2)), side="right") - 1
    each = FLOWS_PER_RECEIVER // 2
    receiver = np.repeat(np.arange(n), 2 * each)
    market = np.repeat(followed.ravel(), each)
    rank = (rng.exponential(1 / 8, len(market)) % 1.0 * sizes[market]).astype(np.int64)
    # A receiver of its market for every flow.
    by_market = np.argsort(followed[:, 0], kind="stable")
    first = np.searchsorted(followed[by_market, 0], np.arange(MARKETS + 1))
    n_here = np.maximum(1, np.diff(first))
    place = first[:-1][market_of_flow] + rng.integers(n_here[market_of_flow])
    listener = by_market[np.minimum(place, n - 1)]
    flow = np.concatenate([bounds[market] + rank, np.arange(n)])
    keys = distinct(np.concatenate([receiver, listener]) * n + flow)
    del receiver, market, rank, flow
    within = np.arange(n) - bounds[market_of_flow]
    rate = 1000 * odds[market_of_flow] * np.exp(-8 * within / sizes[market_of_flow])
    width = len(str(n - 1))
    names = pa.array([f"flow-{k:0{width}}" for k in range(n)])
    receivers = pa.array([f"receiver-{k:0{width}}" for k in range(n)])
    schema = pa.schema([("receiver", pa.string()), ("flow", pa.string())])
    with pq.ParquetWriter(folder / "interest.parquet", schema) as writer:
        for part in np.array_split(keys, max(1, len(keys) // 1_000_000)):
            columns = receivers.take(pa.array(part // n)), names.take(pa.array(part % n))
            writer.write_table(pa.table(list(columns), schema=schema))
    pq.write_table(pa.table({"flow": names, "rate": rate}), folder / "rates.parquet")
    return len(keys)


def _plan_here(folder: Path, algorithm: str) -> tuple[float, dict[str, float]]:
    """Run the command in its own process; return its wall time and peak memory."""
    began = time.perf_counter()
    with peaks() as gib:
        _call(
            *("plan", "--budget", "90s", "--algorithm", algorithm),
            *("--groups", str(MILLION.groups), "--sessions", str(MILLION.sessions)),
            *("--out", str(folder / "plan"), *_tables(folder)),
        )
    return time.perf_counter() - began, {KINDS[0]: gib["other"]}


def _evaluate_apart(folder: Path) -> float:
    """Cx/Cf of the plan, which must be valid."""
    told = json.loads(_call("evaluate", str(folder / "plan"), *_tables(folder)))
    assert told["valid"], told
    excess: float = told["filtering"]["relative_excess"]
    return excess


def _tables(folder: Path) -> tuple[str, ...]:
    interest, rates = folder / "interest.parquet", folder / "rates.parquet"
    return "--interest", str(interest), "--rates", str(rates)


def _call(*words: str) -> str:
    command = [sys.executable, "-m", "distributary", *words, "--json"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


SECTIONS: dict[str, Callable[[], Section]] = {"distributed": distributed, "million": million}
