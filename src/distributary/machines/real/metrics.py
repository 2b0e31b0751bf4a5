"""Serve metrics to Prometheus; needs the package prometheus_client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from distributary.machines.real.addresses import AddressError

__all__ = ["ObservedService", "serve_collector", "serve_statistics"]

_WITHIN = 10.0  # seconds for a service to answer


class ObservedService(Protocol):
    """A service that runs on an event loop."""

    started: asyncio.Event

    def statistics(self) -> tuple[Any, ...]:
        """Snapshots of this moment."""


@contextmanager
def serve_collector(collector: Collector, port: int, address: str) -> Iterator[int]:
    """Serve what a collector collects at /metrics; yields the port, which the system picks for 0.

    A thread answers requests, and calls the collector for each.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server, thread = start_http_server(port, address, registry)
    except OSError as error:
        raise AddressError(
            f"{address} port {port}",
            f"statistics cannot be served there ({error.strerror or error})",
            "choose another port",
        ) from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def serve_statistics(
    service: ObservedService,
    collect: Callable[..., Iterable[Metric]],
    loop: asyncio.AbstractEventLoop,
    port: int,
    address: str,
) -> AbstractContextManager[int]:
    """Serve the statistics of a service that runs on `loop`; yields the port.

    `collect` turns what `statistics` returns into metrics.
    """
    return serve_collector(_StatisticsCollector(service, collect, loop), port, address)


class _StatisticsCollector(Collector):
    """Takes snapshots on the service's own loop, since its tables change while it works."""

    def __init__(
        self,
        service: ObservedService,
        collect: Callable[..., Iterable[Metric]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._service = service
        self._collect = collect
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        """All statistics, once the service has started; nothing before."""
        if self._service.started.is_set():
            taken = asyncio.run_coroutine_threadsafe(self._take(), self._loop)
            yield from self._collect(*taken.result(_WITHIN))

    async def _take(self) -> tuple[Any, ...]:
        return self._service.statistics()
