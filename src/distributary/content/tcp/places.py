"""The brokers that a client stays connected to: one, and two while it moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from distributary.content.client_actions import Dial
from distributary.content.protocol import Refusal, SendFrame, Welcome
from distributary.content.tcp.dialing import CLIENT_LIMITS, Credentials, make_dialer
from distributary.machines.real import LinkConnection, Links

__all__ = ["Place", "PlaceEvents", "Places"]

_AT_ONCE = 16  # messages that are written together: the broker works on them while more follow


@dataclass(slots=True, eq=False)
class Place:
    """A broker to stay connected to, while `left` is not set.

    `trouble` says why there is no connection. `unsent` are the encoded messages that are written
    together at the end of this turn of the loop.
    """

    broker: str
    left: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    connection: LinkConnection | None = None
    trouble: str = "it did not answer"
    unsent: list[bytes] = field(default_factory=list)

    def flush(self) -> None:
        """Write what is unsent."""
        unsent, self.unsent = self.unsent, []
        if unsent and self.connection is not None:
            self.connection.send(unsent)


@dataclass(frozen=True, slots=True)
class PlaceEvents:
    """What to call when something happens at a place, by its number.

    Connections that close are re-established, and handshakes that a broker or this client refuses
    are tried again.
    """

    on_open: Callable[[int, Welcome], None]
    on_message: Callable[[int, Any], None]
    on_close: Callable[[int], None]
    on_refused: Callable[[Place, Refusal], None]


class Places:
    """All places by number; `start` runs a task for each, which reconnects."""

    def __init__(
        self,
        credentials: Credentials,
        events: PlaceEvents,
        start: Callable[[Coroutine[Any, Any, None]], Any],
    ) -> None:
        self._credentials = credentials
        self._events = events
        self._start = start
        self._places: dict[int, Place] = {}

    def find(self, number: int) -> Place | None:
        """The place of a number, unless it is left and closed."""
        return self._places.get(number)

    def all(self) -> list[Place]:
        """All places."""
        return list(self._places.values())

    def dial(self, dials: list[Dial]) -> None:
        """Stay connected to more brokers."""
        for each in dials:
            place = self._places[each.place] = Place(each.broker)
            self._start(self._stay(each.place, place))

    def leave(self, number: int) -> None:
        """Close the connection of a place, after what was sent is written."""
        if (place := self._places.get(number)) is not None:
            place.flush()
            place.left.set()

    def send(self, frames: list[SendFrame]) -> None:
        """Send messages, with all others of this turn of the loop; a closed place drops them."""
        for frame in frames:
            place = self._places.get(frame.connection)
            if place is None or place.connection is None:
                continue
            if not place.unsent:
                asyncio.get_running_loop().call_soon(place.flush)
            place.unsent.append(place.connection.codec.encode(frame.message))
            if len(place.unsent) >= _AT_ONCE:
                place.flush()

    async def _stay(self, number: int, place: Place) -> None:
        """Stay connected to a broker until the place is left."""
        dialer = make_dialer(
            place.broker,
            self._credentials,
            on_refused=partial(self._events.on_refused, place),
            on_trouble=partial(setattr, place, "trouble"),
        )
        try:
            async with Links(_Owner(self._events, number, place), CLIENT_LIMITS) as links:
                links.dial(dialer)
                await place.left.wait()
        finally:
            self._places.pop(number, None)
            place.closed.set()


class _Owner:
    """Tells what happens on the connections of one place."""

    def __init__(self, events: PlaceEvents, number: int, place: Place) -> None:
        self._events, self._number, self._place = events, number, place

    async def on_open(self, connection: LinkConnection) -> None:
        """Take a new connection."""
        self._place.unsent.clear()
        self._place.connection = connection
        self._events.on_open(self._number, connection.peer)

    async def on_message(self, connection: LinkConnection, message: Any) -> None:
        """Take a message of the broker."""
        if self._place.connection is connection:
            self._events.on_message(self._number, message)

    def on_close(self, connection: LinkConnection) -> None:
        """Forget a connection."""
        place = self._place
        if place.connection is connection:
            place.connection = None
            place.trouble = connection.reason
            place.unsent.clear()
            self._events.on_close(self._number)
