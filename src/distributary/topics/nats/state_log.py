"""Keeps the state of a host of channels in a JetStream stream, written by one service at a time.

Every message says which sequence number the writer expects to be the last one of the stream. The
server refuses it if another service has written meanwhile. So a service that was suspended, or cut
off from the server, can confirm nothing any more once its successor has written.

A batch of records is one message, or several pieces if it is large; it counts once its last piece
is there, directly after the others and by the same writer. A snapshot begins afresh: what comes
before it is purged.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
import nats.errors
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy, StorageType, StreamConfig, StreamInfo

from distributary.errors import StateError
from distributary.machines.nats.jetstream import AWAY, create_replicated
from distributary.topics.errors import ServiceReplacedError
from distributary.topics.nats.storage_watch import StorageWatch
from distributary.topics.nats.subjects import Subjects
from distributary.topics.policy import Policy
from distributary.topics.records import UNUSABLE, HostState, is_record

__all__ = ["StateLog", "StoppedError"]

T = TypeVar("T")

_LEAST = 1 << 24  # bytes in use that are never worth a shorter log
_GROWTH = 4
_HEADERS = 512  # bytes of a message for all but the piece
_ATTEMPT = 2.0  # seconds for an answer of the server
_PAUSE = 0.1  # seconds before another attempt
_SLICE = 0.02  # seconds of work after which others have their turn
_WRONG_SEQUENCE: Final = 10071
_EXPECTED, _ID = "Nats-Expected-Last-Sequence", "Distributary-Write"


class StoppedError(Exception):
    """The service was told to stop before the state was read, or a batch was surely stored."""


class _Piece(msgspec.Struct, array_like=True, frozen=True):
    """A part of a batch; the `last` one completes it. A `fresh` batch replaces what was before."""

    last: bool
    fresh: bool
    data: bytes


_pieces = msgspec.msgpack.Decoder(_Piece)
_batches = msgspec.msgpack.Decoder(list[bytes])
_encoder = msgspec.msgpack.Encoder()


class StateLog:
    """A host's `state` as the stream tells it, and the end of the stream that the host writes.

    A record is durable once `write` has returned; only then may anything be sent that follows from
    it. Raises `ServiceReplacedError` once another service has written.
    """

    def __init__(
        self,
        js: JetStreamContext,
        subjects: Subjects,
        policy: Policy,
        *,
        most_payload: int,
        stopping: Callable[[], bool],
        watch: StorageWatch,
    ) -> None:
        self.state = HostState()
        self.reports: list[str] = []
        self._js = js
        self._subjects = subjects
        self._stream = subjects.stream("state")
        self._policy = policy
        self._room = most_payload - _HEADERS
        self._stopping = stopping
        self._watch = watch
        self._writer = secrets.token_hex(8)
        self._writes = itertools.count()
        self._last = 0  # sequence number
        self._size = self._base = 0  # bytes

    async def open(self) -> bool:
        """Create the stream if there is none, or replay it; returns whether it was empty.

        Raises one of `AWAY` if the server leaves meanwhile.
        """
        config = StreamConfig(
            name=self._stream,
            subjects=[self._subjects.state],
            description="The state of a topic service of distributary.",
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
        )
        try:
            return await self._open(config)
        except AWAY:
            raise
        except nats.js.errors.APIError as error:
            raise self._fault(error) from error

    async def _open(self, config: StreamConfig) -> bool:
        info = await self._find_or_create(config)
        self._last = info.state.last_seq
        self._size = self._base = info.state.bytes
        if info.state.messages:
            await self._replay()
        if not self.state.identity:
            self.state.identity = secrets.token_hex(8)
            await self.shorten()
        return not info.state.messages

    async def write(self, records: Iterable[bytes]) -> None:
        """Make the host's records durable, all that it has returned so far."""
        await self._append([*records], fresh=False)
        if self._size > max(_LEAST, _GROWTH * self._base):
            await self.shorten()

    async def shorten(self, state: HostState | None = None) -> None:
        """Let a snapshot of the state take the place of the stream."""
        self.state = state or self.state
        first = self._last + 1
        self._size = 0
        await self._append([record async for record in _slice(self.state.snapshot())], fresh=True)
        self._base = self._size
        with suppress(*AWAY):  # then the next one does it
            await self._js.purge_stream(self._stream, seq=first)

    @property
    def place(self) -> str:
        """Where the state is, in words."""
        return f"JetStream ({self._stream})"

    async def _find_or_create(self, config: StreamConfig) -> StreamInfo:
        try:
            return await self._js.stream_info(self._stream)
        except nats.js.errors.NotFoundError:
            return await create_replicated(self._js.add_stream, config)

    # --- writing -------------------------------------------------------------------------------

    async def _append(self, records: list[bytes], *, fresh: bool) -> None:
        body = _encoder.encode(records)
        for at in range(0, len(body), self._room):
            last = at + self._room >= len(body)
            piece = _encoder.encode(_Piece(last, fresh, body[at : at + self._room]))
            await self._publish(piece)

    async def _publish(self, piece: bytes) -> None:
        """Store one message, again and again while the server is away."""
        name = f"{self._writer}/{next(self._writes)}"
        headers = {_EXPECTED: str(self._last), _ID: name}
        while True:
            try:
                await self._js.publish(
                    self._subjects.state, piece, timeout=_ATTEMPT, headers=headers
                )
                break
            except nats.js.errors.APIError as error:
                if error.err_code == _WRONG_SEQUENCE:
                    if await self._wrote(name):
                        break  # an earlier attempt, whose answer was lost
                    raise ServiceReplacedError(self._subjects.prefix) from error
                if not isinstance(error, AWAY):
                    raise self._fault(error) from error
                self._watch.note_failed("state", error)
            except AWAY as error:
                self._watch.note_failed("state", error)
            if self._stopping():
                raise StoppedError
            await asyncio.sleep(_PAUSE)
        self._watch.note_stored("state")
        self._last += 1
        self._size += len(piece)

    async def _wrote(self, name: str) -> bool:
        """Whether the message after the last known one is ours, under this name."""
        while True:
            try:
                found = await self._js.get_msg(self._stream, seq=self._last + 1)
            except nats.js.errors.NotFoundError:
                return False
            except AWAY:
                if self._stopping():
                    raise StoppedError from None
                await asyncio.sleep(_PAUSE)
            else:
                return (found.headers or {}).get(_ID) == name

    def _fault(self, error: nats.js.errors.APIError) -> StateError:
        return StateError(
            f"the stream {self._stream}",
            f"cannot be used ({error.description or error})",
            "give JetStream more room, or restore the stream, and start the service again",
        )

    # --- reading -------------------------------------------------------------------------------

    async def _replay(self) -> None:
        unusable: list[Exception] = []
        body, writer = bytearray(), ""
        async for name, piece in self._read():
            if self._stopping():
                raise StoppedError
            if name != writer:  # what another one has not completed never counted
                writer = name
                body.clear()
            body += piece.data
            if not piece.last:
                continue
            if piece.fresh:
                self.state = HostState()
                unusable.clear()
            unusable += [error async for error in self._replay_batch(_batches.decode(body))]
            body.clear()
        # Pieces without their end were never confirmed: what follows must not complete them.
        if unusable or body:
            await self.shorten()
        if unusable:
            first = " ".join(str(unusable[0]).split())
            self.reports.append(
                f"the stream {self._stream}: {len(unusable):,} records cannot be replayed "
                f"({first}); their changes are lost"
            )

    async def _replay_batch(self, records: Iterable[bytes]) -> AsyncIterator[Exception]:
        async for data in _slice(records):
            try:
                self.state.replay(data, self._policy)
            except UNUSABLE as error:
                if not is_record(data):
                    raise StateError(
                        f"the stream {self._stream}",
                        f"has a record that this version does not understand ({error})",
                        "use the version that wrote it, or another --prefix",
                    ) from error
                yield error

    async def _read(self) -> Any:
        """Yield the pieces that were there when the stream was opened, each after its writer."""
        found = await self._js.subscribe(self._subjects.state, ordered_consumer=True)
        try:
            while True:
                message = await found.next_msg(timeout=10 * _ATTEMPT)
                try:
                    piece = _pieces.decode(message.data)
                except (ValueError, RecursionError) as error:
                    raise StateError(
                        f"the stream {self._stream}",
                        f"has a message that no service wrote ({error})",
                        "purge it, or use another --prefix",
                    ) from error
                yield (message.headers or {}).get(_ID, "").partition("/")[0], piece
                if message.metadata.sequence.stream >= self._last:
                    return
        finally:
            with suppress(nats.errors.Error):
                await found.unsubscribe()


async def _slice(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield items, and let the other tasks run every few milliseconds: the lease is renewed."""
    until = time.monotonic() + _SLICE
    for item in items:
        yield item
        if time.monotonic() >= until:
            await asyncio.sleep(0)
            until = time.monotonic() + _SLICE
