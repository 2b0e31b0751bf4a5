"""The receiver's side of sessions: what came of each, and what waits for what did not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from distributary.delivery._wire_kernels import ByteArray
from distributary.delivery.gaps import Gaps

__all__ = ["Entry", "Following", "Incoming"]

Entry = tuple[int, int, int, int]  # flow, sequence, and the payload's place in its bytes
_NEVER = float("inf")


@dataclass(slots=True, eq=False)
class Incoming:
    """One session of a plan version, as a stream: a place in the receiver's arrays."""

    version: int
    session: int
    group: str | None  # None: by unicast
    place: int
    gaps: Gaps
    started: bool  # whether it is known which packet to begin with
    heard: bool = False
    end: int | None = None  # the last packet there will be
    poll_at: float = _NEVER  # when to ask where the session ends
    polls: int = 0
    _held: dict[int, tuple[ByteArray, list[Entry]]] = field(default_factory=dict)
    _order: list[int] = field(default_factory=list)

    @property
    def holds(self) -> int:
        """How many packets wait here."""
        return len(self._held)

    def hold(self, sequence: int, packet: ByteArray, entries: list[Entry]) -> None:
        """Keep a packet's messages until those before them came or are given up."""
        self._held[sequence] = packet, entries
        heappush(self._order, sequence)

    def release(self, below: int) -> Iterator[tuple[ByteArray, list[Entry]]]:
        """Take out what waits below a sequence number, in order."""
        while self._order and self._order[0] < below:
            yield self._held.pop(heappop(self._order))


@dataclass(slots=True, eq=False)
class Following:
    """A plan version that the receiver follows; `row` is its place in the tables."""

    version: int
    row: int
    streams: dict[int, Incoming]  # by place
    open: bool = False  # whether all of the versions before is done with
