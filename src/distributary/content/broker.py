"""A content broker: routes publications from advertisers to subscribers.

Advertisements go to all brokers, subscriptions towards the advertisements they intersect, and
publications back along the subscriptions they match. The overlay has no cycles; links are reliable
and ordered. Each publication therefore reaches a broker at most once, and every client whose
subscription had reached all brokers on the way when it was published. This holds while
subscriptions come and go: the replacement of a subscription reaches the next broker before the
subscription is retracted there.

References: Carzaniga et al. (2001) for the routing, Chen et al. (2011) for selective pruning.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from math import inf

from distributary.content.deferred_work import DeferredWork
from distributary.content.events import SubscribeRequest, UnsubscribeRequest
from distributary.content.history import History, Seen
from distributary.content.hop_index import HopIndex
from distributary.content.messages import (
    EVERYWHERE,
    AdvertiseRequest,
    AdvertiseStatement,
    Detach,
    Echo,
    Name,
    Packed,
    Probe,
    Prune,
    Publication,
    PublishUnder,
    RequestRefused,
    Statement,
    SubscribeStatement,
    UnadvertiseRequest,
    UnadvertiseStatement,
    UnsubscribeStatement,
)
from distributary.content.outlink import OutLink
from distributary.content.policies import Covering
from distributary.content.resync import Known
from distributary.content.tables import AdvertisementTable, Entry, MatchIndex, SubscriptionTable
from distributary.machines.actions import Action, Deliver, Message, Save, Send, Work
from distributary.model import Filter, Schema

__all__ = ["ContentBroker"]


class ContentBroker:
    """The state of one broker: a `Machine`.

    Names and publications that originate here are numbered from `first_number`. A broker that
    restarts after a crash needs a number above all that it has used before.
    """

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        schema: Schema,
        policy: Covering,
        *,
        first_number: int = 0,
    ) -> None:
        self.name = name
        self.policy = policy
        self._schema = schema
        self.advertisements = AdvertisementTable(schema)
        self.links = {each: OutLink(schema, policy, self.new_name) for each in neighbours}
        # Pruning counts the subscriptions that want an event; otherwise who wants it is enough.
        self._matches = MatchIndex(schema) if policy.prunes else None
        self.subscriptions = SubscriptionTable(self._matches or HopIndex(schema))
        self.retraction_blocked: set[str] = set()  # links on which nothing may be retracted yet
        self._number = first_number
        self._deferred = DeferredWork(policy, self.links, self.retraction_blocked, self._send)
        self.history = History(policy.prunes) if policy.prunes else None
        self._own: dict[tuple[str, str, int], Name] = {}  # by client, kind and number
        self.ended: list[Name] = []  # advertisements; the owner takes them out
        # Withdrawn by a client, but not finished: the client and its number for it.
        self.ending: dict[Name, tuple[str, int]] = {}
        self.is_unfinished: Callable[[Name], bool] = lambda name: False
        self._elsewhere: dict[Name, set[str]] = {}  # who else tells of it: there is a cycle
        self._published = first_number
        self._former: defaultdict[str, set[Name]] = defaultdict(set)  # stale advertisements

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Handle a message of a client or a neighbour."""
        match message:
            case Publication():
                return self.route(sender, message, now)
            case PublishUnder(client):
                found = self.accept(message, now)
                return self.route(client, found, now) if isinstance(found, Publication) else [found]
            case (
                SubscribeStatement()
                | UnsubscribeStatement()
                | AdvertiseStatement()
                | UnadvertiseStatement()
            ):
                return self._apply(sender, (message,), now)
            case Packed(statements):
                return self._apply(sender, statements, now)
            case (
                SubscribeRequest()
                | UnsubscribeRequest()
                | AdvertiseRequest()
                | UnadvertiseRequest()
            ):
                if message.client in self.links:
                    reason = f"{message.client!r} is a broker's name; choose another"
                    return [Deliver(message.client, RequestRefused(message.number, reason), now)]
                return self._serve(message, now)
            case Detach():
                return self._serve(message, now)
            case Probe(number):
                return [Send(sender, Echo(number))]
            case Echo(number):
                return self._deferred.on_echo(sender, number, now)
        raise TypeError(f"a content broker cannot handle {message!r}")

    def on_timer(self, name: str, now: float) -> list[Action]:
        """The rest of a link is over."""
        return self._deferred.on_timer(name, now)

    # --- clients ---------------------------------------------------------------------------------

    def _serve(
        self,
        message: SubscribeRequest
        | UnsubscribeRequest
        | AdvertiseRequest
        | UnadvertiseRequest
        | Detach,
        now: float,
    ) -> list[Action]:
        """Turn a client's request into statements, replacing its request with that number."""
        statements: list[Statement] = []
        ended: list[tuple[str, str, int]] = []
        if isinstance(message, Detach):
            ended = [key for key in self._own if key[0] == message.client]
        else:
            kind = (
                "subscription"
                if isinstance(message, SubscribeRequest | UnsubscribeRequest)
                else "promise"
            )
            key = message.client, kind, message.number
            ended = [key] if key in self._own else []
        names = [self._own.pop(key) for key in ended]
        saves: list[Action] = [Save(("own", *key), None) for key in ended]
        if isinstance(message, SubscribeRequest | AdvertiseRequest):
            name = self._own[key] = self.new_name()
            saves.append(Save(("own", *key), (name, message.filter)))
            statements = [_make_statement(kind, name, message.filter)]
        for (client, _, number), name in zip(ended, names, strict=True):
            if name in self.subscriptions:
                statements.append(UnsubscribeStatement(name))
            elif self.is_unfinished(name):
                self.ending[name] = client, number
                value = client, number, self.advertisements.filter_of(name)
                saves.append(Save(("ending", *name), value))
            else:
                statements.append(UnadvertiseStatement(name))
        return [*saves, *self._apply(message.client, statements, now)]

    def end_advertisement(self, name: Name, now: float) -> list[Action]:
        """Withdraw an advertisement whose last publication is finished now."""
        client, _ = self.ending.pop(name)
        withdrawn = self._apply(client, [UnadvertiseStatement(name)], now)
        return [Save(("ending", *name), None), *withdrawn]

    def accept(self, message: PublishUnder, now: float) -> Publication | Deliver:
        """Number an event that a client publishes, or refuse it with a reason."""
        name = self._own.get((message.client, "promise", message.number))
        if name is None:
            reason = f"{message.client!r} has no advertisement {message.number}: advertise first"
            return Deliver(message.client, RequestRefused(message.number, reason), now)
        if not self.advertisements.filter_of(name).matches(message.event.keys):
            reason = f"the event does not match advertisement {message.number} of its publisher"
            return Deliver(message.client, RequestRefused(message.number, reason), now)
        self._published += 1
        return Publication(message.event, name, self._published)

    def find_name(self, client: str, kind: str, number: int) -> Name:
        """The name of a client's subscription or advertisement."""
        return self._own[client, kind if kind == "subscription" else "promise", number]

    def new_name(self) -> Name:
        """A name that was never used."""
        self._number += 1
        return Name(self.name, self._number)

    # --- statements ------------------------------------------------------------------------------

    def _apply(self, hop: str, statements: Sequence[Statement], now: float) -> list[Action]:
        """Apply statements to the tables and forward their consequences on each link."""
        if self.history is not None:
            self.history.now = now
        actions: list[Action] = []
        for statement in statements:
            actions.append(Work("statement", 1))
            actions.append(Work("compare", _count_boxes(statement) * self.subscriptions.boxes))
            match statement:
                case SubscribeStatement(name, filter, triggered):
                    actions += [Work("triggered", 1)] if triggered else []
                    actions += self._subscribe(Entry(name, filter, hop))
                case UnsubscribeStatement(name, prune):
                    actions += self._unsubscribe(name, hop, prune)
                case AdvertiseStatement(name, filter):
                    actions += self._advertise(Entry(name, filter, hop))
                case UnadvertiseStatement(name):
                    actions += self._unadvertise(name, hop)
        for neighbour in self.links:
            actions += self._deferred.start(neighbour, now)
        return actions

    def _subscribe(self, entry: Entry) -> list[Action]:
        if known := self.subscriptions.get(entry.name):
            self._note_cycle(entry, known.hop)
            return []
        self.subscriptions.add(entry)
        actions: list[Action] = []
        for neighbour, link in self.links.items():
            if neighbour != entry.hop and self.advertisements.meets(neighbour, entry.filter):
                actions += self._send(neighbour, link.need(entry.name, entry.filter))
        return actions

    def _unsubscribe(self, name: Name, hop: str, prune: Prune | None) -> list[Action]:
        """Remove a subscription; only the neighbour or client that sent it can do so."""
        entry = self.subscriptions.get(name)
        if entry is None or entry.hop != hop:
            return []
        self.subscriptions.remove(name)
        if self.history is not None and hop not in self.links:
            prune = self.history.prune(name, self._find_intersecting_advertisements(entry))
        actions: list[Action] = []
        for neighbour, link in self.links.items():
            if name in link.needed:
                actions += self._send(neighbour, self._end(link, neighbour, name, prune))
        return actions

    def _end(
        self, link: OutLink, neighbour: str, name: Name, prune: Prune | None
    ) -> list[Statement]:
        """Algorithm 1 of the paper for one neighbour to which the subscription was sent."""
        if neighbour in self.retraction_blocked:
            link.preserve(name)
            return []
        if prune is EVERYWHERE or self.policy.prunes is None:
            return link.drop(name)
        further = tuple(
            (advertisement, hops - 1)
            for advertisement, hops in prune
            if hops > 0 and self.advertisements.hops.get(advertisement) == neighbour
        )
        if further:
            return link.drop(name, further)
        link.preserve(name)
        return []

    def _find_intersecting_advertisements(self, entry: Entry) -> dict[Name, str]:
        """The advertisements that intersect a subscription, with the neighbour each came from."""
        return {
            name: neighbour
            for neighbour, link in self.links.items()
            if entry.name in link.needed
            for name in self.advertisements.find_intersecting(neighbour, entry.filter)
        }

    def _advertise(self, entry: Entry) -> list[Action]:
        """Flood an advertisement, and send the subscriptions that it intersects towards it."""
        if entry.name in self.advertisements:
            self._note_cycle(entry, self.advertisements.hops[entry.name])
            return []
        self.advertisements.add(entry)
        actions: list[Action] = []
        for neighbour in self.links:
            if neighbour != entry.hop:
                actions += self._send(neighbour, [AdvertiseStatement(entry.name, entry.filter)])
        if entry.hop in self.links:
            actions += self._send(entry.hop, self._pull_subscriptions(entry.hop, entry.filter))
        return actions

    def _pull_subscriptions(self, neighbour: str, advertised: Filter) -> list[Statement]:
        link = self.links[neighbour]
        return [
            statement
            for name, filter, hop in self.subscriptions.find_intersecting(advertised)
            if hop != neighbour and name not in link.needed
            for statement in link.need(name, filter)
        ]

    def _unadvertise(self, name: Name, hop: str) -> list[Action]:
        if self.advertisements.hops.get(name) != hop:
            return []
        self.advertisements.remove(name)
        if name not in self._elsewhere:
            self.ended.append(name)
        actions: list[Action] = []
        for neighbour in self.links:
            if neighbour != hop:
                actions += self._send(neighbour, [UnadvertiseStatement(name)])
        return actions + self._drop_unmatched(hop)

    def _drop_unmatched(self, hop: str) -> list[Action]:
        """Drop subscriptions that no event from a neighbour can match any more."""
        if hop not in self.links or hop in self.retraction_blocked:
            return []
        still = partial(self.advertisements.meets, hop)
        return self._send(hop, self.links[hop].drop_unmatched(still))

    # --- links that come and go ------------------------------------------------------------------

    def add_neighbour(self, neighbour: str) -> None:
        """A link comes up; nothing may be retracted on it until both states are complete."""
        self.links[neighbour] = OutLink(self._schema, self.policy, self.new_name)
        self._deferred.add(neighbour)
        self.retraction_blocked.add(neighbour)

    def remove_neighbour(self, neighbour: str, now: float) -> list[Action]:
        """A link is gone for good: everything heard over it ends."""
        heard = self.collect_received(neighbour)
        ends: list[Statement] = [
            *map(UnsubscribeStatement, heard.subscriptions),
            *map(UnadvertiseStatement, heard.advertisements),
        ]
        actions = self._apply(neighbour, ends, now)
        del self.links[neighbour]
        self.retraction_blocked.discard(neighbour)
        self._former.pop(neighbour, None)
        others = [each for each in actions if not (isinstance(each, Send) and each.to == neighbour)]
        return [*others, self._deferred.remove(neighbour)]

    def _note_cycle(self, entry: Entry, hop: str) -> None:
        """Remember who tells of a statement that is known from elsewhere: the overlay has a cycle.

        When the cycle is opened, the statement may end on the one side and stay on the other.
        """
        if entry.hop != hop and {entry.hop, hop} <= self.links.keys():
            self._elsewhere.setdefault(entry.name, set()).add(entry.hop)

    def take_doubts(self) -> set[str]:
        """The neighbours that told of statements that have ended elsewhere; ask them again."""
        if not self._elsewhere:
            return set()
        ended = [
            name
            for name in self._elsewhere
            if name not in self.subscriptions and name not in self.advertisements
        ]
        return {hop for name in ended for hop in self._elsewhere.pop(name)} & self.links.keys()

    # --- after a crash ---------------------------------------------------------------------------

    def restore(self, saved: Mapping[Hashable, object], now: float) -> list[Action]:
        """Restore the clients' statements under their old names."""
        actions: list[Action] = []
        for key, value in saved.items():
            match key, value:
                case ("ending", str(broker), int(at)), (str(client), int(number), Filter() as of):
                    name = Name(broker, at)
                    self.ending[name] = client, number
                    actions += self._apply(client, [AdvertiseStatement(name, of)], now)
                case ("own", str(client), str(kind), int(number)), (Name() as name, Filter() as of):
                    self._own[client, kind, number] = name
                    actions += self._apply(client, [_make_statement(kind, name, of)], now)
                case ("history", Name() as name), tuple(seen) if self.history is not None:
                    self.history.restore(name, seen)
        if self.history is not None:
            self.history.forget_others(set(self._own.values()))
        return actions

    def collect_received(self, neighbour: str) -> Known:
        """The statements received from a neighbour and not retracted."""
        return Known(
            {entry.name: entry.filter for entry in self.advertisements.of(neighbour)},
            {entry.name: entry.filter for entry in self.subscriptions.of(neighbour)},
        )

    def collect_sent(self, neighbour: str) -> Known:
        """The statements sent to a neighbour and not retracted."""
        advertised = self.advertisements.apart_from(neighbour)
        return Known(
            {entry.name: entry.filter for entry in advertised}, self.links[neighbour].list_sent()
        )

    def adopt(self, neighbour: str, extra: Known, now: float) -> list[Action]:
        """Take over statements that a neighbour still holds from a previous incarnation."""
        self._former[neighbour] |= extra.advertisements.keys()
        self.links[neighbour].adopt(extra.subscriptions)
        return [] if neighbour in self.retraction_blocked else self.allow_retraction(neighbour, now)

    def allow_retraction(self, neighbour: str, now: float) -> list[Action]:
        """Allow retraction on a link, once everything that could need its statements is known."""
        self.retraction_blocked.discard(neighbour)
        gone = [
            UnadvertiseStatement(name)
            for name in sorted(self._former.pop(neighbour, ()))
            if self.advertisements.hops.get(name, neighbour) == neighbour
        ]
        return [
            *self._send(neighbour, gone),
            *self._drop_unmatched(neighbour),
            *self._deferred.start(neighbour, now),
        ]

    def restart_deferred_work(self, neighbour: str, now: float) -> list[Action]:
        """Restart deferred work on a link after a reset, which has lost the outstanding probe."""
        return self._deferred.restart(neighbour, now)

    def wants(self, neighbour: str, publication: Publication) -> bool:
        """Whether a subscription behind a neighbour matches the publication."""
        return self.subscriptions.index.wants(publication.event.keys, neighbour)

    # --- publications ----------------------------------------------------------------------------

    def route(self, hop: str, publication: Publication, now: float) -> list[Action]:
        """Forward a publication along matching subscriptions, and deliver it to clients."""
        event, but = publication.event, hop if hop in self.links else None
        actions: list[Action] = [Work("publication", 1), Work("match", self.subscriptions.boxes)]
        if self._matches is None:
            hops = self.subscriptions.index.find_hops(event.keys, but)
            sent = dict.fromkeys(hops, _travel(publication))
        else:
            sent = self._count(publication, self._matches.match(event.keys, but), now)
        if not sent and hop in self.links:
            actions.append(Work("unwanted", 1))
        return actions + [
            Send(to, header) if to in self.links else Deliver(to, publication, event.published)
            for to, header in sent.items()
        ]

    def _count(
        self, publication: Publication, found: list[Entry], now: float
    ) -> dict[str, Publication]:
        """The publication with the header for each neighbour or client that wants it."""
        distance = 0.0 if len(found) > 1 else publication.distance + 1
        total = publication.count + len(found)
        if self.history is not None:
            seen = Seen(publication.advertisement, distance, total - 1, now)
            for entry in found:
                if entry.hop not in self.links:
                    self.history.note(entry.name, seen)
        return {
            to: _renew(publication, distance, total - n) if to in self.links else publication
            for to, n in Counter(entry.hop for entry in found).items()
        }

    # --- sending ---------------------------------------------------------------------------------

    def _send(self, neighbour: str, statements: Sequence[Statement]) -> list[Action]:
        if not statements:
            return []
        if self.policy.packs and len(statements) > 1:
            return [Send(neighbour, Packed(tuple(statements)))]
        return [Send(neighbour, statement) for statement in statements]


def _make_statement(kind: str, name: Name, filter: Filter) -> Statement:
    return (
        SubscribeStatement(name, filter)
        if kind == "subscription"
        else AdvertiseStatement(name, filter)
    )


def _count_boxes(statement: Statement) -> int:
    """The boxes that a statement compares with the table; 1 if it has no filter to compare."""
    return len(statement.filter.boxes) if isinstance(statement, SubscribeStatement) else 1


def _travel(publication: Publication) -> Publication:
    """The publication one hop further, at a broker that does not count who wants it."""
    if publication.distance == inf:
        return publication
    return _renew(publication, publication.distance + 1, publication.count)


def _renew(publication: Publication, distance: float, count: int) -> Publication:
    """The publication with another header."""
    event, advertisement, number = publication.event, publication.advertisement, publication.number
    return Publication(event, advertisement, number, distance, count)
