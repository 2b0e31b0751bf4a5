"""A content broker that survives: bad links, cut links, its own crashes and those of others.

Around `ContentBroker`, which takes links to be perfect, are a connection to each neighbour and a
few rules.

*Nothing is forgotten too early.* A publication is done with at a broker when it is handed to the
clients there and every neighbour that it was sent to is done with it; until then whoever sent it
keeps it, and the broker where it was published has saved it. After a crash it is sent again. A
broker throws away what it has routed already, and saves how far it has served its own clients.

*Nothing is routed in ignorance.* A broker that came back knows what its clients want, for that is
saved, but not what is wanted behind its neighbours until they have told it all. They can once
their own other neighbours have, and once they know what is published here: first all advertisements
are complete, from the leaves of the overlay inwards and out again, then all subscriptions. Until
then it keeps all publications for them.

*A promise outlasts what is published under it.* A publication whose advertisement is withdrawn
before all are done with it may be lost if its broker crashes in between: nobody asks for it then.

*Nothing is taken back in ignorance.* What a neighbour has heard from the broker's former life
stays there, loose, until the broker knows all that it could be needed for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from distributary.model import Schema
from distributary.protocol.actions import Action, Deliver, Message, Save, Send
from distributary.protocol.connections import Connection, Packet, Timing
from distributary.protocol.content.broker import ContentBroker
from distributary.protocol.content.messages import (
    Advertised,
    Name,
    Publication,
    PublishUnder,
    Subscribed,
)
from distributary.protocol.content.policies import Covering
from distributary.protocol.content.resync import (
    Complete,
    Extra,
    Known,
    Part,
    Recall,
    Recount,
    digest,
)

__all__ = ["DurableBroker", "Snapshot", "Start"]

# More names and publications than a broker makes in one life.
_NUMBERS_OF_A_LIFE = 2**40

DEFAULT_TIMING = Timing()

# A publication's advertisement and its number there.
_Key = tuple[Name, int]


@dataclass(frozen=True, slots=True)
class Start:
    """Begin: to be given to a broker once, before anything else, as from itself."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a broker had heard from each neighbour: it saves telling all of it again."""

    heard: Mapping[str, Known]


@dataclass(slots=True)
class _Undone:
    """A publication: who waits for it to be done, and which neighbours are not done with it."""

    waiting: list[tuple[str, int]]
    left: set[str]


class DurableBroker:
    """The state of one broker in one life: a `Machine`.

    `incarnation` counts its lives from 1. `saved` is what the lives before asked to be saved, and
    `snapshot`, if there is one, of any time before.
    """

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        schema: Schema,
        policy: Covering,
        *,
        incarnation: int = 1,
        saved: Mapping[Hashable, object] | None = None,
        snapshot: Snapshot | None = None,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        self.name = name
        self.core = ContentBroker(
            name, neighbours, schema, policy, first_number=incarnation * _NUMBERS_OF_A_LIFE
        )
        self.connections = {each: Connection(each, incarnation, timing) for each in self.core.links}
        # The neighbours that have not told all, and those that do not know that they were told all.
        self._lacks = {part: set(self.connections) for part in Part}
        self._owes = {part: set(self.connections) for part in Part}
        self._recounted: set[str] = set()  # those that were told what they lacked
        self._undone: dict[_Key, _Undone] = {}
        self._held: defaultdict[str, list[Publication]] = defaultdict(list)
        self._routed: dict[Name, int] = {}  # the last publication of each advertisement
        self._served: dict[Name, int] = {}  # the last that clients of this broker got
        self._saved = dict(saved or {})
        self._snapshot = snapshot
        self.core.cautious = set(self.connections)

    def snapshot(self) -> Snapshot:
        """What is known from the neighbours now."""
        return Snapshot({neighbour: self.core.heard(neighbour) for neighbour in self.connections})

    @property
    def incomplete(self) -> set[str]:
        """The neighbours behind which something may be wanted that is not known here."""
        return self._lacks[Part.SUBSCRIPTIONS]

    @property
    def idle(self) -> bool:
        """Whether nothing is under way between this broker and its neighbours."""
        return not self.incomplete and all(each.idle for each in self.connections.values())

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Take in what a client or a neighbour says."""
        match message:
            case Start():
                actions = self._start(now)
            case Packet():
                actions = self._receive(sender, message, now)
            case PublishUnder():
                actions = self._accept(message, now)
            case _:
                actions = self._performed(self.core.on_message(sender, message, now))
        return self._flushed(actions, now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        """A connection or the core wants to go on."""
        for connection in self.connections.values():
            if connection.timer == name:
                return connection.on_timer(now)
        return self._flushed(self._performed(self.core.on_timer(name, now)), now)

    # --- beginning again -------------------------------------------------------------------------

    def _start(self, now: float) -> list[Action]:
        """Take up what clients had said, what neighbours had, and what was not done with."""
        kept: list[Publication] = []
        for key, value in self._saved.items():
            match key, value:
                case ("served", Name() as name), int(number):
                    self._served[name] = number
                case ("publication", _, _), Publication():
                    kept.append(value)
        actions = self._performed(self.core.restore(self._saved, now))
        for neighbour, known in self._snapshot.heard.items() if self._snapshot else ():
            actions += self._performed(self._heard(neighbour, known, now))
        for publication in sorted(kept, key=lambda each: (each.advertisement, each.number)):
            actions += self._route(self.name, 0, publication, now)
        return actions + self._complete(now)

    def _begin_anew(self, neighbour: str) -> None:
        """One of both has a new life: compare what it was told, and give it what it may lack."""
        connection = self.connections[neighbour]
        for owed in self._owes.values():
            owed.add(neighbour)
        self._recounted.discard(neighbour)
        connection.send(Recall(digest(self.core.heard(neighbour))), keep=False)
        for publication in connection.take_kept():
            connection.send(publication, keep=True)

    def _recount(self, neighbour: str, recall: Recall) -> None:
        told = self.core.told(neighbour)
        pairs = zip(digest(told), recall.digests, strict=True)
        buckets = tuple(at for at, (mine, theirs) in enumerate(pairs) if mine != theirs)
        self.connections[neighbour].send(Recount(buckets, told.within(buckets)), keep=False)
        self._recounted.add(neighbour)

    def _compare(self, neighbour: str, recount: Recount, now: float) -> list[Action]:
        heard = self.core.heard(neighbour).within(recount.buckets)
        extra = heard.without(recount.told)
        if extra:
            self.connections[neighbour].send(Extra(extra), keep=False)
        return self._performed(self._heard(neighbour, recount.told.without(heard), now))

    def _heard(self, neighbour: str, known: Known, now: float) -> list[Action]:
        statements = (
            *(Advertised(name, filter) for name, filter in known.advertisements.items()),
            *(Subscribed(name, filter) for name, filter in known.subscriptions.items()),
        )
        return [a for each in statements for a in self.core.on_message(neighbour, each, now)]

    def _complete(self, now: float) -> list[Action]:
        """Where nothing is lacking any more: say so, and be bold."""
        lacks_ads, lacks = self._lacks[Part.ADVERTISEMENTS], self._lacks[Part.SUBSCRIPTIONS]
        actions: list[Action] = []
        for neighbour in self.connections:
            if lacks_ads <= {neighbour}:
                self._tell_complete(neighbour, Part.ADVERTISEMENTS)
            if lacks <= {neighbour} and neighbour not in lacks_ads:
                self._tell_complete(neighbour, Part.SUBSCRIPTIONS)
                if neighbour in self.core.cautious and not lacks_ads:
                    actions += self._performed(self.core.be_bold(neighbour, now))
        return actions

    def _tell_complete(self, neighbour: str, part: Part) -> None:
        if neighbour in self._owes[part] & self._recounted:
            self._owes[part].remove(neighbour)
            self.connections[neighbour].send(Complete(part), keep=False)

    def _completed(self, neighbour: str, part: Part, now: float) -> list[Action]:
        """A neighbour has told all: now it is known which of what was held it wants."""
        self._lacks[part].discard(neighbour)
        if part is not Part.SUBSCRIPTIONS:
            return []
        actions: list[Action] = []
        for publication in self._held.pop(neighbour, ()):
            if self.core.wants(neighbour, publication):
                self.connections[neighbour].send(publication, keep=True)
            else:
                actions += self._finished(neighbour, publication, now)
        return actions

    # --- neighbours ------------------------------------------------------------------------------

    def _receive(self, neighbour: str, packet: Packet, now: float) -> list[Action]:
        connection = self.connections[neighbour]
        received = connection.on_packet(packet, now)
        actions: list[Action] = []
        if received.reset:
            self._begin_anew(neighbour)
            actions += self._performed(self.core.go_on(neighbour, now))
        for publication in received.finished:
            actions += self._finished(neighbour, publication, now)
        for number, message in received.messages:
            if isinstance(message, Publication):
                actions += self._route(neighbour, number, message, now)
            else:
                actions += self._take(neighbour, message, now)
                connection.done(number, now)
        return actions + self._complete(now)

    def _take(self, neighbour: str, message: Message, now: float) -> list[Action]:
        match message:
            case Recall():
                self._recount(neighbour, message)
                return []
            case Recount():
                return self._compare(neighbour, message, now)
            case Extra(heard):
                return self._performed(self.core.adopt(neighbour, heard, now))
            case Complete(part):
                return self._completed(neighbour, part, now)
        return self._performed(self.core.on_message(neighbour, message, now))

    # --- publications ----------------------------------------------------------------------------

    def _accept(self, message: PublishUnder, now: float) -> list[Action]:
        found = self.core.accept(message, now)
        if not isinstance(found, Publication):
            return [found]
        return self._route(message.client, 0, found, now)

    def _route(self, hop: str, number: int, publication: Publication, now: float) -> list[Action]:
        """Route a publication that came with a number of the connection, unless that was done."""
        key = publication.advertisement, publication.number
        if key in self._undone:
            self._undone[key].waiting.append((hop, number))
            return []
        if publication.number <= self._routed.get(publication.advertisement, 0):
            self._done(hop, number, now)
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
            self._done(hop, number, now)
            return [*actions, *self._forget(key)]
        self._undone[key] = _Undone([(hop, number)], left)
        if hop not in self.connections:
            actions.append(Save(("publication", *key), publication))
        return actions

    def _is_unserved(self, publication: Publication) -> bool:
        return publication.number > self._served.get(publication.advertisement, 0)

    def _finished(self, neighbour: str, publication: Publication, now: float) -> list[Action]:
        """A neighbour is done with a publication."""
        key = publication.advertisement, publication.number
        undone = self._undone[key]
        undone.left.discard(neighbour)
        if undone.left:
            return []
        del self._undone[key]
        for hop, number in undone.waiting:
            self._done(hop, number, now)
        return self._forget(key)

    def _forget(self, key: _Key) -> list[Action]:
        is_own = key[0].broker == self.name
        return [Save(("publication", *key), None)] if is_own else []

    def _done(self, hop: str, number: int, now: float) -> None:
        if hop in self.connections:
            self.connections[hop].done(number, now)

    # --- what follows ----------------------------------------------------------------------------

    def _performed(self, actions: Iterable[Action]) -> list[Action]:
        """Statements go through the connections, all else is for whoever runs the machine."""
        left: list[Action] = []
        for action in actions:
            if isinstance(action, Send):
                self.connections[action.to].send(action.message, keep=False)
            else:
                left.append(action)
        return left

    def _flushed(self, actions: list[Action], now: float) -> list[Action]:
        """What is to be saved comes first, what is to be sent last."""
        sends = [each for connection in self.connections.values() for each in connection.flush(now)]
        saves = [action for action in actions if isinstance(action, Save)]
        others = [action for action in actions if not isinstance(action, Save)]
        return [*saves, *others, *sends]
