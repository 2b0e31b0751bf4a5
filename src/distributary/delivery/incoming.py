"""The receiver's state of each session: what is missing, and the packets held behind a gap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from distributary.delivery._wire_kernels import ByteArray
from distributary.delivery.gaps import Gaps

__all__ = ["Entry", "FollowedVersion", "IncomingStream"]

Entry = tuple[
    int, int, int, int
]  # flow, sequence, and where the payload begins and ends in its bytes
_NEVER = float("inf")


@dataclass(slots=True, eq=False)
class IncomingStream:
    """One session of a plan version, as a stream; `slot` is its index in the receiver's arrays."""

    version: int
    session: int
    group: str | None  # None: by unicast
    slot: int
    gaps: Gaps
    started: bool  # whether it is known with which packet the stream starts
    end: int | None = None  # the last packet there will be
    poll_at: float = _NEVER  # when to poll for the end of the stream
    polls: int = 0
    _held: dict[int, tuple[ByteArray, list[Entry]]] = field(default_factory=dict)
    _order: list[int] = field(default_factory=list)

    @property
    def holds(self) -> int:
        """How many packets are held."""
        return len(self._held)

    def hold(self, sequence: int, packet: ByteArray, entries: list[Entry]) -> None:
        """Keep a packet's messages until all before them arrived or were given up."""
        self._held[sequence] = packet, entries
        heappush(self._order, sequence)

    def release(self, below: int) -> Iterator[tuple[ByteArray, list[Entry]]]:
        """Take out the held packets below a sequence number, in order."""
        while self._order and self._order[0] < below:
            yield self._held.pop(heappop(self._order))


@dataclass(slots=True, eq=False)
class FollowedVersion:
    """A plan version that the receiver follows; `row` is its row in the tables."""

    version: int
    row: int
    streams: dict[int, IncomingStream]  # by slot
    open: bool = False  # whether all earlier versions are complete
