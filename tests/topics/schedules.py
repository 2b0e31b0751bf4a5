"""Whole systems of topics, clusters and subscribers under loss, delay and restarts, by seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from distributary.machines.virtual import Link
from distributary.planning.topics import Planner
from distributary.topics import OURS, TAMARA, Policy, is_cluster, topic_channel
from distributary.topics.channel import Lock
from distributary.topics.codec import SERVICE
from distributary.topics.messages import (
    Accept,
    Advise,
    CarriageChange,
    Carried,
    Event,
    Found,
    Invite,
    TopicFlow,
)
from distributary.topics.simulation import TopicSystem
from tests.topics.inspection import build_clustering

QUICK: dict[str, Any] = {
    "interval": 2.0,
    "survey_every": 12.0,
    "answer_within": 1.0,
    "lock_for": 6.0,
    "refresh": 3.0,
    "horizon": 50.0,
    "remember": 1.0,  # messages are late by half a second at most
}
POLICIES: dict[str, Policy] = {
    "tamara": replace(TAMARA, **QUICK),
    "ours": replace(OURS, **QUICK),
    "hasty": replace(  # many merges at once
        TAMARA, **(QUICK | {"survey_every": 1.5, "answer_within": 0.5, "lock_for": 4.0})
    ),
    "told": replace(OURS, **(QUICK | {"survey_every": float("inf")})),
}
PLANNER = Planner(subscriber_groups=(1, 3), topic_groups=(2,), passes=3, horizon=50.0)
BUSY, END = 60.0, 110.0
CHEAP = 40.0  # until the changes in progress are made, and the next ones that pay


@dataclass
class Watch:
    """Checks a system after every step that its clock takes."""

    system: TopicSystem
    covered: dict[str, set[str]] = field(default_factory=dict)  # topics, by subscriber
    merged: set[tuple[str, int]] = field(default_factory=set)  # who proposed, and its number
    clusters: int = 0
    invited: int = 0
    misled: bool = False  # clusters cost too much, because reports of their members were lost

    def hear(self, sender: str, to: str, message: Any) -> None:
        """A merge is made by what is sent for it; both channels must be locked for it then."""
        self.invited += isinstance(message, Invite)
        lock = self.lock(sender)
        match message:
            case Found() if lock is not None:
                self.merge(sender, lock.number, lock.partner)
            case Accept(number) if is_cluster(sender) and not is_cluster(to):
                self.merge(to, number, sender)
            case CarriageChange(successor=str(successor)) if lock == Lock(
                successor, lock_number(lock)
            ):
                self.merge(sender, lock_number(lock), successor, again=True)

    def merge(self, proposer: str, number: int, other: str, *, again: bool = False) -> None:
        assert again or (proposer, number) not in self.merged, f"{proposer} merged twice"
        if (proposer, number) in self.merged:
            return  # members are told one by one
        self.merged.add((proposer, number))
        if proposer not in self.crashed and other not in self.crashed:  # a crash loses locks
            assert self.lock(proposer) == Lock(other, number), f"{proposer} is in another merge"
            assert self.lock(other) == Lock(proposer, number), f"{other} is in another merge"

    def lock(self, channel: str) -> Lock | None:
        machine = self.system.machine(channel)
        return machine.lock if machine is not None else None

    @property
    def crashed(self) -> set[str]:
        return self.system.crashed

    def check(self) -> None:
        """Whoever has had a topic is sent what is published now."""
        system = self.system
        clusters = system.clusters()
        members: dict[str, Collection[str]] = {}
        for topic in system.flows:
            state = system.topic(topic).state
            known = [clusters[name].state for name in state.clusters if name in clusters]
            reached = [
                each.members for each in known if topic in each.topics or topic in each.dropping
            ]
            members[topic] = {*state.members}.union(*reached) if reached else state.members
        before, self.covered = self.covered, {}
        for name, machine in system.subscribers.items():
            had = before.get(name, ())
            covered = {t for t in machine.wanted if t in had or machine.is_covered(t)}
            lost = [topic for topic in covered if name not in members[topic]]
            assert not lost, f"{name} has lost {lost}"
            self.covered[name] = covered
        self.clusters = max(self.clusters, len(clusters))


def lock_number(lock: Lock | None) -> int:
    return lock.number if lock is not None else -1


def run_schedule(
    seed: int, policy: str, *, loss: float | None = None, crashes: bool = True
) -> Watch:
    """Play one seeded schedule; raises an AssertionError that says how to play it again."""
    try:
        return _run(seed, policy, loss, crashes)
    except Exception as error:
        again = f"run_schedule({seed}, {policy!r}, loss={loss}, crashes={crashes})"
        raise AssertionError(f"{error!r}; again: {again}") from error


def _run(seed: int, policy: str, loss: float | None, crashes: bool) -> Watch:
    rng = np.random.default_rng(seed)
    topics = [f"t{at}" for at in range(int(rng.integers(3, 8)))]
    flows = {topic: float(rng.uniform(0.01, 0.4)) for topic in topics}
    lossy = float(rng.choice([0.0, 0.1, 0.3])) if loss is None else loss
    link = Link(0.02, float(rng.choice([0.0, 0.4])), loss=lossy, reorders=bool(rng.random() < 0.5))
    system = TopicSystem(POLICIES[policy], flows, seed=seed, link=link)
    published = _disturb(system, topics, rng, crashes)
    watch = Watch(system)
    system.listeners.append(watch.hear)
    while system.clock.now < END:
        before = system.clock.now
        system.simulation.run(max_events=1, until=END)
        if system.clock.now != before or rng.random() < 0.2:
            watch.check()
        if rng.random() < 0.001:
            system.sweep()
    while find_cost_above(system) and system.clock.now < END + CHEAP:
        _remind(system)
        system.run(system.clock.now + 5.0)
    watch.check()
    _check_end(system, watch, published)
    above = find_cost_above(system)
    watch.misled = bool(above) and has_lost_reports(system)
    assert watch.misled or not above, above
    return watch


def _disturb(
    system: TopicSystem, topics: list[str], rng: np.random.Generator, crashes: bool
) -> dict[str, int]:
    """Interests that come and go, events, restarts and advice, up to a time."""
    for number in range(int(rng.integers(2, 12))):
        for topic in topics:
            if rng.random() < 0.7:
                time = float(rng.uniform(0, BUSY))
                system.want(time, f"s{number}", topic)
                if rng.random() < 0.3:
                    system.unwant(float(rng.uniform(time, BUSY)), f"s{number}", topic)
    published = dict.fromkeys(topics, 0)
    for topic in topics:
        for time in np.sort(rng.uniform(0, BUSY, size=int(rng.integers(0, 25)))):
            system.publish(float(time), topic)
            published[topic] += 1
    for _ in range(int(rng.integers(0, 6)) if crashes else 0):
        channel = topic_channel(topics[int(rng.integers(len(topics)))])
        system.crash(float(rng.uniform(0, BUSY)), channel, float(rng.uniform(0.1, 4)))
    for time in rng.uniform(0, BUSY, size=4 if crashes else 0):
        system.clock.at(float(time), lambda: _crash_a_cluster(system, rng))
    for time in rng.uniform(0, BUSY, size=2):
        system.plan(float(time), 10_000, PLANNER)
    for time in rng.uniform(0, BUSY, size=3):
        invited = tuple(f"s{at}" for at in range(12) if rng.random() < 0.4)
        advice = Advise(
            tuple(TopicFlow(t, system.flows[t]) for t in topics if rng.random() < 0.6),
            invited=invited if rng.random() < 0.5 else (),
        )
        channel = topic_channel(topics[int(rng.integers(len(topics)))])
        if len(advice.topics) > 1:
            system.advise(float(time), channel, advice)
    for time in rng.uniform(0, BUSY, size=5):
        system.clock.at(float(time), lambda: _advise_a_cluster(system, rng))
    return published


def _crash_a_cluster(system: TopicSystem, rng: np.random.Generator) -> None:
    name = _any_cluster(system, rng)
    if name is not None:
        system.crash(system.clock.now, name, float(rng.uniform(0.1, 4)))


def _advise_a_cluster(system: TopicSystem, rng: np.random.Generator) -> None:
    """To look at itself, or to merge with another."""
    name = _any_cluster(system, rng)
    if name is not None:
        advice = Advise(partner=_any_cluster(system, rng) if rng.random() < 0.3 else None)
        system.advise(system.clock.now, name, advice)


def _remind(system: TopicSystem) -> None:
    """Tell clusters the rates of their topics and to look at themselves, as an `Adviser` does."""
    for name, cluster in system.clusters().items() if system.policy.tells else ():
        node, now = system.node_of(name), system.clock.now
        if node in system.down or not cluster.state.members or not cluster.state.topics:
            continue
        said: list[tuple[str, str, Any]] = []
        for topic, held in cluster.state.topics.items():
            known, channel = system.topic(topic), topic_channel(topic)
            flow = system.hosts[system.node_of(channel)].flow(channel, now)
            about = Carried(held.told, flow, known.size, known.toll(), held.others)
            said.append((channel, name, about))
        told = partial(system.hosts[node].tell_all, [*said, (SERVICE, name, Advise())])
        system.simulation.call(node, told)


def _any_cluster(system: TopicSystem, rng: np.random.Generator) -> str | None:
    names = sorted(system.clusters())
    return names[int(rng.integers(len(names)))] if names else None


def measure_cost(system: TopicSystem) -> tuple[float, float]:
    """The cost of all channels by the policy's prices, and without clusters, counted anew."""
    prices, now = system.policy.prices, system.clock.now
    flow = {
        topic: system.hosts[system.node_of(channel)].flow(channel, now)
        for topic, channel in zip(system.flows, map(topic_channel, system.flows), strict=True)
    }

    def price(size: int, flow: float, topics: int = 0) -> float:
        kept = prices.maintain(size) + prices.associate(topics)
        return kept + flow * (prices.notify + prices.disseminate(size))

    wanted = Counter(topic for each in system.subscribers.values() for topic in each.wanted)
    plain = sum(price(wanted[topic], flow[topic]) for topic in system.flows)
    cost = sum(price(system.topic(topic).size, flow[topic]) for topic in system.flows)
    for cluster in system.clusters().values():
        carried = [flow[topic] for topic in cluster.state.topics]
        cost += price(cluster.size, sum(carried), len(carried))
    return cost, plain


def find_cost_above(system: TopicSystem) -> str:
    """By how much clusters cost more than their topics alone would, under a policy of ours.

    A cluster may stay while to end it would cost more than that saves in `horizon` intervals:
    each member would leave it and join the topics that it needs, with two messages each.
    """
    if system.policy.obeys:
        return ""
    cost, plain = measure_cost(system)
    clusters = system.clusters().values()
    moves = sum(2 * each.size * (1 + len(each.state.topics)) for each in clusters)
    if cost <= (plain + moves / system.policy.horizon) * (1 + 1e-9):
        return ""
    return f"clusters cost {cost}, their topics alone {plain}"


def has_lost_reports(system: TopicSystem) -> bool:
    """Whether a cluster of members that report changes knows other needs than they have.

    A report is said once: if it is lost, by the link or in a crash, the cluster is wrong until the
    member has the next one.
    """
    return system.policy.tells and any(
        member.views is not None
        and {*member.views.needs} != {*system.subscribers[name].needs(channel)}
        for channel, cluster in system.clusters().items()
        for name, member in cluster.state.members.items()
    )


def _check_end(system: TopicSystem, watch: Watch, published: dict[str, int]) -> None:
    """In the end everybody has what they want, each event once, in order, none left out."""
    for name, machine in system.subscribers.items():
        for topic, wanted in machine.wanted.items():
            held = machine.is_covered(topic) or topic in watch.covered[name]  # on the move
            assert held, f"{name} still waits for {topic}"
            assert wanted.expected == published[topic] + 1, f"{name} lacks events of {topic}"
    last: dict[tuple[str, str], int] = {}
    for _, _, name, _, event in system.simulation.record.delivered:
        assert isinstance(event, Event)
        key = name, event.topic
        assert event.number > last.get(key, 0), f"{name} got {event} after {last[key]}"
        last[key] = event.number
    build_clustering(system).check()
