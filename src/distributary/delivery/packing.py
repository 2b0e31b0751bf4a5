"""Packs messages into packets, limited by count and size; the sender's timer limits their age."""

from __future__ import annotations

from collections.abc import Iterator

from distributary.delivery.wire import HEADER_SIZE, MESSAGE_HEADER, MESSAGE_HEADER_SIZE

__all__ = ["Packer", "largest_payload", "unpack_messages"]


class Packer:
    """The packet of one session that is being filled."""

    __slots__ = ("_body", "_most", "_room", "_size", "count", "started_at")

    def __init__(self, room: int, most: int) -> None:
        """Up to `most` messages, and `room` bytes for them with their headers."""
        self._room = room
        self._most = most
        self._body: list[bytes] = []
        self._size = 0
        self.count = 0
        self.started_at = 0.0

    @property
    def full(self) -> bool:
        """Whether not even an empty message can be added."""
        return self.count >= self._most or self._size + MESSAGE_HEADER_SIZE > self._room

    def fits(self, length: int) -> bool:
        """Whether a message of that many bytes can be added."""
        size = self._size + MESSAGE_HEADER_SIZE + length
        return self.count < self._most and size <= self._room

    def add(self, flow: int, sequence: int, payload: bytes, now: float) -> None:
        """Add a message that fits."""
        if not self.count:
            self.started_at = now
        self._body += (MESSAGE_HEADER.pack(flow, len(payload), sequence), payload)
        self._size += MESSAGE_HEADER_SIZE + len(payload)
        self.count += 1

    def take(self) -> tuple[int, bytes]:
        """Take all messages out; returns their number, and the body of their packet."""
        count, body = self.count, b"".join(self._body)
        self._body.clear()
        self._size = self.count = 0
        return count, body


def unpack_messages(count: int, body: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The messages of a packet's body: flow, sequence number and payload."""
    at = 0
    for _ in range(count):
        flow, length, sequence = MESSAGE_HEADER.unpack_from(body, at)
        at += MESSAGE_HEADER_SIZE + length
        yield flow, sequence, body[at - length : at]


def largest_payload(room: int) -> int:
    """The longest payload that fits into a packet of that size alone."""
    return room - HEADER_SIZE - MESSAGE_HEADER_SIZE
