"""Clustering by reassigning one thing at a time to its nearest cluster.

Reference: Tock et al. (2005), sections 4.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distributary.model import IndexArray
from distributary.planning._kernels import Clusters, cluster_counts, kmeans_pass
from distributary.planning.things import Things

__all__ = ["kmeans", "random_start"]


def random_start(n_things: int, n_clusters: int, rng: np.random.Generator) -> IndexArray:
    """Assign every thing to a random cluster."""
    return rng.integers(n_clusters, size=n_things, dtype=np.int32)


def kmeans(
    things: Things,
    start: IndexArray,
    n_clusters: int,
    after_pass: Callable[[int], None] | None = None,
) -> IndexArray:
    """Reassign things until a whole pass changes nothing; return each one's cluster.

    It ends because each move reduces the intake of all receivers. `after_pass` is called with the
    intake after each pass. Clusters may stay empty if filling them saves nothing.
    """
    cluster = start.copy()
    clusters = Clusters(
        count=np.empty((things.n_receivers, n_clusters), np.int32),
        present=np.empty((things.n_receivers, n_clusters), np.uint8),
        audience=np.empty(n_clusters, np.int64),
        total=np.empty(n_clusters, np.int64),
    )
    shape = (things.offsets, things.members, things.weight, cluster)
    cluster_counts(*shape, clusters)
    intake = int(clusters.audience @ clusters.total)
    moves = 1
    while moves:
        moves, saved = kmeans_pass(*shape, clusters)
        intake -= saved
        if after_pass is not None:
            after_pass(intake)
    return cluster
