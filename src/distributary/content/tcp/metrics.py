"""The statistics of a broker for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from distributary.content.host_statistics import HostStatistics
from distributary.machines.real import ConnectionStatistics
from distributary.machines.real.metrics import serve_statistics

if TYPE_CHECKING:
    from distributary.content.tcp.service import BrokerService

__all__ = ["collect_metrics", "serve_metrics"]

_PREFIX = "distributary_broker"
# Everything else counts from the start of the process.
_GAUGES = frozenset(
    {
        *("incarnation", "subscriptions", "boxes", "advertisements", "kept_events", "kept_bytes"),
        *("connected", "complete", "waiting", "waiting_bytes", "unfinished", "unfinished_bytes"),
        *("subscriptions_sent", "subscriptions_received", "ephemeral", "outbox", "outbox_bytes"),
        *("window", "open", "handshakes", "queued_bytes"),
    }
)


def serve_metrics(
    service: BrokerService,
    loop: asyncio.AbstractEventLoop,
    port: int,
    address: str = "127.0.0.1",
) -> AbstractContextManager[int]:
    """Serve the statistics of a broker that runs on `loop`; yields the port."""
    return serve_statistics(service, collect_metrics, loop, port, address)


def collect_metrics(broker: HostStatistics, connections: ConnectionStatistics) -> Iterator[Metric]:
    """Each number of the snapshots as a metric, labelled where there are several."""
    yield from _collect_numbers("", broker)
    yield from _collect_numbers("connections_", connections)
    yield from _collect_parts("link", "neighbour", broker.links)
    yield from _collect_parts("client", "client", broker.clients)
    yield _collect_mapping("rows", "entries of a table", "table", broker.sizes, GaugeMetricFamily)
    yield _collect_mapping(
        "cut_off", "peers that broke a rule", "rule", broker.reasons, CounterMetricFamily
    )


def _collect_numbers(prefix: str, found: Any) -> Iterator[Metric]:
    for each in fields(found):
        value = getattr(found, each.name)
        if isinstance(value, int | float):
            name = f"{_PREFIX}_{prefix}{each.name}"
            yield _family(each.name)(name, each.name.replace("_", " "), value=value)


def _collect_parts(what: str, label: str, parts: Iterable[Any]) -> Iterator[Metric]:
    families: dict[str, Any] = {}
    for part in parts:
        for each in fields(part):
            value = getattr(part, each.name)
            if isinstance(value, int | float):
                if each.name not in families:
                    families[each.name] = _family(each.name)(
                        f"{_PREFIX}_{what}_{each.name}",
                        f"{each.name.replace('_', ' ')} of a {what}",
                        labels=[label],
                    )
                families[each.name].add_metric([getattr(part, label)], value)
    yield from families.values()


def _collect_mapping(
    name: str, says: str, label: str, values: Mapping[str, int], family: type[Any]
) -> Metric:
    metric = family(f"{_PREFIX}_{name}", says, labels=[label])
    for key, value in values.items():
        metric.add_metric([key], value)
    found: Metric = metric
    return found


def _family(name: str) -> type[Any]:
    return GaugeMetricFamily if name in _GAUGES else CounterMetricFamily
