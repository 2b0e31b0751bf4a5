"""The queue of directory blocks that receivers asked for."""

from __future__ import annotations

from collections.abc import Iterable

from distributary.delivery.directory_log import DirectoryLog

__all__ = ["DirectoryAnswers"]


class DirectoryAnswers:
    """Blocks to send to all, each once however many ask, and once in the hold-off time at most."""

    def __init__(self, log: DirectoryLog, hold_off: float) -> None:
        self._log = log
        self._hold_off = hold_off
        self._asked: dict[int, None] = {}
        self._bodies: list[
            tuple[int, bytes]
        ] = []  # of the block that is being sent, the last first
        self._sent_at: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._asked or self._bodies)

    def queue(self, blocks: Iterable[int], now: float) -> None:
        """Queue these blocks, unless they were sent just now."""
        for block in blocks:
            held_off = now < self._sent_at.get(block, float("-inf")) + self._hold_off
            if block < self._log.blocks and not held_off:
                self._asked[block] = None

    def take(self, now: float) -> tuple[int, bytes]:
        """The next packet's number of entries and body; parts of one block follow one another."""
        if not self._bodies:
            block = next(iter(self._asked))
            del self._asked[block]
            self._sent_at[block] = now
            self._bodies = self._log.bodies_of(min(block, self._log.blocks - 1))[::-1]
        return self._bodies.pop()
