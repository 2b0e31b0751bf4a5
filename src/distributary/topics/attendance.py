"""The topics a subscriber wants and the channels it is on, indexed by name and by topic."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from distributary.topics.messages import Event, TopicFlow
from distributary.topics.names import is_cluster

__all__ = ["Attendance", "AttendanceState", "Attendances", "Wanted"]


_MOST_PAUSES = 4  # a request is repeated after 1, 2, and then every 4 pauses


@dataclass(slots=True, kw_only=True)
class Unconfirmed:
    """A request that is repeated, with back-off, until it is confirmed."""

    tries: int = 0
    again_at: float = 0.0

    def is_due(self, now: float, pause: float) -> bool:
        """Whether to repeat the request now; if so, schedules the next repetition."""
        if now < self.again_at:
            return False
        self.tries += 1
        self.again_at = now + pause * min(2**self.tries, _MOST_PAUSES)
        return True


@dataclass(slots=True)
class Wanted(Unconfirmed):
    """A wanted topic: the number of the next event, and later ones that arrived early.

    All events before it have arrived, as of `epoch`. The service has lost the events from number
    `since` on of epoch `past` and earlier ones, and has assigned their numbers again.
    """

    expected: int | None = None
    early: dict[int, Event] = field(default_factory=dict)
    epoch: int = 0
    past: int = -1
    since: int = 0
    heard_of: int = 0  # the latest epoch that an event has shown
    flow: float = 0.0

    @property
    def is_behind(self) -> bool:
        """Whether events are missing before some that have arrived."""
        return bool(self.early) or self.heard_of > self.epoch

    def pop_early(self) -> Iterator[Event]:
        """Remove and yield the early events that are next in order now."""
        while self.expected is not None and self.expected in self.early:
            self.expected += 1
            yield self.early.pop(self.expected - 1)

    def is_past(self, event: Event) -> bool:
        """Whether the service has lost this event."""
        lost = event.epoch <= self.past and event.number >= self.since
        return lost and event.epoch != self.epoch


class AttendanceState(Enum):
    """How far a subscriber has come in joining or leaving a channel."""

    JOINING = "joining"  # requested, not confirmed
    JOINED = "joined"
    LEAVING = "leaving"  # requested, not confirmed


@dataclass(slots=True)
class Attendance(Unconfirmed):
    """A channel that the subscriber is on, joins or leaves.

    Only `Attendances` changes `topics`.
    """

    version: int
    topics: dict[str, float]  # events per interval of each carried topic
    toll: float
    state: AttendanceState = AttendanceState.JOINING
    parting: bool = False  # to be left as soon as every wanted topic comes from elsewhere
    carry_version: int = -1
    owes: int | None = None  # the version for which the cluster awaits a `Settled`

    @property
    def brings(self) -> bool:
        """Whether the channel sends the subscriber its events."""
        return self.state is AttendanceState.JOINED

    @property
    def stays(self) -> bool:
        """Whether the subscriber is on the channel or joins it, and does not mean to leave."""
        return not self.is_leaving and not self.parting

    @property
    def is_leaving(self) -> bool:
        """Whether the subscriber has asked to leave."""
        return self.state is AttendanceState.LEAVING


@dataclass(slots=True)
class Attendances(Mapping[str, Attendance]):
    """All channels of a subscriber; looking up a topic costs one step per channel with that topic.

    `touched` and `changed` hold the topics and channels that have changed since the last check.
    """

    clusters: dict[str, Attendance] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)  # an ordered set
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

    def is_provided(self, topic: str) -> bool:
        """Whether a topic comes, or will come once a join is confirmed."""
        return any(held.stays for held in self.sources(topic).values())

    def comes_elsewhere(self, topic: str, channel: str) -> bool:
        """Whether a topic comes by another channel that the subscriber means to stay on."""
        return any(
            held.brings and not held.parting and name != channel
            for name, held in self.sources(topic).items()
        )

    def find_needed(self, name: str, wanted: Container[str]) -> tuple[str, ...]:
        """The wanted topics of a channel that no other cluster brings."""
        return tuple(
            topic
            for topic in self._all[name].topics
            if topic in wanted
            and not any(
                held.brings and other != name and is_cluster(other)
                for other, held in self.sources(topic).items()
            )
        )

    def can_leave(self, name: str, wanted: Container[str]) -> bool:
        """Whether a channel should be left and can be left now."""
        held = self._all[name]
        if not held.brings or held.owes is not None:
            return False  # it still brings dropped topics until it gets our `Settled`
        needed = [topic for topic in held.topics if topic in wanted]
        useless = held.parting or not is_cluster(name)
        return not needed or (useless and all(self.comes_elsewhere(t, name) for t in needed))

    def set_parting(self, name: str, parting: bool) -> None:
        """Decide to leave a channel, or to stay."""
        held = self._all[name]
        if held.parting != parting:
            held.parting = parting
            self.touch(name)

    def add(self, name: str, held: Attendance) -> None:
        """Add a channel, or replace its entry."""
        self.remove(name)
        self._all[name] = held
        if is_cluster(name):
            self.clusters[name] = held
        for topic in held.topics:
            self._sources.setdefault(topic, {})[name] = held
        self.touch(name)

    def remove(self, name: str) -> None:
        """Remove a channel."""
        held = self._all.pop(name, None)
        if held is None:
            return
        self.clusters.pop(name, None)
        self.changed.pop(name, None)
        for topic in held.topics:
            self._forget(topic, name)
        self.touched |= dict.fromkeys(held.topics)

    def carry(self, name: str, topics: tuple[TopicFlow, ...]) -> None:
        """Update the topics that a channel carries."""
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
        """Mark a channel and its topics as changed."""
        self.changed[name] = None
        self.touched |= dict.fromkeys(self._all[name].topics)

    def _forget(self, topic: str, name: str) -> None:
        found = self._sources[topic]
        del found[name]
        if not found:
            del self._sources[topic]
