"""Tells people once that a server, which is there, stores nothing, and once that it does again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from distributary.machines.nats.jetstream import MORE_ROOM, RESTART

__all__ = ["StorageWatch"]

_PATIENCE: Final = 3.0  # seconds that a server may be busy, before that is reported


class StorageWatch:
    """Hears of each attempt to store something, by what it is: the state, or the lease."""

    def __init__(
        self,
        report: Callable[[str], None],
        is_connected: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._is_connected = is_connected
        self._clock = clock
        self._since: dict[str, float] = {}  # when the first of the attempts failed
        self._is_told = False

    def note_stored(self, what: str) -> None:
        """An attempt to store it succeeded."""
        self._since.pop(what, None)
        if self._is_told and not self._since:
            self._is_told = False
            self._report("JetStream stores again, and this service goes on")

    def note_failed(self, what: str, error: Exception | None = None) -> None:
        """An attempt to store it failed; without a connection that is no news."""
        if not self._is_connected():
            self._since.pop(what, None)
            return
        since = self._since.setdefault(what, self._clock())
        if not self._is_told and self._clock() - since > _PATIENCE:
            self._is_told = True
            self._report(
                f"warning: JetStream does not store the {what} of this service{_describe(error)}, "
                f"which confirms nothing now{MORE_ROOM}{RESTART}"
            )


def _describe(error: Exception | None) -> str:
    if error is None:
        return ""
    return f" ({getattr(error, 'description', None) or str(error) or type(error).__name__})"
