"""What a subscriber does beside its protocol when the network is real: come back, and catch up."""

from __future__ import annotations

from collections.abc import Iterator

from distributary.machines.actions import Action, Message, SetTimer
from distributary.topics import Policy, Subscriber
from distributary.topics.codec import Forgotten
from distributary.topics.errors import EventsForgottenError, EventsLostError
from distributary.topics.messages import Event

__all__ = ["LiveSubscriber"]

_ONE_ANSWER = 200  # events at most that come for one request


class LiveSubscriber(Subscriber):
    """A `Subscriber` that asks on until a gap is closed, and that can have been forgotten."""

    def __init__(self, name: str, policy: Policy) -> None:
        super().__init__(name, policy)
        self.generation = 0  # how often it was found dead
        self._asked: dict[str, tuple[int, float]] = {}  # from which event on, and when

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Take in what is said on a real network, too."""
        if not isinstance(message, Forgotten):
            return super().on_message(sender, message, now)
        if message.generation < self.generation:
            return []  # we know
        self.generation = message.generation + 1
        return self._rejoin(now)

    def _rejoin(self, now: float) -> list[Action]:
        """Come to all channels anew, as all have taken us for dead; then ask what we missed."""
        for name, held in [*self.on.items()]:
            if held.leaving:
                self.on.remove(name)
                continue
            self._version += 1
            held.version, held.joined, held.carry_version = self._version, False, -1
            held.owes, held.tries, held.again_at = None, 0, now
            self.on.touch(name)
        self._owing.clear()
        return [*self._again(now), SetTimer("refresh", now + self.policy.retry)]

    def chase(self, topic: str, now: float) -> list[Action]:
        """Ask again for what is missing, if that is due.

        One request brings so many events only, and may be lost.
        """
        wanted = self.wanted.get(topic)
        if wanted is None or wanted.expected is None or not wanted.is_behind:
            self._asked.pop(topic, None)
            return []
        if topic not in self._asked:
            self._asked[topic] = (wanted.expected, now)  # the protocol itself asks once
            return []
        first, at = self._asked[topic]
        if wanted.expected < first + _ONE_ANSWER and now < at + self.policy.retry:
            return []
        self._asked[topic] = (wanted.expected, now)
        return [self._ask_again(topic, wanted)]

    def resume(self, topic: str, epoch: int, number: int) -> Iterator[EventsForgottenError]:
        """Go on in another epoch of the service: what we have and it has lost."""
        wanted = self.wanted.get(topic)
        if wanted is None or wanted.expected is None or epoch == wanted.epoch:
            return
        wanted.past, wanted.since, wanted.epoch = wanted.epoch, number, epoch
        early = wanted.early.items()
        wanted.early = {n: event for n, event in early if not wanted.is_past(event)}
        if number < wanted.expected:
            last, wanted.expected = wanted.expected - 1, number
            yield EventsForgottenError(topic, number, last)

    def behind(self) -> list[str]:
        """The topics with gaps."""
        return list(self._asked)

    def skip(self, topic: str, oldest: int) -> Iterator[Event | EventsLostError]:
        """Go on at the oldest event that is kept: what came before it, and what never will."""
        wanted = self.wanted.get(topic)
        if wanted is None or wanted.expected is None:
            return
        while wanted.expected < oldest:
            event = wanted.early.pop(wanted.expected, None)
            if event is not None:
                wanted.expected += 1
                yield event
                continue
            first = wanted.expected
            wanted.expected = min([oldest, *wanted.early])
            yield EventsLostError(topic, first, wanted.expected - 1)
        while (event := wanted.early.pop(wanted.expected, None)) is not None:
            wanted.expected += 1
            yield event
