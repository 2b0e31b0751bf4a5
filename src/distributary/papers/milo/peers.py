"""Clusters that form in a network of peers, with every message sent, and users that come and go.

Each user is a peer of a ring, with its client. Topics live at the roots of their names; channels
survey, merge and move their subscribers by messages between peers, as in `topics.peer`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from distributary.errors import DistributaryError
from distributary.machines.virtual import Link
from distributary.papers.milo.algorithms import tree_prices
from distributary.papers.milo.world import World, frequencies, interests
from distributary.topics import TAMARA, Policy, topic_channel
from distributary.topics.host import TopicHost
from distributary.topics.messages import Event
from distributary.topics.overlay.identifiers import identifier
from distributary.topics.overlay.messages import MAINTENANCE
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.peer.client import ClientParameters
from distributary.topics.peer.parameters import PeerParameters
from distributary.topics.peer.simulation import PeerNetwork

__all__ = [
    "CHURN",
    "CHURN_INTERVALS",
    "FULL_RING",
    "INTERVAL",
    "QUICK_RING",
    "SURVEY_INTERVALS",
    "LostEventError",
    "RingCase",
    "RingOutcome",
    "RingScale",
    "Traffic",
]

INTERVAL = 20.0  # seconds: one keep-alive for each edge of a tree
SURVEY_INTERVALS = 9
CHURN = 0.1  # of the users are replaced in ten minutes
CHURN_INTERVALS = round(600.0 / INTERVAL)
_REPLACED_AFTER = 2.0  # seconds from a departure to the next user
_LAST = 60.0  # seconds in which everybody gets the last events
_PARAMETERS = PeerParameters(
    overlay=OverlayParameters(
        leaf_set=8,
        leaf_period=5.0,
        tree_period=INTERVAL,
        misses=2,
        patience=1.0,
        replicas=2,
        give_up=12.0,
        seek_for=3_600.0,
        window=64,
    ),
    dead_after=3 * INTERVAL,
    vouch_every=INTERVAL,
    house_every=2.0,
)
_CLIENT = ClientParameters(beat_every=5.0, away_after=15.0, repeat_after=5.0)
_LINK = Link(0.02, jitter=0.01)

# Kinds of messages between peers; all others are control messages.
_TREES = frozenset({"tree-keep-alive"})
_EVENTS = frozenset({"Put", "Puts", "Event", "EventRun", "event", "catch-up"})
_ANSWERS = frozenset({"acknowledge", "Taken"})
_COPIES = frozenset({"replicate"})
_RING = (MAINTENANCE - _TREES) | {"vouch", "join", "leave", "Repair"}


@dataclass(frozen=True, slots=True)
class RingScale:
    """The size of a run, and its parts in intervals."""

    world: World
    growth: int = 30
    settling: int = 30
    quiet: int = SURVEY_INTERVALS
    churn: int = CHURN_INTERVALS


FULL_RING = RingScale(World(users=100, topics=60, natural=5))
QUICK_RING = RingScale(World(users=20, topics=6, natural=2, mean_wanted=3.0), 2, 20, 3, 10)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages between peers per interval, by what they are for; and the price of the channels.

    The price counts, as `maintenance` and `events` do, what the trees of all channels carry.
    """

    maintenance: float
    events: float
    control: float  # to join, survey and merge, and to find places in trees
    answers: float  # a peer confirms each message that it routes on, and a topic each event
    copies: float  # of channels, at replicas
    ring: float  # keep-alives of the ring, of clients, and of children in trees
    priced: float
    helpers: float  # the share of peers in trees that only forward
    clusters: float

    @property
    def carried(self) -> float:
        """The operating cost as it was sent."""
        return self.maintenance + self.events


@dataclass(frozen=True, slots=True)
class RingOutcome:
    """A run: what was sent without churn and with it."""

    quiet: Traffic
    churn: Traffic
    left: int
    crashed: int
    delivered: int  # events to readers


@dataclass(frozen=True, slots=True)
class RingCase:
    """One model of events and one seed, with clusters or without; equal cases, equal outcomes."""

    model: str
    scale: RingScale
    seed: int
    clusters: bool

    @property
    def is_large(self) -> bool:
        """Whether it is worth a process of its own."""
        return self.scale != QUICK_RING

    @property
    def policy(self) -> Policy:
        """Tamara's, by the sizes of trees; without surveys and coins no cluster forms."""
        found = replace(
            TAMARA,
            prices=tree_prices(self.scale.world.users),
            interval=INTERVAL,
            survey_every=SURVEY_INTERVALS * INTERVAL,
            answer_within=2.0,
            lock_for=15.0,
            refresh=3 * INTERVAL,
        )
        return found if self.clusters else replace(found, survey_every=inf, phi=0.0)

    def run(self) -> RingOutcome:
        """Let users join and clusters form; measure; then let users come and go, and measure."""
        scale, ring = self.scale, _Ring(self)
        ring.grow(scale.growth)
        ring.run(scale.settling)
        quiet = ring.measure(scale.quiet)
        ring.replace_users(scale.churn)
        churn = ring.measure(scale.churn)
        delivered = ring.check_readers()
        return RingOutcome(quiet, churn, ring.left, ring.crashed, delivered)


class LostEventError(DistributaryError):
    """A reader has not got its events, each once and in order."""


@dataclass(slots=True)
class _Reader:
    """A subscription; `last` is the number of the last event that it must have got."""

    user: str
    topic: int
    covered: bool = False
    last: int = 0


class _Ring:
    """The users of a run, and what they asked of their peers."""

    def __init__(self, case: RingCase) -> None:
        world = case.scale.world
        rng = np.random.default_rng([case.seed, 1])
        self._frequency = frequencies(case.model, world.topics, rng)
        self._wants = interests(world, rng)
        self._rng = np.random.default_rng([case.seed, 9])
        self._policy = case.policy
        self._network = PeerNetwork(
            case.policy, _PARAMETERS, seed=case.seed, link=_LINK, client_parameters=_CLIENT
        )
        self._users = [f"u{at}" for at in range(world.users)]
        # Those who leave publish nothing, so that each topic has the same publisher throughout.
        leaving = round(CHURN * world.users)
        self._leaving = self._rng.permutation(world.users)[:leaving].tolist()
        staying = [at for at in range(world.users) if at not in set(self._leaving)]
        self._publishers = self._rng.choice(staying, world.topics).tolist()
        self._readers: dict[int, list[_Reader]] = {at: [] for at in range(world.topics)}
        self._said = [0] * world.topics
        self._ended = False
        self.left = self.crashed = 0

    # --- what happens --------------------------------------------------------------------------

    def grow(self, intervals: int) -> None:
        """Start the ring and its topics; in so many intervals all users subscribe."""
        network = self._network
        network.build_converged(self._users)
        network.run(1.0)
        for user in self._users:
            self._attach(user)
        for topic, publisher in enumerate(self._publishers):
            network.create(self._users[publisher], f"t{topic}")
        network.run(10.0)
        for at, topic in np.argwhere(self._wants).tolist():
            self._later(self._rng.uniform(0.0, intervals), partial(self._want, at, topic))
        for topic in range(len(self._said)):
            self._plan_event(topic)
        self.run(intervals)

    def run(self, intervals: float) -> None:
        """Run for some intervals."""
        self._network.run(intervals * INTERVAL)
        self._network.simulation.record.waiting.clear()  # nobody asks for it, and it is long

    def replace_users(self, intervals: int) -> None:
        """In so many intervals, let users leave or crash in turn, others with their interests come.

        A crash takes the user's peer with it, and all channels and copies there.
        """
        for place, at in enumerate(self._leaving):
            time = intervals * (place + 0.5) / len(self._leaving)
            self._later(time, partial(self._replace_user, at, crash=place % 2 == 0))

    def _replace_user(self, at: int, *, crash: bool) -> None:
        network, user = self._network, self._users[at]
        topics = [t for t, readers in self._readers.items() for r in readers if r.user == user]
        for topic in topics:
            self._readers[topic] = [r for r in self._readers[topic] if r.user != user]
        if crash:
            network.stop_client(user)
            network.crash(user)
        else:
            network.leave(user)
            network.stop_client(user)
        self.crashed += crash
        self.left += not crash
        self._users[at] = f"{user}-next"
        self._later(_REPLACED_AFTER / INTERVAL, partial(self._arrive, at, topics))

    def _arrive(self, at: int, topics: list[int]) -> None:
        network, user = self._network, self._users[at]
        network.join(user, map(str, self._rng.choice(sorted(network.peers), 3, replace=False)))
        self._attach(user)
        for topic in topics:
            self._want(at, topic)

    def _attach(self, user: str) -> None:
        others = self._rng.choice(sorted(self._network.peers), 2, replace=False)
        self._network.client(user, dict.fromkeys([user, *map(str, others)]))

    def _later(self, intervals: float, call: partial[None]) -> None:
        clock = self._network.clock
        clock.at(clock.now + intervals * INTERVAL, call)

    def _want(self, at: int, topic: int) -> None:
        self._readers[topic].append(_Reader(self._users[at], topic))
        self._network.want(self._users[at], f"t{topic}")

    def _plan_event(self, topic: int) -> None:
        gap = self._rng.exponential(1.0 / self._frequency[topic])
        self._later(gap, partial(self._publish, topic))

    def _publish(self, topic: int) -> None:
        if self._ended:
            return
        name = f"t{topic}"
        self._said[topic] += 1
        for reader in self._readers[topic]:
            machine = self._network.clients[f"client/{reader.user}"].subscriber
            reader.covered = reader.covered or machine.is_covered(name)
            if reader.covered:
                reader.last = self._said[topic]
        publisher = self._users[self._publishers[topic]]
        self._network.say(publisher, name, b"%d" % self._said[topic])
        self._plan_event(topic)

    # --- what is measured ----------------------------------------------------------------------

    def measure(self, intervals: int) -> Traffic:
        """Run for so many intervals and count messages."""
        before, said = self._network.count_messages(), np.array(self._said)
        sizes: list[list[tuple[list[int], int]]] = []
        helpers: list[float] = []
        for _ in range(intervals):
            self.run(1.0)
            sizes.append([*self._find_channels()])
            helpers.append(self._count_helpers())
        sent: Counter[str] = self._network.count_messages() - before
        flow = (np.array(self._said) - said) / intervals
        group: defaultdict[str, float] = defaultdict(float)
        for kind, number in sent.items():
            group[_purpose(kind)] += number / intervals
        return Traffic(
            **{name: group[name] for name in _PURPOSES},
            priced=float(np.mean([self._price(each, flow.tolist()) for each in sizes])),
            helpers=float(np.mean(helpers)),
            clusters=float(np.mean([len(each) - len(self._said) for each in sizes])),
        )

    def _hosts(self) -> dict[str, TopicHost]:
        return {channel: found[0] for channel, found in self._network.hosts().items()}

    def _find_channels(self) -> Iterator[tuple[list[int], int]]:
        """The topics and the subscribers of each channel; first those of topics alone."""
        hosts = self._hosts()
        for topic in range(len(self._said)):
            channel = topic_channel(f"t{topic}")
            host = hosts.get(channel)  # none for a moment while its root changes
            yield [topic], 0 if host is None else host.topics[channel].size
        for host in hosts.values():
            for machine in host.clusters.values():
                if not machine.finished:
                    yield [int(name[1:]) for name in machine.state.topics], machine.size

    def _price(self, channels: list[tuple[list[int], int]], flow: list[float]) -> float:
        """The operating cost of channels by the policy's prices."""
        prices = self._policy.prices
        cost = 0.0
        for place, (topics, size) in enumerate(channels):
            rate = sum(flow[topic] for topic in topics)
            cost += prices.maintain(size) + rate * (prices.notify + prices.disseminate(size))
            cost += prices.associate(len(topics)) if place >= len(flow) else 0.0
        return cost

    def _count_helpers(self) -> float:
        """The share of peers in the trees of channels that only forward."""
        inside = helping = 0
        groups = [identifier(channel) for channel in self._network.hosts()]
        for peer in self._network.peers.values():
            for group in groups:
                place = peer.overlay.scribe.place(group)
                if place is not None and (place[1] or place[2]):
                    inside += 1
                    helping += not place[2]
        return helping / max(inside, 1)

    def check_readers(self) -> int:
        """Let the last events arrive; each reader must have got all of its own, once, in order."""
        self._ended = True
        self.run(_LAST / INTERVAL)
        got: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for _, client, _, _, message in self._network.simulation.record.delivered:
            if isinstance(message, Event):
                got[client, message.topic].append(int(message.payload))
            elif isinstance(message, Exception):
                raise LostEventError(f"{client}: {message}")
        for (client, name), numbers in got.items():
            if numbers != [*range(numbers[0], numbers[0] + len(numbers))]:
                raise LostEventError(f"{client} got events of {name} out of order")
        for reader in (reader for readers in self._readers.values() for reader in readers):
            numbers = got[f"client/{reader.user}", f"t{reader.topic}"]
            if reader.last and (not numbers or numbers[-1] < reader.last):
                raise LostEventError(f"{reader.user} lacks event {reader.last} of t{reader.topic}")
        return sum(map(len, got.values()))


_PURPOSES = ("maintenance", "events", "control", "answers", "copies", "ring")


def _purpose(kind: str) -> str:
    """Which field of `Traffic` counts messages of this kind."""
    for name, kinds in zip(
        ("maintenance", "events", "answers", "copies", "ring"),
        (_TREES, _EVENTS, _ANSWERS, _COPIES, _RING),
        strict=True,
    ):
        if kind in kinds:
            return name
    return "control"
