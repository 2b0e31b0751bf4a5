"""Keeps answers for a moment, so that many browsers ask the control plane once."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["RecentAnswers"]


@dataclass(slots=True)
class _Entry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    until: float = 0.0
    answer: Any = None
    error: Exception | None = None


class RecentAnswers:
    """Answers, or errors, of the last `keep_for` seconds; the oldest go when there are `most`."""

    def __init__(
        self,
        keep_for: float = 1.0,
        most: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keep_for = keep_for
        self._most = most
        self._clock = clock
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    async def get(
        self,
        key: Hashable,
        ask: Callable[[], Awaitable[Any]],
        remember: tuple[type[Exception], ...],
    ) -> Any:
        """Answer from memory, or ask; who comes while somebody asks waits for the same answer.

        Errors of the kinds in `remember` are answers, too. A caller that is cancelled while it asks
        leaves nothing behind: the next one asks again.
        """
        entry = self._find(key)
        async with entry.lock:
            if self._clock() >= entry.until:
                try:
                    entry.answer, entry.error = await ask(), None
                except remember as error:
                    entry.answer, entry.error = None, error
                entry.until = self._clock() + self._keep_for
        if entry.error is not None:
            raise entry.error
        return entry.answer

    def forget(self) -> None:
        """Forget everything, because something was changed."""
        self._entries.clear()

    def _find(self, key: Hashable) -> _Entry:
        entry = self._entries.setdefault(key, _Entry())
        self._entries.move_to_end(key)
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)
        return entry
