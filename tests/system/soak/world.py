"""What applications of the soak do: which flows there are, how often, and who comes to want what.

Flows belong to topics, and each topic has flows of all publishers. A receiver follows a few topics
and a few flows besides, and all the time comes to want some and to leave others: a plan that was
good a while ago is not good any more.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["Appetite", "Shift", "World"]

_SLOWEST, _FASTEST = 0.5, 10.0  # messages per second
_MOST_TOPICS = 2  # that a receiver follows
_NEW_TOPIC = 0.15  # of the shifts replace a topic that is followed
_STRAY = 0.15  # of the flows that come to be wanted are of any topic
_SHARE = 0.7  # of the flows of a topic are wanted by who follows it
_PAUSE = 0.4, 2.0  # seconds between two shifts of a receiver


@dataclass(frozen=True, slots=True)
class World:
    """The flows of a soak, by its seed."""

    seed: int
    publishers: int = 3
    receivers: int = 12
    topics: int = 6
    flows_per_topic: int = 6

    @property
    def flows(self) -> list[str]:
        """All flows."""
        return [flow for topic in range(self.topics) for flow in self.flows_of(topic)]

    def flows_of(self, topic: int) -> list[str]:
        """The flows of a topic."""
        return [f"t{topic}.{at}" for at in range(self.flows_per_topic)]

    def publisher_of(self, flow: str) -> str:
        """Who publishes a flow."""
        return f"p{int(flow.partition('.')[2]) % self.publishers}"

    def published_by(self, publisher: str) -> list[str]:
        """The flows of a publisher."""
        return [flow for flow in self.flows if self.publisher_of(flow) == publisher]

    def rate_of(self, flow: str) -> float:
        """Messages per second, always the same: some flows have many times those of others."""
        drawn = random.Random(f"{self.seed} {flow}").random()
        return _SLOWEST * (_FASTEST / _SLOWEST) ** (drawn * drawn)

    @property
    def publisher_names(self) -> list[str]:
        """The publishers."""
        return [f"p{at}" for at in range(self.publishers)]

    @property
    def receiver_names(self) -> list[str]:
        """The receivers."""
        return [f"r{at}" for at in range(self.receivers)]


@dataclass(frozen=True, slots=True)
class Shift:
    """What a receiver comes to want, and does not want any more."""

    gained: tuple[str, ...]
    lost: tuple[str, ...]


class Appetite:
    """What one run of a receiver wants: at first, and from shift to shift."""

    def __init__(self, world: World, receiver: str, run: int) -> None:
        self._world = world
        self._rng = random.Random(f"{world.seed} {receiver} {run}")
        self._topics = self._rng.sample(range(world.topics), _MOST_TOPICS)
        self.wanted = {
            flow
            for topic in self._topics
            for flow in world.flows_of(topic)
            if self._rng.random() < _SHARE
        } or {self._rng.choice(world.flows)}

    def pause(self) -> float:
        """Seconds until the next shift."""
        return self._rng.uniform(*_PAUSE)

    def shift(self) -> Shift:
        """Want other flows."""
        before = set(self.wanted)
        if self._rng.random() < _NEW_TOPIC:
            self._change_topic()
        else:
            self._change_flow()
        gained, lost = self.wanted - before, before - self.wanted
        return Shift(tuple(sorted(gained)), tuple(sorted(lost)))

    def _change_topic(self) -> None:
        others = [topic for topic in range(self._world.topics) if topic not in self._topics]
        left = self._topics.pop(0)
        self._topics.append(self._rng.choice(others))
        self.wanted -= set(self._world.flows_of(left))
        new = self._world.flows_of(self._topics[-1])
        self.wanted |= {flow for flow in new if self._rng.random() < _SHARE} or {new[0]}

    def _change_flow(self) -> None:
        if len(self.wanted) > 2:
            self.wanted.discard(self._rng.choice(sorted(self.wanted)))
        stray = self._rng.random() < _STRAY
        topic = self._rng.choice(range(self._world.topics) if stray else self._topics)
        self.wanted.add(self._rng.choice(self._world.flows_of(topic)))
