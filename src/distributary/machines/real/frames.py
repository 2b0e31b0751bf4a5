"""Frames on a stream of bytes: four bytes of length, most significant first, then so many bytes.

A frame of length 0 carries nothing: it is a keep-alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

__all__ = ["KEEP_ALIVE", "FrameSplitter", "FrameTooLongError", "join_frames"]

_HEAD = Struct(">I")
LONGEST_FRAME = (1 << 32) - 1  # what the length can say
KEEP_ALIVE = _HEAD.pack(0)


class FrameTooLongError(ValueError):
    """A frame announces more bytes than allowed."""

    def __init__(self, length: int, longest: int) -> None:
        self.length = length
        self.longest = longest
        super().__init__(f"a frame of {length:,} bytes is longer than the {longest:,} allowed")


def join_frames(bodies: Iterable[bytes]) -> bytes:
    """Put bodies into frames, one after the other."""
    parts: list[bytes] = []
    for body in bodies:
        if len(body) > LONGEST_FRAME:
            raise FrameTooLongError(len(body), LONGEST_FRAME)
        parts += (_HEAD.pack(len(body)), body)
    return b"".join(parts)


class FrameSplitter:
    """Splits a stream into the bodies of its frames.

    `longest` may change between frames. The splitter keeps at most that many bytes of an incomplete
    frame, besides what was fed last.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self._buffer = bytearray()
        self._at = 0  # everything before is done

    def feed(self, data: bytes) -> None:
        """Add bytes as they arrive."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def pop(self) -> bytes | None:
        """Take the body of the next frame that is no keep-alive; None if it is incomplete.

        Raises `FrameTooLongError` as soon as the length is known; nothing can follow then.
        """
        body = self.pop_any()
        while body == b"":
            body = self.pop_any()
        return body

    def pop_any(self) -> bytes | None:
        """Take the body of the next frame as `pop` does; that of a keep-alive is empty."""
        first = self._at + _HEAD.size
        if len(self._buffer) < first:
            return None
        (length,) = _HEAD.unpack_from(self._buffer, self._at)
        if length > self.longest:
            raise FrameTooLongError(length, self.longest)
        if len(self._buffer) < first + length:
            return None
        self._at = first + length
        with memoryview(self._buffer) as view:
            return bytes(view[first : self._at])
