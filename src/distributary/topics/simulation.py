"""Topic channels, clusters and subscribers as machines over a network in virtual time.

Every message is simulated, which suits hundreds of subscribers and fault schedules; use
`topic_rounds` for thousands of subscribers over months.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from distributary.machines.actions import Action
from distributary.machines.virtual.engine import Simulation
from distributary.machines.virtual.network import Link, VirtualNetwork
from distributary.model.topics import Clustering
from distributary.planning.topics import Planner, planned
from distributary.topics import (
    ClusterChannel,
    ClusterState,
    Policy,
    Subscriber,
    TopicChannel,
    TopicState,
    drawn_by_name,
    is_cluster,
    members_of,
    topic_channel,
)
from distributary.topics.messages import Advise, Event, Publish, Repair, TopicFlow, Unwant, Want

__all__ = ["TopicSystem"]

_START = "start"
_OUTSIDE = "outside"


class _SavedChannel:
    """A channel's machine, and a copy of its state after its last input."""

    def __init__(self, machine: TopicChannel | ClusterChannel) -> None:
        self.machine = machine
        self.copy = pickle.dumps(machine.state)

    def on_message(self, sender: str, message: Any, now: float) -> Iterable[Action]:
        actions = (
            self.machine.start(now)
            if message == _START
            else self.machine.on_message(sender, message, now)
        )
        self.copy = pickle.dumps(self.machine.state)
        return actions

    def on_timer(self, name: str, now: float) -> Iterable[Action]:
        actions = self.machine.on_timer(name, now)
        self.copy = pickle.dumps(self.machine.state)
        return actions


class _ChannelNetwork(VirtualNetwork):
    """A network that creates a cluster when its name is first used, and knows group members."""

    def __init__(self, link: Link, rng: np.random.Generator, system: TopicSystem) -> None:
        super().__init__({}, rng, default=link)
        self.system = system
        self.sent: Counter[str] = Counter()

    def arrivals(self, sender: str, to: str, now: float) -> Iterator[tuple[str, float | None]]:
        self.system.make(to)
        group = self.system.group(to)
        for name in (to,) if group is None else group:
            yield from super().arrivals(sender, name, now)

    def count(self, message: Any) -> None:
        self.sent[type(message).__name__] += 1


class TopicSystem:
    """A complete topic broker: a channel for every topic, clusters as they form, and subscribers.

    Channels can crash; they restart with their last state. `overhead` counts the messages that a
    broker without clusters would not send.
    """

    def __init__(
        self, policy: Policy, flows: Mapping[str, float], *, seed: int, link: Link | None = None
    ) -> None:
        self.policy = policy
        self.seed = seed
        self.flows = dict(flows)
        rng = np.random.default_rng([seed, 1])
        self.network = _ChannelNetwork(link or Link(0.01), rng, self)
        self.simulation = _CountingSimulation(self.network)
        self.clock = self.simulation.clock
        self.channels: dict[str, _SavedChannel] = {}
        self.subscribers: dict[str, Subscriber] = {}
        self.down: set[str] = set()
        self.crashed: set[str] = set()  # all that have ever crashed
        self.listeners: list[Callable[[str, str, Any], None]] = []  # called with every message sent
        for topic, flow in self.flows.items():
            state = TopicState.new(topic, flow)
            name = topic_channel(topic)
            self._begin(name, TopicChannel(policy, drawn_by_name(seed, name), state))

    # --- driving -------------------------------------------------------------------------------

    def subscriber(self, name: str) -> Subscriber:
        """The subscriber of that name, created on first use."""
        if name not in self.subscribers:
            self.subscribers[name] = Subscriber(name, self.policy)
            self.simulation.add(name, self.subscribers[name])
        return self.subscribers[name]

    def want(self, time: float, subscriber: str, topic: str) -> None:
        """Let a subscriber want a topic from a time on."""
        self.subscriber(subscriber)
        self.simulation.post(time, subscriber, Want(topic), sender=_OUTSIDE)

    def unwant(self, time: float, subscriber: str, topic: str) -> None:
        """Let a subscriber stop wanting a topic."""
        self.simulation.post(time, subscriber, Unwant(topic), sender=_OUTSIDE)

    def publish(self, time: float, topic: str, payload: bytes = b"") -> None:
        """Let an event arrive at its topic's channel as soon as that is up."""
        name = topic_channel(topic)
        self.clock.at(time, partial(self._publish, name, payload))

    def crash(self, time: float, channel: str, down_for: float) -> None:
        """Let a channel crash, if it exists at that time, and restart."""
        self.clock.at(time, partial(self._crash, channel, down_for))

    def plan(self, time: float, budget: int, planner: Planner) -> None:
        """Let a planner survey everything at a time and send its advice to the channels."""
        self.clock.at(time, partial(self._plan, budget, planner))

    def run(self, until: float) -> None:
        """Run up to a time."""
        self.simulation.run(until=until)

    @property
    def overhead(self) -> int:
        """The messages sent so far except events and repair requests."""
        own = {Event.__name__, Repair.__name__}
        return sum(n for kind, n in self.network.sent.items() if kind not in own)

    # --- inspection ----------------------------------------------------------------------------

    def clusters(self) -> dict[str, ClusterChannel]:
        """The existing clusters."""
        machines = ((name, kept.machine) for name, kept in self.channels.items())
        return {
            name: machine
            for name, machine in machines
            if isinstance(machine, ClusterChannel) and not machine.finished
        }

    def sweep(self) -> int:
        """Remove finished clusters, as a service does now and then; returns how many."""
        done = [
            name
            for name, kept in self.channels.items()
            if isinstance(kept.machine, ClusterChannel)
            and kept.machine.finished
            and name not in self.down
        ]
        for name in done:
            self.simulation.crash(name)
            del self.channels[name]
        return len(done)

    def topic(self, topic: str) -> TopicChannel:
        """The channel of a topic."""
        machine = self.channels[topic_channel(topic)].machine
        assert isinstance(machine, TopicChannel)
        return machine

    def reaches(self, topic: str, subscriber: str) -> bool:
        """Whether an event of the topic published now would be sent to the subscriber."""
        channel = self.topic(topic)
        if subscriber in channel.state.members:
            return True
        clusters = self.clusters()
        return any(
            name in clusters
            and subscriber in clusters[name].state.members
            and topic in {*clusters[name].state.topics, *clusters[name].state.dropping}
            for name in channel.state.clusters
        )

    def clustering(self) -> Clustering:
        """The current membership of all channels, as the channels see it."""
        topics, names = list(self.flows), sorted(self.subscribers)
        row = {name: at for at, name in enumerate(names)}
        found = Clustering(len(names), len(topics))
        for at, topic in enumerate(topics):
            found.follow([row[name] for name in self.topic(topic).state.members], at)
        for machine in self.clusters().values():
            carried = {*machine.state.topics, *machine.state.dropping}
            cluster = found.form([topics.index(topic) for topic in carried])
            found.join([row[name] for name in machine.state.members], cluster)
        for name, client in self.subscribers.items():
            for topic in client.wanted:
                if client.is_covered(topic):
                    found.want(row[name], topics.index(topic))
        return found

    # --- internals -----------------------------------------------------------------------------

    def make(self, name: str) -> None:
        """Create a cluster if the name is that of a cluster which does not exist yet."""
        if is_cluster(name) and name not in self.channels:
            rng = drawn_by_name(self.seed, name)
            self._begin(name, ClusterChannel(name, self.policy, rng, ClusterState()))

    def group(self, name: str) -> list[str] | None:
        """The receivers of what is sent to everybody on a channel; None for a single node."""
        channel = name.removeprefix(members_of(""))
        if channel == name:
            return None
        return list(self.channels[channel].machine.state.members)

    def _begin(self, name: str, machine: TopicChannel | ClusterChannel) -> None:
        self.channels[name] = _SavedChannel(machine)
        self.simulation.add(name, self.channels[name])
        self.simulation.post(self.clock.now, name, _START, sender=_OUTSIDE)

    def _publish(self, name: str, payload: bytes) -> None:
        if name in self.down:  # a publisher retries until the channel is up
            self.clock.at(self.clock.now + 0.5, partial(self._publish, name, payload))
        else:
            self.simulation.post(self.clock.now, name, Publish(payload), sender=_OUTSIDE)

    def _plan(self, budget: int, planner: Planner) -> None:
        state, topics = self.clustering(), list(self.flows)
        frequency = np.array([self.topic(topic).known().flow for topic in topics])
        names = sorted(self.subscribers)
        for found in planned(state.wants, state, frequency, budget, planner):
            carried = tuple(TopicFlow(topics[t], float(frequency[t])) for t in found.topics)
            advice = Advise(carried, invited=tuple(names[at] for at in found.invited))
            self.network.count(advice)
            to = topic_channel(carried[0].topic)
            self.simulation.post(self.clock.now, to, advice, sender=_OUTSIDE)

    def _crash(self, name: str, down_for: float) -> None:
        if name in self.channels and name not in self.down:
            self.down.add(name)
            self.crashed.add(name)
            self.simulation.crash(name)
            self.clock.at(self.clock.now + down_for, partial(self._restart, name))

    def _restart(self, name: str) -> None:
        self.down.discard(name)
        state = pickle.loads(self.channels[name].copy)
        rng = drawn_by_name(self.seed + self.clock.scheduled, name)
        if isinstance(state, TopicState):
            self._begin(name, TopicChannel(self.policy, rng, state))
        else:
            self._begin(name, ClusterChannel(name, self.policy, rng, state))


class _CountingSimulation(Simulation):
    """A simulation that counts messages by type."""

    def _send(self, sender: str, to: str, message: Any) -> None:
        assert isinstance(self.network, _ChannelNetwork)
        self.network.count(message)
        for listener in self.network.system.listeners:
            listener(sender, to, message)
        super()._send(sender, to, message)
