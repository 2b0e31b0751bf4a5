"""Puts the events of wanted topics in order: each event once, and no gap without a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distributary.machines.actions import Action, Deliver, Send, SetTimer
from distributary.topics.attendance import Wanted
from distributary.topics.codec import Expired, Resume, mark_of
from distributary.topics.errors import EventsForgottenError, EventsLostError
from distributary.topics.messages import Event, Repair
from distributary.topics.names import topic_channel
from distributary.topics.policy import Policy

__all__ = ["EventSequencer"]

_ONE_ANSWER = 200  # events at most that a topic's channel sends for one request


class EventSequencer:
    """The part of a subscriber's `Machine` that puts events in order.

    It drops duplicates and requests missing events from a topic's own channel until the gap is
    closed. Events that the channel no longer has are delivered as one `EventsLostError` in their
    place.
    """

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.policy = policy
        self.wanted: dict[str, Wanted] = {}
        self._asked: dict[str, tuple[int, float]] = {}  # per gap: first missing number, time asked

    def find_epoch(self, topic: str, mark: int) -> int | None:
        """The epoch of a wanted topic that has this mark, of those that are known."""
        wanted = self.wanted.get(topic)
        if wanted is None:
            return None
        known = (wanted.epoch, wanted.past, wanted.heard_of)
        return next((epoch for epoch in known if mark_of(epoch) == mark), None)

    def take_next(self, event: Event) -> bool | None:
        """The fast path: whether to deliver the event; None if it needs `on_message`.

        It handles an event that is the next of its topic with none waiting behind it, a duplicate,
        and an event of a topic that is not wanted.
        """
        wanted = self.wanted.get(event.topic)
        if wanted is None or wanted.expected is None:
            return False  # not wanted
        if event.epoch != wanted.epoch:
            return None
        if event.number < wanted.expected:
            return False
        if event.number > wanted.expected or wanted.early:
            return None
        wanted.expected += 1
        return True

    def _on_event(self, event: Event, now: float) -> list[Action]:
        wanted = self.wanted.get(event.topic)
        if wanted is None or wanted.expected is None:
            return []  # not wanted
        if event.epoch > wanted.epoch:  # first learn the first number of the new epoch
            newer = event.epoch > wanted.heard_of
            wanted.heard_of = max(wanted.heard_of, event.epoch)
            return self._chase(event.topic, now, at_once=newer)
        if event.number < wanted.expected or wanted.is_past(event):
            return []
        if event.number > wanted.expected:
            first = not wanted.early
            wanted.early[event.number] = event
            return self._chase(event.topic, now, at_once=first)
        wanted.expected += 1
        actions: list[Action] = [Deliver(self.name, event, now)]
        actions += [Deliver(self.name, early, now) for early in wanted.pop_early()]
        return [*actions, *self._chase(event.topic, now)]

    def _request_repair(self, topic: str, wanted: Wanted) -> Action:
        assert wanted.expected is not None
        return Send(topic_channel(topic), Repair(wanted.expected, wanted.epoch))

    def _request_repairs(self, topics: Iterable[str]) -> list[Action]:
        """Request the latest events of topics, in case they were missed."""
        found = ((topic, self.wanted.get(topic)) for topic in topics)
        known = ((t, wanted) for t, wanted in found if wanted and wanted.expected is not None)
        return [self._request_repair(topic, wanted) for topic, wanted in known]

    def _chase(self, topic: str, now: float, *, at_once: bool = False) -> list[Action]:
        """Request missing events: at once, after a complete answer, or after a time-out."""
        wanted = self.wanted.get(topic)
        if wanted is None or wanted.expected is None or not wanted.is_behind:
            self._asked.pop(topic, None)
            return []
        first, at = self._asked.get(topic, (wanted.expected, now))
        answered = wanted.expected >= first + _ONE_ANSWER
        if not (at_once or answered or now >= at + self.policy.retry):
            return []
        idle = not self._asked
        self._asked[topic] = (wanted.expected, now)
        timer = [SetTimer("chase", now + self.policy.retry)] if idle else []
        return [self._request_repair(topic, wanted), *timer]

    def _chase_all(self, now: float) -> list[Action]:
        actions = [action for topic in [*self._asked] for action in self._chase(topic, now)]
        timer = [SetTimer("chase", now + self.policy.retry)] if self._asked else []
        return [*actions, *timer]

    def _resume(self, message: Resume, now: float) -> list[Action]:
        """Continue in another epoch; report the events we have and the service has lost."""
        topic, epoch, number = message.topic, message.epoch, message.number
        wanted = self.wanted.get(topic)
        if wanted is None or wanted.expected is None or epoch == wanted.epoch:
            return []
        if message.after not in (None, wanted.epoch):
            return []  # the answer to a request of before the last `Resume`
        wanted.past, wanted.since, wanted.epoch = wanted.epoch, number, epoch
        early = wanted.early.items()
        wanted.early = {n: event for n, event in early if not wanted.is_past(event)}
        if number >= wanted.expected:
            return []
        last, wanted.expected = wanted.expected - 1, number
        return [Deliver(self.name, EventsForgottenError(topic, number, last), now)]

    def _skip(self, message: Expired, now: float) -> list[Action]:
        """Continue at the oldest event that the channel still has."""
        return [Deliver(self.name, found, now) for found in self._pass_to(message)]

    def _pass_to(self, message: Expired) -> Iterator[Event | EventsLostError]:
        wanted = self.wanted.get(message.topic)
        if wanted is None or wanted.expected is None:
            return
        yield from wanted.pop_early()
        while wanted.expected < message.oldest:
            first = wanted.expected
            wanted.expected = min([message.oldest, *wanted.early])
            yield EventsLostError(message.topic, first, wanted.expected - 1)
            yield from wanted.pop_early()
