"""When each session sends its next heartbeat: soon after a packet, then less often."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from distributary.delivery.outgoing import OutgoingStream

__all__ = ["Heartbeats"]


class Heartbeats:
    """The next heartbeat of each session; sending a packet puts it off."""

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most
        self._heap: list[tuple[float, int, OutgoingStream]] = []
        self._pushed = 0

    def put_off(self, stream: OutgoingStream, now: float) -> None:
        """Wait the shortest time again before the next heartbeat."""
        stream.heartbeat_wait = self._least
        stream.heartbeat_at = now + self._least
        if stream.heartbeat_at < stream.check_at:
            self._schedule_check(stream)

    def take_due(self, now: float) -> Iterator[OutgoingStream]:
        """Sessions whose heartbeat is due; doubles their wait."""
        while self._heap and self._heap[0][0] <= now:
            at, _, stream = heappop(self._heap)
            if at != stream.check_at:
                continue  # an earlier check replaced this one
            if stream.heartbeat_at <= now:
                yield stream
                stream.heartbeat_wait = min(2 * stream.heartbeat_wait, self._most)
                stream.heartbeat_at = now + stream.heartbeat_wait
            self._schedule_check(stream)

    def next_at(self) -> float:
        """When to check the next session."""
        return self._heap[0][0] if self._heap else float("inf")

    def drop(self, streams: set[OutgoingStream]) -> None:
        """Stop the heartbeats of these sessions."""
        self._heap = [beat for beat in self._heap if beat[2] not in streams]
        heapify(self._heap)

    def _schedule_check(self, stream: OutgoingStream) -> None:
        """Check the session at the time of its next heartbeat, which may be put off until then."""
        stream.check_at = stream.heartbeat_at
        self._pushed += 1
        heappush(self._heap, (stream.heartbeat_at, self._pushed, stream))
