"""A client of content brokers without I/O: events and the time in, actions out.

The machine survives broken connections and restarts of brokers: it resumes its session, repeats
what was not answered, and drops what it gets twice. The application gets every event once, and the
events of a publisher in order. An event is acknowledged once the application has processed it, so a
client that restarts under the same name goes on where it was.

It moves to another broker without losing anything, as `content.client_move` says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from distributary.content.client_actions import (
    ClientAction,
    ClientParams,
    Complete,
    Dial,
    EndClient,
    Fail,
    HangUp,
    Lapse,
)
from distributary.content.client_answers import ClientAnswers, fail_publications, fail_unknown
from distributary.content.client_deliveries import ClientDeliveries
from distributary.content.client_move import ClientMove, MoveState
from distributary.content.client_session import (
    BrokerSession,
    RequestKey,
    RequestState,
    TakenFrom,
    UnsentPublication,
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
    Refused,
    SendFrame,
    SessionClosed,
    SessionOpened,
    Stored,
)
from distributary.machines.actions import SetTimer

__all__ = ["ClientMachine"]

_CLAIM, _ABANDON = "claim", "abandon"
DEFAULT_PARAMS = ClientParams()


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
        self._move: ClientMove | None = None
        self._wishes = ClientWishes()
        self._texts = self._wishes.texts
        self.deliveries = ClientDeliveries(params, self._wishes)
        self._tickets = 0
        self._answers = ClientAnswers()
        self._waiting: deque[UnsentPublication] = deque()
        self._close_ticket: int | None = None
        self._unclaimed = self._wishes.unclaimed
        self._places = 1
        self._timers: set[str] = set()
        self.published = 0

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
        actions += self.deliveries.hand_kept(key.number, waiting)
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
        self._waiting.append(UnsentPublication(ticket, attributes, payload))
        # It must not be refused because it does not match what an earlier process advertised.
        ended = self._end_unclaimed("advertisement", now) if self._unclaimed else []
        return ticket, [*ended, *self._send_waiting()]

    def withdraw(self, ticket: int) -> bool:
        """Take back a publication that was not sent yet; False if it may be stored."""
        for entry in self._waiting:
            if entry.ticket == ticket:
                self._waiting.remove(entry)
                return True
        return False

    def finish(self, taken: TakenFrom, now: float) -> list[ClientAction]:
        """One subscription has processed an event or a loss."""
        session = self._find(taken.place)
        if session is None or not session.has(taken):
            return []
        session.finish(taken)
        return self.deliveries.acknowledge(session, now)

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
        self._move = ClientMove(old, self.broker, ticket, abandon)
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
        actions = self.cancel_move(now)
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
        old = 0 if self._move is None else self._move.old.in_flight
        return len(self._waiting) + self._session.in_flight + old

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
        session = self._find(self.deliveries.on_timer(name))
        return [] if session is None else [*session.acknowledge()]

    def on_message(self, place: int, message: Any, now: float) -> list[ClientAction]:
        """A message of a broker; what does not belong there is ignored."""
        session = self._find(place)
        if session is None:
            return []
        if not session.is_open and not isinstance(message, SessionOpened | Goodbye | Refused):
            return []  # it was said to an earlier connection
        match message:
            case Event() | Dropped():
                return self._on_delivery(session, message, now)
            case Stored():
                stored = session.on_stored(message)
                return [*self._complete(stored), *self._send_waiting(), *self._continue_move(now)]
            case SessionOpened():
                return self._on_session_opened(session, message, now)
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
        actions = self._answers.begin(key, ticket)
        for session in self._served_sessions:
            actions += session.want(key, text)
        return ticket, [*actions, *self._answers.answer(key, self._answering.state_of(key))]

    def _end_request(self, key: RequestKey, now: float) -> tuple[int, list[ClientAction]]:
        ticket = self._next_ticket()
        if not self._wishes.end(key):
            return ticket, [Complete(ticket)]
        actions = self._answers.end(key, ticket)
        for session in self._served_sessions:
            actions += session.end(key)
        return ticket, [*actions, *self._continue_move(now)]

    def _on_answer(
        self, session: BrokerSession, key: RequestKey, state: RequestState | None, now: float
    ) -> list[ClientAction]:
        answers = self._answers.answer(key, state) if session is self._answering else []
        return [*answers, *self._continue_move(now)]

    def _on_refused(
        self, session: BrokerSession, message: Refused, now: float
    ) -> list[ClientAction]:
        if message.kind == "publication":
            ticket = session.on_publication_refused(message.number)
            failed = [] if ticket is None else [Fail(ticket, message.reason)]
            return [*failed, *self._send_waiting(), *self._continue_move(now)]
        if message.kind == "session":
            return [EndClient(message.reason)]
        key = RequestKey(message.kind, message.number)
        ends = session.state_of(key) is RequestState.ENDING
        session.forget(key)
        if ends:
            actions = self._answers.confirm_end(key)
        elif actions := self._answers.refuse(key, message.reason):
            self._texts.pop(key, None)
        elif self._move is not None and session is self._session:
            actions = self.fail_move(message.reason, now)
        elif self._texts.pop(key, None) is not None:
            actions = [Lapse(key, message.reason)]  # the broker has begun a new session
        return [*actions, *self._continue_move(now)]

    # --- sessions ---------------------------------------------------------------------------------

    def _on_session_opened(
        self, session: BrokerSession, message: SessionOpened, now: float
    ) -> list[ClientAction]:
        is_found = session.number == 0 and message.resumed and self._move is None
        timers = self._find_unclaimed(message, now) if is_found else []
        outcome, frames = session.on_session_opened(message, self._unclaimed)
        actions: list[ClientAction] = [*timers, *frames, *self._complete(outcome.stored)]
        actions += session.acknowledge()  # what was processed since it asked for the session
        actions += fail_publications(outcome)
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
        return self.deliveries.report_loss(session, session.locate(0), None, reason)

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
        if session is None or not self._waiting:
            return []
        actions: list[ClientAction] = []
        while self._waiting and session.has_room:
            actions.append(session.publish(self._waiting.popleft()))
        return [*actions, *session.acknowledge()] if session.is_blocked else actions

    def _complete(self, tickets: list[int]) -> list[ClientAction]:
        self.published += len(tickets)
        return [Complete(ticket) for ticket in tickets]

    # --- deliveries -------------------------------------------------------------------------------

    def _on_delivery(
        self, session: BrokerSession, message: Event | Dropped, now: float
    ) -> list[ClientAction]:
        last = message.delivery if isinstance(message, Event) else message.last
        if not session.is_new_delivery(last):
            self.deliveries.duplicates += 1
            return []
        taken, move = session.locate(last), self._move
        if move is None:
            return self.deliveries.take(session, taken, message, now)
        if session is self._session:
            move.held.append((taken, message))
            return []
        return self.deliveries.take(session, taken, message, now, move.ignored)

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
            move.release(self._texts)
            for key in self._answers.awaited:
                actions += self._answers.answer(key, self._session.state_of(key))
            actions += self._watch_old(now)
        if move.state is MoveState.RELEASING and move.old.is_open and not move.old.in_flight:
            # Not before: what is published under a withdrawn advertisement gets another one.
            actions += move.withdraw(self._texts)
            if move.has_withdrawn:
                move.state = MoveState.DRAINING
                actions.append(SendFrame(move.old.place, CloseSession(drain=True)))
                actions += [Complete(move.ticket), *self._send_waiting()]
        return actions

    @property
    def _waits_for_old(self) -> bool:
        """Whether the old broker is away, and the move cannot go on without it."""
        move = self._move
        return move is not None and move.state is not MoveState.MAKING and not move.old.is_open

    def _watch_old(self, now: float) -> list[ClientAction]:
        """Do not wait for the old broker for ever."""
        if not self._waits_for_old or _ABANDON in self._timers:
            return []
        self._timers.add(_ABANDON)
        return [SetTimer(_ABANDON, now + self.params.abandon_after)]

    def _give_up_old(self, now: float) -> list[ClientAction]:
        move = self._move
        return self._abandon(move, now) if move is not None and self._waits_for_old else []

    def _abandon(self, move: ClientMove, now: float) -> list[ClientAction]:
        reason = f"the client has left {move.old_broker}, which may have more for it"
        actions = fail_unknown(move.old.give_up(), reason)
        if move.state is not MoveState.DRAINING:
            actions.append(Complete(move.ticket))
        actions += self.deliveries.report_loss(move.old, move.old.locate(0), None, reason)
        return [*actions, *self._break(now)]

    def _break(self, now: float) -> list[ClientAction]:
        """The old session is over: take what the new one has brought meanwhile."""
        move = self._move
        if move is None:
            return []
        self._move = None
        actions: list[ClientAction] = [HangUp(move.old.place), *self._send_waiting()]
        for taken, held in move.held:
            actions += self.deliveries.take(self._session, taken, held, now)
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
        if self._session.place == place:
            return self._session
        move = self._move
        return move.old if move is not None and move.old.place == place else None

    def _next_ticket(self) -> int:
        self._tickets += 1
        return self._tickets
