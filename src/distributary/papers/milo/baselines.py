"""The baselines for Tamara: K-means over topics, and clusters that fit from the start."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from distributary.cost import OperatingPrices
from distributary.cost.updates import Channel, toll
from distributary.model import FloatArray
from distributary.model.topics import BoolArray, Clustering

__all__ = ["kmeans_clustering", "starting_clustering"]

_STARTS = 3
_PASSES = 50


def kmeans_clustering(
    wants: BoolArray, k: int, rng: np.random.Generator, *, starts: int = _STARTS
) -> Clustering:
    """Disjoint clusters of topics with similar users, the best of some starts.

    A user joins a cluster if it wants more than half of its topics, and gets the rest directly.
    """
    points = wants.T.astype(np.float64)
    group = min(
        (_lloyd(points, min(k, len(points)), rng) for _ in range(starts)),
        key=lambda found: _inertia(points, found),
    )
    state = Clustering(*wants.shape)
    for at in np.unique(group):
        topics = np.flatnonzero(group == at)
        if len(topics) > 1:
            cluster = state.form(topics)
            state.join(np.flatnonzero(2 * wants[:, topics].sum(axis=1) > len(topics)), cluster)
    return _follow_uncovered(state, wants)


def starting_clustering(
    wants: BoolArray, clusters: BoolArray | None, frequency: FloatArray, prices: OperatingPrices
) -> Clustering:
    """An initial clustering: users join the clusters that pay for them, else follow topics."""
    state = Clustering(*wants.shape)
    for carried in clusters if clusters is not None else ():
        topics = np.flatnonzero(carried)
        alone = wants[:, topics] @ np.array(
            [toll(prices, Channel(1, float(f))) for f in frequency[topics]]
        )
        price = toll(prices, Channel(1, float(frequency[topics].sum()), len(topics)))
        state.join(np.flatnonzero(alone > price), state.form(topics))
    return _follow_uncovered(state, wants)


def _follow_uncovered(state: Clustering, wants: BoolArray) -> Clustering:
    """Let users follow the wanted topics that no cluster brings them."""
    for topic in range(state.n_topics):
        rows = np.flatnonzero(wants[:, topic])
        state.follow(rows[state.copies[rows, topic] == 0], topic)
        state.want(rows, topic)
    return state


def _lloyd(
    points: npt.NDArray[np.float64], k: int, rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    centres = points[rng.choice(len(points), k, replace=False)].copy()
    group = np.full(len(points), -1)
    for _ in range(_PASSES):
        nearest = ((centres**2).sum(axis=1) - 2 * points @ centres.T).argmin(axis=1)
        if np.array_equal(nearest, group):
            break
        group = nearest
        for at in np.unique(group):
            centres[at] = points[group == at].mean(axis=0)
    return group


def _inertia(points: npt.NDArray[np.float64], group: npt.NDArray[np.intp]) -> float:
    return sum(
        float(((points[group == at] - points[group == at].mean(axis=0)) ** 2).sum())
        for at in np.unique(group)
    )
