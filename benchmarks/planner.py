"""Our own planner against published algorithms and the optimum; scale, changes, threads."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.exhaustive import least_work
from benchmarks.instances import floor_demand, two_class_demand
from benchmarks.measure import Section, shown_seconds, timed
from distributary import (
    Constraints,
    Demand,
    FilteringPrices,
    Interest,
    Limits,
    Request,
    broken_constraints,
    evaluate,
    plan,
)
from distributary.files import read_demand, write_interest, write_rates
from distributary.model import Previous
from distributary.planning import count_moved, moves_between
from distributary.planning.best import Allowance, best
from distributary.planning.hierarchy import TwoLevelProblem
from distributary.planning.things import Things
from distributary.planning.two_level import BITS
from distributary.workloads import TradingFloor, trading_floor

PUBLISHED = ("SF", "GF", "IT", "RRA")
PRICES = FilteringPrices()
MOVES = (0, 10, 100, 500, 1000)
CAP, MOST_MEMBERS = 1.1, 250  # of a group: times the mean rate, and receivers


def quality(
    seconds: float = 10.0,
    seeds: int = 5,
    sessions: tuple[int, ...] = (100, 200, 500, 1000),
    published: tuple[str, ...] = PUBLISHED,
) -> Section:
    """`best` against the published algorithms at equal wall time, restarts allowed."""
    rows = []
    for n_sessions in sessions:
        means: dict[str, list[float]] = {name: [] for name in (*published, "best")}
        took = []
        for seed in range(seeds):
            demand = floor_demand(seed)
            base = Request(groups=50, sessions=n_sessions, seed=seed, budget_s=seconds)
            for name in published:
                means[name].append(_restart(demand, base.replace(algorithm=name), seconds))
            began = time.perf_counter()
            solution = plan(demand, base.replace(algorithm="best"))
            took.append(time.perf_counter() - began)
            means["best"].append(_excess(demand, solution.plan))
        mean = {name: float(np.mean(values)) for name, values in means.items()}
        theirs = min(mean[name] for name in published)
        rows.append(
            [
                str(n_sessions),
                *(f"{mean[name]:.4f}" for name in published),
                f"**{mean['best']:.4f}**",
                f"{1 - mean['best'] / theirs:.1%}",
                shown_seconds(float(np.mean(took))),
            ]
        )
    return Section(
        f"`best` against the published algorithms, {seconds:g} s each",
        "Trading floor (20,000 symbols, 500 receivers), 50 groups, alpha = beta = 1, Cx/Cf, mean "
        f"of {seeds} seed(s). The published algorithms are restarted with new seeds until their "
        "time is up, on two threads, and keep their best plan; `best` has the same budget and "
        "may end earlier.",
        ["sessions", *published, "best", "under the best of them", "best took"],
        rows,
    )


def optimum(instances: int = 200) -> Section:
    """How often each algorithm finds the proven optimum, flat and on two levels."""
    rows = []
    flat: dict[str, list[float]] = {name: [] for name in ("FBM", "UBM", "IT", "RRA", "best")}
    for seed in range(instances):
        demand = two_class_demand(seed, 9)
        proven = plan(demand, Request(groups=3, algorithm="OCC"))
        assert proven.proven
        least = evaluate(proven.plan, demand).channel.cost
        for name, ratios in flat.items():
            request = Request(groups=3, algorithm=name, seed=seed, objective="channel", budget_s=1)
            cost = evaluate(plan(demand, request).plan, demand).channel.cost
            assert name == "UBM" or cost >= least - 1e-9
            ratios.append(cost / least)
    rows += [_gap_row("9 x 9 x 3, channel cost over OCC's", n, r) for n, r in flat.items()]
    two: dict[str, list[float]] = {name: [] for name in ("SF", "GF", "IT", "RRA", "best")}
    for seed in range(instances):
        demand = two_class_demand(seed, 7)
        least = least_work(demand, 4, 2, PRICES)
        for name, ratios in two.items():
            request = Request(groups=2, sessions=4, algorithm=name, seed=seed, budget_s=1)
            work = evaluate(plan(demand, request).plan, demand, PRICES).filtering.work
            assert work >= least - 1e-9
            ratios.append(work / least)
    rows += [_gap_row("7 x 7, 4 sessions, 2 groups, Cw", n, r) for n, r in two.items()]
    return Section(
        "Against the proven optimum",
        f"{instances} instances each of Adler's generator. UBM may be cheaper than OCC, because "
        "it may send a flow more than once.",
        ["instances", "algorithm", "optimal", "within 5 %", "worst"],
        rows,
    )


def scale(flows: tuple[int, ...] = (10_000, 55_000, 300_000)) -> Section:
    """From Parquet to plan, in its own process: seconds and memory."""
    rows, points = [], []
    for n_flows in flows:
        with tempfile.TemporaryDirectory() as folder:
            inputs = _write_floor(n_flows, Path(folder))
            found = {}
            for name in ("GF", "best"):
                found[name] = _plan_apart(Path(folder), name)
            points.append((n_flows, found["best"]["seconds"], found["best"]["gib"]))
            rows.append(
                [
                    f"{inputs.demand.rate.size:,} x 5,000",
                    f"{inputs.interest.value.pairs:,}",
                    f"{found['best']['seconds']:.0f} s",
                    f"{found['best']['gib']:.2f} GiB",
                    f"{found['best']['excess']:.4f}",
                    f"{found['GF']['excess']:.4f}",
                    f"{found['best']['excess'] / found['GF']['excess']:.3f}",
                ]
            )
    sizes, seconds, memory = (np.log(np.array(column)) for column in zip(*points, strict=True))
    return Section(
        "Scale, from Parquet to plan",
        "Trading floors with 5,000 receivers and about 33 receivers per flow, 200 groups, 2,000 "
        "sessions, `best --budget 90s`: the whole command, in its own process.",
        [
            "flows x receivers",
            "pairs",
            "seconds",
            "peak memory",
            "best Cx/Cf",
            "GF Cx/Cf",
            "best / GF",
        ],
        rows,
        f"Growth with flows: time as flows^{np.polyfit(sizes, seconds, 1)[0]:.2f}, memory as "
        f"flows^{np.polyfit(sizes, memory, 1)[0]:.2f} (the budget bounds the search, so only "
        "reading and writing take longer).",
    )


REAL = (
    # folder, interest table, groups, sessions, whether flow-merge is feasible
    ("cran-mirror-log", "interest", 50, 500, True),
    ("julia-registry", "interest", 50, 500, True),
    ("debian", "interest_hosts_model", 50, 500, True),
    ("debian", "interest_maintainers", 50, 500, True),
)


def real(seconds: float = 30.0) -> Section:
    """Real interest tables from a folder named by the environment variable DISTRIBUTARY_DATA."""
    folder = os.environ.get("DISTRIBUTARY_DATA")
    if not folder:
        sys.exit("set DISTRIBUTARY_DATA to a folder with the data sets, or name other benchmarks")
    names = ("hash", "by-name", "FBM", "GF", "IT", "best")
    rows = []
    for data, table, groups, sessions, merge in REAL:
        demand = real_demand(Path(folder) / data, table)
        base = Request(groups=groups, sessions=sessions, budget_s=seconds)
        excess = {}
        for name in names:
            if name != "FBM" or merge:
                found = plan(demand, base.replace(algorithm=name)).plan
                excess[name] = _excess(demand, found)
        shape = f"{len(demand.interest.receivers):,} x {len(demand.interest.flows):,}"
        rows.append(
            [
                f"{data}/{table} ({shape})",
                *(f"{excess[name]:.4f}" if name in excess else "-" for name in names),
                f"{excess['best'] / excess['GF']:.3f}",
            ]
        )
    return Section(
        "Real interest tables",
        f"50 groups, 500 sessions, alpha = beta = 1, Cx/Cf; `best` with a budget of {seconds:g} s, "
        "FBM with one session per group. Flows without a rate above 0 are left out. "
        "`interest_hosts_model` is a model on a real dependency graph, the others are real.",
        ["data", *names, "best / GF"],
        rows,
    )


def real_demand(folder: Path, table: str) -> Demand:
    """Read a real interest table; flows without a rate above 0 are left out."""
    rates = pq.read_table(folder / "rates.parquet", columns=["flow", "rate"])
    rates = rates.filter(pc.greater(rates["rate"], 0))
    interest = pq.read_table(folder / f"{table}.parquet", columns=["receiver", "flow"])
    interest = interest.filter(pc.is_in(interest["flow"], rates["flow"].combine_chunks()))
    with tempfile.TemporaryDirectory() as scratch:
        pq.write_table(rates, Path(scratch) / "rates.parquet")
        pq.write_table(interest, Path(scratch) / "interest.parquet")
        return read_demand(
            Path(scratch) / "interest.parquet", Path(scratch) / "rates.parquet", max_bad=1e-4
        ).demand


def quality_long() -> Section:
    """The same at 60 s with one seed, for the best of the published algorithms at 10 s."""
    return quality(60.0, seeds=1, sessions=(100, 1000), published=("IT",))


def change() -> Section:
    """Re-planning after 1 % of the interests changed."""
    demand = floor_demand()
    before, rows = _replan(demand, Request(groups=50, sessions=500, budget_s=10))
    return Section(
        "Re-planning after 1 % of the interests changed",
        "Trading floor, 50 groups, 500 sessions. Before the change, Cx/Cf of the plan was "
        f"{before:.4f}; 1 % of the pairs were dropped and as many new ones drawn.",
        ["--max-moves", "flows moved", "Cx/Cf", "time"],
        rows,
    )


def change_within() -> Section:
    """The same under caps."""
    demand = floor_demand()
    group_rate = CAP * float(demand.rate.sum()) / 50
    limits = Limits(group_rate=group_rate, group_members=MOST_MEMBERS)
    request = Request(groups=50, sessions=500, budget_s=10, constraints=Constraints(limits=limits))
    before, rows = _replan(demand, request)
    return Section(
        "Re-planning under caps after 1 % of the interests changed",
        f"As above, but no group carries more than {CAP:g} times the mean, or has more than "
        f"{MOST_MEMBERS} of the {len(demand.interest.receivers)} receivers. Before the change, "
        f"Cx/Cf of the plan was {before:.4f}. Every plan keeps the caps (asserted).",
        ["--max-moves", "flows moved", "Cx/Cf", "time"],
        rows,
    )


def _replan(demand: Demand, request: Request) -> tuple[float, list[list[str]]]:
    """Plan, change 1 % of the interests, and plan again within more and more moves."""
    old = plan(demand, request).plan
    at = zip(old.placement_flow, old.placement_session, strict=True)
    previous = Previous({old.flows[flow]: int(session) for flow, session in at}, old.session_group)
    changed = _change_interest(demand, 0.01, np.random.default_rng(1))
    asked = {f"{n:,}": request.replace(previous=previous, max_moves=n) for n in MOVES}
    asked |= {"no limit": request.replace(previous=previous), "planned anew": request}
    rows = []
    for label, one in asked.items():
        began = time.perf_counter()
        new = plan(changed, one).plan
        seconds = time.perf_counter() - began
        assert not broken_constraints(new, changed, request.terms.constraints)
        moved = count_moved(moves_between(previous, new))
        rows.append([label, f"{moved:,}", f"{_excess(changed, new):.4f}", shown_seconds(seconds)])
    return _excess(demand, old), rows


def threads() -> Section:
    """The same work on one thread and on two."""
    rows = []
    for n_sessions in (100, 500, 1000):
        demand = floor_demand()
        things = Things.flows_of(demand, BITS)

        def run(n: int, sessions: int = n_sessions, flows: Things = things) -> np.ndarray:
            rng = np.random.default_rng(0)
            problem = TwoLevelProblem(flows, sessions, 50, PRICES)
            found = best(problem, rng, Allowance(2.0, float("inf"), n))
            return found.maps.session

        one, one_seconds = timed(lambda: run(1), times=3)
        two, two_seconds = timed(lambda: run(2), times=3)
        assert np.array_equal(one, two)
        rows.append(
            [
                str(n_sessions),
                shown_seconds(one_seconds),
                shown_seconds(two_seconds),
                f"{one_seconds / two_seconds:.2f}",
            ]
        )
    return Section(
        "Two threads against one",
        "`best` with a budget of 2 s on the trading floor; the plans are the same (asserted).",
        ["sessions", "one thread", "two threads", "one / two"],
        rows,
    )


def _restart(demand: Demand, request: Request, seconds: float) -> float:
    """The best of as many runs, each with its own seed, as two threads complete in the time."""
    deadline = time.perf_counter() + seconds

    def keep_trying(first: int) -> float:
        least, run = 1.0, first
        while time.perf_counter() < deadline:
            one = request.replace(seed=request.search.seed + 1000 * run)
            least = min(least, _excess(demand, plan(demand, one).plan))
            run += 2
        return least

    with ThreadPoolExecutor(2) as pool:
        return min(pool.map(keep_trying, (0, 1)))


def _excess(demand: Demand, found: object) -> float:
    evaluation = evaluate(found, demand, PRICES)  # type: ignore[arg-type]
    assert evaluation.valid
    return evaluation.filtering.relative_excess


def _gap_row(label: str, name: str, ratios: list[float]) -> list[str]:
    values = np.array(ratios)
    return [
        label,
        name,
        f"{np.mean(values <= 1 + 1e-9):.1%}",
        f"{np.mean(values <= 1.05):.1%}",
        f"{values.max():.3f}",
    ]


def _write_floor(n_flows: int, folder: Path):
    """Write a floor with about this many wanted flows and 33 receivers per flow."""
    params = TradingFloor(symbols=int(n_flows * 1.4), receivers=5_000, share_of_market=0.0142)
    interest, rates = trading_floor(params, np.random.default_rng(0))
    write_interest(interest, folder / "interest.parquet")
    write_rates(rates, folder / "rates.parquet")
    return read_demand(folder / "interest.parquet", folder / "rates.parquet")


def _plan_apart(folder: Path, algorithm: str) -> dict[str, float]:
    """Run the command in its own process; return its wall time, peak memory and result."""
    command = [
        sys.executable, "-m", "distributary", "plan", "--json", "--budget", "90s",
        "--interest", str(folder / "interest.parquet"), "--rates", str(folder / "rates.parquet"),
        "--groups", "200", "--sessions", "2000", "--algorithm", algorithm,
        "--out", str(folder / "plan"),
    ]  # fmt: skip
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    # The largest child so far: plans are made from the smallest to the largest, GF before best.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    excess = json.loads(done.stdout)["filtering"]["relative_excess"]
    return {"seconds": seconds, "gib": peak, "excess": excess}


def _change_interest(demand: Demand, share: float, rng: np.random.Generator) -> Demand:
    """The same demand with a share of the pairs dropped and as many new ones drawn."""
    interest = demand.interest
    flow, receiver = interest.pair_flows(), interest.flow_receivers
    n = round(share * interest.pairs)
    kept = np.ones(interest.pairs, bool)
    kept[rng.choice(interest.pairs, n, replace=False)] = False
    flow = np.concatenate([flow[kept], rng.integers(len(interest.flows), size=n)])
    receiver = np.concatenate([receiver[kept], rng.integers(len(interest.receivers), size=n)])
    pairs = zip(
        (interest.receivers[r] for r in receiver), (interest.flows[f] for f in flow), strict=True
    )
    new = Interest.from_pairs(pairs)
    rate = dict(zip(interest.flows, demand.rate, strict=True))
    return Demand(new, np.array([rate[name] for name in new.flows]))


SECTIONS: dict[str, Callable[[], Section]] = {
    "quality": quality,
    "quality_long": quality_long,
    "optimum": optimum,
    "scale": scale,
    "real": real,
    "change": change,
    "change_within": change_within,
    "threads": threads,
}
