"""The machine of a broker process: connections, roles and sessions around a durable broker.

It does no I/O: a shell, or a simulator, gives it connections and messages with the time, and
performs the actions that it returns, in order: `Save` before anything is sent, then `SendFrame`,
`Cut` and `SetTimer`. Messages that arrive together are handled in one turn, so that they share
saves, packets and answers. Times are in seconds since 1970 and never go back.

Everything saved has one of these keys:

| key | value |
| --- | --- |
| `("own", hop, kind, number)` | a client's `(Name, Filter)`; kind "subscription" or "promise" |
| `("ending", broker, number)` | `(hop, number, Filter)`: an advertisement withdrawn early |
| `("publication", Name, number)` | an unfinished `Publication` of an own client |
| `("served", Name)`, `("behind", hop, Name)` | the last number delivered to all clients, to one |
| `("session", client)` | a `SessionRecord` |
| `("published", client)`, `("refused", client)` | the last number stored, the latest refused |
| `("absent", client)` | when the session ends |
| `("outbox", client, number)` | an `OutboxItem`, a `Gap`, or True up to which is acknowledged |
| `("heard", neighbour, Name)` | a neighbour's statement: its kind and `Filter`; saved late |
| `("history", Name)` | the recent publications of a client's subscription; saved late |
| `("link", low, high)` | a `LinkFact` |
| `("neighbour", name)` | True |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distributary.content.client_requests import IMPLICIT, ClientRequests, RuleBroken
from distributary.content.connections import Packet
from distributary.content.durable import DurableBroker
from distributary.content.handshake import fingerprint, judge_hello, judge_welcome
from distributary.content.host_params import DEFAULT_PARAMS, HostParams
from distributary.content.host_statistics import Counts, HostStatistics
from distributary.content.host_status import describe_host
from distributary.content.messages import Detach, Name, Publication
from distributary.content.packet_rules import check_packet, drop_claims
from distributary.content.policies import Covering
from distributary.content.protocol import (
    Accepted,
    AskStatus,
    Cut,
    Goodbye,
    Hello,
    Identity,
    LinkFact,
    LinksKnown,
    OpenSession,
    Peer,
    Refusal,
    SendFrame,
    Status,
    Welcome,
)
from distributary.content.recovery import FIRST_START, Recovery, StartBroker
from distributary.content.sessions import Session, Sessions, client_of
from distributary.content.settling import Settling, Waiting
from distributary.content.spanning import Spanning, is_plausible, show_path
from distributary.machines.actions import Deliver, Save, Send, SetTimer, Work
from distributary.model import Schema

__all__ = ["BrokerHost", "HostAction", "HostParams"]

HostAction = Save | SendFrame | Cut | SetTimer | Work

# Both ends of a link may have connected to each other, and a dead connection may linger.
_MOST_CONNECTIONS_PER_LINK = 4
_UNNEEDED = Work("unwanted", 1)


class BrokerHost:
    """One incarnation of a broker with its clients and neighbours.

    `recovery` is what earlier incarnations saved; its incarnation must be higher than theirs.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        policy: Covering,
        *,
        recovery: Recovery = FIRST_START,
        params: HostParams = DEFAULT_PARAMS,
    ) -> None:
        self.name = name
        self.schema = schema
        self.params = params
        self.counts = Counts()
        self.reasons = Counts()
        self.sessions = Sessions(name, schema, params)
        saved = recovery.saved
        neighbours = [key[1] for key in saved if isinstance(key, tuple) and key[0] == "neighbour"]
        facts = [value for value in saved.values() if isinstance(value, LinkFact)]
        self.spanning = Spanning(name, facts)
        self.broker = DurableBroker(
            name,
            neighbours,
            schema,
            policy,
            recovery=recovery,
            timing=params.timing,
            limits=params.links,
            clients=self.sessions,
        )
        self.sessions.recall_names = self.broker.core.subscriptions.index.recall_names
        self.broker.screen = self._screen
        self.broker.links.is_away = lambda neighbour: neighbour not in self.connected
        self._doubted: set[str] = set()  # neighbours that spoke for brokers not behind them
        self._settling = Settling(self.broker)
        self._clients = ClientRequests(
            self.broker,
            self.sessions,
            self._settling,
            schema,
            params,
            self.counts,
            self.find_away,
        )
        self._peers: dict[int, Peer] = {}
        self.connected: dict[str, list[int]] = {}  # by neighbour, the newest last
        self._turn: list[Any] = []  # the actions of messages taken in this turn
        self._saved = saved
        self._fingerprint = fingerprint(schema)

    # --- handshake -------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        """Who this broker is, for its own `Hello`, with the links known now."""
        return Identity(
            "broker", self.name, self.broker.incarnation, self._fingerprint, self.spanning.facts
        )

    def judge(self, hello: Hello, *, proven: str | None = None) -> Welcome | Refusal:
        """Accept a connection or refuse it, also because its link would close a cycle."""
        answer = judge_hello(hello, self.identity, self.schema, proven=proven)
        if isinstance(answer, Welcome) and hello.role == "broker":
            return self._judge_link(hello.name, hello.incarnation, hello.links) or answer
        return answer

    def judge_welcome(
        self, welcome: Welcome, expected: str | None, *, proven: str | None = None
    ) -> Refusal | None:
        """Accept the broker that this one has connected to, or refuse it."""
        refusal = judge_welcome(welcome, self.identity, expected=expected, proven=proven)
        return refusal or self._judge_link(welcome.name, welcome.incarnation, welcome.links)

    def _judge_link(
        self, neighbour: str, incarnation: int, links: tuple[LinkFact, ...]
    ) -> Refusal | None:
        if not is_plausible(links):
            return Refusal(f"the links that {neighbour!r} tells of are not well-formed")
        if path := self.spanning.find_detour(neighbour, links):
            return Refusal(
                f"a link between {self.name!r} and {neighbour!r} would close a cycle, since there "
                f"is already the way {show_path(path)}; take one of its links out first"
            )
        connection = self.broker.connections.get(neighbour)
        if connection is not None and incarnation < connection.peer_incarnation:
            return Refusal(
                f"{neighbour!r} is in its start number {incarnation}, but was here with number "
                f"{connection.peer_incarnation}: its state is an old copy; start it with its own"
            )
        return None

    # --- inputs ----------------------------------------------------------------------------------

    def start(self, now: float) -> list[HostAction]:
        """Restore what was saved; the first call."""
        self.sessions.restore(self._saved)
        actions: list[Any] = list(self.broker.on_message(self.name, StartBroker(), now))
        hops = {key[1] for key in self._saved if isinstance(key, tuple) and key[0] == "own"}
        for hop in sorted(hops, key=str):
            if client_of(str(hop)) not in self.sessions:  # an ephemeral session
                actions += self.broker.on_message(str(hop), Detach(str(hop)), now)
                actions += self.broker.forget_client(str(hop), now)
        for session in self.sessions.all():
            actions += self._clients.restart(session, now)
        self._clients.restart_ending()
        self._saved = {}
        return self._finish(actions, now)

    def stop(self) -> list[Save]:
        """Save what would be saved later; the last call, if the process stops in order."""
        return self.broker.save_rest()

    def on_open(self, peer: Peer, now: float) -> list[HostAction]:
        """A handshake has succeeded."""
        self._peers[peer.connection] = peer
        if peer.role == "client":
            return []
        refusal = self._judge_link(peer.name, peer.incarnation, peer.links)
        if refusal is not None:
            return self._cut(peer, refusal.reason, "link")
        connections = self.connected.setdefault(peer.name, [])
        connections.append(peer.connection)
        actions: list[Any] = []
        if len(connections) > _MOST_CONNECTIONS_PER_LINK:
            oldest = connections[0]
            actions += self._drop_connection(oldest)
            actions.append(Cut(oldest, f"{peer.name!r} has newer connections"))
        if peer.name not in self.broker.connections:
            actions.append(Save(("neighbour", peer.name), True))
            actions += self.broker.add_neighbour(peer.name, now)
        newer = [*self.spanning.merge(peer.links), *self.spanning.set_link(peer.name, exists=True)]
        actions += self._spread(newer, now)
        actions.append(SendFrame(peer.connection, LinksKnown(self.spanning.facts)))
        actions += self.broker.retry(peer.name, now)
        return self._finish(actions, now)

    def on_message(self, connection: int, message: Any, now: float) -> list[HostAction]:
        """A message has arrived; a turn of one message."""
        self.take_message(connection, message, now)
        return self.finish_turn(now)

    def take_message(self, connection: int, message: Any, now: float) -> None:
        """A message has arrived in this turn; never raises, whatever it is.

        The actions are returned by `finish_turn`, or by another input before.
        """
        peer = self._peers.get(connection)
        if peer is None or isinstance(message, Goodbye):
            return  # the shell closes the connection
        self.broker.holds_back = True
        try:
            handle = self._on_broker_message if peer.role == "broker" else self._on_client_message
            self._turn += handle(peer, message, now)
        except RuleBroken as broken:
            self._turn += self._clients.answer_publications()
            self._turn += self._cut(peer, str(broken), type(message).__name__)
            self._turn += self._forget_peer(peer, now)

    def finish_turn(self, now: float) -> list[HostAction]:
        """Do what follows from the messages of this turn."""
        return self._finish([], now)

    def on_close(self, connection: int, now: float) -> list[HostAction]:
        """A connection has closed, for whatever reason."""
        peer = self._peers.pop(connection, None)
        return [] if peer is None else self._finish(self._forget_peer(peer, now), now)

    def on_timer(self, name: str, now: float) -> list[HostAction]:
        """A timer has expired."""
        actions = self._clients.on_timer(name, now)
        return self._finish(
            list(self.broker.on_timer(name, now)) if actions is None else actions, now
        )

    def remove_link(self, neighbour: str, now: float) -> list[HostAction]:
        """The operator takes a neighbour out for good; drops and counts what was kept for it."""
        reason = f"the operator of broker {self.name!r} has taken this link out"
        return self._finish(self._remove(neighbour, reason, now), now)

    # --- brokers ---------------------------------------------------------------------------------

    def find_away(self) -> list[str]:
        """The neighbours that are not connected, and for which publications are kept."""
        return [
            each
            for each, queue in self.broker.queues.items()
            if each not in self.connected and (len(queue) or queue.unfinished)
        ]

    def _on_broker_message(self, peer: Peer, message: Any, now: float) -> list[Any]:
        match message:
            case Packet():
                if peer.name not in self.broker.connections:
                    return []  # the link has just been taken out
                check_packet(peer, message)
                received = [m for m in message.messages if isinstance(m, Publication)]
                self.counts[f"received {peer.name}"] += len(received)
                actions = self.broker.on_message(peer.name, message, now)
                unneeded = sum(each == _UNNEEDED for each in actions)
                self.counts[f"unneeded {peer.name}"] += unneeded
                return list(actions)
            case LinksKnown(facts):
                if not is_plausible(facts):
                    raise RuleBroken("the links that it tells of are not well-formed")
                return self._spread(self.spanning.merge(facts), now)
        raise RuleBroken(f"a {type(message).__name__} is not a message of a broker")

    def _screen(self, neighbour: str, message: Any) -> Any:
        """Leave out what a neighbour says for brokers that are known not to be behind it.

        The links may have changed just now, and both may be right. So it is not cut off, but asked
        again when more is known about links.
        """

        def is_foreign(name: Name) -> bool:
            return self.spanning.direction_of(name.broker) not in (None, neighbour)

        screened = drop_claims(message, is_foreign)
        if screened != message:
            self._doubted.add(neighbour)
            self.counts["violations"] += 1
            self.reasons["speaks for others"] += 1
        return screened

    def _spread(self, newer: list[LinkFact], now: float) -> list[Any]:
        """Save and spread what is new about links, and act on what concerns this broker."""
        if not newer:
            return []
        actions: list[Any] = [Save(("link", each.low, each.high), each) for each in newer]
        for fact in newer:
            if self.name in (fact.low, fact.high):
                other = fact.high if fact.low == self.name else fact.low
                actions += self._check_own_link(other, fact, now)
        surplus = self.spanning.find_surplus()
        if surplus is not None and self.name in surplus[0]:
            (low, high), path = surplus
            reason = f"the links between brokers close a cycle with the way {show_path(path)}"
            actions += self._remove(high if low == self.name else low, reason, now)
        doubted, self._doubted = self._doubted & self.broker.connections.keys(), set()
        for neighbour in sorted(doubted):
            actions += self.broker.ask_again(neighbour, now)
        facts = LinksKnown(self.spanning.facts)
        newest = (connections[-1] for connections in self.connected.values())
        return [*actions, *(SendFrame(connection, facts) for connection in newest)]

    def _check_own_link(self, other: str, fact: LinkFact, now: float) -> list[Any]:
        """Follow the other end if it has taken the link out; contradict what is not true."""
        has_link = other in self.broker.connections
        if has_link and not fact.exists:
            return self._remove(other, f"broker {other!r} has taken this link out", now)
        if not has_link and fact.exists:
            newer = self.spanning.set_link(other, exists=False)
            return [Save(("link", each.low, each.high), each) for each in newer]
        return []

    def _remove(self, neighbour: str, reason: str, now: float) -> list[Any]:
        """Take a link out for good."""
        if neighbour not in self.broker.connections:
            return []
        actions: list[Any] = [Save(("neighbour", neighbour), None)]
        removed, kept = self.broker.remove_neighbour(neighbour, now)
        self.counts["kept_dropped"] += kept
        actions += removed
        for connection in self.connected.pop(neighbour, ()):
            self._peers.pop(connection, None)
            actions.append(Cut(connection, reason))
        return actions + self._spread(self.spanning.set_link(neighbour, exists=False), now)

    # --- clients ---------------------------------------------------------------------------------

    def _on_client_message(self, peer: Peer, message: Any, now: float) -> list[Any]:
        if isinstance(message, AskStatus):
            return [SendFrame(peer.connection, Status(self.statistics().as_mapping()))]
        session = self.sessions.get(peer.name)
        is_open = session is not None and session.connection == peer.connection
        if isinstance(message, OpenSession):
            if is_open:
                raise RuleBroken("the session of this connection is already open")
            return self._clients.open(peer.name, peer.connection, message, now)
        if not is_open or session is None:
            raise RuleBroken(f"a {type(message).__name__} before a session was opened")
        return self._clients.on_message(session, message, now)

    # --- connections -----------------------------------------------------------------------------

    def _forget_peer(self, peer: Peer, now: float) -> list[Any]:
        self._drop_connection(peer.connection, peer)
        session = self.sessions.get(peer.name) if peer.role == "client" else None
        if session is not None and session.connection == peer.connection:
            return self._clients.leave(session, now)
        return list(self.broker.on_away(now)) if peer.role == "broker" else []

    def _drop_connection(self, connection: int, peer: Peer | None = None) -> list[Any]:
        peer = peer or self._peers.get(connection)
        self._peers.pop(connection, None)
        if peer is not None and peer.role == "broker":
            connections = self.connected.get(peer.name, [])
            if connection in connections:
                connections.remove(connection)
            if not connections:
                self.connected.pop(peer.name, None)
        return []

    def _cut(self, peer: Peer, reason: str, rule: str) -> list[Any]:
        self._peers.pop(peer.connection, None)
        self.counts["violations"] += 1
        self.reasons[rule] += 1
        return [Cut(peer.connection, reason)]

    # --- after each input ------------------------------------------------------------------------

    def _finish(self, actions: list[Any], now: float) -> list[HostAction]:
        """Do what follows from all inputs of a turn, and order the actions: saves first."""
        actions, self._turn = [*self._turn, *actions], []
        actions += self._clients.answer_publications()
        actions += self.broker.flush(now)
        for client in list(self.sessions.overfull):
            session = self.sessions.get(client)
            if session is not None:
                actions += self._disconnect(session, now)
        actions += self._settling.begin(now)
        for waiting in self._settling.take_settled():
            actions += self._on_settled(waiting, now)
        actions += self._settling.begin(now)
        actions += self._clients.answer_withdrawn()
        actions += self._clients.end_drained(now)
        for client in list(self.sessions.to_send):
            session = self.sessions.get(client)
            if session is not None and session.connection is not None:
                frames = self.sessions.take_frames(session)
                actions += [SendFrame(session.connection, each) for each in frames]
        self.sessions.to_send.clear()
        actions += self._clients.grant_again()
        return self._translate(actions)

    def _disconnect(self, session: Session, now: float) -> list[Any]:
        """End the session of a client that was too slow, as it asked for."""
        reason = f"the outbox of client {session.client!r} is full, so its session has ended"
        connection = session.connection
        actions = self._clients.end(session, now)
        if connection is not None:
            self._peers.pop(connection, None)
            actions.append(Cut(connection, reason))
        return actions

    def _on_settled(self, waiting: Waiting, now: float) -> list[Any]:
        session = self.sessions.get(waiting.client)
        if session is None:
            return []
        if waiting.name is None:
            return self._clients.on_drained(session, now) if session.drains else []
        if session.names.get((waiting.kind, waiting.number)) != waiting.name:
            return []  # replaced or ended in the meantime
        session.settled.add(waiting.name)
        if session.connection is None or (waiting.kind, waiting.number) == IMPLICIT:
            return []  # a client that withdraws it would take this for the answer
        accepted = Accepted(waiting.kind, waiting.number, True)
        return [SendFrame(session.connection, accepted)]

    def _translate(self, actions: Iterable[Any]) -> list[HostAction]:
        """Send packets over the connections of neighbours, and put saves first."""
        saves: list[HostAction] = []
        others: list[HostAction] = []
        for action in actions:
            match action:
                case Save(key, _):
                    if not self._is_ephemeral(key):
                        saves.append(action)
                case Send(to, message):
                    if to in self.connected:
                        self._count_sent(to, message)
                        others.append(SendFrame(self.connected[to][-1], message))
                case Deliver():
                    pass  # the answer to a request that the host has checked
                case Cut(connection):
                    self._peers.pop(connection, None)
                    others.append(action)
                case Work(kind, units):
                    self.counts[kind] += round(units)
                case _:
                    others.append(action)
        return [*saves, *others]

    def _is_ephemeral(self, key: Any) -> bool:
        """Whether a save is of a client of which nothing is kept."""
        if key[0] == "behind" or (key[0] == "own" and key[2] == "subscription"):
            session = self.sessions.get(client_of(key[1]))
            return session is not None and session.ephemeral
        return False

    def _count_sent(self, neighbour: str, packet: Packet) -> None:
        sent = sum(isinstance(each, Publication) for each in packet.messages)
        self.counts[f"forwarded {neighbour}"] += sent

    # --- looking in ------------------------------------------------------------------------------

    def statistics(self) -> HostStatistics:
        """What the broker has counted and holds now."""
        return describe_host(self)
