"""The connections of a peer to the others: opened when there is something to send, closed idle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from distributary.machines.real import Dialer, LinkConnection, Links
from distributary.machines.real.liveness import BackOff

__all__ = ["RingLinks"]

_MOST_WAITING = 10_000  # messages for a peer that is being dialled
_IDLE = 60.0  # seconds
_LONGEST_PAUSE = 1.0  # seconds, between two attempts to connect to a peer


@dataclass(slots=True)
class _Line:
    """How another peer is reached. Either side may have opened a connection, or both."""

    back_off: BackOff
    open: list[LinkConnection] = field(default_factory=list)  # the first one is used
    waiting: deque[Any] = field(default_factory=deque)
    dialling: bool = False
    not_before: float = 0.0
    trouble: str = ""  # why there is no connection
    used_at: float = 0.0
    opened_at: float = 0.0


class RingLinks:
    """Sends messages to peers by name. What cannot be sent is dropped: machines repeat it.

    A peer that cannot be reached is dialled again after a growing pause, and only if there is
    something to send to it.
    """

    def __init__(
        self,
        links: Links,
        make_dialer: Callable[[str], Dialer],
        report: Callable[[str], None],
        *,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self.dropped = 0
        self.dialled = 0
        self._links = links
        self._make_dialer = make_dialer
        self._report = report
        self._clock = clock
        self._rng = rng
        self._lines: dict[str, _Line] = {}

    # --- connections ---------------------------------------------------------------------------

    async def on_open(self, name: str, connection: LinkConnection) -> None:
        """A connection with a peer was opened, by either side."""
        line, now = self._line(name), self._clock()
        if not line.open:
            self._report(f"linked with {name}")
        line.open.append(connection)
        line.dialling, line.trouble = False, ""
        line.used_at = line.opened_at = now
        waiting, line.waiting = line.waiting, deque()
        await self._links.send((line.open[0].number, message) for message in waiting)

    def on_close(self, name: str, connection: LinkConnection) -> None:
        """A connection has closed."""
        line = self._line(name)
        line.open.remove(connection)
        line.trouble = connection.reason
        if not line.open:
            self._report(f"link with {name} ended: {connection.reason}")

    def is_taken(self, name: str, session: str) -> bool:
        """Whether another process is connected under this name."""
        line = self._lines.get(name)
        return line is not None and any(each.peer.session != session for each in line.open)

    def names(self) -> tuple[str, ...]:
        """The peers with an open connection."""
        return tuple(name for name, line in self._lines.items() if line.open)

    def trouble(self, name: str) -> str:
        """Why there is no connection with a peer; empty if nothing is known."""
        line = self._lines.get(name)
        return "" if line is None else line.trouble

    @property
    def waiting(self) -> int:
        """The messages that wait for a connection."""
        return sum(len(line.waiting) for line in self._lines.values())

    # --- sending -------------------------------------------------------------------------------

    async def send(self, messages: Iterable[tuple[str, Any]]) -> None:
        """Send messages to peers, and dial those that are not connected."""
        now = self._clock()
        ready: list[tuple[int, Any]] = []
        for name, message in messages:
            line = self._line(name)
            line.used_at = now
            if line.open:
                ready.append((line.open[0].number, message))
            elif self._is_dialling(name, line) and len(line.waiting) < _MOST_WAITING:
                line.waiting.append(message)
            else:
                self.dropped += 1
        await self._links.send(ready)

    def _is_dialling(self, name: str, line: _Line) -> bool:
        """Dial a peer unless a pause is due; returns whether it is being dialled."""
        if not line.dialling and self._clock() >= line.not_before:
            self._dial(name, line)
        return line.dialling

    def close_idle(self) -> None:
        """Close connections that nothing was sent over for long, and forget silent peers."""
        now = self._clock()
        for name, line in [*self._lines.items()]:
            if now - line.used_at < _IDLE or line.dialling:
                continue
            if line.open:
                for connection in line.open:
                    self._links.close(connection.number, "it was idle")
            elif now >= line.not_before:
                del self._lines[name]

    def _line(self, name: str) -> _Line:
        if name not in self._lines:
            self._lines[name] = _Line(BackOff(self._rng, longest=_LONGEST_PAUSE))
        return self._lines[name]

    def _dial(self, name: str, line: _Line) -> None:
        try:
            dialer = self._make_dialer(name)
        except ValueError:  # no address: another peer has made it up
            return
        self.dialled += 1
        line.dialling = True
        self._links.connect(dialer, partial(self._on_end, name, line))

    def _on_end(self, name: str, line: _Line, reason: str, opened: bool) -> None:
        """An attempt to connect has failed, or its connection has ended, as `on_close` knows."""
        line.dialling = False
        now = self._clock()
        lived = now - line.opened_at if opened else 0.0
        line.not_before = now + line.back_off.pause(lived)
        if opened or line.open:
            return
        self.dropped += len(line.waiting)
        line.waiting.clear()
        if reason != line.trouble:
            self._report(f"{name} cannot be reached: {reason}")
        line.trouble = reason
