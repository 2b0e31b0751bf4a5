"""The start of a plan on executors beside a plain twin, and the sizes of what its tasks hold."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import FilteringPrices
from distributary.pipeline import distributed, first_plan
from distributary.pipeline.first_plan import Problem, SampleShares, deal_within, make_first_plan
from distributary.pipeline.flow_store import FlowStore
from distributary.planning import _reference as reference
from distributary.planning.hierarchy import Maps
from distributary.planning.two_level import TwoLevel

GIB = 2**30


class TasksHere:
    """The part of a Spark context that planning uses; tasks run in this process, the last first."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def broadcast(self, value: Any) -> TasksHere:
        return TasksHere(value)

    def destroy(self) -> None:
        self.value = None

    def parallelize(self, items: Iterable[int], _slices: int) -> TasksHere:
        return TasksHere(list(items))

    def map(self, task: Callable[[int], Any]) -> TasksHere:
        return TasksHere([task(item) for item in reversed(self.value)][::-1])

    def collect(self) -> Any:
        return self.value


@dataclass(frozen=True)
class Start:
    """A tiny problem in plain Python, and how small the steps are."""

    n_receivers: int
    receivers: list[set[int]]
    weight: list[int]
    n_groups: int
    n_sessions: int
    seed: int
    prices: FilteringPrices
    buckets: int
    sample_pairs: int
    sample_bytes: int
    block_pairs: int
    block_bytes: int
    class_bytes: int
    groups_per_class: int

    @property
    def pairs(self) -> int:
        return sum(map(len, self.receivers))


@st.composite
def starts(draw: st.DrawFn) -> Start:
    n_receivers = draw(st.integers(1, 8))
    members = st.sets(st.integers(0, n_receivers - 1), min_size=1)
    receivers = draw(st.lists(members, min_size=1, max_size=14))
    n = len(receivers)
    weights = st.integers(1, 4) | st.integers(1, 2**40)
    n_sessions = draw(st.integers(1, n))
    return Start(
        n_receivers,
        receivers,
        draw(st.lists(weights, min_size=n, max_size=n)),
        draw(st.integers(1, n_sessions)),
        n_sessions,
        draw(st.integers(0, 2**32)),
        draw(st.sampled_from([FilteringPrices(), FilteringPrices(2.0, 0.5)])),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 40)),
        draw(st.integers(1, 200)),
        draw(st.integers(1, 30)),
        draw(st.integers(1, 60)),
        draw(st.integers(1, 300)),
        draw(st.integers(1, 4)),
    )


@contextmanager
def make_problem(start: Start) -> Iterator[Problem]:
    """The problem in files, in several buckets, with steps as small as drawn."""
    sizes = {
        "SAMPLE_PAIRS": start.sample_pairs,
        "SAMPLE_BYTES": start.sample_bytes,
        "BLOCK_PAIRS": start.block_pairs,
        "BLOCK_BYTES": start.block_bytes,
        "CLASS_BYTES": start.class_bytes,
        "GROUPS_PER_CLASS": start.groups_per_class,
    }
    with tempfile.TemporaryDirectory() as scratch, patch.multiple(first_plan, **sizes):
        folder = Path(scratch)
        buckets = []
        for bucket, flows in enumerate(np.array_split(np.arange(len(start.weight)), start.buckets)):
            if not len(flows):
                continue
            place = folder / f"bucket-{bucket:05d}"
            place.mkdir()
            members = [sorted(start.receivers[flow]) for flow in flows]
            np.save(place / "offsets.npy", np.cumsum([0, *map(len, members)]))
            np.save(place / "members.npy", np.array([n for one in members for n in one], np.int32))
            np.save(place / "weight.npy", np.array([start.weight[flow] for flow in flows]))
            buckets.append((bucket, len(flows)))
        store = FlowStore(folder, start.n_receivers, start.pairs, sum(start.weight), tuple(buckets))
        yield Problem(store, start.n_sessions, start.n_groups, start.seed, start.prices)


def plain_start(start: Start, class_of_group: list[int]) -> tuple[list[int], list[int]]:
    """The session of each flow and the group of each session, in sets and lists."""
    group = plain_groups(start)
    session = [-1] * len(group)
    group_of_session: list[int] = []
    dealt = 0
    for c in range(max(class_of_group) + 1):
        groups = [g for g in range(start.n_groups) if class_of_group[g] == c]
        first = dealt * start.n_sessions // start.n_groups
        dealt += len(groups)
        n_sessions = dealt * start.n_sessions // start.n_groups - first
        flows_of = {g: [k for k in range(len(group)) if group[k] == g] for g in groups}
        shares = plain_shares(n_sessions, [len(flows_of[g]) for g in groups])
        rng = np.random.default_rng([start.seed, groups[0]])
        for g, share in zip(groups, shares, strict=True):
            if share:
                flows = flows_of[g]
                receivers = [start.receivers[k] for k in flows]
                begin = rng.integers(share, size=len(flows), dtype=np.int32).tolist()
                weight = [start.weight[k] for k in flows]
                found = plain_kmeans(receivers, weight, begin, share)
                for k, s in zip(flows, found, strict=True):
                    session[k] = len(group_of_session) + s
                group_of_session += [g] * share
        group_of_session += [groups[0]] * (first + n_sessions - len(group_of_session))
    return session, group_of_session


def plain_groups(start: Start) -> list[int]:
    rng = np.random.default_rng(start.seed)
    n_flows, n_groups = len(start.weight), start.n_groups
    share = min(1.0, start.sample_bytes / (5 * start.n_receivers * n_groups))
    flow_share = max(start.sample_pairs / (start.pairs * share), 4 * n_groups / n_flows)
    drawn = {n for n, chance in enumerate(rng.random(start.n_receivers)) if chance < share}
    sample = [k for k, chance in enumerate(rng.random(n_flows)) if chance < min(1.0, flow_share)]
    sample = [k for k in sample if start.receivers[k] & drawn]
    begin = rng.integers(n_groups, size=len(sample), dtype=np.int32).tolist() if sample else []
    seen = [start.receivers[k] & drawn for k in sample]
    found = plain_kmeans(seen, [start.weight[k] for k in sample], begin, n_groups)
    group = dict(zip(sample, found, strict=True))
    audiences: list[set[int]] = [set() for _ in range(n_groups)]
    totals = [0.0] * n_groups
    for k, g in group.items():
        audiences[g] |= start.receivers[k]
        totals[g] += start.weight[k]
    scale = sum(start.weight) / max(1.0, sum(totals))
    totals = [total * scale for total in totals]
    per_block = min(start.block_pairs, max(1, start.block_bytes // n_groups))
    before = [sum(map(len, start.receivers[:k])) // per_block for k in range(n_flows)]
    for block in set(before):
        new = [k for k in range(n_flows) if before[k] == block and k not in group]
        weights = [float(start.weight[k]) for k in new]
        placed = reference.place_beside(
            [start.receivers[k] for k in new], weights, audiences, totals
        )
        group.update(zip(new, placed, strict=True))
    return [group[k] for k in range(n_flows)]


def plain_kmeans(
    receivers: list[set[int]], weight: list[int], cluster: list[int], n_clusters: int
) -> list[int]:
    moves = 1
    while moves:
        cluster, moves, _ = reference.kmeans_pass(receivers, weight, cluster, n_clusters)
    return cluster


def plain_shares(n_sessions: int, flows: list[int]) -> list[int]:
    """Hand the sessions out one by one, in turn, to the groups that have flows for them."""
    shares = [0] * len(flows)
    left = min(n_sessions, sum(flows))
    while left:
        for g, n in enumerate(flows):
            if left and shares[g] < n:
                shares[g], left = shares[g] + 1, left - 1
    return shares


def plain_cost(start: Start, session: list[int], group: list[int]) -> float:
    in_groups = [group[s] for s in session]
    received = reference.clustering_cost(start.receivers, start.weight, in_groups)
    accepted = reference.clustering_cost(start.receivers, start.weight, session)
    return start.prices.work(received, accepted)


def deal_first(problem: Problem) -> list[int]:
    share = -(-problem.n_sessions // problem.n_groups)
    return problem.deal_groups(0, np.full(problem.n_groups, share)).tolist()


@settings(max_examples=150, deadline=None)
@given(start=starts())
def test_the_start_is_that_of_its_plain_twin(start: Start) -> None:
    with make_problem(start) as problem:
        maps, work = make_first_plan(TasksHere(), problem)  # type: ignore[arg-type]
        session, group = plain_start(start, deal_first(problem))
    assert maps.session.tolist() == session
    assert maps.group.tolist() == group
    assert work == plain_cost(start, session, group)


@settings(max_examples=60, deadline=None)
@given(start=starts(), heat=st.floats(1e-3, 1e6))
def test_a_round_never_costs_more_and_holds_no_more_than_a_class_may(
    start: Start, heat: float
) -> None:
    held = []

    class Watched(TwoLevel):
        def __init__(self, things: Any, maps: Maps, prices: Any, n_groups: int) -> None:
            held.append((n_groups, 5 * things.n_receivers * (len(maps.group) + n_groups)))
            super().__init__(things, maps, prices, n_groups)

    with (
        make_problem(start) as problem,
        tempfile.TemporaryDirectory() as scratch,
        patch.object(distributed, "TwoLevel", Watched),
    ):
        first = distributed._Round(*make_first_plan(TasksHere(), problem))  # type: ignore[arg-type]
        first.save(Path(scratch) / "round-000.npz")
        found = distributed._improve_round(
            TasksHere(),  # type: ignore[arg-type]
            Path(scratch),
            problem,
            1,
            heat,
        )
        largest = 5 * start.n_receivers * (problem.most_channels + 1)
        share = -(-start.n_sessions // start.n_groups)
        alone = 5 * start.n_receivers * (share + 2)  # a class of one group, however little fits
    maps = found.maps
    assert found.work == plain_cost(start, maps.session.tolist(), maps.group.tolist())
    assert found.work <= first.work
    assert (maps.group == first.maps.group).all()
    assert all(size <= max(largest, alone) for _, size in held)
    assert all(n_groups <= start.groups_per_class for n_groups, _ in held)


@given(
    channels=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    most_channels=st.integers(0, 40),
    most_groups=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_a_class_has_as_many_channels_as_fit_or_one_group(
    channels: list[int], most_channels: int, most_groups: int, seed: int
) -> None:
    sizes = np.array(channels)
    dealt = deal_within(sizes, most_channels, most_groups, np.random.default_rng(seed))
    again = deal_within(sizes, most_channels, most_groups, np.random.default_rng(seed))
    assert dealt.tolist() == again.tolist()
    assert set(dealt.tolist()) == set(range(int(dealt.max()) + 1))
    for c in range(int(dealt.max()) + 1):
        groups = np.flatnonzero(dealt == c)
        assert len(groups) <= most_groups
        assert len(groups) == 1 or sizes[groups].sum() <= most_channels


def test_a_million_receivers_fit_into_processes_of_two_gib() -> None:
    n, pairs, n_groups, n_sessions = 1_000_000, 20_000_000, 500, 5_000
    store = FlowStore(Path(), n, pairs, n, ((0, n),))
    problem = Problem(store, n_sessions, n_groups, 0, FilteringPrices())
    sessions = np.full(n_groups, n_sessions // n_groups)
    for round_ in range(5):
        dealt = problem.deal_groups(round_, sessions)
        assert np.bincount(dealt, sessions + 1).max() * 5 * n <= GIB
    shares = SampleShares.of(n, n, pairs, n_groups)
    assert 0 < shares.receivers < 1
    assert shares.receivers * n * n_groups * 5 <= GIB / 2
    assert shares.receivers * shares.flows * pairs <= 2 * first_plan.SAMPLE_PAIRS
    cuts = first_plan._cut_blocks(np.full(n, 20), first_plan.count_block_pairs(n_groups))
    assert int(np.diff(cuts).max()) * 20 * n_groups <= GIB / 2


@settings(max_examples=60, deadline=None)
@given(start=starts())
def test_a_task_that_places_a_block_holds_no_more_than_the_block(start: Start) -> None:
    held: list[int] = []
    place = first_plan.place_beside

    def watch(offsets: Any, members: Any, weight: Any, present: Any, *rest: Any) -> None:
        held.append(present.nbytes)
        place(offsets, members, weight, present, *rest)

    with make_problem(start) as problem, patch.object(first_plan, "place_beside", watch):
        make_first_plan(TasksHere(), problem)  # type: ignore[arg-type]
    largest = max(map(len, start.receivers))  # a flow is never cut
    per_block = min(start.block_pairs, max(1, start.block_bytes // start.n_groups))
    assert all(size <= start.n_groups * (per_block + largest) for size in held)
