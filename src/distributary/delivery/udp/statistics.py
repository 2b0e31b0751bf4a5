"""Statistics of publishers and receivers: frozen snapshots, and a page for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from distributary.delivery import (
    FollowedStatistics,
    LatencyStatistics,
    LineStatistics,
    ReceiverMachineStatistics,
    SenderMachineStatistics,
)
from distributary.machines.real.metrics import serve_collector

__all__ = [
    "PublisherStatistics",
    "ReceiverStatistics",
    "SeatStatistics",
    "serve_metrics",
    "snapshot_document",
]

_GAUGES = frozenset(
    {
        "held_packets",
        "missing_ranges",
        "waiting",
        "plan_version",
        "joined_groups",
        "unserved_flows",
        "followed_flows",
    }
)
_LABELLED_GAUGES = ("corrected", "incarnation", "there", "plan_version", "flows")
_NESTED = ("lines", "publishers", "latencies", "control")


@dataclass(frozen=True, slots=True)
class SeatStatistics:
    """How a member's reports to its control plane go."""

    connected: bool
    reported_at: float  # when the last report was stored, in seconds since 1970; 0: none was
    kept_messages: int  # that are counted, and not known to be in a report that is stored
    reports: int  # that are stored
    version: int = 0  # of the plan, that a publisher goes by; 0: none yet


@dataclass(frozen=True, slots=True)
class PublisherStatistics:
    """A publisher's statistics: those of its machine, and those of the shell."""

    machine: SenderMachineStatistics
    plan_version: int
    waiting: int  # packets that wait for the pacing
    unsent: int  # packets dropped since the socket's buffer was full, or the address unknown
    cpu_seconds: float  # of the whole process
    control: SeatStatistics | None = None  # of a member of a control plane


@dataclass(frozen=True, slots=True)
class ReceiverStatistics:
    """A receiver's statistics: those of its machine, and those of the shell."""

    machine: ReceiverMachineStatistics
    plan_version: int
    joined_groups: int
    waiting: int  # messages that wait to be read
    kernel_stamps: int  # packets whose arrival the kernel stamped; else the time of the read is it
    truncated: int  # packets longer than the largest allowed
    overrun: int  # packets that the kernel dropped, because they were not read in time
    lost_on_purpose: int
    unsent: int
    unserved_flows: int  # wanted flows that the plan does not carry
    followed_flows: int  # wanted flows of which it is known where they travel
    cpu_seconds: float  # of the whole process
    lines: tuple[LineStatistics, ...] = ()  # of A and B, if groups have two
    publishers: tuple[FollowedStatistics, ...] = ()  # that are followed
    latencies: tuple[LatencyStatistics, ...] = ()  # of each publisher
    control: SeatStatistics | None = None  # of a member of a control plane


Snapshot = PublisherStatistics | ReceiverStatistics


def snapshot_document(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as one JSON object; flat, but for what a receiver has of several."""
    values = asdict(snapshot)
    for name in _NESTED:
        if not values.get(name):
            values.pop(name, None)
    return {**values.pop("machine"), **values}


@contextmanager
def serve_metrics(
    snapshot: Callable[[], Snapshot], port: int, address: str = "127.0.0.1"
) -> Iterator[int]:
    """Serve snapshots to Prometheus at /metrics; yields the port, which the system chooses for 0.

    A thread answers requests, each with a new snapshot.
    """
    with serve_collector(_Snapshots(snapshot), port, address) as found:
        yield found


class _Snapshots(Collector):
    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Each number of a snapshot as a metric."""
        found = self._snapshot()
        end = "publisher" if isinstance(found, PublisherStatistics) else "receiver"
        values = {field.name: getattr(found.machine, field.name) for field in fields(found.machine)}
        values |= {
            field.name: getattr(found, field.name)
            for field in fields(found)
            if field.name not in ("machine", *_NESTED)
        }
        for name, value in values.items():
            family = GaugeMetricFamily if name in _GAUGES else CounterMetricFamily
            says = name.replace("_", " ")
            yield family(f"distributary_{end}_{name}", says, value=value)
        if found.control is not None:
            for name, value in asdict(found.control).items():
                family = CounterMetricFamily if name == "reports" else GaugeMetricFamily
                says = f"{name.replace('_', ' ')} of a member of a control plane"
                yield family(f"distributary_{end}_control_{name}", says, value=float(value))
        if isinstance(found, ReceiverStatistics):
            yield from _labelled_metrics("line", "line", found.lines)
            yield from _labelled_metrics("publisher", "publisher", found.publishers)
            yield from _labelled_metrics("latency", "publisher", found.latencies)


def _labelled_metrics(
    what: str,
    label: str,
    parts: Sequence[LineStatistics] | Sequence[LatencyStatistics] | Sequence[FollowedStatistics],
) -> Iterator[Metric]:
    """Each number of all parts as a metric, labelled by line or publisher."""
    for field in fields(parts[0]) if parts else ():
        if field.name == label:
            continue
        is_gauge = field.name.endswith("_seconds") or field.name in _LABELLED_GAUGES
        family = GaugeMetricFamily if is_gauge else CounterMetricFamily
        says = f"{field.name.replace('_', ' ')} of a {label}"
        metric = family(f"distributary_receiver_{what}_{field.name}", says, labels=[label])
        for part in parts:
            value = getattr(part, field.name)
            if value is not None:
                metric.add_metric([getattr(part, label)], value)
        yield metric
