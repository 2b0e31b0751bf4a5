"""What a broker does at the request of its clients, each within its own session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from distributary.content.attributes import read_attributes
from distributary.content.durable import DurableBroker
from distributary.content.events import ContentEvent, SubscribeRequest, UnsubscribeRequest
from distributary.content.host_params import HostParams
from distributary.content.host_statistics import Counts
from distributary.content.messages import (
    AdvertiseRequest,
    Detach,
    Name,
    PublishUnder,
    UnadvertiseRequest,
)
from distributary.content.protocol import (
    Accepted,
    Acknowledge,
    Advertise,
    CloseSession,
    Cut,
    Ended,
    OpenSession,
    Publish,
    Refused,
    RequestKind,
    SendFrame,
    SessionClosed,
    SessionOpened,
    Stored,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from distributary.content.sessions import Session, Sessions, client_of, hop_of
from distributary.content.settling import Settling, Waiting
from distributary.errors import InputError
from distributary.machines.actions import Save, SetTimer
from distributary.matching import parse_filter
from distributary.model import Filter, Schema

__all__ = ["IMPLICIT", "ClientRequests", "RuleBroken"]

_SUBSCRIPTION: RequestKind = "subscription"
_ADVERTISEMENT: RequestKind = "advertisement"
# The advertisement of a client that has none; the client does not hear how far it is.
IMPLICIT: tuple[RequestKind, int] = (_ADVERTISEMENT, 0)


class RuleBroken(Exception):  # noqa: N818  # not an error of this process
    """A peer has broken a rule of the protocol; the host cuts its connection."""


# The timers of absent clients: the end of the session, and of the time that publishers wait.
_LEASE, _PATIENCE = "lease", "patience"


Actions = list[Any]


@dataclass(slots=True)
class ClientRequests:
    """Handles the messages of clients; raises `RuleBroken` for what no correct client sends."""

    broker: DurableBroker
    sessions: Sessions
    settling: Settling
    schema: Schema
    params: HostParams
    counts: Counts
    find_away: Callable[[], list[str]]  # the neighbours that are away and needed
    _draining: dict[str, None] = field(default_factory=dict)
    _blocked: dict[str, None] = field(default_factory=dict)
    _publishing: dict[str, None] = field(default_factory=dict)  # clients to be answered
    # Withdrawn advertisements of clients that wait for the answer, by client and number.
    _withdrawn: dict[tuple[str, int], set[Name]] = field(default_factory=dict)

    # --- sessions --------------------------------------------------------------------------------

    def open(self, client: str, connection: int, asked: OpenSession, now: float) -> Actions:
        """Resume or begin a session for a connection."""
        if asked.received < 0 or asked.most_events < 0 or asked.most_bytes < 0:
            raise RuleBroken("a negative number in a request for a session")
        if asked.lease is not None and not 0 <= asked.lease < float("inf"):
            raise RuleBroken(f"a lease of {asked.lease} seconds")
        session = self.sessions.get(client)
        actions: Actions = []
        if session is not None and session.connection is not None:
            if connection < session.connection:  # of an earlier process, and late
                return [Cut(connection, f"client {client!r} has a newer connection")]
            reason = f"another connection of client {client!r} has taken over its session"
            actions.append(Cut(session.connection, reason))
            session.connection = None
        is_other = session is not None and asked.session not in (0, session.record.number)
        if session is not None and (session.ephemeral or is_other):
            actions += self.end(session, now)
            session = None
        if session is not None and asked.ephemeral:
            reason = f"client {client!r} has a session that is kept; end that, or use another name"
            return [*actions, SendFrame(connection, Refused("session", 0, reason))]
        resumed = session is not None
        if session is None:
            if len(self.sessions) >= self.params.sessions:
                reason = f"the broker has {len(self.sessions):,} sessions and takes no more"
                return [*actions, SendFrame(connection, Refused("session", 0, reason))]
            number = self.broker.core.new_name().number
            session, saves = self.sessions.begin(client, number, asked)
            actions += saves
        else:
            actions += self.sessions.renew(session, asked)
        actions += self._attach(session, connection, asked, resumed)
        return actions + self.broker.on_room(hop_of(client), now)

    def _attach(
        self, session: Session, connection: int, asked: OpenSession, resumed: bool
    ) -> Actions:
        actions: Actions = []
        if resumed and asked.session:
            actions += self._take_acknowledgement(session, asked.received)
        session.connection = connection
        if session.expires is not None:
            session.expires = None
            actions += [Save(("absent", session.client), None)]
        session.is_given_up = False
        actions += _stop_timers(session)
        session.outbox.forget_sent()
        self.sessions.to_send[session.client] = None
        session.window = self._find_window(session)
        # It repeats what it sent while there was more room.
        session.granted = session.published + self.params.publications
        if not session.window:
            self._blocked[session.client] = None
        opened = SessionOpened(
            session.record.number,
            resumed,
            session.published,
            session.window,
            tuple(session.subscriptions),
            self._list_advertisements(session),
            session.refused,
            len(session.outbox) + self.broker.laggards.count(hop_of(session.client)),
        )
        settled = [
            SendFrame(connection, Accepted(kind, number, True))
            for (kind, number), name in session.names.items()
            if name in session.settled and (kind, number) != IMPLICIT
        ]
        return [*actions, SendFrame(connection, opened), *settled]

    def _list_advertisements(self, session: Session) -> tuple[int, ...]:
        """The advertisements that are in place, also those that end when all is delivered."""
        hop, ending = hop_of(session.client), self.broker.core.ending.values()
        leaving = [number for whose, number in ending if whose == hop]
        return tuple(dict.fromkeys([*session.advertisements, *leaving]))

    def leave(self, session: Session, now: float) -> Actions:
        """The connection of a session is gone."""
        session.connection = None
        if session.ephemeral:
            return self.end(session, now)
        session.outbox.forget_sent()
        session.expires = now + session.record.lease
        saved = Save(("absent", session.client), session.expires)
        return [saved, *self._set_timers(session, session.expires)]

    def _set_timers(self, session: Session, expires: float) -> Actions:
        timers: Actions = [SetTimer(f"{_LEASE} {session.client}", expires)]
        if session.record.when_full == "wait":
            since = expires - session.record.lease
            given_up = since + self.params.patience
            timers.append(SetTimer(f"{_PATIENCE} {session.client}", given_up))
        return timers

    def on_timer(self, name: str, now: float) -> Actions | None:
        """Act on a timer of an absent client; None if it is not one."""
        kind, _, client = name.partition(" ")
        if kind not in (_LEASE, _PATIENCE):
            return None
        session = self.sessions.get(client)
        if session is None or session.expires is None:
            return []
        if kind == _PATIENCE:
            session.is_given_up = True
            return list(self.broker.on_room(hop_of(client), now))
        if session.expires > now:
            return [SetTimer(name, session.expires)]
        return self.end(session, now)

    def restart(self, session: Session, now: float) -> Actions:
        """After a restart: let the statements of a session settle, and its lease go on."""
        for (kind, number), name in session.names.items():
            self.settling.add(Waiting(session.client, kind, number, name))
        if session.expires is None:
            return self.leave(session, now)
        return self._set_timers(session, session.expires)

    def restart_ending(self) -> None:
        """After a restart: let advertisements settle that end when all under them is delivered.

        Until then nobody knows who wants what is still to be delivered.
        """
        for name, (hop, number) in self.broker.core.ending.items():
            self.settling.add(Waiting(client_of(hop), _ADVERTISEMENT, number, name))

    def end(self, session: Session, now: float) -> Actions:
        """End a session: its subscriptions and advertisements, and everything that waits."""
        hop = hop_of(session.client)
        self.counts["sessions_ended"] += 1
        answers = self.answer_publications()
        return [
            *answers,
            *self.sessions.end(session),
            *self.broker.on_message(hop, Detach(hop), now),
            *self.broker.forget_client(hop, now),
            *_stop_timers(session),
        ]

    def close(self, session: Session, message: CloseSession, now: float) -> Actions:
        """End a session at the client's request, at once or when it has drained."""
        if not message.drain:
            connection = session.connection
            done = [] if connection is None else [SendFrame(connection, SessionClosed())]
            return [*self.end(session, now), *done]
        if not session.drains:
            session.drains = True
            self._draining[session.client] = None
            self.settling.add(Waiting(session.client, "session", 0, None))
        return []

    def on_drained(self, session: Session, now: float) -> Actions:
        """Everything published before has arrived: end the subscriptions."""
        session.has_drained = True
        actions: Actions = []
        for number in list(session.subscriptions):
            actions += self._end_statement(session, _SUBSCRIPTION, number, now)
        return actions

    def end_drained(self, now: float) -> Actions:
        """End the sessions that have drained."""
        actions: Actions = []
        for client in list(self._draining):
            session = self.sessions.get(client)
            if session is None or not session.drains:
                del self._draining[client]
            elif session.has_drained and session.outbox.is_empty and self._is_finished(session):
                actions += self.close(session, CloseSession(), now)
        return actions

    def _is_finished(self, session: Session) -> bool:
        is_unfinished = self.broker.core.is_unfinished
        return not self.broker.laggards.count(hop_of(session.client)) and not any(
            is_unfinished(name) for name in session.advertisements.values()
        )

    # --- requests --------------------------------------------------------------------------------

    def on_message(self, session: Session, message: Any, now: float) -> Actions:
        """Handle a request of a client with a session."""
        match message:
            case Publish():
                return self._publish(session, message, now)
            case Acknowledge(delivery):
                actions = self._take_acknowledgement(session, delivery)
                self.sessions.to_send[session.client] = None
                return actions + self.broker.on_room(hop_of(session.client), now)
            case Subscribe(number, text):
                return self._state(session, _SUBSCRIPTION, number, text, now)
            case Advertise(number, text):
                return self._state(session, _ADVERTISEMENT, number, text, now)
            case Unsubscribe(number):
                return self._withdraw(session, _SUBSCRIPTION, number, now)
            case Unadvertise(number):
                return self._withdraw(session, _ADVERTISEMENT, number, now)
            case CloseSession():
                return self.close(session, message, now)
        raise RuleBroken(f"a {type(message).__name__} is not a request of a client")

    def _take_acknowledgement(self, session: Session, delivery: int) -> Actions:
        if not 0 <= delivery <= session.outbox.last:
            raise RuleBroken(f"delivery {delivery} is acknowledged but does not exist")
        before = len(session.outbox)
        saves = session.outbox.acknowledge(delivery)
        self.counts["acknowledged"] += before - len(session.outbox)
        return list(saves)

    def _state(
        self, session: Session, kind: RequestKind, number: int, text: str, now: float
    ) -> Actions:
        """Begin or replace a subscription or an advertisement."""
        if not 0 <= number < 2**63:
            raise RuleBroken(f"the number {number} of a {kind}")
        try:
            self._check(session, kind, number, text)
            filter = parse_filter(text, self.schema)
        except InputError as error:
            return self._reply(session, Refused(kind, number, str(error)))
        actions = self._apply(session, kind, number, filter, now)
        if kind == _ADVERTISEMENT and (kind, number) != IMPLICIT:
            actions += self._end_statement(session, *IMPLICIT, now)
        settled = session.names.get((kind, number)) in session.settled  # if it is said again
        return [*actions, *self._reply(session, Accepted(kind, number, settled))]

    def _check(self, session: Session, kind: RequestKind, number: int, text: str) -> None:
        """Raise an `InputError` if the client may not have another one."""
        found, most = (
            (session.subscriptions, self.params.subscriptions)
            if kind == _SUBSCRIPTION
            else (session.advertisements, self.params.advertisements)
        )
        if session.drains:
            raise InputError("the session is being closed")
        if len(found) >= most and number not in found:
            raise InputError(
                f"the client has {len(found):,} {kind}s, which is the most it may have"
            )
        if len(text) > self.params.filter_length:
            raise InputError(
                f"the filter has {len(text):,} characters, and may have "
                f"{self.params.filter_length:,}"
            )

    def _apply(
        self, session: Session, kind: RequestKind, number: int, filter: Filter, now: float
    ) -> Actions:
        hop = hop_of(session.client)
        if kind == _SUBSCRIPTION:
            if session.subscriptions.get(number) == filter:
                return []  # said again after a reconnect
            session.subscribe(number, filter)
            actions = self.broker.on_message(hop, SubscribeRequest(hop, number, filter), now)
        else:
            actions = self.broker.on_message(hop, AdvertiseRequest(hop, number, filter), now)
        name = self.broker.core.find_name(hop, kind, number)
        if kind == _ADVERTISEMENT:
            session.advertisements[number] = name
        session.names[kind, number] = name
        self.settling.add(Waiting(session.client, kind, number, name))
        if kind == _ADVERTISEMENT:  # what is published under it follows its barrier
            return [*actions, *self.settling.begin(now)]
        return list(actions)

    def _withdraw(self, session: Session, kind: RequestKind, number: int, now: float) -> Actions:
        """End a statement; for an advertisement, answer when all that it announced is delivered."""
        actions = self._end_statement(session, kind, number, now)
        hop = hop_of(session.client)
        ending = {name for name, whose in self.broker.core.ending.items() if whose[0] == hop}
        if kind == _ADVERTISEMENT and ending:
            self._withdrawn[session.client, number] = ending
            return actions
        return [*actions, *self._reply(session, Ended(kind, number))]

    def answer_withdrawn(self) -> Actions:
        """Answer the withdrawals of advertisements that have ended now."""
        actions: Actions = []
        for (client, number), names in list(self._withdrawn.items()):
            if names.isdisjoint(self.broker.core.ending):
                del self._withdrawn[client, number]
                if session := self.sessions.get(client):
                    actions += self._reply(session, Ended(_ADVERTISEMENT, number))
        return actions

    def _end_statement(
        self, session: Session, kind: RequestKind, number: int, now: float
    ) -> Actions:
        hop = hop_of(session.client)
        name = session.names.pop((kind, number), None)
        if name is None:
            return []
        session.settled.discard(name)
        if kind == _SUBSCRIPTION:
            session.unsubscribe(number)
            return list(self.broker.on_message(hop, UnsubscribeRequest(hop, number), now))
        del session.advertisements[number]
        return list(self.broker.on_message(hop, UnadvertiseRequest(hop, number), now))

    # --- publications ----------------------------------------------------------------------------

    def _publish(self, session: Session, message: Publish, now: float) -> Actions:
        number = message.number
        self._publishing[session.client] = None
        if number <= session.published:  # said again after a reconnect
            return []
        if number != session.published + 1:
            raise RuleBroken(f"publication {number} follows {session.published}")
        if number > session.granted:
            raise RuleBroken(f"publication {number} was sent without room for it")
        session.published = number
        if self._is_full():
            session.spare_used = session.outbox.acknowledged
        saves: Actions = [] if session.ephemeral else [Save(("published", session.client), number)]
        try:
            actions = self._accept(session, message, now)
        except InputError as error:
            self.counts["refused"] += 1
            saves += self._note_refused(session, number)
            return [*saves, *self._reply(session, Refused("publication", number, str(error)))]
        self.counts["accepted"] += 1
        return [*saves, *actions]

    def _note_refused(self, session: Session, number: int) -> Actions:
        """Remember what was refused, as far back as the client may not know it."""
        oldest = number - self.params.publications
        session.refused = (*(each for each in session.refused if each > oldest), number)
        return [] if session.ephemeral else [Save(("refused", session.client), session.refused)]

    def _accept(self, session: Session, message: Publish, now: float) -> Actions:
        if session.drains:
            raise InputError("the session is being closed")
        if len(message.payload) > self.params.payload:
            raise InputError(
                f"the payload has {len(message.payload):,} bytes, and may have "
                f"{self.params.payload:,}"
            )
        if reason := self._find_reason_to_refuse():
            raise InputError(reason)
        keys = read_attributes(message.attributes, self.schema)
        hop, actions = hop_of(session.client), []
        if not session.advertisements:
            everything = Filter.everything(self.schema)
            actions += self._apply(session, *IMPLICIT, everything, now)
        event = ContentEvent(message.number, keys, now, session.client, message.payload)
        advertised = self.broker.core.advertisements
        for under, name in session.advertisements.items():
            if advertised.filter_of(name).matches(keys):
                request = PublishUnder(hop, under, event)
                return [*actions, *self.broker.on_message(hop, request, now)]
        raise InputError("the event matches no advertisement of its client; advertise it first")

    def _is_full(self, times: int = 1) -> bool:
        """Whether as much is kept as may be, or some times that."""
        broker, params = self.broker, self.params
        return (
            broker.unfinished.own >= times * params.kept_events
            or broker.unfinished.own_bytes >= times * params.kept_bytes
        )

    def _has_spare(self, session: Session) -> bool:
        """Whether a client may publish although the broker is full, since it would wait for itself.

        A program that publishes for each event that it takes does not take the next one before its
        publication is stored. So a client that has no room, which others wait for, may publish one
        event for each acknowledgement. That leaves as much room as it needs if the broker is full
        because of this client; if it is not, there is a second limit.
        """
        return (
            session.spare_used != session.outbox.acknowledged
            and self.broker.laggards.count(hop_of(session.client)) > 0
            and not self._is_full(times=2)
        )

    def _find_reason_to_refuse(self) -> str:
        """Why nothing can be published now: too much is kept for a broker that is away."""
        away = self.find_away() if self._is_full() else []
        if not away:
            return ""
        return (
            f"{self.broker.unfinished.own:,} publications are kept for broker {away[0]!r}, which "
            f"is away; wait until it is back, or take it out of the network"
        )

    def _find_window(self, session: Session) -> int:
        """How many publications a client may have under way."""
        if not self._is_full():
            left = self.params.kept_events - self.broker.unfinished.own
            return max(1, min(self.params.publications, left))
        return 1 if self.find_away() or self._has_spare(session) else 0

    def _grant(self, session: Session) -> Actions:
        session.window = self._find_window(session)
        session.granted = max(session.granted, session.published + session.window)
        if not session.window:
            self._blocked[session.client] = None
        return self._reply(session, Stored(session.published, session.window))

    def answer_publications(self) -> Actions:
        """Tell the clients that have published up to where everything is stored."""
        publishing, self._publishing = self._publishing, {}
        found = [self.sessions.get(client) for client in publishing]
        return [action for each in found if each is not None for action in self._grant(each)]

    def grant_again(self) -> Actions:
        """Tell the clients that had to wait that there is room again."""
        actions: Actions = []
        for client in list(self._blocked):
            session = self.sessions.get(client)
            if session is None or self._find_window(session):
                del self._blocked[client]
                actions += [] if session is None else self._grant(session)
        return actions

    def _reply(self, session: Session, message: Any) -> Actions:
        return [] if session.connection is None else [SendFrame(session.connection, message)]


def _stop_timers(session: Session) -> Actions:
    return [SetTimer(f"{kind} {session.client}", None) for kind in (_LEASE, _PATIENCE)]
