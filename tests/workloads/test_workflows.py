"""The networks, subscriptions and moves of the paper on congestion: its counts, by definition."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from distributary.matching.covering import CoverIndex
from distributary.model import Topology, covers, intersects
from distributary.workloads.roaming import (
    Roaming,
    RoamingParams,
    region_of,
    roaming,
    tier_of,
    tiered_topology,
)
from distributary.workloads.workflows import (
    Clusters,
    Workflows,
    WorkflowsParams,
    edge_clusters,
    source_edges,
    subscriber_edges,
    workflow_topology,
    workflows,
)

SMALL = WorkflowsParams(subscriptions=600, degree=10, workflows=6)
SHAPES = [
    SMALL,
    WorkflowsParams(subscriptions=600, degree=30, workflows=3, clusters=Clusters.INNER),
    WorkflowsParams(subscriptions=600, degree=15, workflows=5, dimensions=2),
    WorkflowsParams(subscriptions=311, degree=10, workflows=3, overlap=6, held=1.0),
    WorkflowsParams(subscriptions=100, degree=9, workflows=40, overlap=0.5, held=0.5),
]


def draw(params: WorkflowsParams, seed: int = 0) -> Workflows:
    return workflows(params, np.random.default_rng(seed))


def covering_degree(found: Workflows) -> float:
    """The mean number of new roots per ended root, from the filters alone."""
    index: CoverIndex[int] = CoverIndex(found.schema)
    for at, (_, _, filter) in enumerate(found.subscriptions):
        index.add(filter, at)
    # A subscription covers itself: one with two covers becomes a root when the other ends.
    covering = [index.find_covers(filter) for _, _, filter in found.subscriptions]
    roots = sum(len(names) == 1 for names in covering)
    return sum(len(names) == 2 for names in covering) / roots


def shared_events(found: Workflows, samples: int, rng: np.random.Generator) -> np.ndarray:
    """For each root, the share of its events that another subscription wants too."""
    shares = []
    for root in found.roots:
        near = np.flatnonzero(found.workflow == found.workflow[root])
        near = near[near != root]
        low, high = found.low[root], found.high[root]
        points = low + rng.random((samples, found.params.dimensions)) * (high - low)
        inside = (found.low[near] <= points[:, None]) & (points[:, None] < found.high[near])
        shares.append(inside.all(axis=2).any(axis=1).mean())
    return np.array(shares)


def draw_roaming(seed: int = 0, **params: float) -> Roaming:
    return roaming(RoamingParams(subscribers=200, **params), np.random.default_rng(seed))  # type: ignore[arg-type]


# --- workflows -----------------------------------------------------------------------------------


def kinds(topology: Topology) -> Counter[str]:
    return Counter(broker.split("-")[0] for broker in topology.brokers)


def test_the_network_has_the_brokers_of_the_paper() -> None:
    topology = workflow_topology()
    assert kinds(topology) == {**dict.fromkeys("ABCDE", 1), "inner": 18, "edge": 29, "source": 3}
    assert len(topology.delays) == 54
    assert topology.tree("A").path("E") == tuple("ABCDE")
    assert set(source_edges()) < set(topology.neighbours("E"))
    for broker in topology.brokers:
        links = Counter(other.split("-")[0] for other in topology.neighbours(broker))
        if broker.startswith("inner"):
            assert links["edge"] in (1, 2)
            assert links.total() == links["edge"] + 1
        if broker.startswith(("edge", "source")):
            assert links.total() == 1
    inner = {core: sum("inner" in other for other in topology.neighbours(core)) for core in "ABCDE"}
    assert inner == {"A": 5, "B": 4, "C": 5, "D": 4, "E": 0}


def test_clusters_are_two_to_four_edges_behind_one_core_broker() -> None:
    topology = workflow_topology()
    clusters = edge_clusters(Clusters.ROW)
    assert [edge for cluster in clusters for edge in cluster] == list(subscriber_edges())
    for cluster in clusters:
        assert 2 <= len(cluster) <= 4
        assert len({topology.tree("A").path(edge)[-3] for edge in cluster}) == 1


def test_clusters_of_adjacent_brokers_are_an_inner_one_with_its_edges() -> None:
    topology = workflow_topology()
    clusters = edge_clusters(Clusters.INNER)
    assert [edge for cluster in clusters for edge in cluster] == list(subscriber_edges())
    for cluster in clusters:
        assert 2 <= len(cluster) + 1 <= 4
        (inner,) = {topology.next_hop(edge, "A") for edge in cluster}
        assert set(cluster) == {each for each in topology.neighbours(inner) if "edge" in each}


@pytest.mark.parametrize("params", SHAPES)
def test_no_root_covers_a_root_and_children_have_one_cover(params: WorkflowsParams) -> None:
    """Compared with all of their workflow: others have no event in common with them."""
    found = draw(params)
    assert len(found.subscriptions) == params.subscriptions
    assert len(found.roots) == params.roots
    filters = [filter for _, _, filter in found.subscriptions]
    for at, filter in enumerate(filters):
        near = np.flatnonzero(found.workflow == found.workflow[at]).tolist()
        covering = {other for other in near if other != at and covers(filters[other], filter)}
        assert covering == {found.root_of[at]} - {at}
    other = next(at for at in range(len(filters)) if found.workflow[at] != found.workflow[0])
    assert not intersects(filters[0], filters[other])


@pytest.mark.parametrize("params", SHAPES)
def test_the_degree_is_the_one_asked_for(params: WorkflowsParams) -> None:
    assert covering_degree(draw(params)) == pytest.approx(params.degree, rel=0.05)


def test_the_degree_is_found_by_removing_roots() -> None:
    """New roots by the definition: what nobody else covers once a root is gone."""
    found = draw(WorkflowsParams(subscriptions=120, degree=7, workflows=4))
    index: CoverIndex[int] = CoverIndex(found.schema)
    for at, (_, _, filter) in enumerate(found.subscriptions):
        index.add(filter, at)

    def roots() -> set[int]:
        return {at for at in index if not index.is_covered(index[at], but=at)}

    before, new = roots(), 0
    for root in before:
        gone = index.remove(root)
        new += len(roots() - before)
        index.add(gone, root)
    assert covering_degree(found) == new / len(before)


@pytest.mark.slow
def test_by_default_there_are_as_many_as_in_the_paper() -> None:
    found = draw(WorkflowsParams())
    assert len(found.subscriptions) == 30_000
    assert len(found.roots) == 968
    assert covering_degree(found) == pytest.approx(30, abs=0.1)
    assert len({client for client, _, _ in found.subscriptions}) == 30_000
    assert {broker for _, broker, _ in found.subscriptions} == set(subscriber_edges())
    alike = shared_events(found, 100, np.random.default_rng(1))
    assert 0.98 < alike.mean() <= 1
    apart = shared_events(draw(WorkflowsParams(held=0.8)), 100, np.random.default_rng(1))
    assert 0.9 < apart.mean() < alike.mean()
    assert 0.7 < (apart >= 0.9).mean() < 1
    probes = found.probes(20, np.random.default_rng(2))
    assert min(count_reached(found, event) for event in probes) >= 24


def count_reached(found: Workflows, event: tuple[object, ...]) -> int:
    return len({broker for _, broker, filter in found.subscriptions if filter.matches(event)})


@pytest.mark.parametrize("params", SHAPES)
def test_probes_reach_more_edges_than_events_do(params: WorkflowsParams) -> None:
    found = draw(params)
    events = found.events(100, np.random.default_rng(1))
    probes = found.probes(10, np.random.default_rng(1))
    assert len(events) == 100
    assert len(probes) == 10
    worst = min(count_reached(found, event) for event in probes)
    assert worst >= np.quantile([count_reached(found, event) for event in events], 0.95)
    assert worst > 0


def test_some_events_are_wanted_by_several_roots() -> None:
    found = draw(WorkflowsParams(subscriptions=3_000, workflows=10))
    wanted = [
        sum(found.subscriptions[root][2].matches(event) for root in found.roots)
        for event in found.events(500, np.random.default_rng(1))
    ]
    assert 1.3 < np.mean(wanted) < 2.5
    assert max(wanted) >= 3


def test_a_family_of_the_clustered_workload_is_in_one_cluster() -> None:
    found = draw(SHAPES[1])
    clusters = edge_clusters(Clusters.INNER)
    cluster_of = {edge: at for at, cluster in enumerate(clusters) for edge in cluster}
    used = [cluster_of[broker] for _, broker, _ in found.subscriptions]
    assert all(used[at] == used[root] for at, root in enumerate(found.root_of))
    assert len(set(used)) > 3
    assert len({broker for _, broker, _ in found.subscriptions}) > len(set(used))


def test_roots_are_issued_at_any_time() -> None:
    found = draw(SMALL)
    later = [at < root for at, root in enumerate(found.root_of) if at != root]
    assert 0.3 < np.mean(later) < 0.7


def describe(found: Workflows, seed: int) -> list[object]:
    rng = np.random.default_rng(seed)
    return [found.subscriptions, found.roots, found.events(20, rng), found.probes(5, rng)]


@pytest.mark.parametrize("params", SHAPES[:3])
def test_the_same_seed_draws_the_same(params: WorkflowsParams) -> None:
    one, same, other = (describe(draw(params, seed), seed) for seed in (5, 5, 6))
    assert one == same
    assert all(a != b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "bad",
    [
        {"subscriptions": 30},
        {"degree": 0},
        {"dimensions": 3},
        {"narrowest": 0.6},
        {"held": 0.4},
        {"overlap": 0.0},
        {"workflows": 0},
    ],
)
def test_parameters_that_make_no_sense_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"at least one|dimensions|must satisfy"):
        WorkflowsParams(**bad)


# --- roaming -------------------------------------------------------------------------------------


def test_the_tiered_network_has_four_equal_regions() -> None:
    topology = tiered_topology()
    assert Counter(map(tier_of, topology.brokers)) == {0: 1, 1: 4, 2: 12, 3: 36}
    regions = Counter(map(region_of, topology.brokers))
    assert regions.pop(None) == 1
    assert regions == dict.fromkeys(topology.neighbours("core"), 13)
    for a, b in topology.delays:
        assert abs(tier_of(a) - tier_of(b)) == 1


def test_monitors_move_every_two_minutes_for_six_hours() -> None:
    found = draw_roaming()
    assert len(found.moves) == 180
    assert {b.at - a.at for a, b in pairwise(found.moves)} == {120.0}
    assert found.moves[-1].at == 6 * 3600
    assert {move.client for move in found.moves} == {client for client, _, _ in found.monitors}


def test_others_move_sixty_times_a_minute_if_asked_to() -> None:
    found = draw_roaming(moves_per_minute=60, duration=600.0)
    monitors = {client for client, _, _ in found.monitors}
    assert sum(move.client in monitors for move in found.moves) == 5
    assert len(found.moves) == 605
    assert [move.at for move in found.moves] == sorted(move.at for move in found.moves)


def test_everybody_moves_to_another_broker_of_the_same_region() -> None:
    found = draw_roaming(moves_per_minute=60)
    here = {client: broker for client, broker, _ in (*found.subscriptions, *found.monitors)}
    assert all(region_of(broker) is not None for broker in here.values())
    for _, client, broker in found.moves:
        assert broker != here[client]
        assert region_of(broker) == region_of(here[client])
        here[client] = broker


def test_monitors_one_for_each_region_are_the_only_covers() -> None:
    found = draw_roaming()
    assert len({region_of(broker) for _, broker, _ in found.monitors}) == len(found.monitors) == 4
    filters = [filter for _, _, filter in found.subscriptions]
    for filter in filters:
        assert sum(covers(other, filter) for other in filters) == 1
        assert all(covers(monitor, filter) for _, _, monitor in found.monitors)


def test_by_default_there_are_as_many_who_roam_as_in_the_paper() -> None:
    found = roaming(RoamingParams(moves_per_minute=60), np.random.default_rng(0))
    assert len(found.subscriptions) == 5_000
    assert len(found.publishers) == 40
    assert len(found.moves) == 180 + 6 * 60 * 60
    assert len({broker for _, broker, _ in found.subscriptions}) == 52
    event = found.events(1, np.random.default_rng(0))[0]
    assert 1 <= sum(filter.matches(event) for _, _, filter in found.subscriptions) < 50


def test_the_same_seed_roams_the_same() -> None:
    def seen(found: Roaming) -> list[object]:
        return [found.subscriptions, found.monitors, found.publishers, found.moves]

    one, same, other = (seen(draw_roaming(seed, moves_per_minute=1)) for seed in (5, 5, 6))
    assert one == same
    assert all(a != b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "bad",
    [
        {"publishers": 0},
        {"workflows": 0},
        {"duration": -1.0},
        {"seconds_between_monitors": 0.0},
        {"moves_per_minute": -1.0},
        {"widest": 1.0},
    ],
)
def test_roaming_that_makes_no_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(
        ValueError, match=r"at least 1|must be above 0|moves_per_minute|must satisfy"
    ):
        RoamingParams(**bad)  # type: ignore[arg-type]
