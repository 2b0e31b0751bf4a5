"""Seeded schedules: peers crash, return, leave, join, sleep and are cut off under their clients.

Topics are created and removed meanwhile, and messages are lost. A few schedules are calm: ten peers
for ten minutes, of which one leaves and another joins.

The oracle knows only what applications did and got: what they published, what was confirmed, when
they had a subscription, and what they read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from distributary.machines.actions import Action, SetTimer
from distributary.machines.virtual import Link
from distributary.topics import OURS, TAMARA, Policy
from distributary.topics.codec import Created, NoTopic, Removed
from distributary.topics.messages import Event, Unwant
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.peer.client import Confirmed, GiveUp
from distributary.topics.peer.parameters import PeerParameters
from distributary.topics.peer.simulation import PeerNetwork

GIVE_UP = 12.0
OVERLAY = OverlayParameters(
    leaf_set=8,
    leaf_period=2.0,
    tree_period=2.0,
    misses=2,
    refresh_every=3,
    patience=0.5,
    window=16,
    replicas=2,
    give_up=GIVE_UP,
    seek_for=600.0,
    per_neighbour=True,
)
PARAMETERS = PeerParameters(overlay=OVERLAY, dead_after=6.0, vouch_every=2.0, house_every=1.0)
QUICK: dict[str, Any] = {
    "interval": 2.0,
    "survey_every": 8.0,
    "answer_within": 1.0,
    "lock_for": 6.0,
    "refresh": 10.0,
    "remember": 5.0,
}
POLICIES: dict[str, Policy] = {
    "tamara": replace(TAMARA, **QUICK),
    "ours": replace(OURS, **(QUICK | {"horizon": 50.0})),  # channels survey: nobody plans
}
# From a crash to its repair: silence is noticed, members are waited for, and the log is copied.
REPAIR = GIVE_UP + 12.0
LAST = 15.0  # until the last event has come to everybody
TWICE = 3.0  # in which whatever would come twice comes
CHEAP = 30.0  # until the changes in progress are made, and the next ones that pay
STEPS = 30
LOSSES = (0.0, 0.0, 0.02)  # of messages between peers
MOST_TOPICS = 7  # that are ever created
LONGEST_SLEEP = 6.0
CALM = 100  # one in so many schedules is
CALM_PEERS, CALM_FOR = 10, 600.0  # seconds; one is replaced, which is a churn of 10 %
_WAKE = "wake"


class Sleeper:
    """A node that can be put to sleep, as by SIGSTOP; what comes meanwhile waits."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.asleep = False
        self._waiting: list[Callable[[float], Iterable[Action]]] = []

    def sleep(self, seconds: float, now: float) -> list[Action]:
        self.asleep = True
        return [SetTimer(_WAKE, now + seconds)]

    def on_message(self, sender: str, message: Any, now: float) -> Iterable[Action]:
        return self.call(partial(self.machine.on_message, sender, message), now)

    def on_timer(self, name: str, now: float) -> Iterable[Action]:
        if name != _WAKE:
            return self.call(partial(self.machine.on_timer, name), now)
        self.asleep = False
        waiting, self._waiting = self._waiting, []
        return [action for given in waiting for action in given(now)]

    def call(self, given: Callable[[float], Iterable[Action]], now: float) -> Iterable[Action]:
        if not self.asleep:
            return given(now)
        self._waiting.append(given)
        return ()


class SleepyNetwork(PeerNetwork):
    """Peers that can be put to sleep."""

    def sleep(self, name: str, seconds: float) -> None:
        node = self.simulation._nodes[name]
        if not isinstance(node.machine, Sleeper):
            node.machine = Sleeper(node.machine)
        if not node.machine.asleep:
            self.simulation.call(name, partial(node.machine.sleep, seconds))

    def is_asleep(self, name: str) -> bool:
        node = self.simulation._nodes[name]
        return isinstance(node.machine, Sleeper) and node.machine.asleep


@dataclass
class Reader:
    """A subscription: since when it is complete, and what was read."""

    client: str
    topic: str
    covered_at: float | None = None


@dataclass
class Schedule:
    """A network of peers and clients, and what was asked of it."""

    seed: int
    steps: int = STEPS
    partitions: bool = True
    encodes: bool = False
    loss: float | None = None  # of messages; else it is drawn
    readers: dict[tuple[str, str], Reader] = field(default_factory=dict)
    said: dict[bytes, float] = field(default_factory=dict)  # when each event was published
    order: defaultdict[tuple[str, str], list[bytes]] = field(
        default_factory=lambda: defaultdict(list)
    )
    faults: list[float] = field(default_factory=list)
    quiet_from: float = 0.0  # no cut lasts longer
    down: list[str] = field(default_factory=list)
    counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    creating: set[str] = field(default_factory=set)
    removing: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)  # also those that are being removed
    noted: int = 0  # deliveries that were looked at

    def __post_init__(self) -> None:
        rng = self.rng = np.random.default_rng([self.seed, 7])
        self.policy = ("tamara", "ours")[self.seed % 2]
        self.is_calm = self.seed % CALM == CALM - 1
        loss = float(rng.choice(LOSSES)) if self.loss is None else self.loss
        link = Link(0.01, jitter=float(rng.choice([0.0, 0.05])), loss=loss)
        policy = replace(POLICIES[self.policy], remember=LONGEST_SLEEP + 4.0)
        self.network = SleepyNetwork(
            policy, PARAMETERS, seed=self.seed, link=link, encodes=self.encodes
        )
        peers = [f"p{at}" for at in range(CALM_PEERS if self.is_calm else int(rng.integers(3, 10)))]
        self.joined = len(peers)
        self.network.build_converged(peers)
        self.network.run(0.5)
        alike = self.seed % 4 > 1  # interests that are much alike, so that clusters pay
        self.topics = [f"t{at}" for at in range(int(rng.integers(2 * alike + 1, 5)))]
        self.clients = [f"c{at}" for at in range(int(rng.integers(3 * alike + 2, 8)))]
        for name in self.clients:
            first = [str(each) for each in rng.permutation(peers)[:3]]
            self.network.client(name, first)
        self.made = len(self.topics)
        for topic in self.topics:
            self.network.create(self.clients[0], topic)
            self.creating.add(topic)
        self.network.run(3.0)
        self.run_until(lambda: not self.creating, REPAIR)
        for client in self.clients if alike else ():
            for topic in self.topics:
                self.want(client, topic)

    # --- what happens --------------------------------------------------------------------------

    def run(self) -> None:
        """All steps, until everything is repaired; then the last events, until all have them."""
        pause = CALM_FOR / STEPS if self.is_calm else 0.8
        for _ in range(self.steps):
            self.step()
            self.run_for(float(self.rng.exponential(pause)))
        self.run_until(lambda: self.is_repaired(), REPAIR)
        for topic in self.topics:
            self.say(self.clients[0], topic)
        self.run_for(0.5)  # until clients know what they publish
        self.run_until(lambda: self.is_confirmed() and not self.find_incomplete(), LAST)
        self.run_for(TWICE)
        self.run_until(lambda: not self.find_cost_above(), CHEAP)

    def run_until(self, is_done: Callable[[], bool], most: float) -> None:
        """Run until something is so, but not for longer than it may take."""
        until = self.network.clock.now + most
        while not is_done() and self.network.clock.now < until:
            self.run_for(0.5)

    def is_repaired(self) -> bool:
        """Whether no fault is left, everything is confirmed, and each channel has its place."""
        if self.network.clock.now < max([self.quiet_from, *self.faults]):
            return False
        covered = all(reader.covered_at is not None for reader in self.readers.values())
        return covered and self.is_confirmed() and not self.find_misplaced()

    def is_confirmed(self) -> bool:
        """Whether nobody waits for an answer or a confirmation."""
        waiting = (
            self.network.clients[f"client/{client}"].unconfirmed(topic)
            for client, topic in self.order
            if topic not in self.removed
        )
        return not (self.creating or self.removing or any(waiting))

    def run_for(self, seconds: float) -> None:
        while seconds > 0:
            self.network.run(min(0.5, seconds))
            seconds -= 0.5
            self.note_answers()
            self.note_coverage()
            clusters = sum(channel.startswith("cluster/") for channel in self.network.hosts())
            self.counts["clusters"] = max(self.counts["clusters"], clusters)

    def step(self) -> None:
        rng = self.rng
        ways = ["say"] * 8 + ["want"] * 4 + ["unwant", "create", "remove"]
        gone = self.counts["crash"] + self.counts["leave"]
        if not self.is_calm:
            ways += ["crash", "return", "leave", "join", "cut", "sleep"]
        elif gone == self.counts["join"]:
            ways += ["crash", "leave"] if not gone else []
        else:
            ways += ["join"] * 4
        way = str(rng.choice(ways))
        client, topic = str(rng.choice(self.clients)), str(rng.choice(self.topics))
        peers = list(self.network.peers)
        peer = str(rng.choice(peers))
        is_made = topic not in self.creating
        if rng.random() < 0.4:
            peer = self.network.owner(f"topic/{topic}")
        done = True
        match way:
            case "say" if is_made:
                self.say(client, topic)
            case "want" if is_made and (client, topic) not in self.readers:
                self.want(client, topic)
            case "unwant" if (client, topic) in self.readers:
                del self.readers[client, topic]
                self.network.unwant(client, topic)
            case "create" if self.made < MOST_TOPICS:
                self.create(client, f"t{self.made}")
            case "remove" if is_made and len(self.topics) > 1:
                self.remove(client, topic)
            case "crash" if len(peers) > 3 and self.may_fail():
                self.network.crash(peer)
                self.down.append(peer)
            case "return" if self.down:
                self.network.join(self.down.pop(0), peers)
            case "sleep" if len(peers) > 3 and not self.network.is_asleep(peer) and self.may_fail():
                lasts = float(rng.uniform(0.5, LONGEST_SLEEP))
                self.network.sleep(peer, lasts)
                self.faults[-1] += lasts
                self.quiet_from = max(self.quiet_from, self.network.clock.now + lasts)
            case "leave" if len(peers) > 3 and not self.network.is_asleep(peer) and self.may_fail():
                self.network.leave(peer)
            case "join":
                self.network.join(f"p{self.joined}", [str(n) for n in rng.permutation(peers)])
                self.joined += 1
            case "cut" if self.partitions and len(peers) > 2 and self.may_fail(GIVE_UP):
                n = int(rng.integers(1, max(2, len(peers) // 2 + 1)))
                island = f"island{len(self.faults)}"
                self.network.cut(island, [str(name) for name in rng.permutation(peers)[:n]])
                lasts = float(rng.uniform(0.5, GIVE_UP - 6.0))
                self.quiet_from = self.network.clock.now + lasts
                self.network.clock.at(self.quiet_from, lambda: self.network.heal(island))
            case _:
                done = False
        self.counts[way] += done

    def create(self, client: str, topic: str) -> None:
        """Create a topic, which is used once that is confirmed."""
        self.made += 1
        self.topics.append(topic)
        self.creating.add(topic)
        self.network.create(client, topic)

    def remove(self, client: str, topic: str) -> None:
        """Remove a topic: what becomes of its events from now on is open."""
        self.topics.remove(topic)
        self.removed.add(topic)
        self.removing.add(topic)
        for reader in [reader for reader in self.readers if reader[1] == topic]:
            del self.readers[reader]
        self.network.remove(client, topic)

    def note_answers(self) -> None:
        """Which topics are created or removed by now; nobody wants a topic that does not exist."""
        delivered = self.network.simulation.record.delivered
        for _, client, _, _, message in delivered[self.noted :]:
            match message:
                case (topic, Created()):
                    self.creating.discard(topic)
                case (topic, Removed()):
                    self.removing.discard(topic)
                case NoTopic(topic) if topic in self.removed:
                    for said in (Unwant(topic), GiveUp(topic)):
                        now = self.network.clock.now
                        self.network.simulation.post(now, client, said, sender="application")
        self.noted = len(delivered)

    def want(self, client: str, topic: str) -> None:
        self.readers[client, topic] = Reader(client, topic)
        self.network.want(client, topic)

    def may_fail(self, lasts: float = 0.0) -> bool:
        """No more failures from one to its repair than there are replicas; a cut is alone."""
        now = self.network.clock.now
        recent = [at for at in self.faults if at > now - REPAIR]
        if len(recent) + (OVERLAY.replicas if lasts else 1) > OVERLAY.replicas:
            return False
        self.faults += [now + lasts] * (OVERLAY.replicas if lasts else 1)
        return True

    def say(self, client: str, topic: str) -> None:
        event = f"{client} {topic} {len(self.order[client, topic])}".encode()
        self.order[client, topic].append(event)
        self.said[event] = self.network.clock.now
        self.network.say(client, topic, event)

    def note_coverage(self) -> None:
        """A subscription is complete once its machine says so, as the application learns it."""
        for reader in self.readers.values():
            machine = self.network.clients[f"client/{reader.client}"].subscriber
            if reader.covered_at is None and machine.is_covered(reader.topic):
                reader.covered_at = self.network.clock.now

    # --- what must hold ------------------------------------------------------------------------

    def check(self) -> None:
        got = {name: self.network.delivered(name) for name in self.clients}
        self.check_confirmed(got)
        self.check_streams(got)
        self.check_complete()
        self.check_hosts()
        self.check_cost()

    def check_confirmed(self, got: dict[str, list[object]]) -> None:
        assert not self.creating, f"{self.creating} are not created"
        assert not self.removing, f"{self.removing} are not removed"
        for (client, topic), events in self.order.items():
            if topic in self.removed:
                continue
            upto = max(
                (
                    each.upto
                    for each in got[client]
                    if isinstance(each, Confirmed) and each.topic == topic
                ),
                default=0,
            )
            assert upto == len(events), f"{client} waits: {upto} of {len(events)} to {topic}"

    def check_streams(self, got: dict[str, list[object]]) -> None:
        """One number is one event to all; nobody gets one twice, or in another order."""
        log: dict[tuple[str, int], bytes] = {}
        for client, found in got.items():
            last: dict[str, int] = {}
            seen: set[bytes] = set()
            for event in found:
                if isinstance(event, NoTopic) and event.topic in self.removed:
                    continue
                assert not isinstance(event, Exception | NoTopic), f"{client} got {event}"
                if not isinstance(event, Event):
                    continue
                assert event.payload in self.said, f"{client} got {event}, which nobody published"
                assert event.payload not in seen, f"{client} got {event} twice"
                assert event.number > last.get(event.topic, 0), f"{client}: {event} is late"
                seen.add(event.payload)
                last[event.topic] = event.number
                key = event.topic, event.number
                assert log.setdefault(key, event.payload) == event.payload, f"two events: {key}"
        for (client, topic), events in self.order.items():
            numbers = {payload: number for (t, number), payload in log.items() if t == topic}
            mine = [numbers[event] for event in events if event in numbers]
            assert mine == sorted(mine), f"events of {client} to {topic} are out of order"

    def check_complete(self) -> None:
        """Who has a complete subscription has read everything published since."""
        assert not (found := self.find_incomplete()), found

    def find_incomplete(self) -> str:
        """What the first reader lacks that lacks anything."""
        got = {name: self.network.delivered(name) for name in self.clients}
        for reader in self.readers.values():
            if reader.covered_at is None:
                return f"{reader} is still incomplete"
            events = {e.payload for e in got[reader.client] if isinstance(e, Event)}
            due = {
                event
                for client in self.clients
                for event in self.order[client, reader.topic]
                if self.said[event] >= reader.covered_at
            }
            if not due <= events:
                return f"{reader} lacks {sorted(due - events)[:3]}"
        return ""

    def measure_cost(self) -> tuple[float, float]:
        """The operating cost of all channels by the policy's prices, and without clusters."""
        prices, now = self.network.policy.prices, self.network.clock.now
        hosts = {channel: found[0] for channel, found in self.network.hosts().items()}
        flow = {topic: hosts[f"topic/{topic}"].flow(f"topic/{topic}", now) for topic in self.topics}

        def price(size: int, flow: float, topics: int = 0) -> float:
            kept = prices.maintain(size) + prices.associate(topics)
            return kept + flow * (prices.notify + prices.disseminate(size))

        cost = plain = 0.0
        for topic in self.topics:
            wanted = sum(topic == reader.topic for reader in self.readers.values())
            plain += price(wanted, flow[topic])
            cost += price(hosts[f"topic/{topic}"].topics[f"topic/{topic}"].size, flow[topic])
        for host in hosts.values():
            for machine in host.clusters.values():
                if not machine.finished:
                    # A cluster may learn with its next change only that a topic was removed.
                    carried = [flow.get(topic, 0.0) for topic in machine.state.topics]
                    cost += price(machine.size, sum(carried), len(carried))
        return cost, plain

    def check_cost(self) -> None:
        """Our policy raises no costs, except for the moments in which subscribers move."""
        assert not (found := self.find_cost_above()), found

    def find_cost_above(self) -> str:
        """By how much clusters cost more than their topics alone would, if they do.

        A cluster may stay while to end it would cost more than that saves in `horizon` intervals:
        each member would leave it and join the topics that it needs, with two messages each.
        """
        if found := self.find_misplaced():
            return found
        cost, plain = self.measure_cost()
        clusters = [
            machine
            for found in self.network.hosts().values()
            for machine in found[0].clusters.values()
        ]
        moves = sum(2 * each.size * (1 + len(each.state.topics)) for each in clusters)
        most = plain + moves / self.network.policy.horizon
        if self.policy != "ours" or cost <= most * (1 + 1e-9):
            return ""
        return f"clusters cost {cost}, their topics alone {plain}"

    def check_hosts(self) -> None:
        """In the end each channel has one host, at the peer nearest to its key."""
        assert not (found := self.find_misplaced()), found

    def find_misplaced(self) -> str:
        """What is wrong with the first channel whose place is wrong."""
        for channel, hosts in self.network.hosts().items():
            owner = self.network.owner(channel)
            if len(hosts) != 1:
                return f"{len(hosts)} peers host {channel}"
            if channel not in self.network.peers[owner].hosting.hosts():
                return f"{channel} is not where it belongs, at {owner}"
        hosted = self.network.hosts()
        missing = [name for name in self.topics if f"topic/{name}" not in hosted]
        return f"nobody hosts {missing}" if missing else ""


def run_schedule(
    seed: int,
    *,
    steps: int = STEPS,
    partitions: bool = True,
    encodes: bool = False,
    **draws: Any,
) -> Schedule:
    """One schedule; an error says how to run it again."""
    schedule = Schedule(seed, steps=steps, partitions=partitions, encodes=encodes, **draws)
    try:
        schedule.run()
        schedule.check()
    except Exception as error:
        again = f"run_schedule({seed}, steps={steps}, partitions={partitions}, **{draws})"
        raise AssertionError(f"{error!r}; again: {again}") from error
    return schedule
