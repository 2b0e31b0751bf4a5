"""Whole systems of topics, clusters and subscribers under loss, delay and restarts, by seed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from distributary.protocol.topics import OURS, TAMARA, Policy, topic_channel
from distributary.protocol.topics.messages import Advise, Event, TopicFlow
from distributary.simulation import Link
from distributary.simulation.topics import TopicSystem

QUICK = {
    "interval": 2.0,
    "survey_every": 12.0,
    "answer_within": 1.0,
    "lock_for": 6.0,
    "refresh": 3.0,
    "horizon": 50.0,
}
POLICIES: dict[str, Policy] = {
    "tamara": replace(TAMARA, **QUICK),
    "ours": replace(OURS, **QUICK),
    "told": replace(OURS, **(QUICK | {"survey_every": float("inf")})),
}
BUSY, END = 60.0, 110.0


@dataclass
class Watch:
    """Checks a system after every step that its clock takes."""

    system: TopicSystem
    covered: set[tuple[str, str]] = field(default_factory=set)
    merges: int = 0
    clusters: int = 0

    def check(self) -> None:
        for name, machine in self.system.subscribers.items():
            for topic in machine.wanted:
                if machine.covered(topic):
                    self.covered.add((name, topic))
        self.covered = {
            (name, topic)
            for name, topic in self.covered
            if topic in self.system.subscribers[name].wanted
        }
        for name, topic in self.covered:
            assert self.system.reaches(topic, name), f"{name} has lost {topic}"
        self.clusters = max(self.clusters, len(self.system.clusters()))


def run_schedule(seed: int, policy: str, *, loss: float | None = None) -> Watch:
    """Play one seeded schedule; raises an AssertionError that says how to play it again."""
    try:
        return _run(seed, policy, loss)
    except Exception as error:
        again = f"run_schedule({seed}, {policy!r}, loss={loss})"
        raise AssertionError(f"{error!r}; again: {again}") from error


def _run(seed: int, policy: str, loss: float | None) -> Watch:
    rng = np.random.default_rng(seed)
    topics = [f"t{at}" for at in range(int(rng.integers(3, 8)))]
    flows = {topic: float(rng.uniform(0.01, 0.4)) for topic in topics}
    lossy = float(rng.choice([0.0, 0.1, 0.3])) if loss is None else loss
    link = Link(0.02, float(rng.choice([0.0, 0.4])), loss=lossy, reorders=bool(rng.random() < 0.5))
    system = TopicSystem(POLICIES[policy], flows, seed=seed, link=link)
    published = _disturb(system, topics, rng)
    watch = Watch(system)
    while system.clock.now < END:
        before = system.clock.now
        system.simulation.run(max_events=1, until=END)
        if system.clock.now != before or rng.random() < 0.2:
            watch.check()
        if rng.random() < 0.001:
            system.sweep()
    _settled(system, watch, published)
    return watch


def _disturb(system: TopicSystem, topics: list[str], rng: np.random.Generator) -> dict[str, int]:
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
    for _ in range(int(rng.integers(0, 6))):
        channel = topic_channel(topics[int(rng.integers(len(topics)))])
        system.crash(float(rng.uniform(0, BUSY)), channel, float(rng.uniform(0.1, 4)))
    for time in rng.uniform(0, BUSY, size=4):
        system.clock.at(float(time), lambda: _crash_a_cluster(system, rng))
    for time in rng.uniform(0, BUSY, size=3):
        advice = Advise(tuple(TopicFlow(t, system.flows[t]) for t in topics if rng.random() < 0.6))
        channel = topic_channel(topics[int(rng.integers(len(topics)))])
        if len(advice.topics) > 1:
            system.simulation.post(float(time), channel, advice, sender="planner")
    return published


def _crash_a_cluster(system: TopicSystem, rng: np.random.Generator) -> None:
    names = sorted(system.clusters())
    if names:
        name = names[int(rng.integers(len(names)))]
        system.crash(system.clock.now, name, float(rng.uniform(0.1, 4)))


def _settled(system: TopicSystem, watch: Watch, published: dict[str, int]) -> None:
    """In the end everybody has what they want, each event once, in order, none left out."""
    for name, machine in system.subscribers.items():
        for topic, wanted in machine.wanted.items():
            held = machine.covered(topic) or (name, topic) in watch.covered  # on the move
            assert held, f"{name} still waits for {topic}"
            assert wanted.expected == published[topic] + 1, f"{name} lacks events of {topic}"
    last: dict[tuple[str, str], int] = {}
    for _, _, name, _, event in system.simulation.record.delivered:
        assert isinstance(event, Event)
        key = name, event.topic
        assert event.number > last.get(key, 0), f"{name} got {event} after {last[key]}"
        last[key] = event.number
    system.clustering().check()
