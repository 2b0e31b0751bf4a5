"""The statistics of a peer for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from distributary.machines.real import ConnectionStatistics
from distributary.machines.real.metrics import serve_statistics
from distributary.topics.peer.tcp.status import PeerStatus

if TYPE_CHECKING:
    from distributary.topics.peer.tcp.service import PeerService

__all__ = ["collect_metrics", "serve_metrics"]

_PREFIX = "distributary_peer"
_LISTS = ("neighbours", "links", "clients", "topics", "clusters")
_NUMBERS = ("accepted", "repeated", "found_dead", "dropped")
_GAUGES = frozenset({"open", "handshakes", "queued_bytes"})  # of connections


def serve_metrics(
    service: PeerService,
    loop: asyncio.AbstractEventLoop,
    port: int,
    address: str = "127.0.0.1",
) -> AbstractContextManager[int]:
    """Serve the statistics of a peer that runs on `loop`; yields the port."""
    return serve_statistics(service, collect_metrics, loop, port, address)


def collect_metrics(peer: PeerStatus, connections: ConnectionStatistics) -> Iterator[Metric]:
    """The numbers of the snapshots as metrics."""
    yield _gauge("active", "whether the peer is part of a ring", float(peer.active))
    yield _gauge("kept", "copies of channels", peer.kept)
    yield _gauge("stored_bytes", "bytes of stored state", peer.stored_bytes)
    for name in _LISTS:
        yield _gauge(name, f"number of {name}", len(getattr(peer, name)))
    for name in _NUMBERS:
        yield _counter(name, name.replace("_", " "), getattr(peer, name))
    sent = CounterMetricFamily(f"{_PREFIX}_messages", "messages to other peers", labels=["kind"])
    for kind, number in peer.messages.items():
        sent.add_metric([kind], number)
    yield sent
    for each in fields(connections):
        make: Any = _gauge if each.name in _GAUGES else _counter
        name, value = f"connections_{each.name}", getattr(connections, each.name)
        yield make(name, name.replace("_", " "), value)


def _gauge(name: str, says: str, value: float) -> Metric:
    found: Metric = GaugeMetricFamily(f"{_PREFIX}_{name}", says, value=value)
    return found


def _counter(name: str, says: str, value: float) -> Metric:
    found: Metric = CounterMetricFamily(f"{_PREFIX}_{name}", says, value=value)
    return found
