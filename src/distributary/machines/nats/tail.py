"""Follow a stream of JetStream as it grows, or a bucket as its keys change, across reconnections.

A consumer ends with the server that has it in memory, and what is sent while a connection breaks is
lost. So each message is checked against the consumer's own numbers, and the consumer sends
heartbeats. In any doubt, and after each reconnection, another consumer begins: with the message
after the last one, or in a bucket with the latest value of each key, of which only the differences
are reported.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from distributary.machines.nats.jetstream import AWAY

__all__ = [
    "KeyChange",
    "KeyChanges",
    "StoredMessage",
    "StoredMessages",
    "follow_stream",
    "watch_keys",
]

_HEARTBEAT = 1.0  # seconds
_LOST_AFTER = 3.0  # seconds without a message or a heartbeat
_LOOK_EVERY = 0.25  # seconds between two looks whether the connection was lost
_PAUSE = 0.25  # seconds before another attempt
_INACTIVE = 30.0  # seconds after which the server forgets a consumer of ours
_ATTEMPT = 2.0  # seconds for an answer of the server
_MOST = 20_000  # messages that wait to be read; then a later consumer delivers them again
_FIELDS, _FIRST_FIELD = 9, 4  # of the reply's subject
_DELETIONS, _MARKER = ("DEL", "PURGE"), "Nats-Marker-Reason"
_NOT_THERE_YET: Final = (*AWAY, nats.js.errors.NotFoundError, nats.errors.ConnectionClosedError)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a stream; `deletes` if it marks the key of a bucket as deleted."""

    subject: str
    data: bytes
    sequence: int
    deletes: bool


@dataclass(frozen=True, slots=True)
class StoredMessages:
    """Messages in the order of the stream; `caught_up` if nothing more was stored by then."""

    messages: list[StoredMessage]
    caught_up: bool


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key has a new value, or None if it was deleted."""

    key: str
    value: bytes | None
    revision: int


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """Changed keys; `complete` once all keys of the bucket have been among the changes."""

    changes: list[KeyChange]
    complete: bool


async def follow_stream(
    nc: Client, stream: str, *, since: float | None = None, first: int = 1
) -> AsyncGenerator[StoredMessages, None]:
    """Yield the messages of a stream, each once, without end.

    It begins with the `first` by number, or with those stored `since` a time (seconds since 1970).
    """
    start: dict[str, Any] = {
        "deliver_policy": DeliverPolicy.BY_START_SEQUENCE,
        "opt_start_seq": max(first, 1),
    }
    if since is not None:
        start = {
            "deliver_policy": DeliverPolicy.BY_START_TIME,
            "opt_start_time": datetime.fromtimestamp(since, UTC),
        }
    while True:
        async with aclosing(_consume(nc, stream, **start)) as found:
            async for batch in found:
                if batch.messages:
                    following = batch.messages[-1].sequence + 1
                    start = {
                        "deliver_policy": DeliverPolicy.BY_START_SEQUENCE,
                        "opt_start_seq": following,
                    }
                yield batch
        await asyncio.sleep(_PAUSE)


async def watch_keys(nc: Client, bucket: str, keys: str = ">") -> AsyncGenerator[KeyChanges, None]:
    """Yield the keys of a bucket with their values, then each change of them, without end.

    The first `complete` changes end the list of all keys, which may be empty.
    """
    known: dict[str, int] = {}  # revisions
    prefix = f"$KV.{bucket}."
    while True:
        listed: set[str] | None = set()
        config = {
            "filter_subject": prefix + keys,
            "deliver_policy": DeliverPolicy.LAST_PER_SUBJECT,
        }
        async with aclosing(_consume(nc, f"KV_{bucket}", **config)) as found:
            async for batch in found:
                changes = list(_find_changes(batch.messages, prefix, known))
                if listed is not None:
                    listed.update(m.subject.removeprefix(prefix) for m in batch.messages)
                    if batch.caught_up:
                        gone = [key for key in known if key not in listed]
                        changes += [KeyChange(key, None, known.pop(key)) for key in gone]
                        listed = None
                yield KeyChanges(changes, complete=listed is None)
        await asyncio.sleep(_PAUSE)


def _find_changes(
    messages: list[StoredMessage], prefix: str, known: dict[str, int]
) -> list[KeyChange]:
    """What the messages change of the keys whose revisions are known."""
    changes = []
    for message in messages:
        key = message.subject.removeprefix(prefix)
        if known.get(key) == message.sequence:
            continue
        if message.deletes:
            if known.pop(key, None) is not None:
                changes.append(KeyChange(key, None, message.sequence))
        else:
            known[key] = message.sequence
            changes.append(KeyChange(key, message.data, message.sequence))
    return changes


async def _consume(nc: Client, stream: str, **config: Any) -> AsyncGenerator[StoredMessages, None]:
    """Yield what a new consumer delivers, until there is any doubt about it."""
    inbox = _Inbox(nc)
    try:
        await inbox.open()
        left = await _add_consumer(nc, stream, inbox.subject, config)
        if not left:
            yield StoredMessages([], caught_up=True)
        while (messages := await inbox.read()) is not None:
            if messages:
                yield StoredMessages(messages, caught_up=not inbox.left)
    except _NOT_THERE_YET:
        return
    finally:
        await inbox.close()


async def _add_consumer(nc: Client, stream: str, inbox: str, config: dict[str, Any]) -> int:
    """Let a new consumer deliver to an inbox; returns how many messages it will begin with."""
    js = nc.jetstream(timeout=_ATTEMPT)
    made = ConsumerConfig(
        deliver_subject=inbox,
        ack_policy=AckPolicy.NONE,
        max_deliver=1,
        idle_heartbeat=_HEARTBEAT,
        inactive_threshold=_INACTIVE,
        mem_storage=True,
        num_replicas=1,
        **config,
    )
    found = await js.add_consumer(stream, made)
    return found.num_pending or 0


class _Inbox:
    """What a consumer has delivered, as long as nothing is missing."""

    def __init__(self, nc: Client) -> None:
        self.subject = nc.new_inbox()
        self.left = 0  # messages that the consumer had not delivered yet after the last one
        self._nc = nc
        self._found: deque[Msg] = deque()
        self._arrived = asyncio.Event()
        self._number = 0  # of the last message, by the consumer
        self._is_broken = False
        self._reconnects = nc.stats["reconnects"]
        self._heard_at = time.monotonic()

    async def open(self) -> None:
        self._subscription = await self._nc.subscribe(self.subject, cb=self._hear)

    async def close(self) -> None:
        with suppress(nats.errors.Error, AttributeError):
            await self._subscription.unsubscribe()

    async def _hear(self, message: Msg) -> None:
        if len(self._found) < _MOST:
            self._found.append(message)
        else:
            self._is_broken = True
        self._arrived.set()

    async def read(self) -> list[StoredMessage] | None:
        """Wait a moment for messages; None in doubt."""
        self._arrived.clear()
        if not self._found:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._arrived.wait()
        if self._nc.stats["reconnects"] != self._reconnects or self._nc.is_closed:
            return None
        if self._found:
            self._heard_at = time.monotonic()
        elif time.monotonic() - self._heard_at > _LOST_AFTER:
            return None
        return self._take()

    def _take(self) -> list[StoredMessage] | None:
        """Take what has arrived, up to the first sign that something is missing."""
        taken: list[StoredMessage] = []
        while self._found and not self._is_broken:
            message = self._found.popleft()
            headers = message.headers or {}
            if not message.reply:  # a heartbeat
                last = headers.get("Nats-Last-Consumer", str(self._number))
                self._is_broken = last != str(self._number)
                continue
            _, sequence, number, _, left = _read_numbers(message.reply)
            if number != self._number + 1:
                self._is_broken = True
                continue
            self._number, self.left = number, left
            deletes = headers.get("KV-Operation") in _DELETIONS or _MARKER in headers
            taken.append(StoredMessage(message.subject, message.data, sequence, deletes))
        return None if self._is_broken and not taken else taken


def _read_numbers(reply: str) -> list[int]:
    """Deliveries, the numbers in the stream and of the consumer, the time, and what is left."""
    fields = reply.split(".")
    first = _FIRST_FIELD if len(fields) == _FIELDS else _FIRST_FIELD + 2  # a domain adds two
    return [int(field) for field in fields[first : first + 5]]
