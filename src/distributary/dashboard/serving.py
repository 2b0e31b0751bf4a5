"""Serves the pages until cancelled."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import uvicorn

from distributary.dashboard.app import make_app
from distributary.dashboard.feed import Feed
from distributary.dashboard.looks import Look
from distributary.dashboard.settings import DashboardSettings
from distributary.dashboard.sources import ControlSource
from distributary.machines.real.addresses import AddressError

__all__ = ["run_dashboard"]

_BACKLOG = 256
_LAST_ANSWERS_S = 2


async def run_dashboard(
    source: ControlSource,
    settings: DashboardSettings,
    *,
    topics: Sequence[Look] = (),
    brokers: Sequence[Look] = (),
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the pages; `on_ready` gets their address as soon as browsers can connect.

    Runs until cancelled; then no connection and no task is left. Raises `AddressError` if the
    address cannot be used.
    """
    with _listen(settings.host, settings.port) as listening:
        settings = replace(settings, port=listening.getsockname()[1])
        feed = Feed(source, every=settings.every, within=settings.look_within)
        app = make_app(source, feed, settings, topics=topics, brokers=brokers)
        server = _make_server(app)
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(feed.run())
            serving = group.create_task(server.serve(sockets=[listening]))
            try:
                if on_ready is not None:
                    on_ready(_write_url(settings))
                await asyncio.shield(serving)
            finally:
                feed.close()
                server.should_exit = True
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(serving)
                looking.cancel()


class _Server(uvicorn.Server):
    """Leaves signals to the command that runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _make_server(app: object) -> _Server:
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
        ws="none",
    )
    return _Server(config)


@contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _explain(host, port, error) from None
    with listening:
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except OSError as error:
            raise _explain(host, port, error) from None
        yield listening


def _explain(host: str, port: int, error: OSError) -> AddressError:
    reason = f"the pages cannot be served there ({error.strerror or error})"
    return AddressError(f"{host} port {port}", reason, "choose another address or port")


def _write_url(settings: DashboardSettings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}/"
