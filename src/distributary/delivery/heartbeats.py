"""When sessions have to tell how far they have come: soon after a packet, then less often."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from distributary.delivery.outgoing import Outgoing

__all__ = ["Heartbeats"]


class Heartbeats:
    """The next heartbeat of each session; a packet sent puts it off."""

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most
        self._heap: list[tuple[float, int, Outgoing]] = []
        self._pushed = 0

    def put_off(self, stream: Outgoing, now: float) -> None:
        """Begin anew with the shortest wait."""
        stream.heartbeat_wait = self._least
        stream.heartbeat_at = now + self._least
        if stream.heartbeat_at < stream.looked_at_at:
            self._look_at(stream)

    def due(self, now: float) -> Iterator[Outgoing]:
        """Sessions whose heartbeat is due; the wait for the next is twice as long."""
        while self._heap and self._heap[0][0] <= now:
            at, _, stream = heappop(self._heap)
            if at != stream.looked_at_at:
                continue  # there was reason to look earlier
            if stream.heartbeat_at <= now:
                yield stream
                stream.heartbeat_wait = min(2 * stream.heartbeat_wait, self._most)
                stream.heartbeat_at = now + stream.heartbeat_wait
            self._look_at(stream)

    def next_at(self) -> float:
        """When to look again."""
        return self._heap[0][0] if self._heap else float("inf")

    def drop(self, streams: set[Outgoing]) -> None:
        """Sessions that have ended need no heartbeats."""
        self._heap = [beat for beat in self._heap if beat[2] not in streams]
        heapify(self._heap)

    def _look_at(self, stream: Outgoing) -> None:
        """See at the time of its next heartbeat whether it was put off."""
        stream.looked_at_at = stream.heartbeat_at
        self._pushed += 1
        heappush(self._heap, (stream.heartbeat_at, self._pushed, stream))
