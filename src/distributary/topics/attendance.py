"""What a subscriber wants, and the channels that it is on, found by name and by topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from distributary.topics.messages import Event, TopicFlow
from distributary.topics.names import is_cluster

__all__ = ["Attendance", "Attendances", "Wanted"]


_MOST_PAUSES = 4  # a word that is not heard is said again after 1, 2 and then always 4 pauses


@dataclass(slots=True, kw_only=True)
class Unheard:
    """Something that is said again until it is heard."""

    tries: int = 0
    again_at: float = 0.0

    def is_due(self, now: float, pause: float) -> bool:
        """Whether to say it once more now; if so, the next time is later."""
        if now < self.again_at:
            return False
        self.tries += 1
        self.again_at = now + pause * min(2**self.tries, _MOST_PAUSES)
        return True


@dataclass(slots=True)
class Wanted(Unheard):
    """A wanted topic: the number of the next event, and later ones that came early.

    We have all before it as of `epoch`. Events of the epoch `past` or before it are no more, from
    the number `since` on: others have their numbers.
    """

    expected: int | None = None
    early: dict[int, Event] = field(default_factory=dict)
    epoch: int = 0
    past: int = -1
    since: int = 0
    heard_of: int = 0  # the latest epoch that we have asked about
    flow: float = 0.0

    @property
    def is_behind(self) -> bool:
        """Whether there are events that we cannot hand over yet."""
        return bool(self.early) or self.heard_of > self.epoch

    def pop_early(self) -> Iterator[Event]:
        """The events that came early and are next now, one after the other."""
        while self.expected is not None and self.expected in self.early:
            self.expected += 1
            yield self.early.pop(self.expected - 1)

    def is_past(self, event: Event) -> bool:
        """Whether an event is one that the service has lost."""
        lost = event.epoch <= self.past and event.number >= self.since
        return lost and event.epoch != self.epoch


@dataclass(slots=True)
class Attendance(Unheard):
    """A channel that the subscriber is on, or on its way to or from.

    `topics` is for `Attendances` to change.
    """

    version: int
    topics: dict[str, float]  # carried, with events per interval
    toll: float
    joined: bool = False  # confirmed
    leaving: bool = False  # said so, not confirmed
    parting: bool = False  # to be left as soon as it is safe
    carry_version: int = -1
    owes: int | None = None  # the cluster waits for our word on this version

    @property
    def brings(self) -> bool:
        """Whether its events come, as far as we know."""
        return self.joined and not self.leaving


@dataclass(slots=True)
class Attendances(Mapping[str, Attendance]):
    """All of them; what concerns one topic costs as much as there are channels with that topic.

    `touched` and `changed` have the topics and the channels for which something has changed since
    they were last looked at.
    """

    clusters: dict[str, Attendance] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)  # a set in order
    changed: dict[str, None] = field(default_factory=dict)
    _all: dict[str, Attendance] = field(default_factory=dict)
    _sources: dict[str, dict[str, Attendance]] = field(default_factory=dict)  # by topic

    def __getitem__(self, name: str) -> Attendance:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def sources(self, topic: str) -> Mapping[str, Attendance]:
        """The channels that carry a topic."""
        return self._sources.get(topic, {})

    def add(self, name: str, held: Attendance) -> None:
        """Be on one more channel, or anew on one."""
        self.remove(name)
        self._all[name] = held
        if is_cluster(name):
            self.clusters[name] = held
        for topic in held.topics:
            self._sources.setdefault(topic, {})[name] = held
        self.touch(name)

    def remove(self, name: str) -> None:
        """Be on a channel no more."""
        held = self._all.pop(name, None)
        if held is None:
            return
        self.clusters.pop(name, None)
        self.changed.pop(name, None)
        for topic in held.topics:
            self._forget(topic, name)
        self.touched |= dict.fromkeys(held.topics)

    def carry(self, name: str, topics: tuple[TopicFlow, ...]) -> None:
        """A channel carries other topics than before."""
        held = self._all[name]
        self.touch(name)
        new = {found.topic: found.flow for found in topics}
        for topic in held.topics.keys() - new.keys():
            self._forget(topic, name)
        for topic in new:
            self._sources.setdefault(topic, {})[name] = held
        held.topics = new
        self.touch(name)

    def touch(self, name: str) -> None:
        """Something about a channel has changed, and so for its topics."""
        self.changed[name] = None
        self.touched |= dict.fromkeys(self._all[name].topics)

    def _forget(self, topic: str, name: str) -> None:
        found = self._sources[topic]
        del found[name]
        if not found:
            del self._sources[topic]
