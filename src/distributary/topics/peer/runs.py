"""Consecutive events in one message: of a publisher to a topic, and of a topic to its readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from distributary.topics.codec import EventRun, Put, Puts
from distributary.topics.host import ChannelMessage
from distributary.topics.messages import Event

__all__ = ["join_events", "join_puts", "split_run"]

_MOST_BYTES = 1 << 16  # of payloads in one message, unless a single one has more
_MOST_EVENTS = 1_000

T = TypeVar("T", Put, Event)


@dataclass(slots=True)
class _Run(Generic[T]):
    """Events whose numbers follow each other."""

    events: list[T]
    size: int

    def extend(self, event: T) -> bool:
        """Add the next event; returns whether it is that, and there is room."""
        size = self.size + len(event.payload)
        follows = event.number == self.events[-1].number + 1
        if not follows or size > _MOST_BYTES or len(self.events) >= _MOST_EVENTS:
            return False
        self.events.append(event)
        self.size = size
        return True


def join_puts(messages: Iterable[Any]) -> list[Any]:
    """Put the consecutive events of each stream into one message; nothing else is overtaken."""
    found: list[tuple[str, _Run[Put]] | Any] = []
    runs: dict[tuple[str, int], _Run[Put]] = {}
    for message in messages:
        match message:
            case ChannelMessage(channel, Put() as put):
                run = runs.get((channel, put.stream))
                if run is None or not run.extend(put):
                    run = runs[channel, put.stream] = _Run([put], len(put.payload))
                    found.append((channel, run))
            case _:
                runs.clear()
                found.append(message)
    return [_join_run(*each) if isinstance(each, tuple) else each for each in found]


def _join_run(channel: str, run: _Run[Put]) -> ChannelMessage:
    first = run.events[0]
    if len(run.events) == 1:
        return ChannelMessage(channel, first)
    payloads = tuple(put.payload for put in run.events)
    return ChannelMessage(channel, Puts(first.stream, first.number, payloads))


def join_events(messages: Iterable[Any]) -> list[Any]:
    """Put the consecutive events of each topic into one message; nothing else is overtaken."""
    found: list[_Run[Event] | Any] = []
    runs: dict[tuple[str, int], _Run[Event]] = {}
    for message in messages:
        if isinstance(message, Event):
            run = runs.get((message.topic, message.epoch))
            if run is None or not run.extend(message):
                run = runs[message.topic, message.epoch] = _Run([message], len(message.payload))
                found.append(run)
        else:
            runs.clear()
            found.append(message)
    return [_join_events(each.events) if isinstance(each, _Run) else each for each in found]


def _join_events(events: list[Event]) -> Event | EventRun:
    first = events[0]
    if len(events) == 1:
        return first
    payloads = tuple(event.payload for event in events)
    return EventRun(first.topic, first.number, payloads, first.epoch)


def split_run(message: Any) -> Iterator[Any]:
    """The events of a run; any other message is itself."""
    if not isinstance(message, EventRun):
        yield message
        return
    run = message
    for number, payload in enumerate(run.payloads, run.first):
        yield Event(run.topic, number, payload, run.epoch)
