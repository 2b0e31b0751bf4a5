"""Each kernel against its plain twin, and two algorithms against other implementations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.cluster import AgglomerativeClustering, KMeans

from benchmarks import plain_numpy
from benchmarks.instances import floor_demand, interest_matrix, two_class_demand
from benchmarks.measure import Section, shown_seconds, timed
from distributary import Demand, FilteringPrices, Request, evaluate, plan
from distributary.model import IndexArray
from distributary.planning import _kernels, _reference, place_single
from distributary.planning.hierarchy import TwoLevelProblem, groups_first
from distributary.planning.merging import flow_merge
from distributary.planning.optimal import optimal, optimal_shared
from distributary.planning.things import Things

PRICES = FilteringPrices()


def kernels() -> Section:
    """Every compiled loop beside its plain twin, on inputs small enough for the twin."""
    demand = two_class_demand(1, 150)
    things, n_clusters = Things.flows_of(demand), 15
    interest = demand.interest
    sets = [set(interest.receivers_of(k).tolist()) for k in range(len(things))]
    weight = things.weight.tolist()
    start = np.random.default_rng(0).integers(n_clusters, size=len(things), dtype=np.int32)
    rows = []

    def compare(name: str, fast: Callable[[], object], plain: Callable[[], object]) -> None:
        answer, seconds = timed(fast)
        expected, plain_seconds = timed(plain, times=1)
        assert answer == expected, name
        rows.append(
            [
                name,
                shown_seconds(seconds),
                shown_seconds(plain_seconds),
                f"{plain_seconds / seconds:,.0f}",
            ]
        )

    def fast_pass() -> tuple[list[int], int, int]:
        cluster = start.copy()
        clusters = _kernels.Clusters(
            np.empty((things.n_receivers, n_clusters), np.int32),
            np.empty((things.n_receivers, n_clusters), np.uint8),
            *np.empty((2, n_clusters), np.int64),
        )
        shape = (things.offsets, things.members, things.weight, cluster)
        _kernels.cluster_counts(*shape, clusters)
        moves, saved = _kernels.kmeans_pass(*shape, clusters)
        return cluster.tolist(), moves, saved

    compare(
        "`kmeans_pass`, with `cluster_counts`",
        fast_pass,
        lambda: _reference.kmeans_pass(sets, weight, start.tolist(), n_clusters),
    )
    compare(
        "`audience_sizes`",
        lambda: things.intake(start, n_clusters),
        lambda: _reference.clustering_cost(sets, weight, start.tolist()),
    )

    small = two_class_demand(1, 60)
    small_things = Things.flows_of(small)
    small_sets = [set(small.interest.receivers_of(k).tolist()) for k in range(60)]
    compare(
        "`merge_closest`",
        lambda: _parts(flow_merge(small, 6)),
        lambda: sorted(
            sorted(part)
            for part in _reference.merge_closest(
                small_sets, [1] * 60, small_things.weight.tolist(), 0, 60 - 6
            )
        ),
    )
    tiny = two_class_demand(1, 9)
    compare(
        "`search_partitions` (9 x 9 x 3, to the proof)",
        lambda: round(optimal(tiny, 3, 60).cost),
        lambda: _reference.cheapest_partition(*_plain(tiny), 3),
    )
    less = two_class_demand(1, 6)
    compare(
        "`search_covers` (6 x 6 x 3, to the proof)",
        lambda: round(optimal_shared(less, 3, 60).cost),
        lambda: _reference.cheapest_sharing(*_plain(less), 3, 6),
    )
    return Section(
        "Kernels against their plain twins",
        "The compiled loop and plain Python (`planning/_reference.py`) give the same answer "
        "(asserted), on inputs small enough for the latter.",
        ["kernel", "ours", "plain", "plain / ours"],
        rows,
    )


def algorithms() -> Section:
    """Groups-first and flow-merge against straightforward NumPy and scikit-learn."""
    rows: list[list[str]] = []
    full = floor_demand()
    _groups_first_rows(full, rows)
    _flow_merge_rows(floor_demand(symbols=6_000), rows)
    return Section(
        "Algorithms against other implementations",
        "Trading floor, 50 groups, alpha = beta = 1. Straightforward NumPy gives the same plan "
        "(asserted). scikit-learn clusters the same flows x receivers matrix by Euclidean "
        "distance, plain and with the rates as sample weights, with its default number of "
        "threads; its clusters are priced like any other plan. Ratios are relative to ours in "
        "the same block: above 1 is slower or more expensive.",
        ["plan", "who", "time", "time / ours", "Cx/Cf", "cost / ours"],
        rows,
        "`flow-merge` is a greedy merge for Adler's cost. On this demand it clusters poorly, as "
        "the last row shows; use `groups-first` or another two-level algorithm here.",
    )


def _groups_first_rows(demand: Demand, rows: list[list[str]]) -> None:
    sessions, groups = 500, 50
    things, matrix = Things.flows_of(demand), interest_matrix(demand)

    def ours() -> tuple[IndexArray, IndexArray]:
        problem = TwoLevelProblem(things, sessions, groups, PRICES)
        maps = groups_first(problem, np.random.default_rng(0))
        return maps.session, maps.flow_group

    def plain() -> tuple[IndexArray, IndexArray]:
        rng = np.random.default_rng(0)
        return plain_numpy.groups_first(matrix, things.weight, sessions, groups, rng)

    def sklearn(weight: np.ndarray | None) -> tuple[IndexArray, IndexArray]:
        group = KMeans(groups, n_init=1, random_state=0).fit(matrix, None, weight).labels_
        session = np.empty(len(group), np.int32)
        for g in range(groups):
            flows = np.flatnonzero(group == g)
            inner = KMeans(min(sessions // groups, len(flows)), n_init=1, random_state=0)
            chosen = None if weight is None else weight[flows]
            labels = inner.fit(matrix[flows], None, chosen).labels_
            session[flows] = g * (sessions // groups) + labels
        return session, group

    label = "groups-first, 500 sessions"
    (session, group), seconds = timed(ours)
    base = (seconds, _excess(demand, session, group))
    rows.append(_row(label, "ours", *base, base))
    (plain_session, plain_group), plain_seconds = timed(plain, times=1)
    assert np.array_equal(plain_session, session)
    assert np.array_equal(plain_group, group)
    rows.append(_row(label, "NumPy", plain_seconds, base[1], base))
    for who, weight in (("KMeans in KMeans", None), ("the same, weighted", demand.rate)):
        (other_session, other_group), other_seconds = timed(lambda w=weight: sklearn(w), times=3)
        excess = _excess(demand, other_session, other_group)
        rows.append(_row(label, f"scikit-learn {who}", other_seconds, excess, base))


def _flow_merge_rows(demand: Demand, rows: list[list[str]]) -> None:
    groups = 50
    things, matrix = Things.flows_of(demand), interest_matrix(demand)
    label = f"flow-merge, {len(things):,} flows"
    group, seconds = timed(lambda: flow_merge(demand, groups))
    base = (seconds, _excess(demand, group, group))
    rows.append(_row(label, "ours", *base, base))
    plain, plain_seconds = timed(
        lambda: plain_numpy.flow_merge(matrix, things.weight, groups), times=1
    )
    assert _parts(plain) == _parts(group)
    rows.append(_row(label, "NumPy", plain_seconds, base[1], base))
    for linkage in ("ward", "average"):
        other, other_seconds = timed(
            lambda how=linkage: AgglomerativeClustering(groups, linkage=how).fit(matrix).labels_,
            times=3,
        )
        excess = _excess(demand, other, other)
        rows.append(_row(label, f"scikit-learn {linkage}", other_seconds, excess, base))
    kmeans, kmeans_seconds = timed(
        lambda: plan(demand, Request(groups=groups, algorithm="kmeans")).plan
    )
    excess = evaluate(kmeans, demand, PRICES).filtering.relative_excess
    rows.append(_row(label, "our `kmeans`, to compare", kmeans_seconds, excess, base))


def _row(
    label: str, who: str, seconds: float, excess: float, base: tuple[float, float]
) -> list[str]:
    return [
        label,
        who,
        shown_seconds(seconds),
        f"{seconds / base[0]:,.1f}",
        f"{excess:.4f}",
        f"{excess / base[1]:.2f}",
    ]


def _excess(demand: Demand, session: IndexArray, group: IndexArray) -> float:
    """Cx/Cf of a clustering: sessions as they are, each in the group of its flows."""
    used, first, renumbered = np.unique(session, return_index=True, return_inverse=True)
    session_group = np.unique(group[first], return_inverse=True)[1]
    assert len(used) == len(session_group)
    evaluation = evaluate(place_single(demand, renumbered, session_group), demand, PRICES)
    assert evaluation.valid
    return evaluation.filtering.relative_excess


def _plain(demand: Demand) -> tuple[list[set[int]], list[int]]:
    """The receivers of each flow, and whole rates."""
    sets = [set(demand.interest.receivers_of(k).tolist()) for k in range(len(demand.rate))]
    return sets, [int(rate) for rate in demand.rate]


def _parts(labels: IndexArray) -> list[list[int]]:
    return sorted(np.flatnonzero(labels == label).tolist() for label in np.unique(labels))
