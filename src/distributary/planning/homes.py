"""Groups of their own for receivers with similar interests, if flows may be sent several times.

Copies save work in two ways. In a plan that sends each flow once, they save a little where a
receiver is in a session only for a minor flow; the search finds these by itself. A group of their
own (a *home*) for receivers with similar interests saves far more, but also costs far more: homes
win only with a limit of several times the rate of sending each flow once. They are too far from
such a plan for single moves, so the search starts from both.
"""

from __future__ import annotations

import math

import numpy as np

from distributary.cost import FilteringPrices
from distributary.model import IndexArray, IntArray
from distributary.planning.hierarchy import Maps, sessions_in_groups
from distributary.planning.kmeans import kmeans, random_start
from distributary.planning.things import Things
from distributary.planning.two_level import TwoLevel

__all__ = ["give_homes"]


def give_homes(
    things: Things,
    maps: Maps,
    prices: FilteringPrices,
    max_sent: float,
    homes: IndexArray,
    rng: np.random.Generator,
) -> tuple[IndexArray, IndexArray]:
    """Give groups of their own to the clusters that gain most; other receivers share the rest.

    `homes` proposes a cluster for each receiver, no more of them than groups. Returns the session
    from which each pair takes its flow, and the group of each session. All sessions together carry
    at most `max_sent` times the rate of sending each flow once.
    """
    n_groups = int(maps.group.max()) + 1
    if homes.max() >= n_groups:
        raise ValueError(f"{homes.max() + 1} homes for {n_groups} groups")
    limit = float(math.floor(max_sent * int(things.weight.sum())))
    label = _homes_within(things, maps, prices, limit, homes)
    n_homes = int(label.max())  # 0 is for receivers without a home
    flow, parts, owner = _parts(things, label[things.members], n_homes + 1)
    group = (n_groups - owner).astype(np.int32)
    rest = np.flatnonzero(owner == 0)
    if len(rest):
        n_shared = min(n_groups - n_homes, len(rest))
        group[rest] = kmeans(parts.subset(rest), random_start(len(rest), n_shared, rng), n_shared)
    settled = sessions_in_groups(parts, group, len(maps.group), n_groups, rng)
    pairs = np.repeat(flow, np.diff(parts.offsets)) * things.n_receivers + parts.members
    source = np.repeat(settled.session, np.diff(parts.offsets))[np.argsort(pairs)]
    return source.astype(np.int32), settled.group


def _homes_within(
    things: Things, maps: Maps, prices: FilteringPrices, limit: float, homes: IndexArray
) -> IndexArray:
    """Choose homes by saving per rate sent again, within the limit.

    Returns each receiver's home, counted from 1, or 0 for none.
    """
    n_clusters = int(homes.max()) + 1
    state = TwoLevel(things, maps, prices).state
    accepted = state.sessions.present @ state.sessions.total
    received = state.groups.present @ state.groups.total
    paid = np.bincount(homes, prices.beta * accepted + prices.alpha * received)
    flow, parts, cluster = _parts(things, homes[things.members], n_clusters)
    alone = np.bincount(flow)[flow] == 1
    rate = np.bincount(cluster, parts.weight, n_clusters)
    again = rate - np.bincount(cluster, parts.weight * alone, n_clusters)
    saved = paid - (prices.alpha + prices.beta) * np.bincount(homes) * rate
    label = np.zeros(n_clusters, np.int32)
    room = limit - float(things.weight.sum())
    for c in np.argsort(-saved / np.maximum(again, 1.0), kind="stable"):
        if again[c] <= room:
            room -= again[c]
            label[c] = label.max() + 1
    return label[homes]


def _parts(things: Things, label: IndexArray, n_labels: int) -> tuple[IntArray, Things, IndexArray]:
    """Split the pairs of each flow by label; return flow, thing and label of each part."""
    owner = np.repeat(np.arange(len(things)), np.diff(things.offsets))
    key = owner * n_labels + label
    order = np.argsort(key, kind="stable")
    parts, sizes = np.unique(key, return_counts=True)
    flow = parts // n_labels
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    split = Things(things.n_receivers, offsets, things.members[order], things.weight[flow])
    return flow, split, (parts % n_labels).astype(np.int32)
