"""How tight lower bounds of the cost of any plan are, and how long each takes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.instances import floor_demand, two_class_demand
from benchmarks.measure import Section, shown_seconds
from distributary import Demand, FilteringPrices, Request, evaluate, plan, read_interest, read_rates
from distributary.planning import Size, anchors, lower_bound
from distributary.planning import bounds as planned
from distributary.planning._bound_kernels import Kinds, measure_unions

PRICES = FilteringPrices()
WORK = planned.WORK_PER_S
BLOCK = 8  # receivers of a block
SMALL = ((9, Size(2, 4)), (20, Size(3, 6)), (30, Size(8)), (40, Size(8, 20)), (80, Size(8, 20)))
REAL = (
    ("cran-mirror-log", "interest.parquet", Size(50, 500)),
    ("cran-mirror-log", "interest.parquet", Size(200, 1_000)),
    ("debian", "interest_maintainers.parquet", Size(200, 2_000)),
)


class Instance(NamedTuple):
    """A demand to plan for."""

    name: str
    demand: Demand
    size: Size


def bounds() -> Section:
    """Each bound over the cost of the best plan known."""
    _warm_up()
    rows = []
    for instance in _instances():
        demand, size = instance.demand, instance.size
        request = Request(size.groups, size.sessions, budget_s=10)
        cost = evaluate(plan(demand, request).plan, demand, PRICES).filtering.work
        kinds, unit = planned._scale(demand, None)
        levels = planned._list_levels(size, PRICES)
        cells = [
            _time_bound(partial(bound, kinds, levels), cost / unit) for bound in ARGUMENTS.values()
        ]
        began = time.process_time()
        found = lower_bound(demand, size, PRICES)
        seconds = shown_seconds(time.process_time() - began)
        cells.append(f"**{found.value / cost:.3f}** {found.how} ({seconds})")
        n_flows, n_receivers = len(demand.rate), len(demand.interest.receivers)
        rows.append(
            [
                f"{instance.name}, {n_flows:,} x {n_receivers:,}",
                f"{len(kinds.rate):,}",
                f"{size.groups:,} / {size.most_sessions:,}",
                *cells,
            ]
        )
    return Section(
        "Lower bounds of the cost of any plan",
        "Each bound over the cost of the best plan known (`best`, 10 s), alpha = beta = 1: at 1 "
        "that plan is optimal, at 0.8 it is at most 25 % above the optimum. In brackets: CPU time. "
        "Kinds are different sets of receivers. *Wanted*: what receivers want. *Pigeonhole*: one "
        "receiver more for all kinds but the fastest. *Spectrum*: the largest eigenvalues of the "
        "interest bound weighted k-means, which bounds the cost. "
        f"*Blocks*: the optimum, or a bound of it, for {BLOCK} receivers at a time, added up. "
        "*Pairs*: Lagrangian relaxation, clusters bounded by pairs with their widest kind. "
        "*Clusters*: the same with a search for the best cluster (up to "
        f"{anchors._MOST_KINDS_TO_SEARCH} kinds). *Search*: branch and bound on both levels (up to "
        f"{planned._MOST_KINDS_EXACT} kinds). The last column is what `plan` uses with a budget "
        "of 20 s or more, and how long it takes.",
        ["demand", "kinds", "groups / sessions", *ARGUMENTS, "`plan`"],
        rows,
        "A few groups for thousands of kinds have no tight bound: what a cluster costs is then not "
        "seen in pairs of kinds, and the linear program over all clusters is out of reach.",
    )


def _instances() -> Iterator[Instance]:
    for n, size in (
        (9, Size(2, 4)),
        (20, Size(3, 6)),
        (30, Size(8)),
        (40, Size(8, 20)),
        (80, Size(8, 20)),
    ):
        yield Instance("two-class", two_class_demand(0, n), size)
    small = floor_demand(0, 300, 40)
    yield Instance("trading floor", small, Size(20, 60))
    floor = floor_demand(0)
    for size in (Size(50, 500), Size(1_000)):
        yield Instance("trading floor", floor, size)
    data = os.environ.get("DISTRIBUTARY_DATA")
    if not data:
        sys.exit("set DISTRIBUTARY_DATA to a folder with the data sets, or name other benchmarks")
    for name, interest, size in REAL:
        folder = Path(data) / name
        tables = read_interest(folder / interest), read_rates(folder / "rates.parquet")
        yield Instance(name, Demand.of(*(table.value for table in tables)), size)


def _warm_up() -> None:
    """Compile everything before the clock starts."""
    kinds, _ = planned._scale(two_class_demand(0, 20), None)
    for bound in ARGUMENTS.values():
        bound(kinds, planned._list_levels(Size(2, 4), PRICES))


def _time_bound(bound: Callable[[], float], cost: float) -> str:
    began = time.process_time()
    value = bound()
    seconds = time.process_time() - began
    assert value <= cost * (1 + 1e-9)
    return f"{value / cost:.3f} ({shown_seconds(seconds)})" if value > 0 else "-"


Levels = list[planned._Level]


def _wanted(kinds: Kinds, levels: Levels) -> float:
    return sum(level.price for level in levels) * float(kinds.rate @ kinds.size)


def _pigeonhole(kinds: Kinds, levels: Levels) -> float:
    return sum(each.price * planned._bound_pigeonhole(kinds, each.clusters) for each in levels)


def _spectrum(kinds: Kinds, levels: Levels) -> float:
    """The cost is at least the inertia of k-means.

    In a cluster of rate R, of which it wants A > 0, a receiver pays for R >= A + A (R - A) / R. The
    last term, summed over receivers, is the inertia of the cluster: the squared distances of the
    kinds, as 0/1 vectors weighted by rate, from their mean. No n means have less inertia than the
    sum of all eigenvalues of X' diag(rate) X but the n largest (Ky Fan). The sum of all is what is
    wanted.
    """
    owner = np.repeat(np.arange(len(kinds.rate)), np.diff(kinds.offsets))
    table = np.zeros((len(kinds.rate), len(kinds.weight)))
    table[owner, kinds.members] = np.sqrt(kinds.rate[owner] * kinds.weight[kinds.members])
    gram = table @ table.T if table.shape[0] < table.shape[1] else table.T @ table
    values = np.linalg.eigvalsh(gram)[::-1]
    wanted = float(kinds.rate @ kinds.size)
    return sum(
        each.price * (wanted + max(wanted - float(values[: each.clusters].sum()), 0.0))
        for each in levels
    )


def _blocks(kinds: Kinds, levels: Levels) -> float:
    """The cost is a sum over receivers, so that no block of them pays less than its own optimum."""
    blocks = np.array_split(np.arange(len(kinds.weight)), -(-len(kinds.weight) // BLOCK))
    table = np.zeros((len(kinds.rate), len(kinds.weight)), bool)
    table[np.repeat(np.arange(len(kinds.rate)), np.diff(kinds.offsets)), kinds.members] = True
    total = 0.0
    for block in blocks:
        seen, kind = np.unique(table[:, block], axis=0, return_inverse=True)
        rate = np.bincount(kind.ravel(), kinds.rate)
        order = np.argsort(-seen.sum(axis=1), kind="stable")[: int(seen.any(axis=1).sum())]
        seen, rate = seen[order], rate[order]
        sizes = seen.sum(axis=1)
        own = Kinds(
            np.concatenate(([0], np.cumsum(sizes))),
            np.nonzero(seen)[1].astype(np.int32),
            rate,
            sizes.astype(float),
            np.ones(len(block)),
            1.0,
        )
        total += planned._bound_levels(own, levels, WORK // len(blocks)).value
    return total


def _pairs(kinds: Kinds, levels: Levels) -> float:
    def bound(n_clusters: int) -> float:
        fast, rest = anchors._choose_fast(kinds)
        union = np.zeros((len(fast.rate), len(fast.rate)), np.int32)
        measure_unions(fast, union)
        ascent = anchors._Ascent(fast)
        anchors._climb_by_pairs(ascent, union, n_clusters, WORK // 2)
        return ascent.best + rest

    return sum(each.price * bound(each.clusters) for each in levels)


def _clusters(kinds: Kinds, levels: Levels) -> float:
    if len(kinds.rate) > anchors._MOST_KINDS_TO_SEARCH:
        return 0.0
    return sum(each.price * anchors.bound_by_anchors(kinds, each.clusters, WORK) for each in levels)


def _search(kinds: Kinds, levels: Levels) -> float:
    return planned._search(kinds, levels, WORK).value


ARGUMENTS = {
    "wanted": _wanted,
    "pigeonhole": _pigeonhole,
    "spectrum": _spectrum,
    "blocks": _blocks,
    "pairs": _pairs,
    "clusters": _clusters,
    "search": _search,
}
SECTIONS = {"bounds": bounds}
