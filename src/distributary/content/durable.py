"""A content broker that survives lossy and broken links, its own crashes and those of others.

`ContentBroker` assumes perfect links. This module adds a connection to each neighbour and a few
rules.

*Publications are kept until they are finished.* A broker has finished a publication when it has
delivered it to its clients and every neighbour it was sent to has finished it. Until then the
sender keeps it, and the broker where it was published has saved it, so that it can be sent again
after a crash. A broker ignores publications that it has already routed, and saves up to which
number it has served its own clients.

*No routing on incomplete tables.* A broker that restarts knows what its own clients want, since
that is saved, but not what is wanted behind its neighbours until each of them has sent its complete
state. A neighbour can do so once its own other neighbours have, and once it knows what is published
here: first all advertisements become complete, from the leaves of the overlay inwards and out
again, then all subscriptions. Until then the broker holds all publications for that neighbour.

*Keep an advertisement until its publications are finished.* If an advertisement is withdrawn
earlier and its broker crashes, a publication may be lost, because nobody subscribes to it any more.

*No retraction on incomplete tables.* Statements that a neighbour still holds from the broker's
previous incarnation stay there, loose, until the broker knows everything that could need them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from distributary.content.broker import ContentBroker
from distributary.content.connections import Connection, Packet, Timing
from distributary.content.messages import (
    AdvertiseStatement,
    Name,
    Publication,
    PublishUnder,
    SubscribeStatement,
)
from distributary.content.policies import Covering
from distributary.content.resync import (
    HeardDigests,
    Known,
    StaleStatements,
    SyncComplete,
    SyncPart,
    ToldBuckets,
    compute_digests,
)
from distributary.machines.actions import Action, Deliver, Message, Save, Send
from distributary.model import Schema

__all__ = ["DurableBroker", "Recovery", "Snapshot", "StartBroker"]

# More names and publications than one incarnation of a broker creates.
_NUMBERS_PER_INCARNATION = 2**40

DEFAULT_TIMING = Timing()

# A publication's advertisement, and its number under that advertisement.
_Key = tuple[Name, int]


@dataclass(frozen=True, slots=True)
class StartBroker:
    """The first input of a broker, sent to it once by itself."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a broker had heard from each neighbour, so that it need not all be sent again."""

    heard: Mapping[str, Known]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a broker starts from: its incarnation, counted from 1, and what earlier ones left.

    `saved` holds the values of their `Save` actions; the snapshot may be from any earlier time.
    """

    incarnation: int = 1
    saved: Mapping[Hashable, object] = field(default_factory=dict)
    snapshot: Snapshot | None = None


FIRST_START = Recovery()


@dataclass(slots=True)
class _Undone:
    """An unfinished publication: senders to acknowledge, and neighbours not finished with it."""

    waiting: list[tuple[str, int]]
    left: set[str]


class DurableBroker:
    """The state of one incarnation of a broker: a `Machine`."""

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        schema: Schema,
        policy: Covering,
        *,
        recovery: Recovery = FIRST_START,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        self.name = name
        incarnation = recovery.incarnation
        self.core = ContentBroker(
            name, neighbours, schema, policy, first_number=incarnation * _NUMBERS_PER_INCARNATION
        )
        self.connections = {each: Connection(each, incarnation, timing) for each in self.core.links}
        # Neighbours whose state is incomplete here, and those not yet told that ours is complete.
        self._lacks = {part: set(self.connections) for part in SyncPart}
        self._owes = {part: set(self.connections) for part in SyncPart}
        self._synchronised: set[str] = set()  # neighbours that were sent the buckets they lacked
        self._undone: dict[_Key, _Undone] = {}
        self._held: defaultdict[str, list[Publication]] = defaultdict(list)
        self._routed: dict[Name, int] = {}  # the last publication of each advertisement
        self._served: dict[Name, int] = {}  # the last one delivered to this broker's clients
        self._saved = dict(recovery.saved)
        self._snapshot = recovery.snapshot
        self.core.retraction_blocked = set(self.connections)

    def snapshot(self) -> Snapshot:
        """The statements heard from all neighbours so far."""
        return Snapshot(
            {neighbour: self.core.collect_received(neighbour) for neighbour in self.connections}
        )

    @property
    def incomplete(self) -> set[str]:
        """The neighbours behind which there may be subscriptions that are unknown here."""
        return self._lacks[SyncPart.SUBSCRIPTIONS]

    @property
    def idle(self) -> bool:
        """Whether no message between this broker and its neighbours is outstanding."""
        return not self.incomplete and all(each.idle for each in self.connections.values())

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Handle a message of a client or a neighbour."""
        match message:
            case StartBroker():
                actions = self._start(now)
            case Packet():
                actions = self._receive(sender, message, now)
            case PublishUnder():
                actions = self._accept(message, now)
            case _:
                actions = self._divert_sends(self.core.on_message(sender, message, now))
        return self._flush(actions, now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Handle a timer of a connection or of the core."""
        for connection in self.connections.values():
            if connection.timer == name:
                return connection.on_timer(now)
        return self._flush(self._divert_sends(self.core.on_timer(name, now)), now)

    # --- recovery --------------------------------------------------------------------------------

    def _start(self, now: float) -> list[Action]:
        """Restore the clients' statements, the snapshot, and unfinished publications."""
        kept: list[Publication] = []
        for key, value in self._saved.items():
            match key, value:
                case ("served", Name() as name), int(number):
                    self._served[name] = number
                case ("publication", _, _), Publication():
                    kept.append(value)
        actions = self._divert_sends(self.core.restore(self._saved, now))
        for neighbour, known in self._snapshot.heard.items() if self._snapshot else ():
            actions += self._divert_sends(self._replay(neighbour, known, now))
        for publication in sorted(kept, key=lambda each: (each.advertisement, each.number)):
            actions += self._route(self.name, 0, publication, now)
        return actions + self._announce_complete(now)

    def _resynchronise(self, neighbour: str) -> None:
        """Compare states with a neighbour after either side restarted, and resend what was kept."""
        connection = self.connections[neighbour]
        for owed in self._owes.values():
            owed.add(neighbour)
        self._synchronised.discard(neighbour)
        connection.send(
            HeardDigests(compute_digests(self.core.collect_received(neighbour))), keep=False
        )
        for publication in connection.take_kept():
            connection.send(publication, keep=True)

    def _answer_digests(self, neighbour: str, report: HeardDigests) -> None:
        told = self.core.collect_sent(neighbour)
        pairs = zip(compute_digests(told), report.digests, strict=True)
        buckets = tuple(at for at, (mine, theirs) in enumerate(pairs) if mine != theirs)
        self.connections[neighbour].send(ToldBuckets(buckets, told.within(buckets)), keep=False)
        self._synchronised.add(neighbour)

    def _apply_buckets(self, neighbour: str, reply: ToldBuckets, now: float) -> list[Action]:
        heard = self.core.collect_received(neighbour).within(reply.buckets)
        extra = heard.without(reply.told)
        if extra:
            self.connections[neighbour].send(StaleStatements(extra), keep=False)
        return self._divert_sends(self._replay(neighbour, reply.told.without(heard), now))

    def _replay(self, neighbour: str, known: Known, now: float) -> list[Action]:
        statements = (
            *(AdvertiseStatement(name, filter) for name, filter in known.advertisements.items()),
            *(SubscribeStatement(name, filter) for name, filter in known.subscriptions.items()),
        )
        return [a for each in statements for a in self.core.on_message(neighbour, each, now)]

    def _announce_complete(self, now: float) -> list[Action]:
        """Tell neighbours which parts are complete; allow retraction where nothing is missing."""
        lacks_ads, lacks = self._lacks[SyncPart.ADVERTISEMENTS], self._lacks[SyncPart.SUBSCRIPTIONS]
        actions: list[Action] = []
        for neighbour in self.connections:
            if lacks_ads <= {neighbour}:
                self._send_complete(neighbour, SyncPart.ADVERTISEMENTS)
            if lacks <= {neighbour} and neighbour not in lacks_ads:
                self._send_complete(neighbour, SyncPart.SUBSCRIPTIONS)
                if neighbour in self.core.retraction_blocked and not lacks_ads:
                    actions += self._divert_sends(self.core.allow_retraction(neighbour, now))
        return actions

    def _send_complete(self, neighbour: str, part: SyncPart) -> None:
        if neighbour in self._owes[part] & self._synchronised:
            self._owes[part].remove(neighbour)
            self.connections[neighbour].send(SyncComplete(part), keep=False)

    def _on_complete(self, neighbour: str, part: SyncPart, now: float) -> list[Action]:
        """A neighbour's state is complete: send the held publications that it wants."""
        self._lacks[part].discard(neighbour)
        if part is not SyncPart.SUBSCRIPTIONS:
            return []
        actions: list[Action] = []
        for publication in self._held.pop(neighbour, ()):
            if self.core.wants(neighbour, publication):
                self.connections[neighbour].send(publication, keep=True)
            else:
                actions += self._on_finished(neighbour, publication, now)
        return actions

    # --- neighbours ------------------------------------------------------------------------------

    def _receive(self, neighbour: str, packet: Packet, now: float) -> list[Action]:
        connection = self.connections[neighbour]
        received = connection.on_packet(packet, now)
        actions: list[Action] = []
        if received.reset:
            self._resynchronise(neighbour)
            actions += self._divert_sends(self.core.restart_deferred_work(neighbour, now))
        for publication in received.finished:
            actions += self._on_finished(neighbour, publication, now)
        for number, message in received.messages:
            if isinstance(message, Publication):
                actions += self._route(neighbour, number, message, now)
            else:
                actions += self._handle(neighbour, message, now)
                connection.finish(number, now)
        return actions + self._announce_complete(now)

    def _handle(self, neighbour: str, message: Message, now: float) -> list[Action]:
        match message:
            case HeardDigests():
                self._answer_digests(neighbour, message)
                return []
            case ToldBuckets():
                return self._apply_buckets(neighbour, message, now)
            case StaleStatements(heard):
                return self._divert_sends(self.core.adopt(neighbour, heard, now))
            case SyncComplete(part):
                return self._on_complete(neighbour, part, now)
        return self._divert_sends(self.core.on_message(neighbour, message, now))

    # --- publications ----------------------------------------------------------------------------

    def _accept(self, message: PublishUnder, now: float) -> list[Action]:
        found = self.core.accept(message, now)
        if not isinstance(found, Publication):
            return [found]
        return self._route(message.client, 0, found, now)

    def _route(self, hop: str, number: int, publication: Publication, now: float) -> list[Action]:
        """Route a publication unless it was routed before.

        `number` is its number on the connection to `hop`.
        """
        key = publication.advertisement, publication.number
        if key in self._undone:
            self._undone[key].waiting.append((hop, number))
            return []
        if publication.number <= self._routed.get(publication.advertisement, 0):
            self._acknowledge(hop, number, now)
            return []
        self._routed[publication.advertisement] = publication.number
        left = self.incomplete - {hop}
        for neighbour in left:
            self._held[neighbour].append(publication)
        actions: list[Action] = []
        for action in self.core.route(hop, publication):
            if isinstance(action, Send):
                if action.to not in left:
                    self.connections[action.to].send(action.message, keep=True)
                    left.add(action.to)
            elif not isinstance(action, Deliver) or self._is_unserved(publication):
                actions.append(action)
        if any(isinstance(action, Deliver) for action in actions):
            self._served[publication.advertisement] = publication.number
            actions.append(Save(("served", publication.advertisement), publication.number))
        if not left:
            self._acknowledge(hop, number, now)
            return [*actions, *self._forget(key)]
        self._undone[key] = _Undone([(hop, number)], left)
        if hop not in self.connections:
            actions.append(Save(("publication", *key), publication))
        return actions

    def _is_unserved(self, publication: Publication) -> bool:
        return publication.number > self._served.get(publication.advertisement, 0)

    def _on_finished(self, neighbour: str, publication: Publication, now: float) -> list[Action]:
        """A neighbour has finished a publication."""
        key = publication.advertisement, publication.number
        undone = self._undone[key]
        undone.left.discard(neighbour)
        if undone.left:
            return []
        del self._undone[key]
        for hop, number in undone.waiting:
            self._acknowledge(hop, number, now)
        return self._forget(key)

    def _forget(self, key: _Key) -> list[Action]:
        is_own = key[0].broker == self.name
        return [Save(("publication", *key), None)] if is_own else []

    def _acknowledge(self, hop: str, number: int, now: float) -> None:
        if hop in self.connections:
            self.connections[hop].finish(number, now)

    # --- actions ---------------------------------------------------------------------------------

    def _divert_sends(self, actions: Iterable[Action]) -> list[Action]:
        """Send statements over the connections; return the other actions."""
        left: list[Action] = []
        for action in actions:
            if isinstance(action, Send):
                self.connections[action.to].send(action.message, keep=False)
            else:
                left.append(action)
        return left

    def _flush(self, actions: list[Action], now: float) -> list[Action]:
        """Order the actions: saves first, packets of the connections last."""
        sends = [each for connection in self.connections.values() for each in connection.flush(now)]
        saves = [action for action in actions if isinstance(action, Save)]
        others = [action for action in actions if not isinstance(action, Save)]
        return [*saves, *others, *sends]
