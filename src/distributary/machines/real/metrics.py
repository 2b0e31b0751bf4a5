"""Serve metrics to Prometheus; needs the package prometheus_client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from distributary.machines.real.addresses import AddressError

__all__ = ["serve_collector"]


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
