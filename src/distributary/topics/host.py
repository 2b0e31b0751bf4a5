"""All channels of one service, without I/O: what clients say goes in, what to send comes out.

Channels speak to each other in here. What changed is noted in the store as it happens; whoever runs
the host commits the store before it sends anything of `out`.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace
from itertools import accumulate
from math import isfinite
from typing import Any

from distributary.machines.actions import Action, Send, SetTimer
from distributary.topics import (
    ClusterChannel,
    ClusterState,
    Policy,
    TopicChannel,
    TopicState,
    drawn_by_name,
    is_cluster,
    members_of,
    topic_channel,
    topic_of,
)
from distributary.topics.codec import (
    SERVICE,
    Beat,
    Bye,
    Create,
    Created,
    Expect,
    Expired,
    Forgotten,
    NoTopic,
    Pulse,
    Put,
    Resume,
    digest,
)
from distributary.topics.errors import TopicNameError
from distributary.topics.messages import (
    Answer,
    Event,
    Gone,
    Inquire,
    Join,
    Leave,
    More,
    Offer,
    Publish,
    Repair,
    Settled,
    Tell,
)
from distributary.topics.names import LONGEST_TOPIC, check_topic
from distributary.topics.store import State, TopicStore
from distributary.topics.topic import FlowMeter

__all__ = ["Counts", "TopicHost"]

_MEMBERS = members_of("")
_TOPICS = topic_channel("")
_ROOM_FOR_TOPIC = 4 * (LONGEST_TOPIC + 64)  # bytes: a cluster's topics fill a quarter of a message
_FROM_CLIENTS = (Inquire, Join, Leave, Settled, Tell, More, Answer, Repair)


@dataclass(slots=True)
class Counts:
    """What a host has done so far."""

    accepted: int = 0  # events
    repeated: int = 0  # events that a publisher said again though they were accepted
    refused: int = 0  # messages that could not be understood
    found_dead: int = 0


class TopicHost:
    """The machines of topics and clusters, and what they are to send and to wait for.

    `out` has (to, sender, message): to a client by its name, or to everybody on a channel by
    `members_of(channel)`. `timers` has (channel, name, at). Both are for the caller to empty, and
    `taken` to say after all else.
    """

    def __init__(
        self, policy: Policy, store: TopicStore, *, seed: int = 0, flow_memory: float = 10.0
    ) -> None:
        self.policy = policy
        self.store = store
        self.seed = seed
        self.counts = Counts()
        self.most_payload = 1 << 62  # bytes of an event that the server would still carry
        self.said: Counter[str] = Counter()  # messages by kind, those between channels too
        self.out: list[tuple[str, str, Any]] = []
        self.taken: dict[tuple[str, int], int] = {}  # by client and stream, up to which number
        self.timers: list[tuple[str, str, float | None]] = []
        self.topics: dict[str, TopicChannel] = {}
        self.clusters: dict[str, ClusterChannel] = {}
        self.heard: dict[str, float] = {}  # clients, and when last
        self._familiar: set[str] = set()  # those of whom we know where they are
        self._unchecked: set[str] = set()  # those of whom we know it from before the last start
        self._epoch = store.kept.epoch
        self._flow_memory = flow_memory
        self._inside: deque[tuple[str, str, Any]] = deque()

    # --- beginning -----------------------------------------------------------------------------

    def fit(self, most_payload: int) -> None:
        """Send nothing longer than the server carries; before `start`."""
        self.most_payload = most_payload
        most = max(2, most_payload // _ROOM_FOR_TOPIC)
        self.policy = replace(self.policy, most_topics=min(self.policy.most_topics, most))

    def start(self, now: float) -> None:
        """Bring all channels back; who is on them has to be heard of again in time."""
        self._epoch = self.store.begin_epoch(now)
        for channel, state in [*self.store.kept.states.items()]:
            if isinstance(state, TopicState):
                state.meter.at = now  # nobody counted while we were away
            self.heard |= dict.fromkeys(state.members, now)
            self._begin(channel, state, now)
        self._familiar |= self.heard.keys()
        self._unchecked |= self.heard.keys()
        self.say_last(now)

    def say_last(self, now: float) -> None:
        """Say the last event of each topic again: whoever missed those before finds the gap."""
        for channel, machine in self.topics.items():
            last = machine.state.history.last
            if last is not None:
                if machine.size:
                    self._send(channel, members_of(channel), last)
                for cluster in machine.state.clusters:
                    self._send(channel, cluster, last)
        self._settle(now)

    def _begin(self, channel: str, state: State, now: float) -> TopicChannel | ClusterChannel:
        rng = drawn_by_name(self.seed, channel)
        machine: TopicChannel | ClusterChannel
        if isinstance(state, TopicState):
            machine = self.topics[channel] = TopicChannel(
                self.policy, rng, state, epoch=self._epoch
            )
        else:
            machine = ClusterChannel(channel, self.policy, rng, state)
            self.clusters[channel] = machine
        self._perform(channel, machine.start(now))
        self.store.changed(channel, machine.state)
        return machine

    # --- inputs --------------------------------------------------------------------------------

    def take(self, sender: str, to: str, message: Any, now: float) -> Any:
        """A client says something; what comes back is an answer to whoever waits for one."""
        if not _is_client(sender):
            self.counts.refused += 1  # what is said to it would go astray
            return None
        self.said[type(message).__name__] += 1
        self.heard[sender] = now
        answer: Any = None
        match message:
            case Put():
                self._put(sender, to, message, now)
            case Create(flow) if to.startswith(_TOPICS):
                answer = self._create(topic_of(to), flow, now)
            case Beat():
                self._beat(sender, message, now)
            case Bye():
                self.bye(sender, now)
            case _ if isinstance(message, _FROM_CLIENTS):
                self._from_client(sender, to, message, now)
            case _:
                self.counts.refused += 1
        self._settle(now)
        return answer

    def tell(self, to: str, message: Any, now: float, *, sender: str = SERVICE) -> None:
        """Say something to a channel, in the service's own name or in somebody else's."""
        self._send(sender, to, message)
        self._settle(now)

    def due(self, channel: str, name: str, now: float) -> None:
        """A timer of a channel has run out."""
        machine = self.machine(channel)
        if machine is not None:
            actions = machine.on_timer(name, now)
            self.store.changed(channel, machine.state)
            self._perform(channel, actions)
            self._settle(now)

    def flow(self, channel: str, now: float) -> float:
        """How many events a topic has in an interval, by now."""
        return replace(self.topics[channel].state.meter).rate(now, self.policy.interval)

    def machine(self, channel: str) -> TopicChannel | ClusterChannel | None:
        """A channel that is there."""
        return self.topics.get(channel) or self.clusters.get(channel)

    def bye(self, client: str, now: float) -> None:
        """A client is gone: from every channel, and as a publisher."""
        self._gone(client, now)
        self.heard.pop(client, None)
        self._familiar.discard(client)
        for channel, streams in self.store.kept.streams.items():
            for stream in [name for name in streams if name.startswith(f"{client}#")]:
                self.store.forget_stream(channel, stream)

    def bury(self, now: float, silent_for: float) -> list[str]:
        """Take clients that were not heard of for so long off their channels."""
        found = [name for name, at in self.heard.items() if now - at > silent_for]
        for client in found:
            del self.heard[client]
            self._familiar.discard(client)
            if self._gone(client, now):
                self.counts.found_dead += 1
                self.store.found_dead(client, now)
        self._settle(now)
        return found

    def excuse(self, now: float) -> None:
        """Nobody is dead because we could not hear them."""
        self.heard = dict.fromkeys(self.heard, now)

    def sweep(self, now: float, forget_after: float) -> None:
        """Throw away clusters that are finished, and what is kept of clients long gone."""
        for name in [name for name, machine in self.clusters.items() if machine.finished]:
            del self.clusters[name]
            self.store.thrown(name)
        for channel, streams in self.store.kept.streams.items():
            old = [s for s, held in streams.items() if now - held.at > forget_after]
            for stream in old:
                if stream.rpartition("#")[0] not in self.heard:
                    self.store.forget_stream(channel, stream)
        for client in [
            c for c, death in self.store.kept.dead.items() if now - death.at > forget_after
        ]:
            if client not in self.heard:
                self.store.forget_death(client)

    # --- events --------------------------------------------------------------------------------

    def _put(self, sender: str, to: str, put: Put, now: float) -> None:
        machine = self.topics.get(to)
        if machine is None:
            self._no_topic(sender, to)
            return
        if len(put.payload) > self.most_payload:
            self.counts.refused += 1  # clients of ours know better
            return
        stream = f"{sender}#{put.stream}"
        held = self.store.kept.streams.get(to, {}).get(stream)
        upto = held.upto if held else 0
        if put.number > upto + 1:
            self._answer(sender, Expect(put.stream, upto + 1))
            return
        if put.number <= upto:
            self.counts.repeated += 1
            self.taken[sender, put.stream] = upto
            return
        actions = machine.on_message(sender, Publish(put.payload), now)
        self.store.accepted(to, stream, put.number, put.payload, now)
        self.counts.accepted += 1
        self._perform(to, actions)
        self.taken[sender, put.stream] = put.number

    # --- clients -------------------------------------------------------------------------------

    def _create(self, topic: str, flow: float, now: float) -> Created | NoTopic:
        try:
            check_topic(topic)
        except TopicNameError:
            self.counts.refused += 1
            return NoTopic(topic)
        channel = topic_channel(topic)
        if channel in self.topics:
            return Created(False)
        # The guess counts for one interval: what really comes outweighs it soon.
        guess = max(0.0, flow) if isfinite(flow) else 0.0
        meter = FlowMeter(guess, 1.0, now, self._flow_memory)
        state = TopicState(topic=topic, meter=meter)
        self._begin(channel, state, now)
        return Created(True)

    def _from_client(self, sender: str, to: str, message: Any, now: float) -> None:
        if to not in self.topics and not is_cluster(to):
            self._no_topic(sender, to)
            return
        if isinstance(message, Tell | More) and any(
            topic_channel(news.topic.topic) not in self.topics for news in message.news
        ):
            self.counts.refused += 1  # a cluster would wait for it for ever
            return
        if isinstance(message, Repair) and to in self.topics:
            message = self._tell_past(sender, self.topics[to], message)
        try:
            self._input(sender, to, message, now)
        except (TypeError, ValueError):
            self.counts.refused += 1  # such a channel is not spoken to like that

    def _no_topic(self, sender: str, to: str) -> None:
        if to.startswith(_TOPICS):
            self._answer(sender, NoTopic(topic_of(to)))
        else:
            self.counts.refused += 1

    def _tell_past(self, sender: str, machine: TopicChannel, repair: Repair) -> Repair:
        """Tell what of the past is no more; the request as it can be met."""
        state, first = machine.state, repair.first
        if repair.epoch != self._epoch:
            number = state.changed_since(repair.epoch)
            self._answer(sender, Resume(state.topic, self._epoch, number))
            first = min(first, number)
        oldest = state.history.oldest(state.next_number)
        if first < oldest:
            self._answer(sender, Expired(state.topic, first, oldest))
        return Repair(first, self._epoch)

    def _beat(self, client: str, beat: Beat, now: float) -> None:
        dead = self.store.kept.dead
        if client not in self._familiar:
            self._familiar.add(client)
            if beat.joined and client not in dead and not self._channels_of(client):
                # It was away for so long that even its death is forgotten.
                self.store.found_dead(client, now, beat.generation)
        elif beat.joined and client in self._unchecked:
            self._unchecked.discard(client)
            if beat.digest and beat.digest != digest(self._channels_of(client)):
                # We have come back from a state in which it was elsewhere.
                self.store.found_dead(client, now, beat.generation)
        policy, identity = self.policy, self.store.kept.identity
        pulse = Pulse(identity, policy.tells, policy.obeys, policy.refresh, self._epoch)
        self._answer(client, pulse)
        found = dead.get(client)
        if found is not None and beat.generation <= found.generation:
            self._answer(client, Forgotten(found.generation))

    def _answer(self, client: str, message: Any) -> None:
        self.said[type(message).__name__] += 1
        self.out.append((client, SERVICE, message))

    def _gone(self, client: str, now: float) -> bool:
        on = self._channels_of(client)
        for channel in on:
            self._input(SERVICE, channel, Gone(client), now)
        return bool(on)

    def _channels_of(self, client: str) -> list[str]:
        on = [name for name, each in self.topics.items() if client in each.state.members]
        on += [name for name, each in self.clusters.items() if client in each.state.members]
        return on

    # --- channels among themselves -------------------------------------------------------------

    def _settle(self, now: float) -> None:
        """Until channels have nothing more to say to each other."""
        while self._inside:
            sender, to, message = self._inside.popleft()
            self._input(sender, to, message, now)

    def _input(self, sender: str, to: str, message: Any, now: float) -> None:
        machine = self.machine(to)
        if machine is None:
            if not is_cluster(to):
                return
            machine = self._begin(to, ClusterState(), now)
        actions = machine.on_message(sender, message, now)
        if not isinstance(message, Event | Inquire | Repair | Answer):  # these change nothing
            who = message.subscriber if isinstance(message, Gone) else sender
            self.store.changed(to, machine.state, who)
        self._perform(to, actions)

    def _perform(self, channel: str, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(to, message):
                    self._send(channel, to, message)
                case SetTimer(name, at):
                    self.timers.append((channel, name, at))
                case _:
                    raise TypeError(f"a channel cannot {action!r}")

    def _send(self, channel: str, to: str, message: Any) -> None:
        self.said[type(message).__name__] += 1
        if isinstance(message, Offer):
            message = self._shorten(message)
        if is_cluster(to) or to in self.topics:
            self._inside.append((channel, to, message))
        elif to.startswith(_MEMBERS) or not to.startswith(_TOPICS):
            self.out.append((to, channel, message))

    def _shorten(self, offer: Offer) -> Offer:
        """Offer as many clusters as one message can carry."""
        room = self.most_payload // _ROOM_FOR_TOPIC * 2
        sizes = accumulate(len(quote.topics) for quote in offer.clusters)
        fitting = sum(size <= room for size in sizes)
        return replace(offer, clusters=offer.clusters[:fitting])


def _is_client(name: str) -> bool:
    """Whether a client can be called so; what is said to it must find it, and no channel."""
    if not name or name == SERVICE or is_cluster(name) or name.startswith((_MEMBERS, _TOPICS)):
        return False
    return len(name.encode()) <= LONGEST_TOPIC
