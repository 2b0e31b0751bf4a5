"""Packs what a service sends after one batch of messages: few messages, and nothing twice."""

from __future__ import annotations

from collections.abc import Iterator

from distributary.machines.actions import Send
from distributary.topics.codec import AROUND, Taken, encode
from distributary.topics.messages import Event
from distributary.topics.names import is_cluster, members_of
from distributary.topics.nats.packets import encode_events, encode_taken, split_pieces
from distributary.topics.nats.subjects import Subjects

__all__ = ["Packer"]

_MEMBERS = members_of("")


class Packer:
    """Joins consecutive events of a topic to the members of a channel, and confirmations.

    Messages keep their order, except that confirmations come last, and only the last one of each
    stream. A packet of events has at most `most_payload` bytes; longer messages go in pieces.
    """

    def __init__(self, subjects: Subjects, most_payload: int) -> None:
        self._subjects = subjects
        self._most = most_payload
        self._ready: list[tuple[str, bytes]] = []
        self._events: dict[str, list[Event]] = {}  # by subject
        self._room: dict[str, int] = {}  # bytes that each of these may still grow by
        self._taken: dict[str, dict[int, Taken]] = {}  # by client and stream

    def add(self, send: Send) -> None:
        """Take over a message."""
        to, channel, message = send.to, send.message.channel, send.message.message
        if isinstance(message, Taken):
            self._taken.setdefault(to, {})[message.stream] = message
        elif isinstance(message, Event) and to.startswith(_MEMBERS):
            self._add_event(to.removeprefix(_MEMBERS), message)
        else:
            self._flush()
            sender = "" if isinstance(message, Event) else channel
            self._add_message(self._subjects.client(to), encode(sender, message))

    def finish(self) -> Iterator[tuple[str, bytes]]:
        """Yield subjects and messages."""
        self._flush()
        yield from self._ready
        for client, found in self._taken.items():
            yield self._subjects.client(client), encode_taken(found.values())

    def _add_message(self, subject: str, data: bytes) -> None:
        self._ready += [(subject, piece) for piece in split_pieces(data, self._most)]

    def _add_event(self, channel: str, event: Event) -> None:
        subject = self._subjects.on(channel, event.topic if is_cluster(channel) else None)
        size = len(event.payload) + 10
        waiting = self._events.get(subject)
        if waiting:
            last = waiting[-1]
            follows = (event.number, event.epoch) == (last.number + 1, last.epoch)
            if follows and size <= self._room[subject]:
                waiting.append(event)
                self._room[subject] -= size
                return
            self._ready.append((subject, encode_events(self._events.pop(subject))))
        self._events[subject] = [event]
        self._room[subject] = self._most - AROUND - size

    def _flush(self) -> None:
        self._ready += [(subject, encode_events(each)) for subject, each in self._events.items()]
        self._events.clear()
