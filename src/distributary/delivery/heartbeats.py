"""When streams tell in heartbeats how far they have come: soon after a packet, then less often."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from distributary.delivery.outgoing import OutgoingStream

__all__ = ["Heartbeats"]


class Heartbeats:
    """The next heartbeat of each stream; sending a packet puts it off.

    One packet has the heartbeats of all streams of a group that are due, or soon would be.
    """

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most
        self._heap: list[tuple[float, int, OutgoingStream]] = []
        self._groups: dict[str, dict[OutgoingStream, None]] = {}
        self._pushed = 0

    def put_off(self, stream: OutgoingStream, now: float) -> None:
        """Wait the shortest time again before the next heartbeat."""
        stream.heartbeat_wait = self._least
        stream.heartbeat_at = now + self._least
        if stream.heartbeat_at < stream.check_at:
            self._groups.setdefault(stream.to, {})[stream] = None
            self._schedule_check(stream)

    def take_due(self, now: float) -> Iterator[list[OutgoingStream]]:
        """Streams whose heartbeat is due, group by group; doubles their wait.

        With them come the streams of the group that have waited for more than half of their time.
        """
        while self._heap and self._heap[0][0] <= now:
            at, _, stream = heappop(self._heap)
            if at != stream.check_at:
                continue  # an earlier check replaced this one
            if stream.heartbeat_at <= now:
                due = [
                    each
                    for each in self._groups[stream.to]
                    if each.heartbeat_at - now <= each.heartbeat_wait / 2
                ]
                for each in due:
                    each.heartbeat_wait = min(2 * each.heartbeat_wait, self._most)
                    each.heartbeat_at = now + each.heartbeat_wait
                yield due
            self._schedule_check(stream)

    def next_at(self) -> float:
        """When to check the next stream."""
        return self._heap[0][0] if self._heap else float("inf")

    def drop(self, streams: set[OutgoingStream]) -> None:
        """Stop the heartbeats of these streams."""
        self._heap = [beat for beat in self._heap if beat[2] not in streams]
        heapify(self._heap)
        for stream in streams:
            group = self._groups.get(stream.to, {})
            group.pop(stream, None)
            if not group:
                self._groups.pop(stream.to, None)

    def _schedule_check(self, stream: OutgoingStream) -> None:
        """Check the stream at the time of its next heartbeat, which may be put off until then."""
        stream.check_at = stream.heartbeat_at
        self._pushed += 1
        heappush(self._heap, (stream.heartbeat_at, self._pushed, stream))
