"""The requests of an application that wait for their answer."""

from __future__ import annotations

import asyncio

__all__ = ["TicketFailedError", "Tickets"]


class TicketFailedError(Exception):
    """What a ticket was given for is refused or, if `is_unknown`, may or may not be done."""

    def __init__(self, reason: str, is_unknown: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_unknown = is_unknown


class Tickets:
    """A future for each ticket that somebody waits for.

    All of them have the same time-out, `within` seconds, so the oldest is due first: one timer
    serves all, whatever their number.
    """

    def __init__(self, within: float) -> None:
        self._within = within
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._deadlines: dict[int, float] = {}  # the earliest first
        self._timer: asyncio.TimerHandle | None = None

    def open(self, ticket: int) -> asyncio.Future[None]:
        """Make the future of a ticket; it raises a `TimeoutError` if nothing else happens.

        Whoever awaits it calls `forget` afterwards.
        """
        loop = asyncio.get_running_loop()
        future = self._futures[ticket] = loop.create_future()
        self._deadlines[ticket] = loop.time() + self._within
        if self._timer is None:
            self._timer = loop.call_later(self._within, self._expire)
        return future

    def forget(self, ticket: int) -> None:
        """Nobody waits for a ticket any more."""
        self._futures.pop(ticket, None)
        self._deadlines.pop(ticket, None)

    def complete(self, ticket: int) -> None:
        """What a ticket was given for is done."""
        future = self._futures.get(ticket)
        if future is not None and not future.done():
            future.set_result(None)

    def fail(self, ticket: int, error: Exception) -> None:
        """What a ticket was given for has failed."""
        future = self._futures.get(ticket)
        if future is not None and not future.done():
            future.set_exception(error)

    def close(self, error: Exception) -> None:
        """Fail all tickets."""
        for ticket in self._futures:
            self.fail(ticket, error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for ticket, deadline in self._deadlines.items():
            if deadline > loop.time():
                self._timer = loop.call_at(deadline, self._expire)
                return
            self.fail(ticket, TimeoutError())
