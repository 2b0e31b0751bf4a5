"""Write output lines from a separate thread, so that a slow reader does not stop the receiver.

The buffer is bounded. When it is full, the receiver is paused: it stops reading its sockets until
half of the buffer is written. Meanwhile the operating system drops packets that it has no room for;
they are repaired later, or reported as gaps.
"""

from __future__ import annotations

import asyncio
import base64
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec

from distributary.errors import OutputError

if TYPE_CHECKING:
    from distributary.delivery import Message, Messages
    from distributary.delivery.udp import Report

__all__ = ["LineWriter", "MessageLines", "describe_message", "describe_payload"]

MOST_WAITING = 32 << 20  # bytes
_WRITTEN_AT_ONCE = 1 << 16


class LineWriter:
    """Writes to a file descriptor from a thread, in order; used on a running event loop.

    `on_full` and `on_room` pause and resume the producer of the lines. `on_end` is called when
    nothing more can be written: the other end of a pipe was closed, or `failure` has the reason.
    """

    def __init__(
        self,
        descriptor: int,
        name: str,
        *,
        on_full: Callable[[], None],
        on_room: Callable[[], None],
        on_end: Callable[[], None],
        most: int = MOST_WAITING,
    ) -> None:
        self._descriptor = descriptor
        self._name = name
        self._on_full, self._on_room, self._on_end = on_full, on_room, on_end
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._full = self._closing = False
        self._written = asyncio.Event()
        self.failure: OutputError | None = None
        self.ended = False  # nothing more can be written
        # A daemon thread, so that the process can exit while a write hangs.
        threading.Thread(target=self._work, daemon=True).start()

    @property
    def waiting(self) -> int:
        """The number of bytes not written yet."""
        return self._bytes

    def put(self, lines: bytes) -> None:
        """Queue whole lines for writing; they are accepted even if the buffer is full."""
        if self.ended or not lines:
            return
        with self._changed:
            self._waiting.append(lines)
            self._bytes += len(lines)
            fills = not self._full and self._bytes >= self._most
            self._full = self._full or fills
            self._changed.notify()
        if fills:
            self._on_full()

    async def finish(self) -> None:
        """Wait until all is written, or nothing more can be. If cancelled, the rest is dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await self._written.wait()

    # --- the thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while (lines := self._take()) is not None:
                self._write(lines)
                self._note_written(len(lines))
        except BrokenPipeError:  # the reader closed its end
            self._call_on_loop(self._end)
        except OSError as error:
            self.failure = OutputError(error.strerror or str(error), path=self._name)
            self._call_on_loop(self._end)
        self._call_on_loop(self._written.set)

    def _take(self) -> bytes | None:
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            some = [self._waiting.popleft()]
            while self._waiting and sum(map(len, some)) < _WRITTEN_AT_ONCE:
                some.append(self._waiting.popleft())
            return b"".join(some)

    def _write(self, lines: bytes) -> None:
        left = memoryview(lines)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # the other end made the pipe non-blocking
                select.select([], [self._descriptor], [])

    def _note_written(self, size: int) -> None:
        with self._changed:
            self._bytes -= size
            empties = self._full and 2 * self._bytes <= self._most
            if empties:
                self._full = False
        if empties:
            self._call_on_loop(self._on_room)

    def _end(self) -> None:
        self.ended = True
        self._on_end()

    def _call_on_loop(self, call: Callable[[], object]) -> None:
        """Call a function on the event loop, if it still runs."""
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            return


class MessageLines:
    """Writes messages and reports as JSON lines, in the order of arrival."""

    def __init__(
        self,
        put: Callable[[bytes], None],
        count: int | None,
        stop: asyncio.Event,
        find_objects: Callable[[Message], Iterable[dict[str, object]]] | None = None,
    ) -> None:
        """`find_objects` returns the objects to print when a message came; by default its own."""
        self._put = put
        self._find_objects = find_objects or (lambda message: (describe_message(message),))
        self._left = count
        self._stop = stop
        self._encode = msgspec.json.Encoder().encode

    def take(self, messages: Messages) -> None:
        """Write messages until the count is reached."""
        self.write(found for message in messages for found in self._find_objects(message))

    def write(self, objects: Iterable[dict[str, object]]) -> None:
        """Write objects until the count is reached."""
        lines = []
        for found in objects:
            if self._left == 0:
                break
            lines.append(self._encode(found) + b"\n")
            if self._left is not None:
                self._left -= 1
        self._put(b"".join(lines))
        if self._left == 0:
            self._stop.set()

    def report(self, report: Report) -> None:
        """Write a report, such as a gap, at its place among the messages."""
        kind = type(report).__name__.lower()
        if self._left != 0:
            self._put(self._encode({"report": kind, **asdict(report)}) + b"\n")


def describe_message(message: Message) -> dict[str, object]:
    """Return the object to print for a message."""
    place = {"flow": message.flow, "sequence": message.sequence}
    return {**place, **describe_payload(message.payload)}


def describe_payload(payload: bytes) -> dict[str, object]:
    """Return a payload as text, or as base64 if it is not UTF-8."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}
