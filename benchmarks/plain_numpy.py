"""The same algorithms in straightforward NumPy, with dense arrays."""

from __future__ import annotations

import numpy as np

from distributary.model import IndexArray, IntArray


def kmeans(wanted: np.ndarray, weight: IntArray, start: IndexArray, n_clusters: int) -> IndexArray:
    """K-means with distance (8), one flow at a time, all clusters at once."""
    wanted = wanted.astype(np.int64)
    cluster = start.copy()
    count = np.zeros((n_clusters, wanted.shape[1]), np.int64)
    np.add.at(count, cluster, wanted)
    total = np.bincount(cluster, weights=weight, minlength=n_clusters).astype(np.int64)
    moved = True
    while moved:
        moved = False
        for k in range(len(cluster)):
            count[cluster[k]] -= wanted[k]
            total[cluster[k]] -= weight[k]
            present = count > 0
            shared = present @ wanted[k]
            distance = weight[k] * (present.sum(axis=1) - shared) + total * (
                wanted[k].sum() - shared
            )
            nearest = int(np.argmin(distance))
            if distance[nearest] < distance[cluster[k]]:
                cluster[k] = nearest
                moved = True
            count[cluster[k]] += wanted[k]
            total[cluster[k]] += weight[k]
    return cluster


def groups_first(
    wanted: np.ndarray,
    weight: IntArray,
    n_sessions: int,
    n_groups: int,
    rng: np.random.Generator,
) -> tuple[IndexArray, IndexArray]:
    """GF with an equal share of sessions for each group; returns flow -> session, flow -> group."""
    start = rng.integers(n_groups, size=len(weight), dtype=np.int32)
    group = kmeans(wanted, weight, start, n_groups)
    session = np.empty(len(weight), np.int32)
    share = n_sessions // n_groups
    for g in range(n_groups):
        flows = np.flatnonzero(group == g)
        begin = rng.integers(share, size=len(flows), dtype=np.int32)
        session[flows] = g * share + kmeans(wanted[flows], weight[flows], begin, share)
    return session, group


def flow_merge(wanted: np.ndarray, weight: IntArray, n_groups: int) -> IndexArray:
    """FBM with the whole table of pairwise costs, as the paper describes it."""
    sets, mass = wanted.astype(bool), weight.astype(np.int64)
    size = sets.sum(axis=1)
    n = len(mass)
    huge = np.iinfo(np.int64).max
    shared = sets.astype(np.int32) @ sets.astype(np.int32).T
    cost = mass[:, None] * (size[None, :] - shared) + mass[None, :] * (size[:, None] - shared)
    cost[np.tril_indices(n)] = huge
    owner = np.arange(n)
    alive = np.ones(n, bool)
    for _ in range(n - n_groups):
        a, b = divmod(int(np.argmin(cost)), n)
        owner[owner == b] = a
        sets[a] |= sets[b]
        mass[a] += mass[b]
        size[a] = sets[a].sum()
        alive[b] = False
        cost[b] = huge
        cost[:, b] = huge
        overlap = sets @ sets[a].astype(np.int64)
        row = mass[a] * (size - overlap) + mass * (size[a] - overlap)
        cost[a, a + 1 :] = np.where(alive[a + 1 :], row[a + 1 :], huge)
        cost[:a, a] = np.where(alive[:a], row[:a], huge)
    return np.unique(owner, return_inverse=True)[1].astype(np.int32)
