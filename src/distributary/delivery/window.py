"""The last packets of a stream, which the sender can retransmit."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["RepairWindow"]


class RepairWindow:
    """Keeps packets up to a number and a size; drops the oldest, never the newest."""

    __slots__ = ("_bytes", "_max_bytes", "_max_packets", "_packets", "_repaired", "first")

    def __init__(self, max_packets: int, max_bytes: int) -> None:
        self._max_packets = max_packets
        self._max_bytes = max_bytes
        self._packets: OrderedDict[int, bytes] = OrderedDict()
        self._repaired: dict[int, float] = {}
        self._bytes = 0
        self.first = 1  # the oldest packet here, or the next to come

    def add(self, sequence: int, packet: bytes) -> None:
        """Keep a packet with the next sequence number."""
        self._packets[sequence] = packet
        self._bytes += len(packet)
        while len(self._packets) > 1 and (
            len(self._packets) > self._max_packets or self._bytes > self._max_bytes
        ):
            old, gone = self._packets.popitem(last=False)
            self._bytes -= len(gone)
            self._repaired.pop(old, None)
            self.first = old + 1

    def clear(self) -> None:
        """Drop all packets."""
        if self._packets:
            self.first = next(reversed(self._packets)) + 1
        self._packets.clear()
        self._repaired.clear()
        self._bytes = 0

    def get(self, sequence: int) -> bytes | None:
        """A packet, or None if it was dropped."""
        return self._packets.get(sequence)

    def note_repair(self, sequence: int, now: float) -> None:
        """Note that a packet was retransmitted."""
        self._repaired[sequence] = now

    def is_held_off(self, sequence: int, now: float, hold_off: float) -> bool:
        """Whether a packet was retransmitted less than `hold_off` ago."""
        return now < self._repaired.get(sequence, float("-inf")) + hold_off
