"""What a ring of peers that has settled looks like, computed at once instead of by messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distributary.protocol.overlay.identifiers import BITS, DIGIT_BITS, DIGITS, RADIX

__all__ = ["Ring", "TreeSizes", "converged_ring", "tree_sizes"]

IdentifierArray = NDArray[np.uint64]
PlaceArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """Peers by their places in the order of identifiers.

    `identifiers`: sorted, one for each peer. `table[peer, row, column]`: the place of the peer in
    that slot of the peer's routing table, -1 where there is none.
    """

    identifiers: IdentifierArray
    table: PlaceArray
    leaf_set: int

    def leaves(self, place: int) -> list[int]:
        """The places of a peer's leaves."""
        n, half = len(self.identifiers), self.leaf_set // 2
        around = [(place + step) % n for step in range(-half, half + 1)]
        return [at for at in dict.fromkeys(around) if at != place]

    def entries(self, place: int) -> list[int]:
        """The places of the peers in a peer's routing table."""
        found = self.table[place]
        return [int(at) for at in found[found >= 0]]

    def next_hops(self, key: int) -> PlaceArray:
        """For each peer the next hop to a key; its own place if the key belongs to it."""
        nearest = self.nearest(key)
        wanted = np.uint64(key)
        places = np.arange(len(self.identifiers))
        row = _shared(self.identifiers, wanted)
        column = (key >> (BITS - DIGIT_BITS * (np.minimum(row, DIGITS - 1) + 1)).astype(object)) & (
            RADIX - 1
        )
        known = row < self.table.shape[1]
        hops = np.full(len(places), -1)
        hops[known] = self.table[places[known], row[known], column[known].astype(np.int64)]
        covered = self._covered(wanted)
        hops[covered] = nearest
        for place in np.flatnonzero(hops < 0):
            hops[place] = self._rare(int(place), key, int(row[place]))
        return hops

    def nearest(self, key: int) -> int:
        """The place of the peer that a key belongs to."""
        ahead = self.identifiers - np.uint64(key)  # around the ring, as unsigned numbers wrap
        far = np.minimum(ahead, -ahead)
        return int(np.flatnonzero(far == far.min())[0])

    def _covered(self, key: np.uint64) -> NDArray[np.bool_]:
        """Whose leaf sets the key lies within."""
        ids, half = self.identifiers, self.leaf_set // 2
        if len(ids) <= self.leaf_set:
            return np.ones(len(ids), dtype=bool)
        ahead = key - ids
        after = np.roll(ids, -half) - ids
        before = ids - np.roll(ids, half)
        covered: NDArray[np.bool_] = (ahead <= after) | (-ahead <= before)
        return covered

    def _rare(self, place: int, key: int, row: int) -> int:
        """Of all known peers with as many digits of the key, the nearest."""
        known = np.array([place, *self.leaves(place), *self.entries(place)])
        ids = self.identifiers[known]
        known = known[_shared(ids, np.uint64(key)) >= row]
        ahead = self.identifiers[known] - np.uint64(key)
        far = np.minimum(ahead, -ahead)
        return int(known[far == far.min()].min())


def converged_ring(
    identifiers: Sequence[int], rng: np.random.Generator, *, leaf_set: int = 16
) -> Ring:
    """The ring of these peers; each slot holds one at random of the peers that may stand there."""
    ids = np.array(sorted(identifiers), dtype=np.uint64)
    if len(ids) == 0 or (np.diff(ids) == 0).any():
        raise ValueError("a ring has at least one peer, and no two of the same identifier")
    deepest = int(_shared(ids[1:], ids[:-1]).max(initial=-1))
    rows = [_random_row(ids, row, rng) for row in range(deepest + 1)]
    table = np.stack(rows, axis=1) if rows else np.full((1, 1, RADIX), -1)
    return Ring(ids, table, leaf_set)


def _random_row(ids: IdentifierArray, row: int, rng: np.random.Generator) -> PlaceArray:
    """One row of all routing tables: the peers of one slot stand next to each other."""
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


def _shared(ids: IdentifierArray, key: np.uint64 | IdentifierArray) -> PlaceArray:
    """With how many digits of the key each identifier begins."""
    differs = ids ^ key
    shared = np.zeros(differs.shape, dtype=np.int64)
    for row in range(DIGITS):
        shared += (differs >> np.uint64(BITS - DIGIT_BITS * (row + 1))) == 0
    return shared


@dataclass(frozen=True, slots=True, eq=False)
class TreeSizes:
    """Trees of so many random subscribers, means over sampled groups.

    `peers` counts all peers of a tree: subscribers, helpers, and the root, which is a helper too
    unless it subscribes. One event crosses `peers - 1` edges. `depth`: hops from a subscriber to
    the root.
    """

    subscribers: PlaceArray
    peers: NDArray[np.float64]
    helpers: NDArray[np.float64]
    depth: NDArray[np.float64]

    def size(self, subscribers: int) -> float:
        """Peers of a tree with so many subscribers, between the sampled numbers by a line."""
        return float(np.interp(subscribers, self.subscribers, self.peers))


def tree_sizes(
    peers: int,
    subscribers: Sequence[int],
    rng: np.random.Generator,
    *,
    groups: int = 20,
    leaf_set: int = 16,
) -> TreeSizes:
    """Measure trees on a settled ring of so many peers, without a message."""
    counts = np.array(sorted(subscribers), dtype=np.int64)
    if len(counts) == 0 or counts[0] < 0 or counts[-1] > peers:
        raise ValueError(f"subscribers are some of the {peers} peers: not {subscribers}")
    ring = converged_ring(_random_identifiers(peers, rng), rng, leaf_set=leaf_set)
    size, depth = np.zeros(len(counts)), np.zeros(len(counts))
    for _ in range(groups):
        hops = ring.next_hops(int(rng.integers(0, 1 << BITS, dtype=np.uint64)))
        order = rng.permutation(peers)
        depths = _depths(hops)
        for at, n in enumerate(counts):
            size[at] += _tree(hops, order[:n]).sum()
            depth[at] += depths[order[:n]].mean() if n else 0.0
    size, depth = size / groups, depth / groups
    return TreeSizes(counts, size, size - counts, depth)


def _random_identifiers(n: int, rng: np.random.Generator) -> list[int]:
    found: dict[int, None] = {}
    while len(found) < n:
        found[int(rng.integers(0, 1 << BITS, dtype=np.uint64))] = None
    return list(found)


def _tree(hops: PlaceArray, subscribers: PlaceArray) -> NDArray[np.bool_]:
    """Which peers are in the tree: those on the way of a subscriber, and the root in any case."""
    inside: NDArray[np.bool_] = hops == np.arange(len(hops))
    reached = subscribers
    while len(reached):
        reached = np.unique(reached[~inside[reached]])
        inside[reached] = True
        reached = hops[reached]
    return inside


def _depths(hops: PlaceArray) -> PlaceArray:
    """How many hops it is from each peer to the root."""
    depths = np.zeros(len(hops), dtype=np.int64)
    reached, places = np.arange(len(hops)), np.arange(len(hops))
    while (moving := hops[reached] != reached).any():
        depths[places[moving]] += 1
        reached = hops[reached]
    return depths
