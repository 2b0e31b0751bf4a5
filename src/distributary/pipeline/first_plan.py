"""The plan that the rounds on executors start from, made in steps that each fit into a process.

1. *Groups of a sample.* The driver clusters a sample of the flows into groups, looking at a sample
   of the receivers. The sample of receivers is as large as 5 bytes for each of them and each group
   allow, the sample of flows then as large as the pairs allow.
2. *Groups of all flows.* Tasks put blocks of the other flows into the group that is cheapest beside
   the sample. A task holds one byte for each receiver of its block and each group.
3. *Sessions.* The groups are dealt into classes; a task clusters the flows of each group of its
   class into that group's share of the sessions.

Each step is a pure function of the stored flows, the seed and the step before, so a lost task is
repeated and the number of executors changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from pyspark import SparkContext

from distributary.cost import FilteringPrices
from distributary.model import IndexArray, IntArray
from distributary.pipeline.flow_store import FlowStore
from distributary.planning._kernels import audience_sizes, place_beside
from distributary.planning.hierarchy import Maps, sessions_in_groups
from distributary.planning.kmeans import kmeans, random_start
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.things import Things

__all__ = [
    "Problem",
    "SampleShares",
    "count_block_pairs",
    "deal_within",
    "make_first_plan",
    "run_tasks",
]

SAMPLE_PAIRS = 2_000_000
SAMPLE_BYTES = 2**29  # of the counts of the sample's receivers by group
BLOCK_PAIRS = 1_000_000
BLOCK_BYTES = 2**28  # of the flags of a block's receivers by group
GROUPS_PER_CLASS = 50  # at most
CLASS_BYTES = 2**30  # of the counts of a class, in a task
SEAT_BYTES = 5  # for each receiver and each session or group: a count and a flag

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """What every task needs to know."""

    store: FlowStore
    n_sessions: int
    n_groups: int
    seed: int
    prices: FilteringPrices

    @property
    def most_channels(self) -> int:
        """The sessions and groups whose counts, for all receivers, fit into a task."""
        return CLASS_BYTES // (SEAT_BYTES * self.store.n_receivers)

    def deal_groups(self, round_: int, sessions: IntArray) -> IntArray:
        """The class of each group in a round; `sessions` is how many each group has."""
        rng = np.random.default_rng([self.seed, round_])
        return deal_within(sessions + 1, self.most_channels, GROUPS_PER_CLASS, rng)


@dataclass(frozen=True, slots=True)
class SampleShares:
    """The shares of the receivers and of the flows that are drawn into the sample."""

    receivers: float
    flows: float

    @classmethod
    def of(cls, n_receivers: int, n_flows: int, pairs: int, n_groups: int) -> SampleShares:
        """As many receivers as the memory allows, then as many flows as the time allows."""
        receivers = min(1.0, SAMPLE_BYTES / (SEAT_BYTES * n_receivers * n_groups))
        enough = 4 * n_groups / n_flows
        return cls(receivers, min(1.0, max(SAMPLE_PAIRS / (pairs * receivers), enough)))


def deal_within(
    channels: IntArray, most_channels: int, most_groups: int, rng: np.random.Generator
) -> IntArray:
    """Deal groups at random into classes of so many channels and groups, or of one group.

    Few large classes give better plans in fewer rounds than many small ones, so a class is full
    before the next one begins.
    """
    most_groups = math.ceil(len(channels) / math.ceil(len(channels) / most_groups))
    dealt = np.empty(len(channels), np.int64)
    c = taken = members = 0
    for group in rng.permutation(len(channels)).tolist():
        if members and (taken + channels[group] > most_channels or members == most_groups):
            c, taken, members = c + 1, 0, 0
        dealt[group] = c
        taken, members = taken + int(channels[group]), members + 1
    return dealt


def run_tasks(context: SparkContext, n: int, task: Callable[[int], T]) -> list[T]:
    """The results of the tasks 0 to n - 1, in order; Spark repeats those that are lost."""
    return context.parallelize(range(n), n).map(task).collect()


def make_first_plan(
    context: SparkContext, problem: Problem, progress: Progress = silent
) -> tuple[Maps, float]:
    """Place every flow, and return the cost too."""
    sample, group_of_sample = _group_sample(problem)
    progress(Step("groups of a sample", 1, 1))
    group = _group_all(context, problem, sample, group_of_sample)
    progress(Step("groups of all flows", 1, 1))
    maps, work = _make_sessions(context, problem, group)
    progress(Step("sessions of each class", 1, 1))
    return maps, work


def _group_sample(problem: Problem) -> tuple[IntArray, IndexArray]:
    """Cluster a sample of the flows into groups; return the flows and their groups."""
    store, n_groups = problem.store, problem.n_groups
    rng = np.random.default_rng(problem.seed)
    shares = SampleShares.of(store.n_receivers, store.n_flows, store.pairs, n_groups)
    is_drawn = rng.random(store.n_receivers) < shares.receivers
    flows = np.flatnonzero(rng.random(store.n_flows) < shares.flows)
    things = _keep_receivers(store.read_things(flows), is_drawn)
    heard = np.flatnonzero(np.diff(things.offsets))
    things = things.subset(heard).narrow()
    if not len(things):
        return flows[:0], np.zeros(0, np.int32)
    group = kmeans(things, random_start(len(things), n_groups, rng), n_groups)
    return flows[heard], group


def _keep_receivers(things: Things, is_kept: np.ndarray[Any, Any]) -> Things:
    if is_kept.all():
        return things
    kept = is_kept[things.members]
    before = np.concatenate(([0], np.cumsum(kept)))
    return Things(things.n_receivers, before[things.offsets], things.members[kept], things.weight)


def _group_all(
    context: SparkContext, problem: Problem, sample: IntArray, group_of_sample: IndexArray
) -> IndexArray:
    """The group of each flow: those of the sample as they are, the others beside them."""
    weight, sizes = problem.store.read_weights()
    total = np.zeros(problem.n_groups)
    np.add.at(total, group_of_sample, weight[sample].astype(np.float64))
    # The sample stands for all flows.
    total *= weight.sum() / max(1.0, total.sum())
    known = context.broadcast((sample, group_of_sample, total))
    cuts = _cut_blocks(sizes, count_block_pairs(problem.n_groups))

    def place(block: int) -> IndexArray:
        return _place_block(problem, *known.value, cuts[block], cuts[block + 1])

    group = np.concatenate(run_tasks(context, len(cuts) - 1, place))
    known.destroy()
    return group


def count_block_pairs(n_groups: int) -> int:
    """The pairs of a block: so many that the flags of its receivers by group fit into a task."""
    return min(BLOCK_PAIRS, max(1, BLOCK_BYTES // n_groups))


def _cut_blocks(sizes: IntArray, pairs: int) -> list[int]:
    """Where to cut the flows into blocks of about so many pairs."""
    block = (np.cumsum(sizes) - sizes) // pairs
    return [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(sizes)]


def _place_block(
    problem: Problem,
    sample: IntArray,
    group_of_sample: IndexArray,
    total: np.ndarray[Any, Any],
    first: int,
    end: int,
) -> IndexArray:
    """The groups of a block of flows, each the cheapest beside the sample and earlier flows."""
    store, n_groups = problem.store, problem.n_groups
    block = np.arange(first, end)
    known = np.searchsorted(sample, [first, end])
    is_new = np.ones(len(block), bool)
    is_new[sample[known[0] : known[1]] - first] = False
    group = np.zeros(len(block), np.int32)
    group[~is_new] = group_of_sample[known[0] : known[1]]
    things = store.read_things(block[is_new])
    if not len(things):
        return group
    sampled = store.read_things(sample)
    order = np.argsort(group_of_sample, kind="stable")
    audience = audience_sizes(
        sampled.offsets, sampled.members, group_of_sample, order, store.n_receivers, n_groups
    )
    occurs = np.zeros(store.n_receivers, bool)
    occurs[things.members] = True
    number = np.cumsum(occurs) - 1
    present = np.zeros((int(occurs.sum()), n_groups), np.uint8)
    seen = occurs[sampled.members]
    owner = np.repeat(group_of_sample, np.diff(sampled.offsets))
    present[number[sampled.members[seen]], owner[seen]] = 1
    found = np.empty(len(things), np.int32)
    place_beside(
        things.offsets,
        number[things.members].astype(np.int32),
        things.weight.astype(np.float64),
        present,
        audience.astype(np.float64),
        total.copy(),
        found,
    )
    group[is_new] = found
    return group


def _make_sessions(
    context: SparkContext, problem: Problem, flow_group: IndexArray
) -> tuple[Maps, float]:
    """Cluster the flows of each group into its sessions, a class of groups in each task."""
    share = math.ceil(problem.n_sessions / problem.n_groups)
    class_of_group = problem.deal_groups(0, np.full(problem.n_groups, share))
    sizes = np.bincount(class_of_group)
    # Each class has a range of the sessions, in proportion to its groups. So no group ever has
    # more sessions than a class may have.
    bounds = np.concatenate(([0], np.cumsum(sizes))) * problem.n_sessions // problem.n_groups
    known = context.broadcast(flow_group)

    def cluster(c: int) -> tuple[IntArray, Maps, float]:
        return _cluster_class(problem, known.value, class_of_group == c, bounds[c + 1] - bounds[c])

    session = np.zeros(len(flow_group), np.int32)
    group = np.zeros(problem.n_sessions, np.int32)
    work = 0.0
    for c, (flows, inner, spent) in enumerate(run_tasks(context, len(sizes), cluster)):
        session[flows] = bounds[c] + inner.session
        group[bounds[c] : bounds[c + 1]] = np.flatnonzero(class_of_group == c)[inner.group]
        work += spent
    known.destroy()
    return Maps(session, group), work


def _cluster_class(
    problem: Problem, flow_group: IndexArray, is_own: np.ndarray[Any, Any], n_sessions: int
) -> tuple[IntArray, Maps, float]:
    """The flows of a class of groups, their maps in the numbers of the class, and the cost."""
    flows = np.flatnonzero(is_own[flow_group])
    if not len(flows):
        return flows, Maps(np.zeros(0, np.int32), np.zeros(n_sessions, np.int32)), 0.0
    things = problem.store.read_things(flows).narrow()
    place = (np.cumsum(is_own) - 1).astype(np.int32)
    rng = np.random.default_rng([problem.seed, int(np.flatnonzero(is_own)[0])])
    n_groups = int(is_own.sum())
    made = sessions_in_groups(things, place[flow_group[flows]], n_sessions, n_groups, rng)
    # Sessions that have no flows yet belong to the first group.
    group = np.zeros(n_sessions, np.int32)
    group[: len(made.group)] = made.group
    maps = Maps(made.session, group)
    return flows, maps, maps.work(things, problem.prices)
