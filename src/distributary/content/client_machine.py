"""A client of content brokers without I/O: events and the time in, actions out.

The machine survives broken connections and restarts of brokers: it resumes its session, repeats
what was not answered, and drops what it gets twice. The application gets every event once, and the
events of a publisher in order. An event is acknowledged once the application has processed it, so a
client that restarts under the same name goes on where it was.

It moves to another broker in four steps, and loses nothing:

1. *Make*: it opens a session at the new broker and repeats its subscriptions and advertisements
   there, until all brokers know them. It goes on at the old broker meanwhile.
2. *Release*: it withdraws its advertisements at the old broker, which is confirmed once everything
   published there is delivered. New publications wait, so that they cannot overtake old ones.
3. *Drain*: it publishes at the new broker, and takes from the old one all that is on its way. The
   events of the new broker wait.
4. *Break*: the old session ends. Of the events of the new broker, those that came from the old one
   too are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from distributary.content.client_actions import (
    ClientAction,
    ClientParams,
    Complete,
    Dial,
    EndClient,
    Fail,
    HandEvent,
    HandLoss,
    HangUp,
    LostEvents,
    ReceivedEvent,
    Settle,
)
from distributary.content.client_inbox import EventInbox
from distributary.content.client_session import (
    BrokerSession,
    RequestKey,
    RequestState,
    TakenFrom,
    list_requests,
)
from distributary.content.client_wishes import ClientWishes
from distributary.content.protocol import (
    Accepted,
    AttributeValue,
    CloseSession,
    Dropped,
    Ended,
    Event,
    Goodbye,
    Publish,
    Refused,
    SendFrame,
    SessionClosed,
    SessionOpened,
    Stored,
)
from distributary.machines.actions import SetTimer

__all__ = ["ClientMachine", "MoveState"]

_CLAIM, _ABANDON = "claim", "abandon"


DEFAULT_PARAMS = ClientParams()


class MoveState(Enum):
    """How far a move is."""

    MAKING = "make"
    RELEASING = "release"
    DRAINING = "drain"


@dataclass(slots=True)
class _Move:
    """A move under way.

    `ignored` are subscriptions that only the new broker delivers events for. They had not settled
    at the old broker when it was released, so its events for them may have gaps that the new broker
    fills.
    """

    old: BrokerSession
    old_broker: str
    ticket: int
    abandons: bool
    state: MoveState = MoveState.MAKING
    withdraws: bool = False  # its advertisements at the old broker
    ignored: set[int] = field(default_factory=set)


class ClientMachine:
    """One client: its subscriptions, publications and sessions.

    A *place* is a broker that the client stays connected to; there are two during a move. The shell
    calls `on_open` after each handshake with a place, and does nothing about broken connections but
    to call `on_close` and to connect again. Calls of the application return a ticket and actions.
    """

    def __init__(self, broker: str, params: ClientParams = DEFAULT_PARAMS) -> None:
        self.params = params
        self.broker = broker
        self._session = BrokerSession(1, params.make_opening())  # the newest
        self._move: _Move | None = None
        self._held: deque[tuple[TakenFrom, Event | Dropped]] = deque()
        self._wishes = ClientWishes()
        self._texts = self._wishes.texts
        self._inbox = EventInbox()
        self._tickets = 0
        self._requests: dict[RequestKey, int] = {}  # tickets of requests that are not saved
        self._endings: dict[RequestKey, int] = {}
        self._waiting: deque[tuple[int, Publish]] = deque()  # publications to be sent
        self._close_ticket: int | None = None
        self._unclaimed = self._wishes.unclaimed
        self._places = 1
        self._timers: set[str] = set()
        self.duplicates = 0
        self.published = 0
        self.delivered = 0

    def start(self, now: float) -> list[ClientAction]:
        """The first call."""
        return [Dial(self._session.place, self.broker)]

    # --- the application --------------------------------------------------------------------------

    def subscribe(self, filter: str, now: float) -> tuple[int, int, list[ClientAction]]:
        """Subscribe; returns the subscription's number, a ticket, and actions.

        If an earlier process of this name had subscribed to the same filter, this one takes its
        subscription over, with the events that the other did not process.
        """
        key = self._wishes.choose_key("subscription", filter)
        waiting = self._unclaimed.pop(key, [])
        ticket, actions = self._request(key, filter)
        for item in waiting:
            if isinstance(item, LostEvents):
                actions.append(HandLoss((key.number,), item))
            else:
                self.delivered += 1
                actions.append(HandEvent((key.number,), item))
        return key.number, ticket, actions

    def advertise(self, filter: str, now: float) -> tuple[int, int, list[ClientAction]]:
        """Announce what will be published; returns a number, a ticket, and actions."""
        key = self._wishes.choose_key("advertisement", filter)
        self._unclaimed.pop(key, None)
        ticket, actions = self._request(key, filter)
        return key.number, ticket, actions

    def unsubscribe(self, number: int, now: float) -> tuple[int, list[ClientAction]]:
        """End a subscription; its events that are not processed count as processed."""
        return self._end_request(RequestKey("subscription", number), now)

    def unadvertise(self, number: int, now: float) -> tuple[int, list[ClientAction]]:
        """Withdraw an advertisement."""
        return self._end_request(RequestKey("advertisement", number), now)

    def publish(
        self, attributes: Mapping[str, AttributeValue], payload: bytes, now: float
    ) -> tuple[int, list[ClientAction]]:
        """Publish an event; its ticket is completed when a broker has stored it."""
        ticket = self._next_ticket()
        self._waiting.append((ticket, Publish(0, attributes, payload)))
        # It must not be refused because it does not match what an earlier process advertised.
        return ticket, [*self._end_unclaimed("advertisement", now), *self._send_waiting()]

    def withdraw(self, ticket: int) -> bool:
        """Take back a publication that was not sent yet; False if it may be stored."""
        for entry in self._waiting:
            if entry[0] == ticket:
                self._waiting.remove(entry)
                return True
        return False

    def finish(self, taken: TakenFrom, now: float) -> list[ClientAction]:
        """One subscription has processed an event or a loss."""
        for session in self._sessions:
            if session.has(taken):
                session.finish(taken)
                return self._acknowledge(session, now)
        return []

    def end_unclaimed(self, now: float) -> list[ClientAction]:
        """End what an earlier process left and nobody has taken up."""
        kinds = ("subscription", "advertisement")
        return [action for kind in kinds for action in self._end_unclaimed(kind, now)]

    def _end_unclaimed(self, kind: str, now: float) -> list[ClientAction]:
        actions: list[ClientAction] = []
        for key in [key for key in self._unclaimed if key.kind == kind]:
            actions += self._session.end(key)
            for item in self._unclaimed.pop(key):
                actions += self.finish(item.taken_from, now)
        return actions

    def move(
        self, broker: str, now: float, *, abandon: bool = False
    ) -> tuple[int, list[ClientAction]]:
        """Move to another broker; the ticket is completed when the client publishes there.

        With `abandon` it leaves the old broker at once when it has arrived, with whatever that
        broker still has for it.
        """
        if self._move is not None:
            raise ValueError("the client is moving already")
        old, ticket = self._session, self._next_ticket()
        self._move = _Move(old, self.broker, ticket, abandon)
        self._places += 1
        self._session = BrokerSession(self._places, self.params.make_opening())
        self.broker = broker
        for key, text in self._texts.items():
            self._session.want(key, text)
        return ticket, [Dial(self._session.place, broker)]

    def cancel_move(self, now: float) -> list[ClientAction]:
        """Stay at the old broker after all; does nothing once the old session is released."""
        move = self._move
        if move is None or move.state is not MoveState.MAKING:
            return []
        new, self._session, self.broker = self._session, move.old, move.old_broker
        self._move = None
        self._held.clear()
        closing = [SendFrame(new.place, CloseSession())] if new.is_open else []
        return [*closing, HangUp(new.place), *self._send_waiting()]

    def fail_move(self, reason: str, now: float) -> list[ClientAction]:
        """The new broker does not take the client, which stays at the old one."""
        move = self._move
        if move is None or move.state is not MoveState.MAKING:
            return []
        return [Fail(move.ticket, reason), *self.cancel_move(now)]

    def close_session(self, now: float) -> tuple[int, list[ClientAction]]:
        """End the session for good; the ticket is completed when the broker has forgotten it."""
        self._close_ticket = self._next_ticket()
        session = self._session
        closing: list[ClientAction] = [SendFrame(session.place, CloseSession())]
        return self._close_ticket, closing if session.is_open else []

    def leave(self, now: float) -> list[ClientAction]:
        """Acknowledge what is processed and hang up; the session waits for the next process."""
        actions: list[ClientAction] = []
        actions += self.cancel_move(now)
        for session in self._sessions:
            actions += [*session.acknowledge(), HangUp(session.place)]
        return actions

    @property
    def is_open(self) -> bool:
        """Whether the client has a session at its broker now."""
        return self._session.is_open

    @property
    def moving(self) -> MoveState | None:
        """How far a move is, if there is one."""
        return None if self._move is None else self._move.state

    @property
    def unstored(self) -> int:
        """The number of publications that are not known to be stored."""
        return len(self._waiting) + sum(each.in_flight for each in self._sessions)

    @property
    def unclaimed(self) -> tuple[int, ...]:
        """The subscriptions of an earlier process that nobody has taken up."""
        return tuple(key.number for key in self._unclaimed if key.kind == "subscription")

    # --- the shell --------------------------------------------------------------------------------

    def on_open(self, place: int, now: float) -> list[ClientAction]:
        """The handshake with the broker of a place has succeeded."""
        session = self._find(place)
        return [] if session is None else [*session.on_open()]

    def on_close(self, place: int, now: float) -> list[ClientAction]:
        """The connection of a place is gone; the shell connects again."""
        session = self._find(place)
        if session is None:
            return []
        session.on_close()
        return self._watch_old(now)

    def on_timer(self, name: str, now: float) -> list[ClientAction]:
        """A timer has expired."""
        self._timers.discard(name)
        if name == _CLAIM:
            return self.end_unclaimed(now)
        if name == _ABANDON:
            return self._give_up_old(now)
        session = self._find(int(name.removeprefix("acknowledge ")))
        return [] if session is None else [*session.acknowledge()]

    def on_message(self, place: int, message: Any, now: float) -> list[ClientAction]:
        """A message of a broker; what does not belong there is ignored."""
        session = self._find(place)
        if session is None:
            return []
        if not session.is_open and not isinstance(message, SessionOpened | Goodbye | Refused):
            return []  # it was said to an earlier connection
        match message:
            case SessionOpened():
                return self._on_session_opened(session, message, now)
            case Event() | Dropped():
                return self._on_delivery(session, message, now)
            case Stored():
                stored = session.on_stored(message)
                return [*self._complete(stored), *self._send_waiting(), *self._continue_move(now)]
            case Accepted("subscription" | "advertisement" as kind, number, settled):
                key = RequestKey(kind, number)
                return self._on_answer(session, key, session.on_accepted(key, settled), now)
            case Ended("subscription" | "advertisement" as kind, number):
                key = RequestKey(kind, number)
                return self._on_answer(session, key, session.on_ended(key), now)
            case Refused():
                return self._on_refused(session, message, now)
            case SessionClosed():
                return self._on_session_closed(session, now)
            case Goodbye(reason) if self.moving is MoveState.MAKING and session is self._session:
                return self.fail_move(reason, now)
            case Goodbye(reason):
                return [EndClient(reason)]
        return []

    # --- requests ---------------------------------------------------------------------------------

    def _request(self, key: RequestKey, text: str) -> tuple[int, list[ClientAction]]:
        ticket = self._next_ticket()
        self._texts[key] = text
        actions: list[ClientAction] = []
        for session in self._served_sessions:
            actions += session.want(key, text)
        if (earlier := self._requests.get(key)) is not None:
            actions.append(Complete(earlier))  # the later one waits for the answer
        self._requests[key] = ticket
        return ticket, [*actions, *self._answer(key, self._answering.state_of(key))]

    def _end_request(self, key: RequestKey, now: float) -> tuple[int, list[ClientAction]]:
        ticket = self._next_ticket()
        actions: list[ClientAction] = []
        if not self._wishes.end(key):
            return ticket, [Complete(ticket)]
        if (unanswered := self._requests.pop(key, None)) is not None:
            actions.append(Fail(unanswered, "it was ended before it was answered"))
        for session in self._served_sessions:
            actions += session.end(key)
        self._endings[key] = ticket
        return ticket, [*actions, *self._continue_move(now)]

    def _on_answer(
        self, session: BrokerSession, key: RequestKey, state: RequestState | None, now: float
    ) -> list[ClientAction]:
        actions: list[ClientAction] = []
        if session is self._answering:
            actions = self._answer(key, state)
        return [*actions, *self._continue_move(now)]

    def _answer(self, key: RequestKey, state: RequestState | None) -> list[ClientAction]:
        """Tell the application how far its request is."""
        actions: list[ClientAction] = []
        if state is None and key in self._endings:
            actions.append(Complete(self._endings.pop(key)))
        elif state in (RequestState.SAVED, RequestState.SETTLED) and key in self._requests:
            actions.append(Complete(self._requests.pop(key)))
        if state is RequestState.SETTLED:
            actions.append(Settle(key))
        return actions

    def _on_refused(
        self, session: BrokerSession, message: Refused, now: float
    ) -> list[ClientAction]:
        actions: list[ClientAction] = []
        if message.kind == "publication":
            ticket = session.on_publication_refused(message.number)
            actions = [] if ticket is None else [Fail(ticket, message.reason)]
            return [*actions, *self._send_waiting(), *self._continue_move(now)]
        if message.kind == "session":
            return [EndClient(message.reason)]
        key = RequestKey(message.kind, message.number)
        ends = session.state_of(key) is RequestState.ENDING
        session.forget(key)
        if ends:
            if (ticket := self._endings.pop(key, None)) is not None:
                actions.append(Complete(ticket))
        elif (ticket := self._requests.pop(key, None)) is not None:
            self._texts.pop(key, None)
            actions.append(Fail(ticket, message.reason))
        elif self._move is not None and session is self._session:
            actions += self.fail_move(message.reason, now)
        return [*actions, *self._continue_move(now)]

    # --- sessions ---------------------------------------------------------------------------------

    def _on_session_opened(
        self, session: BrokerSession, message: SessionOpened, now: float
    ) -> list[ClientAction]:
        timers: list[ClientAction] = []
        if session.number == 0 and message.resumed and self._move is None:
            timers = self._find_unclaimed(message, now)
        outcome, frames = session.on_session_opened(message, self._unclaimed)
        actions: list[ClientAction] = [*timers, *frames, *self._complete(outcome.stored)]
        actions += session.acknowledge()  # what was processed since it asked for the session
        reason = "the broker refused it, and the connection broke before it said why"
        actions += [Fail(ticket, reason) for ticket in outcome.refused]
        reason = "the broker has lost the session"
        actions += [Fail(ticket, reason, is_unknown=True) for ticket in outcome.unknown]
        if outcome.is_lost:
            actions += self._on_session_lost(session, now)
        if session is self._session:
            if self._close_ticket is not None:
                actions.append(SendFrame(session.place, CloseSession()))
        elif self._move is not None and self._move.state is MoveState.DRAINING:
            actions.append(SendFrame(session.place, CloseSession(drain=not outcome.is_lost)))
        return [*actions, *self._send_waiting(), *self._continue_move(now)]

    def _find_unclaimed(self, message: SessionOpened, now: float) -> list[ClientAction]:
        """Find what an earlier process of this name asked for and nobody wants yet."""
        if not self._wishes.find_unclaimed(list_requests(message)):
            return []
        self._timers.add(_CLAIM)
        return [SetTimer(_CLAIM, now + self.params.claim_within)]

    def _on_session_lost(self, session: BrokerSession, now: float) -> list[ClientAction]:
        """The broker has begun a new session; what the old one had for the client is gone."""
        self._unclaimed.clear()
        is_drained = self.moving is MoveState.DRAINING and not self.params.ephemeral
        if is_drained and session is not self._session:
            return []  # only its answer was lost
        reason = "the broker no longer has the session"
        if self.params.ephemeral:
            reason = "the connection was interrupted, and an ephemeral session keeps nothing"
        return self._hand_loss(session, session.locate(0), None, reason)

    def _on_session_closed(self, session: BrokerSession, now: float) -> list[ClientAction]:
        if self._move is not None and session is self._move.old:
            return self._break(now)
        if self._close_ticket is None or session is not self._session:
            return []
        ticket, self._close_ticket = self._close_ticket, None
        session.on_close()  # nothing more may be said in it
        return [Complete(ticket), HangUp(session.place)]

    # --- publications -----------------------------------------------------------------------------

    @property
    def _publishing(self) -> BrokerSession | None:
        """The session to publish in; None while publications must wait."""
        if self._move is None or self._move.state is MoveState.DRAINING:
            return self._session
        return self._move.old if self._move.state is MoveState.MAKING else None

    def _send_waiting(self) -> list[ClientAction]:
        session = self._publishing
        actions: list[ClientAction] = []
        while session is not None and self._waiting and session.has_room:
            actions.append(session.publish(*self._waiting.popleft()))
        return actions

    def _complete(self, tickets: list[int]) -> list[ClientAction]:
        self.published += len(tickets)
        return [Complete(ticket) for ticket in tickets]

    # --- deliveries -------------------------------------------------------------------------------

    def _on_delivery(
        self, session: BrokerSession, message: Event | Dropped, now: float
    ) -> list[ClientAction]:
        last = message.delivery if isinstance(message, Event) else message.last
        if not session.is_new_delivery(last):
            self.duplicates += 1
            return []
        taken = session.locate(last)
        if self._move is not None and session is self._session:
            self._held.append((taken, message))
            return []
        return self._take(session, taken, message, now)

    def _take(
        self, session: BrokerSession, taken: TakenFrom, message: Event | Dropped, now: float
    ) -> list[ClientAction]:
        """Give a delivery to the application."""
        if isinstance(message, Dropped):
            count = message.last - message.first + 1
            actions = self._hand_loss(session, taken, count, message.reason)
            return [*actions, *self._acknowledge(session, now)]
        if self._move is not None and self._move.ignored.intersection(message.subscriptions):
            left = (n for n in message.subscriptions if n not in self._move.ignored)
            message = replace(message, subscriptions=tuple(left))
        new = self._inbox.take_new(message)
        self.duplicates += not new
        event = ReceivedEvent(
            message.attributes,
            message.payload,
            message.publisher,
            message.broker,
            message.number,
            message.published,
            taken,
        )
        wanted = tuple(n for n in new if RequestKey("subscription", n) in self._texts)
        kept = [key for n in new if (key := RequestKey("subscription", n)) in self._unclaimed]
        for key in kept:
            self._unclaimed[key].append(event)
        session.hand(taken, len(wanted) + len(kept))
        self.delivered += len(wanted)
        handed: list[ClientAction] = [HandEvent(wanted, event)] if wanted else []
        return [*handed, *self._acknowledge(session, now)]

    def _hand_loss(
        self, session: BrokerSession, taken: TakenFrom, count: int | None, reason: str
    ) -> list[ClientAction]:
        loss = LostEvents(count, reason, taken)
        whose = tuple(key.number for key in self._texts if key.kind == "subscription")
        kept = [items for key, items in self._unclaimed.items() if key.kind == "subscription"]
        for items in kept:
            items.append(loss)
        session.hand(taken, len(whose) + len(kept))
        return [HandLoss(whose, loss)] if whose else []

    def _acknowledge(self, session: BrokerSession, now: float) -> list[ClientAction]:
        """Acknowledge now if much is processed, else soon."""
        if not session.unacknowledged:
            return []
        if session.unacknowledged >= self.params.acknowledge_every:
            return [*session.acknowledge()]
        timer = f"acknowledge {session.place}"
        if timer in self._timers:
            return []
        self._timers.add(timer)
        return [SetTimer(timer, now + self.params.acknowledge_after)]

    # --- moving -----------------------------------------------------------------------------------

    def _continue_move(self, now: float) -> list[ClientAction]:
        """Take the next step of a move, if it is time for it."""
        move = self._move
        if move is None:
            return []
        actions: list[ClientAction] = []
        if move.state is MoveState.MAKING and self._session.is_settled:
            if move.abandons:
                return self._abandon(move, now)
            move.state = MoveState.RELEASING
            move.ignored = {
                key.number
                for key in self._texts
                if key.kind == "subscription" and move.old.state_of(key) is not RequestState.SETTLED
            }
            for key in [*self._requests, *self._endings]:
                actions += self._answer(key, self._session.state_of(key))
            actions += self._watch_old(now)
        if move.state is MoveState.RELEASING and move.old.is_open and not move.old.in_flight:
            # Not before: what is published under a withdrawn advertisement gets another one.
            if not move.withdraws:
                move.withdraws = True
                for key in self._list_advertisements(move.old):
                    actions += move.old.end(key)
            withdrawn = not any(key.kind == "advertisement" for key in move.old.ending)
            if withdrawn:
                move.state = MoveState.DRAINING
                actions.append(SendFrame(move.old.place, CloseSession(drain=True)))
                actions += [Complete(move.ticket), *self._send_waiting()]
        return actions

    def _watch_old(self, now: float) -> list[ClientAction]:
        """Do not wait for the old broker for ever."""
        move = self._move
        if move is None or move.state is MoveState.MAKING or move.old.is_open:
            return []
        if _ABANDON in self._timers:
            return []
        self._timers.add(_ABANDON)
        return [SetTimer(_ABANDON, now + self.params.abandon_after)]

    def _give_up_old(self, now: float) -> list[ClientAction]:
        move = self._move
        if move is None or move.state is MoveState.MAKING or move.old.is_open:
            return []
        return self._abandon(move, now)

    def _list_advertisements(self, session: BrokerSession) -> list[RequestKey]:
        """The advertisements at the old broker, with the one that the broker made by itself."""
        own = [key for key in self._texts if key.kind == "advertisement"]
        return own or ([RequestKey("advertisement", 0)] if session.has_published else [])

    def _abandon(self, move: _Move, now: float) -> list[ClientAction]:
        reason = f"the client has left {move.old_broker}, which may have more for it"
        actions: list[ClientAction] = [
            Fail(ticket, reason, is_unknown=True) for ticket in move.old.give_up()
        ]
        if move.state is not MoveState.DRAINING:
            actions.append(Complete(move.ticket))
        actions += self._hand_loss(move.old, move.old.locate(0), None, reason)
        return [*actions, *self._break(now)]

    def _break(self, now: float) -> list[ClientAction]:
        """The old session is over: take what the new one has brought meanwhile."""
        move = self._move
        if move is None:
            return []
        self._move = None
        actions: list[ClientAction] = [HangUp(move.old.place), *self._send_waiting()]
        while self._held:
            taken, held = self._held.popleft()
            actions += self._take(self._session, taken, held, now)
        return actions

    # --- inside -----------------------------------------------------------------------------------

    @property
    def _sessions(self) -> list[BrokerSession]:
        return [self._session] if self._move is None else [self._move.old, self._session]

    @property
    def _answering(self) -> BrokerSession:
        """The session whose answers the application gets."""
        if self._move is not None and self._move.state is MoveState.MAKING:
            return self._move.old
        return self._session

    @property
    def _served_sessions(self) -> list[BrokerSession]:
        """The sessions that take requests: not one that is being left."""
        return [self._session] if self._answering is self._session else self._sessions

    def _find(self, place: int) -> BrokerSession | None:
        return next((each for each in self._sessions if each.place == place), None)

    def _next_ticket(self) -> int:
        self._tickets += 1
        return self._tickets
