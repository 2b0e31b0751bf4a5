"""The routing table: each row has peers that share that many digits and differ in the next.

Any peer with the right digits will do; proximity in the network is ignored. Reference: Rowstron and
Druschel, "Pastry" (2001), section 2.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distributary.topics.overlay.identifiers import DIGITS, Peer, count_shared_digits, digit

__all__ = ["RoutingTable"]


class RoutingTable:
    """Peers by row and column; the first peer keeps its slot until it is removed."""

    def __init__(self, own: Peer, peers: Iterable[Peer] = ()) -> None:
        self.own = own
        self._slots: dict[tuple[int, int], Peer] = {}
        for peer in peers:
            self.add(peer)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._slots.values())

    def slot(self, key: int) -> tuple[int, int]:
        """The row and column of a peer with these digits."""
        row = count_shared_digits(self.own.identifier, key)
        return (row, digit(key, row)) if row < DIGITS else (row, 0)

    def entry(self, slot: tuple[int, int]) -> Peer | None:
        """The peer in a slot."""
        return self._slots.get(slot)

    def add(self, peer: Peer) -> bool:
        """Add a peer if its slot is free."""
        slot = self.slot(peer.identifier)
        if slot[0] == DIGITS or slot in self._slots:
            return False
        self._slots[slot] = peer
        return True

    def remove(self, peer: Peer) -> bool:
        """Remove a peer if it is in the table."""
        slot = self.slot(peer.identifier)
        if self._slots.get(slot) != peer:
            return False
        del self._slots[slot]
        return True

    def row(self, number: int) -> list[Peer]:
        """The peers of a row."""
        return [peer for (row, _), peer in self._slots.items() if row == number]

    def rows(self, last: int) -> list[Peer]:
        """The peers of all rows up to `last`."""
        return [peer for (row, _), peer in self._slots.items() if row <= last]
