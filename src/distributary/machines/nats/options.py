"""Connects to a NATS server: one given by its address, or the embedded one of a folder."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats.errors
from nats.aio.client import Client, Server

from distributary.errors import StateError
from distributary.machines.nats.connection import NatsConnection
from distributary.machines.nats.errors import ServerAwayError, ServerRefusedError, hide_secrets
from distributary.machines.nats.server_file import ServerRecord, read_server_file

__all__ = ["NatsOptions", "connect_to_server", "find_server", "options_of", "pause_before"]

Callback = Callable[[], Awaitable[None]]
ErrorCallback = Callable[[Exception], Awaitable[None]]

_CLOSE_WITHIN = 2.0
_LONGEST_PAUSE = 2.0  # seconds between two attempts to connect
# The library must report a failed first attempt at once; the pauses between attempts are ours.
_AT_ONCE: dict[str, Any] = {
    "allow_reconnect": False,
    "max_reconnect_attempts": 1,
    "reconnect_time_wait": 0,
    "connect_timeout": 2,
    "ping_interval": 10,  # two unanswered pings close the connection
}
_FOR_EVER = {"allow_reconnect": True, "max_reconnect_attempts": -1}
_REFUSED = "uthorization"  # in the errors of the server and of the library


@dataclass(frozen=True, slots=True, repr=False)
class NatsOptions:
    """The address of a server, or several separated by commas, and the credentials.

    With the `folder` of an embedded server, every attempt to connect reads its address and token
    there, so that clients find it again after a restart.
    """

    url: str = "nats://127.0.0.1:4222"
    token: str | None = None
    user: str | None = None
    password: str | None = None
    credentials: Path | None = None  # a file with a JWT and a seed
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    folder: Path | None = None

    def __repr__(self) -> str:
        return f"NatsOptions({self.address!r})"

    @property
    def address(self) -> str:
        """The address without secrets."""
        return hide_secrets(self.url)

    @property
    def servers(self) -> list[str]:
        """The list of addresses."""
        return [url.strip() for url in self.url.split(",") if url.strip()]

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context; None unless TLS files or a tls: address are given."""
        if not (self.ca or self.certificate or self.url.startswith("tls:")):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ServerRefusedError(self.url, f"TLS files cannot be used: {error}") from error
        return context

    def arguments(self) -> dict[str, Any]:
        """The options as arguments of nats-py."""
        given = {
            "servers": self.servers,
            "token": self.token,
            "user": self.user,
            "password": self.password,
            "user_credentials": str(self.credentials) if self.credentials else None,
            "tls": self.tls(),
        }
        return {name: value for name, value in given.items() if value is not None}

    def look_up(self) -> ServerRecord | None:
        """Read the folder's server record; None if there is no folder or no readable record."""
        try:
            return read_server_file(self.folder) if self.folder else None
        except StateError:
            return None


@asynccontextmanager
async def connect_to_server(
    options: NatsOptions,
    *,
    name: str,
    within: float = 10.0,
    echo: bool = True,
    on_reconnect: Callback | None = None,
    on_disconnect: Callback | None = None,
    on_error: ErrorCallback | None = None,
) -> AsyncIterator[Client]:
    """Connect to the server and reconnect automatically, with back-off, until the block ends.

    The first connection must be established `within` seconds. What is unsent when a connection
    breaks is dropped, because every message of ours is repeated until it is answered. Without
    `echo` the connection does not receive its own messages.
    """
    client: NatsConnection | None = None

    async def forget() -> None:
        if client is not None:
            client.drop_unsent()
        if on_disconnect is not None:
            await on_disconnect()

    async def judge(error: Exception) -> None:
        if client is not None and _REFUSED in str(error) and options.folder is None:
            client.give_up(error)  # the credentials are no longer valid
        if on_error is not None:
            await on_error(error)

    client = await _first_connection(
        options,
        within,
        name=name,
        no_echo=not echo,
        reconnected_cb=on_reconnect,
        disconnected_cb=forget,
        error_cb=judge,
        reconnect_to_server_handler=_next_server,
    )
    watching = asyncio.create_task(client.watch())
    try:
        yield client
    finally:
        watching.cancel()
        await _close(client)


async def _first_connection(
    options: NatsOptions, within: float, **arguments: Any
) -> NatsConnection:
    deadline = asyncio.get_running_loop().time() + within
    arguments |= options.arguments()
    attempt = 0
    while True:
        client = NatsConnection(options.look_up, is_named=options.user is not None)
        try:
            await client.connect(**_AT_ONCE, **arguments)
        except asyncio.CancelledError:
            await _close(client)
            raise
        except (OSError, nats.errors.Error, TimeoutError, ValueError) as error:
            cause = client.last_error or error
            await _close(client)
            reason = str(cause).removeprefix("nats: ") or type(cause).__name__
            if isinstance(cause, ssl.SSLError) or _REFUSED in reason:
                raise ServerRefusedError(options.url, reason) from error
            pause = pause_before(attempt)
            if asyncio.get_running_loop().time() + pause > deadline:
                raise ServerAwayError(options.url, reason) from error
            await asyncio.sleep(pause)
            attempt += 1
        else:
            client.options |= _FOR_EVER
            return client


async def _close(client: Client) -> None:
    """Close, but do not wait long for a connection whose TLS handshake failed or that is cut."""
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(_CLOSE_WITHIN):
            await client.close()


def _next_server(servers: list[Server], info: dict[str, Any]) -> tuple[Server, float]:
    del info
    server = min(servers, key=lambda one: one.reconnects)
    return server, pause_before(server.reconnects)


def pause_before(attempt: int) -> float:
    """The pause before an attempt: doubles each time, with jitter so that clients spread out."""
    return min(_LONGEST_PAUSE, 0.05 * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1.0)


def find_server(folder: Path) -> tuple[NatsOptions, str]:
    """The embedded server of a folder, and the address of its monitoring pages if it has any."""
    found = read_server_file(folder)
    if found is None:
        raise ServerAwayError(str(folder), "no server was ever started for this folder")
    return options_of(found, folder), found.monitor


def options_of(found: ServerRecord, folder: Path) -> NatsOptions:
    """How to connect to the server of a folder; it is looked up there again at each attempt."""
    return NatsOptions(found.url, None if found.user else found.token, folder=folder)
