"""A complete topic system in virtual time: hosts of channels, and subscribers.

Every message is simulated, which suits hundreds of subscribers and fault schedules; use `rounds`
for thousands of subscribers over months.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf
from typing import Any

import numpy as np

from distributary.machines.virtual.engine import Simulation
from distributary.machines.virtual.network import Link, VirtualNetwork
from distributary.planning.topics import Planner
from distributary.topics.advice import propose_clusters
from distributary.topics.cluster import ClusterChannel
from distributary.topics.codec import SERVICE, Put
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.messages import OVERHEAD_KINDS, Advise, Unwant, Want, kind_of
from distributary.topics.names import is_channel, is_cluster, members_of, topic_channel
from distributary.topics.policy import Policy
from distributary.topics.records import HostState
from distributary.topics.subscriber import Subscriber
from distributary.topics.survey import survey
from distributary.topics.topic import TopicChannel, TopicState

__all__ = ["TopicSystem"]

_OUTSIDE = "application"
_PUBLISHER = "publisher"
_HOST = "host"


class _ChannelNetwork(VirtualNetwork):
    """A network that creates a cluster's host on first use and resolves the members of channels."""

    def __init__(self, link: Link, rng: np.random.Generator, system: TopicSystem) -> None:
        super().__init__({}, rng, default=link)
        self.system = system

    def arrivals(self, sender: str, to: str, now: float) -> Iterator[tuple[str, float | None]]:
        for name in self.system.find_receivers(to):
            yield from super().arrivals(sender, name, now)


class _TopicSimulation(Simulation):
    """Delivers messages to the hosts of their channels, and counts them by type."""

    def __init__(self, network: _ChannelNetwork) -> None:
        super().__init__(network)
        self.system = network.system
        self.sent: Counter[str] = Counter()

    def _send(self, sender: str, to: str, message: Any) -> None:
        if isinstance(message, ChannelMessage):
            sender, message = message.channel, message.message
        self.sent[kind_of(type(message))] += 1
        for listener in self.system.listeners:
            listener(sender, to, message)
        super()._send(sender, to, message)

    def _arrive(self, sender: str, to: str, message: Any) -> None:
        if is_channel(to) or to == SERVICE:
            super()._arrive(sender, self.system.node_of(to), ChannelMessage(to, message))
        else:
            super()._arrive(sender, to, message)


class TopicSystem:
    """A complete topic broker: hosts with a channel for every topic and cluster, and subscribers.

    With `together`, one host runs all channels; otherwise each channel has its own host. Hosts can
    crash and restart from their logs. `overhead` counts the messages that a broker without clusters
    would not send.
    """

    def __init__(
        self,
        policy: Policy,
        flows: Mapping[str, float],
        *,
        seed: int,
        link: Link | None = None,
        together: bool = False,
    ) -> None:
        self.policy = policy
        self.seed = seed
        self.flows = dict(flows)
        self.together = together
        rng = np.random.default_rng([seed, 1])
        self.network = _ChannelNetwork(link or Link(0.01), rng, self)
        self.simulation = _TopicSimulation(self.network)
        self.clock = self.simulation.clock
        self.hosts: dict[str, TopicHost] = {}  # by node
        self.subscribers: dict[str, Subscriber] = {}
        self.down: set[str] = set()
        self.crashed: set[str] = set()  # all nodes that have ever crashed
        self.listeners: list[Callable[[str, str, Any], None]] = []  # called with every message sent
        self._published: Counter[str] = Counter()
        states = {_HOST: HostState()} if together else {}
        for topic, flow in self.flows.items():
            channel = topic_channel(topic)
            state = states.setdefault(self.node_of(channel), HostState())
            state.states[channel] = TopicState.new(topic, flow)
        for node, state in states.items():
            self.simulation.logs[node] += state.snapshot()
            self._start(node, seed)

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
        """Publish an event at a time, or as soon after it as the host of its topic is up."""
        self.clock.at(time, partial(self._publish, topic_channel(topic), payload))

    def crash(self, time: float, channel: str, down_for: float) -> None:
        """Let the host of a channel crash, if the channel exists at that time, and restart."""
        self.clock.at(time, partial(self._crash, channel, down_for))

    def advise(self, time: float, channel: str, advice: Advise) -> None:
        """Give a channel advice, if it exists at that time and its host is up."""
        self.clock.at(time, partial(self._advise, channel, advice))

    def plan(self, time: float, budget: int, planner: Planner) -> None:
        """Let a planner survey everything at a time and send its advice to the channels."""
        self.clock.at(time, partial(self._plan, budget, planner))

    def sweep(self) -> None:
        """Let all hosts that are up remove clusters that have ended."""
        for node in self.hosts.keys() - self.down:
            self.simulation.call(node, partial(self.hosts[node].sweep, forget_after=inf))

    def run(self, until: float) -> None:
        """Run up to a time."""
        self.simulation.run(until=until)

    @property
    def overhead(self) -> int:
        """The messages sent so far that a broker without clusters would not send."""
        return sum(n for kind, n in self.simulation.sent.items() if kind in OVERHEAD_KINDS)

    # --- inspection ----------------------------------------------------------------------------

    def clusters(self) -> dict[str, ClusterChannel]:
        """The existing clusters."""
        found = (item for host in self.hosts.values() for item in host.clusters.items())
        return {name: machine for name, machine in found if not machine.finished}

    def topic(self, topic: str) -> TopicChannel:
        """The channel of a topic."""
        channel = topic_channel(topic)
        return self.hosts[self.node_of(channel)].topics[channel]

    def machine(self, channel: str) -> TopicChannel | ClusterChannel | None:
        """A channel, if it exists."""
        host = self.hosts.get(self.node_of(channel))
        return host.machine(channel) if host is not None else None

    # --- internals -----------------------------------------------------------------------------

    def node_of(self, channel: str) -> str:
        """The node that hosts a channel."""
        return _HOST if self.together else channel

    def find_receivers(self, name: str) -> list[str]:
        """The receivers of a message to a name: one node, or all members of a channel."""
        channel = name.removeprefix(members_of(""))
        if channel != name:
            machine = self.machine(channel)
            return [*machine.state.members] if machine is not None else []
        if is_cluster(name) and self.node_of(name) not in self.hosts:
            self._start(self.node_of(name), self.seed)
        return [name]

    def _start(self, node: str, seed: int) -> None:
        state = HostState()
        for record in self.simulation.logs[node]:
            state.replay(record, self.policy)
        hosts = is_channel if self.together else node.__eq__
        host = self.hosts[node] = TopicHost(self.policy, state, hosts=hosts, seed=seed)
        self.simulation.add(node, host)
        self.simulation.call(node, host.start)

    def _publish(self, channel: str, payload: bytes) -> None:
        if self.node_of(channel) in self.down:  # a publisher retries until the channel is up
            self.clock.at(self.clock.now + 0.5, partial(self._publish, channel, payload))
            return
        self._published[channel] += 1
        put = Put(1, self._published[channel], payload)
        self.simulation.post(self.clock.now, channel, put, sender=_PUBLISHER)

    def _plan(self, budget: int, planner: Planner) -> None:
        found = survey([*self.hosts.values()], self.clock.now)
        most = self.policy.most_topics
        for channel, advice in propose_clusters(found, planner, budget, most):
            self.simulation.sent[kind_of(Advise)] += 1
            self._advise(channel, advice)

    def _advise(self, channel: str, advice: Advise) -> None:
        node = self.node_of(channel)
        if self.machine(channel) is not None and node not in self.down:
            self.simulation.call(node, partial(self.hosts[node].tell, channel, advice))

    def _crash(self, channel: str, down_for: float) -> None:
        node = self.node_of(channel)
        if self.machine(channel) is not None and node not in self.down:
            self.down.add(node)
            self.crashed.add(node)
            self.simulation.crash(node)
            self.clock.at(self.clock.now + down_for, partial(self._restart, node))

    def _restart(self, node: str) -> None:
        self.down.discard(node)
        self._start(node, self.seed + self.clock.scheduled)
