"""A client's session at one broker, without I/O: what is repeated after a reconnect, what is not.

The broker keeps the session while the client is away. When the connection is back, the client sends
`OpenSession`, and once it is answered repeats the requests that were not answered and the
publications that were not stored. `content.protocol` has the rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from distributary.content.protocol import (
    Acknowledge,
    Advertise,
    AttributeValue,
    ClientMessage,
    OpenSession,
    Publish,
    SendFrame,
    SessionOpened,
    Stored,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)

__all__ = [
    "BrokerSession",
    "OpeningOutcome",
    "RequestKey",
    "RequestState",
    "TakenFrom",
    "UnsentPublication",
    "list_requests",
]

_NOT_HANDED = -1


class RequestKey(NamedTuple):
    """A subscription or an advertisement of the client."""

    kind: str
    number: int


class RequestState(Enum):
    """How far the broker is with a request."""

    SENT = "sent, or to be sent"
    SAVED = "the broker has it"
    SETTLED = "all brokers that have to know it do"
    ENDING = "its end is not confirmed"


class TakenFrom(NamedTuple):
    """Which delivery of which session an event is, to be acknowledged once it is processed."""

    place: int
    session: int
    delivery: int


class UnsentPublication(NamedTuple):
    """A publication that waits to be sent; `ticket` is completed when it is stored."""

    ticket: int
    attributes: Mapping[str, AttributeValue]
    payload: bytes


@dataclass(frozen=True, slots=True)
class OpeningOutcome:
    """What an answer to `OpenSession` means for what was under way, as tickets of publications.

    `is_lost`: the client had a session at this broker, and the broker no longer has it.
    """

    stored: list[int]
    refused: list[int]
    unknown: list[int]
    is_lost: bool


class _Flight(NamedTuple):
    """A publication that was sent and is not known to be stored."""

    number: int
    ticket: int
    message: Publish


class BrokerSession:
    """The state of a session as the client knows it; the machine calls it with each message."""

    def __init__(self, place: int, opening: OpenSession) -> None:
        self.place = place
        self.number = 0  # given by the broker; 0 while unknown
        self.is_connected = False
        self.is_open = False  # on the present connection
        self.has_published = False
        self._opening = opening
        self._texts: dict[RequestKey, str] = {}
        self._states: dict[RequestKey, RequestState] = {}
        self._flights: deque[_Flight] = deque()
        self._published = 0  # the last number that was used
        self._stored = 0
        self._window = 0
        self._unfinished: dict[int, int] = {}  # takers that are not done, by delivery, ascending
        self._received = self._processed = self._acknowledged = 0

    # --- connections ------------------------------------------------------------------------------

    def on_open(self) -> list[SendFrame]:
        """A connection to the broker exists: resume the session or begin one."""
        self.is_connected, self.is_open = True, False
        self._acknowledged = self._processed
        opening = replace(self._opening, session=self.number, received=self._processed)
        return [self._send(opening)]

    def on_close(self) -> None:
        """The connection is gone."""
        self.is_connected = self.is_open = False

    def on_session_opened(
        self, message: SessionOpened, unclaimed: Collection[RequestKey]
    ) -> tuple[OpeningOutcome, list[SendFrame]]:
        """Take over what the broker has, repeat what it lacks, and end what nobody wants.

        The `unclaimed` requests are left as they are.
        """
        self.is_open = True
        is_lost = self.number != 0 and not (message.resumed and message.session == self.number)
        stored: list[int] = []
        refused: list[int] = []
        unknown: list[int] = []
        if is_lost or not message.resumed:
            unknown = [each.ticket for each in self._flights]
            self._flights.clear()
            self._unfinished.clear()
            self._received = self._processed = self._acknowledged = 0
            self.has_published = False
        self.number = message.session
        while self._flights and self._flights[0].number <= message.published:
            flight = self._flights.popleft()
            (refused if flight.number in message.refused else stored).append(flight.ticket)
        self._stored = message.published
        self._published = self._flights[-1].number if self._flights else message.published
        self.has_published = self.has_published or message.published > 0
        self._window = message.window
        held = list_requests(message)
        frames = self._repeat_requests(held)
        for key in held - self._states.keys() - set(unclaimed):
            frames += self.end(key)
        frames += [self._send(each.message) for each in self._flights]
        return OpeningOutcome(stored, refused, unknown, is_lost), frames

    def _repeat_requests(self, held: set[RequestKey]) -> list[SendFrame]:
        frames = []
        for key, state in list(self._states.items()):
            if state is RequestState.ENDING:  # only the answer tells that all of it is delivered
                frames.append(self._send(_end_request(key)))
            elif key not in held or state is not RequestState.SETTLED:
                # Only an answer tells whether a request that is in place has settled.
                self._states[key] = RequestState.SENT
                frames.append(self._send(_make_request(key, self._texts[key])))
        return frames

    # --- requests ---------------------------------------------------------------------------------

    def want(self, key: RequestKey, text: str) -> list[SendFrame]:
        """Subscribe or advertise, now or when the session is open."""
        if self._states.get(key) in (RequestState.SAVED, RequestState.SETTLED):
            return []
        self._texts[key] = text
        self._states[key] = RequestState.SENT
        return [self._send(_make_request(key, text))] if self.is_open else []

    def end(self, key: RequestKey) -> list[SendFrame]:
        """End a subscription or an advertisement."""
        self._texts.pop(key, None)
        self._states[key] = RequestState.ENDING
        return [self._send(_end_request(key))] if self.is_open else []

    def forget(self, key: RequestKey) -> None:
        """The broker has refused a request."""
        self._texts.pop(key, None)
        self._states.pop(key, None)

    def on_accepted(self, key: RequestKey, settled: bool) -> RequestState | None:
        """Note an answer; returns the new state, None if the request has ended."""
        state = self._states.get(key)
        if state in (RequestState.SENT, RequestState.SAVED):
            state = self._states[key] = RequestState.SETTLED if settled else RequestState.SAVED
        return state

    def on_ended(self, key: RequestKey) -> RequestState | None:
        """Note that a request has ended; returns the state of another one with its number."""
        if self._states.get(key) is RequestState.ENDING:
            del self._states[key]
        return self._states.get(key)

    def state_of(self, key: RequestKey) -> RequestState | None:
        """How far a request is."""
        return self._states.get(key)

    @property
    def is_settled(self) -> bool:
        """Whether every broker knows all requests that this session is to have."""
        return self.is_open and all(
            state is RequestState.SETTLED
            for state in self._states.values()
            if state is not RequestState.ENDING
        )

    @property
    def ending(self) -> set[RequestKey]:
        """The requests whose end is not confirmed."""
        return {key for key, state in self._states.items() if state is RequestState.ENDING}

    # --- publications -----------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether the broker accepts another publication now."""
        return self.is_open and self._published < self._stored + self._window

    @property
    def is_blocked(self) -> bool:
        """Whether the broker is full; it may make room for what this client acknowledges."""
        return self.is_open and not self._window

    @property
    def in_flight(self) -> int:
        """The number of publications that are not known to be stored."""
        return len(self._flights)

    def publish(self, unsent: UnsentPublication) -> SendFrame:
        """Number a publication and send it; only if there is room."""
        self._published += 1
        self.has_published = True
        message = Publish(self._published, unsent.attributes, unsent.payload)
        self._flights.append(_Flight(self._published, unsent.ticket, message))
        return self._send(message)

    def on_stored(self, message: Stored) -> list[int]:
        """Return the tickets of publications that are stored now."""
        self._stored = max(self._stored, message.published)
        self._window = message.window
        stored = []
        while self._flights and self._flights[0].number <= message.published:
            stored.append(self._flights.popleft().ticket)
        return stored

    def on_publication_refused(self, number: int) -> int | None:
        """Return the ticket of a refused publication."""
        for each in self._flights:
            if each.number == number:
                self._flights.remove(each)
                return each.ticket
        return None

    def give_up(self) -> list[int]:
        """Forget the publications under way; returns their tickets."""
        tickets = [each.ticket for each in self._flights]
        self._flights.clear()
        return tickets

    # --- deliveries -------------------------------------------------------------------------------

    def is_new_delivery(self, last: int) -> bool:
        """Whether deliveries up to this number are received for the first time; notes them."""
        if last <= self._received:
            return False
        self._received = last
        self._unfinished[last] = _NOT_HANDED
        return True

    def hand(self, taken: TakenFrom, takers: int) -> None:
        """So many takers have to process a delivery before it is acknowledged."""
        if self.has(taken) and taken.delivery in self._unfinished:
            self._unfinished[taken.delivery] = takers
            if not takers:
                self._advance()

    def finish(self, taken: TakenFrom) -> None:
        """One taker has processed a delivery."""
        takers = self._unfinished.get(taken.delivery, 0)
        if self.has(taken) and takers > 0:
            self._unfinished[taken.delivery] = takers - 1
            if takers == 1:
                self._advance()

    def has(self, taken: TakenFrom) -> bool:
        """Whether a delivery is of this session, not of one that was lost."""
        return taken.place == self.place and taken.session == self.number

    def locate(self, delivery: int) -> TakenFrom:
        """Say where a delivery is from."""
        return TakenFrom(self.place, self.number, delivery)

    def _advance(self) -> None:
        while self._unfinished:
            delivery = next(iter(self._unfinished))
            if self._unfinished[delivery]:
                return
            del self._unfinished[delivery]
            self._processed = delivery

    @property
    def unacknowledged(self) -> int:
        """The number of deliveries that are processed and not acknowledged."""
        return self._processed - self._acknowledged

    @property
    def unfinished(self) -> int:
        """The number of deliveries that are not processed."""
        return len(self._unfinished)

    def acknowledge(self) -> list[SendFrame]:
        """Tell the broker what is processed."""
        if not self.is_open or not self.unacknowledged:
            return []
        self._acknowledged = self._processed
        return [self._send(Acknowledge(self._processed))]

    def _send(self, message: ClientMessage) -> SendFrame:
        return SendFrame(self.place, message)


def list_requests(message: SessionOpened) -> set[RequestKey]:
    """The client's requests that are in place at the broker, without those it made by itself."""
    held = {RequestKey("subscription", each) for each in message.subscriptions}
    return held | {RequestKey("advertisement", each) for each in message.advertisements if each}


def _make_request(key: RequestKey, text: str) -> Subscribe | Advertise:
    return (Subscribe if key.kind == "subscription" else Advertise)(key.number, text)


def _end_request(key: RequestKey) -> Unsubscribe | Unadvertise:
    return (Unsubscribe if key.kind == "subscription" else Unadvertise)(key.number)
