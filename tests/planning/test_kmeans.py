from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributary.planning import _reference as reference
from distributary.planning.kmeans import kmeans, random_start
from tests.strategies import Clustering, clusterings


def start(drawn: Clustering) -> np.ndarray:
    return np.array(drawn.cluster, np.int32)


@given(drawn=clusterings())
def test_kmeans_ends_where_plain_passes_end(drawn: Clustering) -> None:
    cluster, moves = drawn.cluster, 1
    while moves:
        cluster, moves, _ = reference.kmeans_pass(
            drawn.receivers, drawn.weight, cluster, drawn.n_clusters
        )
    assert kmeans(drawn.things, start(drawn), drawn.n_clusters).tolist() == cluster


@given(drawn=clusterings())
def test_kmeans_ends_only_where_no_single_move_helps(drawn: Clustering) -> None:
    cluster = kmeans(drawn.things, start(drawn), drawn.n_clusters).tolist()
    cost = reference.clustering_cost(drawn.receivers, drawn.weight, cluster)
    assert cost <= reference.clustering_cost(drawn.receivers, drawn.weight, drawn.cluster)
    for k in range(len(cluster)):
        for c in range(drawn.n_clusters):
            moved = [*cluster[:k], c, *cluster[k + 1 :]]
            assert reference.clustering_cost(drawn.receivers, drawn.weight, moved) >= cost


@given(drawn=clusterings())
def test_kmeans_leaves_its_start_alone_and_tells_a_falling_cost(drawn: Clustering) -> None:
    begin, told = start(drawn), []
    cluster = kmeans(drawn.things, begin, drawn.n_clusters, told.append)
    assert begin.tolist() == drawn.cluster
    first = reference.clustering_cost(drawn.receivers, drawn.weight, drawn.cluster)
    last = reference.clustering_cost(drawn.receivers, drawn.weight, cluster.tolist())
    *falling, end = [first, *told]
    assert all(a > b for a, b in pairwise(falling))
    assert falling[-1] == end == last  # a pass without a move is the last


def test_an_empty_cluster_is_filled_and_a_thing_alone_stays() -> None:
    # Tock, trap 5: an empty cluster is at distance 0.
    drawn = Clustering(4, [{0, 1}, {2}, {3}], [5, 1, 1], 3, [0, 0, 0])
    cluster = kmeans(drawn.things, start(drawn), 3).tolist()
    assert sorted(cluster) == [0, 1, 2]


@given(things=st.integers(1, 50), clusters=st.integers(1, 9), seed=st.integers(0, 99))
def test_a_random_start_is_in_range_and_repeats_with_its_seed(
    things: int, clusters: int, seed: int
) -> None:
    drawn = random_start(things, clusters, np.random.default_rng(seed))
    assert drawn.dtype == np.int32
    assert len(drawn) == things
    assert set(drawn.tolist()) <= set(range(clusters))
    assert drawn.tolist() == random_start(things, clusters, np.random.default_rng(seed)).tolist()


def test_a_random_start_uses_every_cluster() -> None:
    drawn = random_start(10_000, 5, np.random.default_rng(1))
    shares = np.bincount(drawn) / 10_000
    assert len(shares) == 5
    assert abs(shares - 0.2).max() < 0.02
