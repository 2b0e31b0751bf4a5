"""Hosts the channels of topics and clusters behind one `Machine`.

A host may run all channels of a system, as the NATS service does, or some of them. Channels on the
same host exchange messages in memory; messages to other channels go over the network.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import isfinite

import msgspec

from distributary.machines.actions import Action, Append, Message, Send, SetTimer
from distributary.topics.carriage import ClusterState
from distributary.topics.census import Views
from distributary.topics.cluster import ClusterChannel
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
    Puts,
    Remove,
    Removed,
    Resume,
    Taken,
    checksum,
    digest,
)
from distributary.topics.errors import TopicNameError
from distributary.topics.messages import (
    Answer,
    Await,
    Carry,
    Drop,
    Dropped,
    Event,
    Gone,
    Inquire,
    Join,
    Leave,
    More,
    Publish,
    Rarer,
    Refuse,
    Repair,
    Settled,
    Tell,
    kind_of,
)
from distributary.topics.names import (
    LONGEST_TOPIC,
    check_topic,
    is_channel,
    is_cluster,
    is_topic,
    members_of,
    topic_channel,
    topic_of,
)
from distributary.topics.numbers import MOST
from distributary.topics.policy import Policy, derive_generator
from distributary.topics.reception import UnexpectedMessageError, check_for_channel
from distributary.topics.records import HostLog, HostState, State
from distributary.topics.topic import FlowMeter, TopicChannel, TopicState

__all__ = ["ChannelMessage", "Counts", "TopicHost"]

_MEMBERS = members_of("")
_MOST_GUESSED = 1e12  # events per interval: sums of prices must remain numbers
_VOLATILE = (Event, Inquire, Repair, Answer, Await)  # change no state but what members need
_TO_EXISTING = (Rarer, Refuse, Dropped)  # a cluster that has ended has no use for these
_FROM_CLIENTS = (Inquire, Join, Leave, Settled, Tell, More, Answer, Repair)


class ChannelMessage(msgspec.Struct, frozen=True):
    """A message to or from a channel of a host; the channel `SERVICE` is the host itself.

    A host is one node of the network with many channels, so it receives and sends only these.
    """

    channel: str
    message: Message


@dataclass(slots=True)
class Counts:
    """What a host has counted since its start."""

    accepted: int = 0  # events
    repeated: int = 0  # retransmitted events that had been accepted before
    refused: int = 0  # malformed or unexpected messages
    found_dead: int = 0  # clients declared dead


class TopicHost:
    """The `Machine` that runs channels; the first message to a cluster creates it.

    `hosts` tells which channels belong to this host, by default all of them. `state` is the durable
    state: the host appends a record of each change to the log, and a restarted host gets the
    replayed state. Besides messages and timers, the process that runs the host calls `start` once,
    before anything else, then `repeat_last`, `tell`, `bury`, `excuse` and `sweep` as needed.
    """

    def __init__(
        self,
        policy: Policy,
        state: HostState,
        *,
        hosts: Callable[[str], bool] = is_channel,
        seed: int = 0,
        flow_memory: float = 10.0,
    ) -> None:
        self.policy = policy
        self.state = state
        self.hosts = hosts
        self.seed = seed
        self.counts = Counts()
        self.most_payload = 1 << 62  # the largest event, in bytes, that the network carries
        self.late_messages = False  # messages of a client may arrive after its goodbye
        self.message_counts: Counter[str] = Counter()  # by kind, also between channels
        self.topics: dict[str, TopicChannel] = {}
        self.clusters: dict[str, ClusterChannel] = {}
        self.heard: dict[str, float] = {}  # when each client was last heard
        self._log = HostLog(state, policy)
        self._actions: list[Action] = []  # caused by the current input
        self._familiar: set[str] = set()  # clients whose channels are known
        self._unchecked: set[str] = set()  # of these, known only from before the last start
        self._flow_memory = flow_memory
        self._inside: deque[tuple[str, str, Message]] = deque()  # sender, receiver, message

    # --- life cycle -----------------------------------------------------------------------------

    def fit(self, most_payload: int) -> None:
        """Adapt to the largest event in bytes that the network takes; call it before `start`."""
        self.most_payload = most_payload

    def start(self, now: float) -> list[Action]:
        """Restart all channels of the state; subscribers that stay silent will be declared dead."""
        self._log.begin_epoch(now)
        for channel, state in [*self.state.states.items()]:
            if isinstance(state, TopicState):
                state.meter.at = now  # the time while the host was down does not count
            self.heard |= dict.fromkeys(state.members, now)
            self._start_channel(channel, state, now)
        self._familiar |= self.heard.keys()
        self._unchecked |= self.heard.keys()
        return self.repeat_last(now)

    def repeat_last(self, now: float) -> list[Action]:
        """Resend the last event of each topic, so that subscribers notice what they missed."""
        for channel, machine in self.topics.items():
            last = machine.state.history.last
            if last is not None:
                if machine.size:
                    self._send(channel, members_of(channel), last)
                for cluster in machine.state.clusters:
                    self._send(channel, cluster, last)
        return self._finish(now)

    def bury(self, now: float, silent_for: float) -> list[Action]:
        """Declare clients dead that were silent for more than `silent_for` seconds."""
        for client in [name for name, at in self.heard.items() if now - at > silent_for]:
            del self.heard[client]
            self._familiar.discard(client)
            if self._remove_from_channels(client, now):
                self.counts.found_dead += 1
                self._log.record_death(client, now)
        return self._finish(now)

    def excuse(self, now: float) -> list[Action]:
        """Restart the silence time of all clients, because the host itself could not receive."""
        self.heard = dict.fromkeys(self.heard, now)
        return []

    def sweep(self, now: float, forget_after: float) -> list[Action]:
        """Remove ended clusters, and what is kept of clients gone for `forget_after` seconds."""
        for name in [name for name, machine in self.clusters.items() if machine.finished]:
            del self.clusters[name]
            self._log.remove_channel(name)
        for channel, streams in self.state.streams.items():
            old = [s for s, held in streams.items() if now - held.at > forget_after]
            for stream in old:
                if stream.rpartition("#")[0] not in self.heard:
                    self._log.forget_stream(channel, stream)
        ended = self.state.ended.items()
        for channel in [name for name, end in ended if now - end.at > forget_after]:
            self._log.forget_end(channel)
        dead = self.state.dead.items()
        for client in [name for name, death in dead if now - death.at > forget_after]:
            if client not in self.heard:
                self._log.forget_death(client)
        return self._finish(now)

    def tell(self, to: str, message: Message, now: float, *, sender: str = SERVICE) -> list[Action]:
        """Send a message to a channel, as the host itself or in the name of another channel."""
        return self.tell_all([(sender, to, message)], now)

    def tell_all(self, said: Iterable[tuple[str, str, Message]], now: float) -> list[Action]:
        """Send messages, each with its sender and its receiver."""
        for sender, to, message in said:
            self._send(sender, to, message)
        return self._finish(now)

    # --- inspection ----------------------------------------------------------------------------

    def flow(self, channel: str, now: float) -> float:
        """The current estimate of a topic's events per interval."""
        return replace(self.topics[channel].state.meter).rate(now, self.policy.interval)

    def machine(self, channel: str) -> TopicChannel | ClusterChannel | None:
        """The machine of a channel; None if the channel does not exist."""
        return self.topics.get(channel) or self.clusters.get(channel)

    # --- inputs --------------------------------------------------------------------------------

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Handle a `ChannelMessage` of a client, or of a channel on another host."""
        if not isinstance(message, ChannelMessage):
            raise TypeError(f"a host takes messages for its channels, not {message!r}")
        to, said = message.channel, message.message
        if _is_client(sender):
            self.message_counts[kind_of(type(said))] += 1
            self.heard[sender] = now
            self._on_client_message(sender, to, said, now)
        elif is_channel(sender) and not self.hosts(sender) and self.hosts(to):
            self._feed_if_expected(sender, to, said, now)
        else:
            self.counts.refused += 1  # a sender that claims to be a channel of this host
        return self._finish(now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Handle a timer of one of the channels."""
        timer, _, channel = name.partition(" ")
        machine = self.machine(channel)
        if machine is not None:
            actions = machine.on_timer(timer, now)
            self._log.record_channel(channel, machine.state)
            self._perform(channel, actions)
        return self._finish(now)

    def _on_client_message(self, sender: str, to: str, message: Message, now: float) -> None:
        match message:
            case Put(stream, number, payload):
                self._on_puts(sender, to, Puts(stream, number, (payload,)), now)
            case Puts():
                self._on_puts(sender, to, message, now)
            case Create(flow) if is_topic(to) and self.hosts(to):
                self._answer(sender, self._create(topic_of(to), flow, now))
            case Remove() if is_topic(to) and self.hosts(to):
                self._answer(sender, Removed(self._remove(to, now)))
            case Beat():
                self._on_beat(sender, message, now)
            case Bye():
                self._on_bye(sender, now)
            case _ if isinstance(message, _FROM_CLIENTS):
                self._forward_to_channel(sender, to, message, now)
            case _:
                self.counts.refused += 1

    # --- events --------------------------------------------------------------------------------

    def _on_puts(self, sender: str, to: str, puts: Puts, now: float) -> None:
        machine = self.topics.get(to)
        if machine is None:
            self._refuse_unknown_topic(sender, to)
            return
        if any(len(payload) > self.most_payload for payload in puts.payloads):
            self.counts.refused += 1  # a correct client never sends it
            return
        stream = f"{sender}#{puts.stream}"
        held = self.state.streams.get(to, {}).get(stream)
        upto = held.upto if held else 0
        if puts.first > upto + 1:
            self._answer(sender, Expect(puts.stream, upto + 1))
            return
        new = puts.payloads[upto + 1 - puts.first :]
        self.counts.repeated += len(puts.payloads) - len(new)
        self.counts.accepted += len(new)
        for payload in new:
            upto += 1
            actions = machine.on_message(sender, Publish(payload), now)
            self._log.record_event(to, stream, upto, payload, now)
            self._perform(to, actions)
        self._answer(sender, Taken(puts.stream, upto))

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
        # The guess weighs as much as one interval, so measurements soon outweigh it.
        guess = min(max(0.0, flow), _MOST_GUESSED) if isfinite(flow) else 0.0
        meter = FlowMeter(guess, 1.0, now, self._flow_memory)
        state = TopicState(topic=topic, meter=meter)
        if channel in self.state.ended:  # subscribers that were away expect no earlier number
            state.next_number = self.state.ended[channel].next_number
            self._log.forget_end(channel)
        self._start_channel(channel, state, now)
        return Created(True)

    def _remove(self, channel: str, now: float) -> bool:
        """Remove a topic; its subscribers are told, and clusters stop to carry it."""
        machine = self.topics.pop(channel, None)
        if machine is None:
            return False
        for name in machine.state.members:
            self._answer(name, NoTopic(machine.state.topic))
        for name in machine.state.clusters:
            self._send(channel, name, Dropped(MOST))
        self._log.remove_topic(channel, machine.state.next_number, now)
        return True

    def _forward_to_channel(self, sender: str, to: str, message: Message, now: float) -> None:
        if to not in self.topics and not (is_cluster(to) and self.hosts(to)):
            self._refuse_unknown_topic(sender, to)
            return
        if isinstance(message, Tell | More) and any(
            self._is_missing(topic_channel(news.topic.topic)) for news in message.news
        ):
            self.counts.refused += 1  # a cluster would wait for this topic for ever
            return
        if isinstance(message, Repair) and to in self.topics:
            message = self._clamp_repair(sender, self.topics[to], message)
        self._feed_if_expected(sender, to, message, now)

    def _is_missing(self, channel: str) -> bool:
        """Whether a topic's channel belongs to this host and does not exist."""
        return self.hosts(channel) and channel not in self.topics

    def _refuse_unknown_topic(self, sender: str, to: str) -> None:
        if is_topic(to) and self.hosts(to):
            self._answer(sender, NoTopic(topic_of(to)))
        else:
            self.counts.refused += 1

    def _clamp_repair(self, sender: str, machine: TopicChannel, repair: Repair) -> Repair:
        """Report events that are gone; returns the part of the request that can be met."""
        state, first = machine.state, repair.first
        if repair.epoch != self.state.epoch:
            number = state.first_number_after(repair.epoch)
            resume = Resume(state.topic, self.state.epoch, number, repair.epoch)
            self._answer(sender, resume)
            first = min(first, number)
        oldest = state.history.find_oldest(state.next_number)
        if first < oldest:
            self._answer(sender, Expired(state.topic, first, oldest))
        return Repair(first, self.state.epoch)

    def _on_beat(self, client: str, beat: Beat, now: float) -> None:
        dead = self.state.dead
        if client not in self._familiar:
            self._familiar.add(client)
            if beat.joined and client not in dead and not self._channels_of(client):
                # It was away for so long that the record of its death has expired.
                self._log.record_death(client, now, beat.generation)
        elif beat.joined and client in self._unchecked:
            self._unchecked.discard(client)
            if beat.digest and beat.digest != digest(self._channels_of(client)):
                # The host was restored from a state in which it was on other channels.
                self._log.record_death(client, now, beat.generation)
        policy, identity = self.policy, self.state.identity
        pulse = Pulse(identity, policy.tells, policy.obeys, policy.refresh, self.state.epoch)
        if beat.pulse != checksum(pulse):
            self._answer(client, pulse)
        found = dead.get(client)
        if found is not None and beat.generation <= found.generation:
            self._answer(client, Forgotten(found.generation))

    def _answer(self, client: str, message: Message) -> None:
        self.message_counts[kind_of(type(message))] += 1
        self._actions.append(Send(client, ChannelMessage(SERVICE, message)))

    def _on_bye(self, client: str, now: float) -> None:
        """Remove a client from all channels and forget its publishing streams.

        Where messages may be late, streams are kept until `sweep`: an event that was sent again
        must not be accepted again.
        """
        self._remove_from_channels(client, now)
        self.heard.pop(client, None)
        self._familiar.discard(client)
        if self.late_messages:
            return
        for channel, streams in self.state.streams.items():
            for stream in [name for name in streams if name.startswith(f"{client}#")]:
                self._log.forget_stream(channel, stream)

    def _remove_from_channels(self, client: str, now: float) -> bool:
        """Remove a client from all channels; returns whether it was on any."""
        on = self._channels_of(client)
        for channel in on:
            self._feed(SERVICE, channel, Gone(client), now)
        return bool(on)

    def _channels_of(self, client: str) -> list[str]:
        on = [name for name, each in self.topics.items() if client in each.state.members]
        on += [name for name, each in self.clusters.items() if client in each.state.members]
        return on

    # --- channels ------------------------------------------------------------------------------

    def _start_channel(
        self, channel: str, state: State, now: float
    ) -> TopicChannel | ClusterChannel:
        rng = derive_generator(self.seed, channel)
        machine: TopicChannel | ClusterChannel
        if isinstance(state, TopicState):
            machine = TopicChannel(self.policy, rng, state, epoch=self.state.epoch)
            self.topics[channel] = machine
        else:
            machine = ClusterChannel(channel, self.policy, rng, state)
            self.clusters[channel] = machine
        self._perform(channel, machine.start(now))
        self._log.record_channel(channel, machine.state)
        return machine

    def _finish(self, now: float) -> list[Action]:
        """Process messages between own channels until none is left; returns all actions."""
        while self._inside:
            sender, to, message = self._inside.popleft()
            self._feed(sender, to, message, now)
        actions, self._actions = self._actions, []
        return [*map(Append, self._log.take()), *actions]

    def _feed_if_expected(self, sender: str, to: str, message: Message, now: float) -> None:
        """Hand a message from outside to a channel, or count it as refused."""
        try:
            check_for_channel(to, sender, message)
        except UnexpectedMessageError:
            self.counts.refused += 1
            return
        self._feed(sender, to, message, now)

    def _feed(self, sender: str, to: str, message: Message, now: float) -> None:
        machine = self.machine(to)
        if machine is None:
            if isinstance(message, _TO_EXISTING):
                return
            if not is_cluster(to):
                if isinstance(message, Carry | Drop) and is_cluster(sender):
                    self._send(to, sender, Dropped(message.version))
                return
            machine = self._start_channel(to, ClusterState(), now)
        views = _get_views(machine, sender)
        actions = machine.on_message(sender, message, now)
        if not isinstance(message, _VOLATILE) or _get_views(machine, sender) is not views:
            who = message.subscriber if isinstance(message, Gone) else sender
            self._log.record_channel(to, machine.state, who)
        self._perform(to, actions)

    def _perform(self, channel: str, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(to, message):
                    self._send(channel, to, message)
                case SetTimer(name, at):
                    self._actions.append(SetTimer(f"{name} {channel}", at))
                case _:
                    raise TypeError(f"a channel cannot perform {action!r}")

    def _send(self, channel: str, to: str, message: Message) -> None:
        self.message_counts[kind_of(type(message))] += 1
        if not self.hosts(to):
            self._actions.append(Send(to, ChannelMessage(channel, message)))
        elif is_cluster(to) or to in self.topics or isinstance(message, Carry | Drop):
            self._inside.append((channel, to, message))


def _get_views(machine: TopicChannel | ClusterChannel, subscriber: str) -> Views | None:
    """What a subscriber last reported to a channel."""
    member = machine.state.members.get(subscriber)
    return member.views if member is not None else None


def _is_client(name: str) -> bool:
    """Whether a client may use this name; it must not be mistaken for a channel."""
    if not name or name == SERVICE or is_channel(name) or name.startswith(_MEMBERS):
        return False
    return len(name.encode()) <= LONGEST_TOPIC
