"""A converged ring of peers, computed directly instead of by exchanging messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distributary.topics.overlay.identifiers import BITS, DIGIT_BITS, DIGITS, RADIX

__all__ = ["Ring", "TreeSizes", "build_ring", "measure_trees"]

IdentifierArray = NDArray[np.uint64]
PlaceArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """Peers by index, in the order of their identifiers.

    `identifiers` are sorted, one per peer. `table[peer, row, column]` is the index of the peer in
    that slot of the peer's routing table, -1 if the slot is empty.
    """

    identifiers: IdentifierArray
    table: PlaceArray
    leaf_set: int

    def leaves(self, place: int) -> list[int]:
        """The indices of a peer's leaf set."""
        n, half = len(self.identifiers), self.leaf_set // 2
        around = [(place + step) % n for step in range(-half, half + 1)]
        return [at for at in dict.fromkeys(around) if at != place]

    def entries(self, place: int) -> list[int]:
        """The indices of the peers in a peer's routing table."""
        found = self.table[place]
        return [int(at) for at in found[found >= 0]]

    def next_hops(self, key: int) -> PlaceArray:
        """For each peer the next hop to a key; the peer itself if the key belongs to it."""
        nearest = self.nearest(key)
        wanted = np.uint64(key)
        places = np.arange(len(self.identifiers))
        row = _count_shared_digits(self.identifiers, wanted)
        column = (key >> (BITS - DIGIT_BITS * (np.minimum(row, DIGITS - 1) + 1)).astype(object)) & (
            RADIX - 1
        )
        known = row < self.table.shape[1]
        hops = np.full(len(places), -1)
        hops[known] = self.table[places[known], row[known], column[known].astype(np.int64)]
        covered = self._find_covering_peers(wanted)
        hops[covered] = nearest
        for place in np.flatnonzero(hops < 0):
            hops[place] = self._find_nearest_known(int(place), key, int(row[place]))
        return hops

    def nearest(self, key: int) -> int:
        """The index of the peer that a key belongs to."""
        ahead = self.identifiers - np.uint64(key)  # unsigned subtraction wraps around the ring
        far = np.minimum(ahead, -ahead)
        return int(np.flatnonzero(far == far.min())[0])

    def _find_covering_peers(self, key: np.uint64) -> NDArray[np.bool_]:
        """Whether each peer's leaf set covers the key."""
        ids, half = self.identifiers, self.leaf_set // 2
        if len(ids) <= self.leaf_set:
            return np.ones(len(ids), dtype=bool)
        ahead = key - ids
        after = np.roll(ids, -half) - ids
        before = ids - np.roll(ids, half)
        covered: NDArray[np.bool_] = (ahead <= after) | (-ahead <= before)
        return covered

    def _find_nearest_known(self, place: int, key: int, row: int) -> int:
        """The known peer nearest to the key that shares at least `row` digits with it."""
        known = np.array([place, *self.leaves(place), *self.entries(place)])
        ids = self.identifiers[known]
        known = known[_count_shared_digits(ids, np.uint64(key)) >= row]
        ahead = self.identifiers[known] - np.uint64(key)
        far = np.minimum(ahead, -ahead)
        return int(known[far == far.min()].min())


def build_ring(identifiers: Sequence[int], rng: np.random.Generator, *, leaf_set: int = 16) -> Ring:
    """The ring of these peers; each slot holds a random one of the peers that fit there."""
    ids = np.array(sorted(identifiers), dtype=np.uint64)
    if len(ids) == 0 or (np.diff(ids) == 0).any():
        raise ValueError("a ring needs at least one peer, and identifiers must be unique")
    deepest = int(_count_shared_digits(ids[1:], ids[:-1]).max(initial=-1))
    rows = [_draw_row(ids, row, rng) for row in range(deepest + 1)]
    table = np.stack(rows, axis=1) if rows else np.full((1, 1, RADIX), -1)
    return Ring(ids, table, leaf_set)


def _draw_row(ids: IdentifierArray, row: int, rng: np.random.Generator) -> PlaceArray:
    """One row of all routing tables; the peers that fit a slot are contiguous."""
    below = np.uint64(BITS - DIGIT_BITS * (row + 1))
    prefix = ids >> below >> np.uint64(DIGIT_BITS) << np.uint64(DIGIT_BITS)
    numbers = prefix[:, None] | np.arange(RADIX, dtype=np.uint64)
    lowest = numbers << below
    highest = lowest | ((np.uint64(1) << below) - np.uint64(1))
    start = np.searchsorted(ids, lowest, side="left")
    count = np.searchsorted(ids, highest, side="right") - start
    chosen = start + (rng.random(count.shape) * count).astype(np.int64)
    own = numbers == (ids >> below)[:, None]
    return np.where((count > 0) & ~own, chosen, -1)


def _count_shared_digits(ids: IdentifierArray, key: np.uint64 | IdentifierArray) -> PlaceArray:
    """The number of leading digits that each identifier shares with the key."""
    differs = ids ^ key
    shared = np.zeros(differs.shape, dtype=np.int64)
    for row in range(DIGITS):
        shared += (differs >> np.uint64(BITS - DIGIT_BITS * (row + 1))) == 0
    return shared


@dataclass(frozen=True, slots=True, eq=False)
class TreeSizes:
    """Sizes of trees by the number of random subscribers; means over sampled groups.

    `peers` counts all peers of a tree: subscribers, helpers, and the root, which is a helper unless
    it subscribes. An event crosses `peers - 1` edges. `depth` is the number of hops from a
    subscriber to the root.
    """

    subscribers: PlaceArray
    peers: NDArray[np.float64]
    helpers: NDArray[np.float64]
    depth: NDArray[np.float64]

    def size(self, subscribers: int) -> float:
        """The peers of a tree with that many subscribers, interpolated linearly."""
        return float(np.interp(subscribers, self.subscribers, self.peers))


def measure_trees(
    peers: int,
    subscribers: Sequence[int],
    rng: np.random.Generator,
    *,
    groups: int = 20,
    leaf_set: int = 16,
) -> TreeSizes:
    """Measure trees on a converged ring, without sending messages."""
    counts = np.array(sorted(subscribers), dtype=np.int64)
    if len(counts) == 0 or counts[0] < 0 or counts[-1] > peers:
        raise ValueError(f"subscribers must be from 0 to {peers}, not {subscribers}")
    ring = build_ring(_draw_identifiers(peers, rng), rng, leaf_set=leaf_set)
    size, depth = np.zeros(len(counts)), np.zeros(len(counts))
    for _ in range(groups):
        hops = ring.next_hops(int(rng.integers(0, 1 << BITS, dtype=np.uint64)))
        order = rng.permutation(peers)
        depths = _count_hops(hops)
        for at, n in enumerate(counts):
            size[at] += _find_tree_members(hops, order[:n]).sum()
            depth[at] += depths[order[:n]].mean() if n else 0.0
    size, depth = size / groups, depth / groups
    return TreeSizes(counts, size, size - counts, depth)


def _draw_identifiers(n: int, rng: np.random.Generator) -> list[int]:
    found: dict[int, None] = {}
    while len(found) < n:
        found[int(rng.integers(0, 1 << BITS, dtype=np.uint64))] = None
    return list(found)


def _find_tree_members(hops: PlaceArray, subscribers: PlaceArray) -> NDArray[np.bool_]:
    """Which peers are in the tree: those on the path of a subscriber, and always the root."""
    inside: NDArray[np.bool_] = hops == np.arange(len(hops))
    reached = subscribers
    while len(reached):
        reached = np.unique(reached[~inside[reached]])
        inside[reached] = True
        reached = hops[reached]
    return inside


def _count_hops(hops: PlaceArray) -> PlaceArray:
    """The number of hops from each peer to the root."""
    depths = np.zeros(len(hops), dtype=np.int64)
    reached, places = np.arange(len(hops)), np.arange(len(hops))
    while (moving := hops[reached] != reached).any():
        depths[places[moving]] += 1
        reached = hops[reached]
    return depths
