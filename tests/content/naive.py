"""Content brokers that read the paper naively, each in one way: they lose, leak or miscount.

They are here to show that the tests of the traps can fail. Each differs from `ContentBroker` in one
thing; its docstring says in which.

Reference: Chen et al. (2011).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from distributary.content import (
    AdvertiseRequest,
    ContentBroker,
    Covering,
    Detach,
    Publication,
    PublishUnder,
    UnadvertiseRequest,
)
from distributary.content.events import SubscribeRequest, UnsubscribeRequest
from distributary.content.history import History, find_prune_distance
from distributary.content.messages import Name, Prune, Statement, UnsubscribeStatement
from distributary.content.outlink import NO_FURTHER, OutLink
from distributary.content.tables import Entry, MatchIndex, SubscriptionTable
from distributary.machines import Action, Deliver, Send
from distributary.model import Filter, Key, Schema, covers


class NaiveBroker(ContentBroker):
    """A broker with links and a memory of some other kind."""

    Link: type[OutLink] = OutLink
    Memory: type[History] = History

    def __init__(
        self, name: str, neighbours: Iterable[str], schema: Schema, policy: Covering
    ) -> None:
        super().__init__(name, neighbours, schema, policy)
        for each in self.links:
            self.links[each] = self.Link(schema, policy, self.new_name)
        self.history = self.Memory(policy.prunes) if policy.prunes else None


# --- covering -------------------------------------------------------------------------------------


class RemovesFirst(NaiveBroker):
    """Takes a subscription back before it says what that one had hidden."""

    class Link(OutLink):
        def drop(self, name: Name, prune: Prune | None = None) -> list[Statement]:
            said = super().drop(name, prune)
            return said[-1:] + said[:-1]


class CoversByTable(NaiveBroker):
    """Forwards nothing that any subscription in its table covers, wherever that one was sent."""

    def _subscribe(self, entry: Entry) -> list[Action]:
        if any(covers(other.filter, entry.filter) for other in self.subscriptions):
            self.subscriptions.add(entry)
            return []
        return super()._subscribe(entry)


class DeletesCovered(NaiveBroker):
    """Deletes from its table what a new subscription covers, wherever that came from."""

    def _subscribe(self, entry: Entry) -> list[Action]:
        for other in list(self.subscriptions):
            if covers(entry.filter, other.filter):
                self.subscriptions.remove(other.name)
        return super()._subscribe(entry)


class EqualsCancel(NaiveBroker):
    """Leaves out each new root that another one covers, so of two equal ones both."""

    class Link(OutLink):
        def _keep_widest(self, names: list[Name]) -> list[Name]:
            return [
                name
                for name in names
                if not any(
                    covers(self.needed[other], self.needed[name])
                    for other in names
                    if other != name
                )
            ]


class DoesNotPull(NaiveBroker):
    """Sends a new advertisement's way only the subscriptions that come later."""

    def _pull_subscriptions(self, neighbour: str, advertised: Filter) -> list[Statement]:
        return []


class OnlyLaterOnes(NaiveBroker):
    """Says, when a subscription ends, only those it hid that came after it."""

    class Link(OutLink):
        def _find_roots(self, name: Name) -> list[Name]:
            return [root for root in super()._find_roots(name) if root.number > name.number]


# --- names ----------------------------------------------------------------------------------------


class ReusesNames(NaiveBroker):
    """Calls a subscription by its client and the client's number for it, again and again."""

    _named: Name | None = None

    def _serve(
        self,
        message: SubscribeRequest
        | UnsubscribeRequest
        | AdvertiseRequest
        | UnadvertiseRequest
        | Detach,
        now: float,
    ) -> list[Action]:
        self._named = None
        if isinstance(message, SubscribeRequest):
            self._named = Name(message.client, message.number)
        return super()._serve(message, now)

    def new_name(self) -> Name:
        return super().new_name() if self._named is None else self._named


class BelievesAnyHop(NaiveBroker):
    """Takes an unsubscription from any link, not only from the one that the subscription used."""

    def _unsubscribe(self, name: Name, hop: str, prune: Prune | None) -> list[Action]:
        entry = self.subscriptions.get(name)
        return [] if entry is None else super()._unsubscribe(name, entry.hop, prune)


class KeepsNameWhereverItIs(ReusesNames, BelievesAnyHop):
    """Both: the old home's unsubscription ends what the client has at its new one."""

    def _subscribe(self, entry: Entry) -> list[Action]:
        if entry.name in self.subscriptions:
            self.subscriptions.remove(entry.name)
            self.subscriptions.add(entry)
            return []
        return super()._subscribe(entry)


# --- remnants -------------------------------------------------------------------------------------


class SweepsWithoutRoots(NaiveBroker):
    """Takes a remnant back without saying first what it hides."""

    class Link(OutLink):
        def _sweep(self, name: Name) -> list[Statement]:
            return [self._retract(name, NO_FURTHER)]


class Forgets(NaiveBroker):
    """Does not remember, where an unsubscription stops, that there is a remnant beyond."""

    class Link(OutLink):
        def preserve(self, name: Name) -> None:
            super().preserve(name)
            self.loose.pop(name, None)


class SaysAllItCovers(NaiveBroker):
    """Says, before it takes a remnant back, also what others hide as well."""

    class Link(OutLink):
        def _sweep(self, name: Name) -> list[Statement]:
            hidden = self.hidden.find_covered(self.sent[name])
            if hidden:
                return self._reveal(hidden[0], instead_of=name)
            return [self._retract(name, NO_FURTHER)]


class SweepsAtOnce(NaiveBroker):
    """Says all that a remnant hides in one go."""

    class Link(OutLink):
        def step(self) -> list[Statement]:
            said: list[Statement] = []
            while self.loose:
                said += super().step()
            return said


# --- how far an unsubscription goes ---------------------------------------------------------------


def strict_distance(distances: Sequence[float], threshold: float) -> float:
    """As in the paper's example: so many publications must have less than this distance."""
    beyond = (distance + 1 for distance in sorted(distances))
    enough = threshold * len(distances)
    return next(d for d in beyond if sum(each < d for each in distances) >= enough)


class GoesOneTooFar(NaiveBroker):
    """Counts distances below a number of hops, and sends the unsubscription so many hops."""

    class Memory(History):
        def prune(self, subscription: Name, links: Mapping[Name, str]) -> Prune | None:
            distances = [each.distance for each in self._seen.get(subscription, ())]
            prune = super().prune(subscription, links)
            if prune is None:
                return None
            hops = strict_distance(distances, self._pruning.threshold)
            return tuple((name, hops) for name, _ in prune)


class CountsBrokers(NaiveBroker):
    """Counts one for each broker where several want a publication, however many they are."""

    def route(self, hop: str, publication: Publication, now: float) -> list[Action]:
        keys = publication.event.keys
        assert self._matches is not None
        found = self._matches.match(keys, hop if hop in self.links else None)
        count = publication.count + (len(found) > 1)
        return [
            Send(action.to, replace(action.message, count=count))
            if isinstance(action, Send)
            else action
            for action in super().route(hop, publication, now)
        ]


class CountsFromPublisher(NaiveBroker):
    """Begins with a distance of zero at the publisher's broker, as if somebody wanted it there."""

    def accept(self, message: PublishUnder, now: float) -> Publication | Deliver:
        found = super().accept(message, now)
        return replace(found, distance=-1.0) if isinstance(found, Publication) else found


class ListsOnlyTheHeard(NaiveBroker):
    """Sends an unsubscription only towards advertisements of which something was heard."""

    class Memory(History):
        def prune(self, subscription: Name, links: Mapping[Name, str]) -> Prune | None:
            heard = {each.advertisement for each in self._seen.get(subscription, ())}
            prune = super().prune(subscription, links)
            return prune and tuple(each for each in prune if each[0] in heard)


class JudgesEachAlone(NaiveBroker):
    """Takes the share of publications of each advertisement by itself, however few there are."""

    class Memory(History):
        def prune(self, subscription: Name, links: Mapping[Name, str]) -> Prune | None:
            seen = list(self._seen.get(subscription, ()))
            prune = super().prune(subscription, links)
            return prune and tuple(
                (
                    name,
                    find_prune_distance(
                        [each.distance for each in seen if each.advertisement == name],
                        self._pruning.threshold,
                    ),
                )
                for name, _ in prune
            )


class UnsubscribesAnyway(NaiveBroker):
    """Line 5 of Algorithm 1 as printed: where the advertisement came from, sent there or not."""

    class Link(OutLink):
        def drop(self, name: Name, prune: Prune | None = None) -> list[Statement]:
            return super().drop(name, prune) or [UnsubscribeStatement(name, prune)]


class CountsArrivalLink(NaiveBroker):
    """Counts also those who want a publication on the link that it came by."""

    class Index(MatchIndex):
        def match(self, keys: Sequence[Key | None], but: str | None) -> list[Entry]:
            return super().match(keys, None)

    def __init__(
        self, name: str, neighbours: Iterable[str], schema: Schema, policy: Covering
    ) -> None:
        super().__init__(name, neighbours, schema, policy)
        self._matches = self.Index(schema)
        self.subscriptions = SubscriptionTable(self._matches)

    def route(self, hop: str, publication: Publication, now: float) -> list[Action]:
        actions = super().route(hop, publication, now)
        return [each for each in actions if not (isinstance(each, Send) and each.to == hop)]
