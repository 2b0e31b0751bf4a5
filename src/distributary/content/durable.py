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

*An advertisement stays until its publications are finished.* If its client withdraws it earlier,
the broker ends it later. So nothing published under it is under way any more when it ends, and all
brokers can forget up to which number they have routed and served it.

*New advertisements are announced by a barrier.* Subscriptions need time to travel towards a new
advertisement. Until its barrier comes back, publications under it go to all neighbours that have
not passed the barrier, whether they have subscribed or not. After a restart there must be a barrier
for every advertisement, also for one that ends: see `BrokerHost.start`.

*Publications wait for room.* A neighbour gets no more publications while it has not finished those
that it has, and a broker does not finish one while a client of it has no room for it. So everything
a broker holds is bounded, and the publishers are slowed down.

*No retraction on incomplete tables.* Statements that a neighbour still holds from the broker's
previous incarnation stay there, loose, until the broker knows everything that could need them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from distributary.content.barriers import Barriers
from distributary.content.broker import ContentBroker
from distributary.content.connections import Packet, Timing
from distributary.content.heard import HeardStatements, read_heard
from distributary.content.laggards import ALWAYS_ROOM, ClientSide, Laggards
from distributary.content.late_saves import LateSaves
from distributary.content.link_queue import LinkLimits
from distributary.content.messages import (
    Barrier,
    BarrierPassed,
    Name,
    Publication,
    PublishUnder,
)
from distributary.content.neighbour_links import NeighbourLinks
from distributary.content.policies import Covering
from distributary.content.recovery import FIRST_START, Recovery, StartBroker
from distributary.content.resync import (
    AskDigests,
    HeardDigests,
    StaleStatements,
    SyncComplete,
    ToldBuckets,
)
from distributary.content.unfinished import UnfinishedPublications, key_of_publication
from distributary.machines.actions import Action, Deliver, Message, Save, Send
from distributary.model import Schema

__all__ = ["FIRST_START", "DurableBroker", "Recovery", "StartBroker"]

# More names and publications than one incarnation of a broker creates.
_NUMBERS_PER_INCARNATION = 2**40

DEFAULT_TIMING = Timing()
DEFAULT_LIMITS = LinkLimits()
SAVE_PAUSE = 2.0  # seconds until what a neighbour has said is saved


class DurableBroker:
    """The state of one incarnation of a broker: a `Machine`.

    `clients` takes what is delivered. Call `on_room` when a client may have room again. `passed`
    collects this broker's own barriers that came back; the host takes them out.
    """

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        schema: Schema,
        policy: Covering,
        *,
        recovery: Recovery = FIRST_START,
        timing: Timing = DEFAULT_TIMING,
        limits: LinkLimits = DEFAULT_LIMITS,
        clients: ClientSide = ALWAYS_ROOM,
        save_pause: float = SAVE_PAUSE,
    ) -> None:
        self.name = name
        self.core = ContentBroker(
            name,
            neighbours,
            schema,
            policy,
            first_number=recovery.incarnation * _NUMBERS_PER_INCARNATION,
        )
        self.core.is_unfinished = self.is_unfinished
        self.incarnation = recovery.incarnation
        self.passed: list[Name] = []
        # Returns a neighbour's message without what the neighbour may not say; None if all of it.
        self.screen: Callable[[str, Message], Message | None] = lambda neighbour, message: message
        self.holds_back = False  # what is for neighbours waits for `flush`, so it shares packets
        self.links = NeighbourLinks(self.core, self.incarnation, timing, limits)
        self.connections, self.queues = self.links.connections, self.links.queues
        self.unfinished = UnfinishedPublications()
        self._barriers = Barriers()
        self._routed: dict[Name, int] = {}  # the last publication of each advertisement
        self._served: dict[Name, int] = {}  # the last one delivered to this broker's clients
        self.laggards = Laggards(clients.has_room)
        self._clients = clients
        self._saved = dict(recovery.saved)
        self._heard_before = read_heard(recovery.saved)
        self.heard = HeardStatements(self.core)
        self._late = [LateSaves("save heard", self.heard, save_pause, most=1_000, rest=0.05)]
        if self.core.history is not None:
            self.core.history.begin_saving()
            self._late.append(
                LateSaves("save history", self.core.history, save_pause, most=200, rest=save_pause)
            )
        for each in self.core.links:
            self.links.add(each)

    @property
    def incomplete(self) -> set[str]:
        """The neighbours behind which there may be subscriptions that are unknown here."""
        return self.links.exchange.incomplete

    def is_unfinished(self, advertisement: Name) -> bool:
        """Whether something published under an advertisement is not finished."""
        return self.unfinished.count_under(advertisement) > 0

    @property
    def idle(self) -> bool:
        """Whether no message between this broker and its neighbours is outstanding."""
        return self.links.idle

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of everything that could grow."""
        return {
            "unfinished": len(self.unfinished),
            "marks": len(self._routed) + len(self._served),
            "barriers": len(self._barriers),
            "waiting for clients": len(self.laggards),
        }

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
                actions = self.links.divert_sends(self.core.on_message(sender, message, now))
        return self._flush(actions, now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Handle a timer of a connection or of the core."""
        for connection in self.connections.values():
            if connection.timer == name:
                return connection.on_timer(now)
        for late in self._late:
            if late.timer == name:
                return late.on_timer(now)
        return self._flush(self.links.divert_sends(self.core.on_timer(name, now)), now)

    def flush(self, now: float) -> list[Action]:
        """All actions that were held back."""
        self.holds_back = False
        return self._flush([], now)

    def save_rest(self) -> list[Save]:
        """Save at once what would be saved later, before the process stops."""
        history = [] if self.core.history is None else self.core.history.save()
        return [*self.heard.save(), *history]

    # --- links that come and go ------------------------------------------------------------------

    def add_neighbour(self, neighbour: str, now: float) -> list[Action]:
        """A new link comes up."""
        self.core.add_neighbour(neighbour)
        self.links.add(neighbour)
        return self._flush(self._recall(neighbour, now), now)

    def retry(self, neighbour: str, now: float) -> list[Action]:
        """The way to a neighbour is open again: send at once what it has not received."""
        self.connections[neighbour].hurry(now)
        return self._flush([], now)

    def on_away(self, now: float) -> list[Action]:
        """The way to a neighbour has closed: what waits for it is bounded from now on."""
        return self._flush([], now)

    def remove_neighbour(self, neighbour: str, now: float) -> tuple[list[Action], int]:
        """A link is gone for good; the actions, and how many publications were kept for it."""
        actions = self.links.divert_sends(self.core.remove_neighbour(neighbour, now))
        actions.append(self.links.remove(neighbour))
        self._barriers.remove_neighbour(neighbour)
        kept = self.unfinished.list_left(neighbour)
        for publication in kept:
            actions += self._on_finished(neighbour, publication, now)
        actions += self._announce_complete(now)
        return self._flush(actions, now), len(kept)

    # --- recovery --------------------------------------------------------------------------------

    def _start(self, now: float) -> list[Action]:
        """Restore the statements of clients and neighbours, and unfinished publications."""
        kept: list[Publication] = []
        for key, value in self._saved.items():
            match key, value:
                case ("served", Name() as name), int(number):
                    self._served[name] = number
                case ("behind", str(client), Name() as name), int(number):
                    self.laggards.restore(client, name, number)
                case ("publication", _, _), Publication():
                    kept.append(value)
        actions = self.links.divert_sends(self.core.restore(self._saved, now))
        for neighbour in self.connections:
            actions += self._recall(neighbour, now)
        if self.core.history is None:  # it was saved under another policy
            old = [key for key in self._saved if isinstance(key, tuple) and key[0] == "history"]
            actions += [Save(key, None) for key in old]
        for publication in sorted(kept, key=lambda each: each.number):
            actions += self._route(self.name, 0, publication, now)
            key = key_of_publication(publication)
            actions += [] if key in self.unfinished else [Save(("publication", *key), None)]
        for name in [name for name in self.core.ending if not self.is_unfinished(name)]:
            actions += self.links.divert_sends(self.core.end_advertisement(name, now))
        self._saved.clear()
        return actions + self._announce_complete(now)

    def ask_again(self, neighbour: str, now: float) -> list[Action]:
        """Ask a neighbour for what it tells and was not taken over before."""
        if self.connections[neighbour].peer_incarnation:
            self.links.exchange.ask(neighbour)
        return self._flush([], now)

    def _recall(self, neighbour: str, now: float) -> list[Action]:
        """Restore what a neighbour had said in earlier incarnations."""
        known = self._heard_before.pop(neighbour, None)
        if known is None:
            return []
        actions = self.links.divert_sends(self.links.exchange.replay(neighbour, known, now))
        names = (*known.advertisements, *known.subscriptions)
        self.heard.forget_saved((neighbour, name) for name in names)
        return actions

    def _announce_complete(self, now: float) -> list[Action]:
        return self.links.divert_sends(self.links.exchange.announce_complete(now))

    def _forget_ended(self) -> list[Action]:
        """Forget marks of what has ended, if all advertisements are known."""
        if not self.links.exchange.knows_advertisements:
            return []
        ended = [name for name in self._served if name not in self.core.advertisements]
        return [each for name in ended for each in self._forget_marks(name)]

    # --- neighbours ------------------------------------------------------------------------------

    def _receive(self, neighbour: str, packet: Packet, now: float) -> list[Action]:
        connection = self.connections[neighbour]
        received = connection.on_packet(packet, now)
        actions: list[Action] = []
        if received.reset:
            self.links.exchange.begin(neighbour)
            barriers = self._barriers.list_waiting(neighbour)
            self.queues[neighbour].restart(barriers, connection.take_kept())
            actions += self.links.divert_sends(self.core.restart_deferred_work(neighbour, now))
        for publication in received.finished:
            self.queues[neighbour].note_finished(publication)
            actions += self._on_finished(neighbour, publication, now)
        for number, given in received.messages:
            message = self.screen(neighbour, given)
            if isinstance(message, Publication):
                actions += self._route(neighbour, number, message, now)
            else:
                actions += self._handle(neighbour, message, now)
                connection.finish(number, now)
        for doubted in self.core.take_doubts():
            self.links.exchange.ask(doubted)
        return actions + self._announce_complete(now)

    def _handle(self, neighbour: str, message: Message, now: float) -> list[Action]:
        match message:
            case None:
                return []
            case AskDigests():
                self.links.exchange.ask(neighbour)
                return []
            case HeardDigests():
                self.links.exchange.answer(neighbour, message)
                return []
            case ToldBuckets():
                return self.links.divert_sends(
                    self.links.exchange.take_told(neighbour, message, now)
                )
            case StaleStatements(heard):
                return self.links.divert_sends(self.core.adopt(neighbour, heard, now))
            case SyncComplete(part):
                self.links.exchange.note_complete(neighbour, part)
                return self._forget_ended()
            case Barrier():
                self._pass_on(message, neighbour)
                return []
            case BarrierPassed(name):
                self._barriers.answer(name, neighbour)
                return []
        return self.links.divert_sends(self.core.on_message(neighbour, message, now))

    def _forget_marks(self, advertisement: Name) -> list[Action]:
        """Forget an advertisement that has ended; all that was published under it is finished."""
        if advertisement in self.core.advertisements:
            return []
        self._routed.pop(advertisement, None)
        served = self._served.pop(advertisement, None)
        return [] if served is None else [Save(("served", advertisement), None)]

    # --- barriers --------------------------------------------------------------------------------

    def begin_barrier(
        self, advertisements: Iterable[Name], now: float
    ) -> tuple[Name, list[Action]]:
        """Send a barrier to all brokers; its name will be among `passed`."""
        name = self.core.new_name()
        replaces = self._barriers.newest_to_replace(self.name)
        self._pass_on(Barrier(name, tuple(advertisements), replaces), self.name)
        return name, self._flush([], now)

    def _pass_on(self, barrier: Barrier, hop: str) -> None:
        if barrier.name in self._barriers:
            return  # its answer is on the way
        others = [each for each in self.connections if each != hop]
        self._barriers.add(barrier, hop, others)
        for neighbour in others:
            self.queues[neighbour].add(barrier)

    def _answer_barriers(self) -> None:
        for name, hop in self._barriers.take_passed():
            if hop in self.queues:
                self.queues[hop].add(BarrierPassed(name))
            else:
                self.passed.append(name)

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
        key = advertisement, _ = key_of_publication(publication)
        if key in self.unfinished:
            self.unfinished.add_sender(key, (hop, number))
            return []
        if publication.number <= self._routed.get(advertisement, 0):
            self._acknowledge(hop, number, now)
            return []
        self._routed[advertisement] = publication.number
        left = self.incomplete - {hop}
        unheard = self._barriers.find_unheard(advertisement) - {hop}
        for neighbour in left:
            self.queues[neighbour].add(publication, sure=neighbour in unheard)
        actions: list[Action] = []
        is_local = False
        for action in self.core.route(hop, publication, now):
            if isinstance(action, Send):
                if action.to not in left:
                    self.queues[action.to].add(action.message)
                    left.add(action.to)
            elif isinstance(action, Deliver):
                actions += self._serve(action, publication, left)
                is_local = True
            else:
                actions.append(action)
        for neighbour in unheard - left:
            self.queues[neighbour].add(publication)
            left.add(neighbour)
        if is_local and publication.number > self._served.get(advertisement, 0):
            self._served[advertisement] = publication.number
            actions.append(Save(("served", advertisement), publication.number))
        if not left:
            self._acknowledge(hop, number, now)
            return actions
        is_own = hop not in self.connections
        self.unfinished.add(publication, (hop, number), left, is_own=is_own)
        return [*actions, Save(("publication", *key), publication)] if is_own else actions

    def _on_finished(self, who: str, publication: Publication, now: float) -> list[Action]:
        """A neighbour or a client has finished a publication."""
        senders = self.unfinished.finish(who, publication)
        if senders is None:
            return []
        for hop, number in senders:
            self._acknowledge(hop, number, now)
        actions: list[Action] = []
        advertisement = publication.advertisement
        if advertisement.broker == self.name:
            actions.append(Save(("publication", *key_of_publication(publication)), None))
        if advertisement in self.core.ending and not self.is_unfinished(advertisement):
            actions += self.links.divert_sends(self.core.end_advertisement(advertisement, now))
        return actions

    def _acknowledge(self, hop: str, number: int, now: float) -> None:
        if hop in self.connections and number:
            self.connections[hop].finish(number, now)

    # --- clients without room --------------------------------------------------------------------

    def _serve(self, action: Deliver, publication: Publication, left: set[str]) -> list[Action]:
        """Deliver a publication, or let it wait until its client has room."""
        client, served = action.client, self._served.get(publication.advertisement, 0)
        if not self.laggards.is_unserved(client, publication, served):
            return []
        if not self.laggards.must_wait(client):
            saves = self.laggards.note_served(client, publication, served)
            return [*saves, *self._clients.take(action)]
        left.add(client)
        return self.laggards.add(client, publication, served)

    def on_room(self, client: str, now: float) -> list[Action]:
        """A client may have room again: deliver what waits for it."""
        actions: list[Action] = []
        while publication := self.laggards.take(client):
            served = self._served.get(publication.advertisement, 0)
            actions += self._clients.take(Deliver(client, publication, publication.event.published))
            actions += self.laggards.note_served(client, publication, served)
            actions += self._on_finished(client, publication, now)
        return self._flush(actions, now)

    def forget_client(self, client: str, now: float) -> list[Action]:
        """A client has left: nothing waits for it any more."""
        waiting, actions = self.laggards.forget(client)
        for publication in waiting:
            actions += self._on_finished(client, publication, now)
        return self._flush(actions, now)

    # --- actions ---------------------------------------------------------------------------------

    def _may_want(self, neighbour: str, publication: Publication) -> bool:
        return self.core.wants(neighbour, publication) or neighbour in self._barriers.find_unheard(
            publication.advertisement
        )

    def _flush(self, actions: list[Action], now: float) -> list[Action]:
        """Order the actions: saves first, packets of the connections last."""
        if self.holds_back:
            return actions
        self._answer_barriers()
        for neighbour in self.connections:
            self.links.bound_statements(neighbour)
            for unwanted in self.links.release(neighbour, self._may_want):
                actions = [*actions, *self._on_finished(neighbour, unwanted, now)]
        ended, self.core.ended = self.core.ended, []
        actions = [*actions, *(each for name in ended for each in self._forget_marks(name))]
        sends = [each for connection in self.connections.values() for each in connection.flush(now)]
        actions += [each for late in self._late for each in late.set_timer(now)]
        saves = [action for action in actions if isinstance(action, Save)]
        others = [action for action in actions if not isinstance(action, Save)]
        return [*saves, *others, *sends]
