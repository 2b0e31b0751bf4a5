"""The leaf set: the nearest peers on both sides of a peer's own place on the ring.

Reference: A. Rowstron, P. Druschel, "Pastry: Scalable, decentralized object location and routing
for large-scale peer-to-peer systems" (2001), section 2.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from distributary.topics.overlay.identifiers import RING, Peer, distance

__all__ = ["LeafSet"]

_MOST_KEYS = 10_000  # whose nearest member is remembered


class LeafSet:
    """Up to `size / 2` peers on each side; all peers if there are fewer.

    `members` is keyed by name. It is replaced and never mutated, so that it can be sent as it is.
    """

    def __init__(self, own: Peer, size: int, members: Iterable[Peer] = ()) -> None:
        if size < 2 or size % 2:
            raise ValueError(f"the size of a leaf set must be even and above 0, not {size}")
        self.own = own
        self.size = size
        self.members: dict[str, Peer] = {}
        self.after: list[Peer] = []
        self.before: list[Peer] = []
        self._nearest: dict[int, Peer] = {}  # by key, as far as asked
        self._choose(members)

    def fits(self, peer: Peer) -> bool:
        """Whether the peer is new and nearer than the farthest member of one side."""
        if peer.name in self.members or peer == self.own:
            return False
        if self.is_short:
            return True
        ahead = (peer.identifier - self.own.identifier) % RING
        return ahead < self._reach_after or RING - ahead < self._reach_before

    def add(self, peer: Peer) -> bool:
        """Add a peer if it fits."""
        if not self.fits(peer):
            return False
        self._choose((*self.members.values(), peer))
        return True

    def remove(self, name: str) -> bool:
        """Remove a peer if it is a member."""
        if name not in self.members:
            return False
        self._choose([peer for peer in self.members.values() if peer.name != name])
        return True

    @property
    def is_short(self) -> bool:
        """Whether there is room for more: the ring is small, or a lost leaf is not replaced yet."""
        return len(self.members) < self.size

    def covers(self, key: int) -> bool:
        """Whether the key lies between members, so that the peer nearest to it is known."""
        ahead = (key - self.own.identifier) % RING
        return ahead <= self._reach_after or RING - ahead <= self._reach_before

    def nearest(self, key: int) -> Peer:
        """The peer nearest to the key, among the members and the owner."""
        found = self._nearest.get(key)
        if found is None:
            if len(self._nearest) >= _MOST_KEYS:
                self._nearest.clear()
            found = self._nearest[key] = min(
                chain((self.own,), self.members.values()),
                key=lambda peer: distance(key, peer.identifier),
            )
        return found

    def nearest_members(self, key: int, n: int) -> list[Peer]:
        """The n members nearest to the key, or all if there are fewer."""
        return sorted(self.members.values(), key=lambda peer: distance(key, peer.identifier))[:n]

    def _choose(self, peers: Iterable[Peer]) -> None:
        own, half = self.own.identifier, self.size // 2
        ahead = sorted(peers, key=lambda peer: (peer.identifier - own) % RING)
        # The sides of a short leaf set meet at the widest gap, which is most likely where peers are
        # unknown.
        if len(ahead) < self.size:
            split = rest = self._widest_gap(ahead)
        else:
            split, rest = half, len(ahead) - half
        self.after, self.before = ahead[:split], ahead[rest:][::-1]
        self.members = {peer.name: peer for peer in chain(self.before, self.after)}
        self._nearest.clear()
        self._reach_after = (self.after[-1].identifier - own) % RING if self.after else 0
        self._reach_before = (own - self.before[-1].identifier) % RING if self.before else 0

    def _widest_gap(self, ahead: list[Peer]) -> int:
        """The number of peers before the widest gap of the ring, going clockwise."""
        own = self.own.identifier
        places = [0, *((peer.identifier - own) % RING for peer in ahead), RING]
        return max(range(len(ahead) + 1), key=lambda at: places[at + 1] - places[at])
