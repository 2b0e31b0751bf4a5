"""A NATS client that survives malformed messages and dead tasks.

In nats-py 2.16 a message whose subject is not UTF-8, or whose headers are malformed, ends the task
that reads the connection. The client still reports that it is connected, but receives nothing any
more. The same happens after a pong that no ping waits for, and when the peer of a reconnection does
not speak NATS.

The client waits in `asyncio.wait_for`, which before Python 3.12 drops a cancellation that comes at
the same moment as what is waited for. A loop that sends requests would then go on for ever, and
Ctrl-C would not end a process that is just connecting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlparse

import nats.errors
from nats.aio.client import Client, Srv
from nats.aio.msg import Msg

from distributary.machines.nats.server_file import ServerRecord

__all__ = ["MalformedMessageError", "NatsConnection"]

_LOOK_EVERY = 0.5  # seconds


class MalformedMessageError(nats.errors.Error):
    """A message that the client library could not parse; it is dropped."""


class NatsConnection(Client):
    """A client that drops malformed messages, and reconnects when one of its own tasks has died.

    With `look_up`, each attempt to connect calls it for the server's address and name, and sends
    nothing to a server with another name: no token, no event. `is_named` says that the connection
    has a user and a password of its own, which those of the record must not replace.
    """

    def __init__(
        self,
        look_up: Callable[[], ServerRecord | None] | None = None,
        *,
        is_named: bool = False,
    ) -> None:
        super().__init__()
        self._look_up = look_up
        self._is_named = is_named
        self._server_name = ""
        self._refusal: Exception | None = None

    def drop_unsent(self) -> None:
        """Drop what the last connection did not send, so that the next one does not send it."""
        self._pending = []
        self._pending_data_size = 0

    def give_up(self, error: Exception) -> None:
        """Close for good, soon, because of a permanent error."""
        self._refusal = error

    async def connect(self, *given: Any, **named: Any) -> None:
        """Connect to a server; a cancellation is never dropped."""
        with _keep_cancellation():
            await super().connect(*given, **named)

    async def request(self, *given: Any, **named: Any) -> Msg:
        """Send a request and wait for the answer; a cancellation is never dropped."""
        with _keep_cancellation():
            return await super().request(*given, **named)

    async def flush(self, *given: Any, **named: Any) -> None:
        """Wait until the server has everything; a cancellation is never dropped."""
        with _keep_cancellation():
            await super().flush(*given, **named)

    async def close(self) -> None:
        """Close for good; does nothing if the connection was never established."""
        if self._flush_queue is not None:
            with _keep_cancellation():
                await super().close()

    async def watch(self) -> None:
        """Reconnect whenever a task of the connection has died; runs until closed."""
        while not self.is_closed:
            await asyncio.sleep(_LOOK_EVERY)
            if self._refusal is not None:
                await self.close()
                self._err = self._refusal
            elif self.is_connected:
                if _has_ended(self._reading_task) or _has_ended(self._flusher_task):
                    await self.force_reconnect()
            elif not self.is_closed and _has_ended(self._reconnection_task):
                self._status = Client.RECONNECTING
                self._reconnection_task = asyncio.create_task(self._attempt_reconnect())

    async def _connect_to_server(self, s: Srv) -> None:
        found = self._look_up() if self._look_up else None
        if found is not None:
            s.uri = urlparse(found.url)
            self._server_name = found.name
            if not self._is_named:
                self.options["token"] = None if found.user else found.token
                self.options["user"] = found.user or None
                self.options["password"] = found.token if found.user else None
        if self._transport is not None:  # left open by a failed attempt
            self._transport.close()  # type: ignore[no-untyped-call]
        await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except (OSError, nats.errors.Error, TimeoutError):
            raise
        except Exception as error:  # the peer need not be a NATS server
            self._server_info = {}
            raise nats.errors.Error(f"the peer is not a NATS server: {error}") from error

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Check the server's name before anything is sent."""
        if self._server_name and info.get("server_name") != self._server_name:
            raise nats.errors.Error("another server has taken its port")
        await super()._process_info(info, initial_connection)

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        try:
            await super()._process_msg(sid, subject, reply, data, headers)
        except Exception as error:
            await self._error_cb(MalformedMessageError(f"nats: {error}"))


@contextmanager
def _keep_cancellation() -> Iterator[None]:
    """Raise a cancellation that comes in the block, even if the block drops it."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


def _has_ended(task: asyncio.Task[Any] | None) -> bool:
    return task is not None and task.done()
