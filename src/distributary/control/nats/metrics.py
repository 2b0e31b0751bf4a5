"""The status of a control plane for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from distributary.control.status import ControlStatus, StreamStatus, Waste
from distributary.machines.real.metrics import serve_collector

__all__ = ["collect_metrics", "serve_metrics"]

_PREFIX = "distributary_control"
_STATES = ("off", "starting", "running", "restarting", "external")


def serve_metrics(
    latest: Callable[[], ControlStatus | None], port: int, address: str = "127.0.0.1"
) -> AbstractContextManager[int]:
    """Serve the latest status; yields the port. While there is none, this service stands by."""
    return serve_collector(_StatusCollector(latest), port, address)


class _StatusCollector(Collector):
    def __init__(self, latest: Callable[[], ControlStatus | None]) -> None:
        self._latest = latest

    def collect(self) -> Iterator[Metric]:
        """Whether this service serves, and if it does, the status."""
        status = self._latest()
        yield _gauge("serving", "1 if this service serves, 0 if it stands by", status is not None)
        if status is not None:
            yield from collect_metrics(status)


def collect_metrics(status: ControlStatus) -> Iterator[Metric]:
    """The numbers of a status as metrics."""
    force, service = status.force, status.service
    yield _gauge("version", "version of the plan in force", 0 if force is None else force.version)
    if force is not None:
        yield _gauge("version_at_seconds", "when the version came into force", force.at)
        yield _gauge("flows", "flows of the plan", force.flows)
        yield _gauge("sessions", "sessions of the plan", force.sessions)
        yield _gauge("groups", "groups of the plan", force.groups)
    if status.predicted is not None:
        says = "predicted for the version in force, by the interest and rates of now"
        yield _collect_waste("predicted", says, status.predicted)
    yield _collect_waste("measured", "measured by receivers", status.waste)
    yield _gauge("proposals", "plans that wait for approval", status.proposal is not None)
    yield _gauge("stand_bys", "services that stand by", service.stand_bys)
    yield _counter("cpu_seconds", "CPU time of the service", service.cpu_seconds)
    yield from _collect_members(status)
    yield from _collect_stream(status.stream)
    yield _collect_labelled(
        "alarms", "alarms by what they are about", "what", _count(a.what for a in status.alarms)
    )


def _collect_members(status: ControlStatus) -> Iterator[Metric]:
    members = GaugeMetricFamily(
        f"{_PREFIX}_members", "members, alive or gone", labels=["role", "state"]
    )
    for role, found in (("publisher", status.publishers), ("receiver", status.receivers)):
        alive = sum(member.alive for member in found)
        members.add_metric([role, "alive"], alive)
        members.add_metric([role, "gone"], len(found) - alive)
    yield members
    publishers, receivers = status.publishers, status.receivers
    yield _gauge("published_rate", "messages per second", sum(p.rate for p in publishers))
    yield _counter("unplanned", "messages without a place", sum(p.unplanned for p in publishers))
    behind = max((p.behind for p in publishers), default=0)
    yield _gauge("versions_behind", "versions that the last publisher is behind", behind)
    unserved = sum(len(r.unserved) for r in receivers)
    yield _gauge("unserved", "wanted flows that no plan carries, as far as told", unserved)
    yield _gauge("gaps", "gaps of all receivers since their start", sum(r.gaps for r in receivers))
    missing = sum(receiver.missing for receiver in receivers)
    yield _gauge("missing", "messages missing at receivers since their start", missing)
    repairs = sum(receiver.repairs for receiver in receivers)
    yield _gauge("repairs", "retransmissions asked for by receivers since their start", repairs)


def _collect_stream(stream: StreamStatus) -> Iterator[Metric]:
    states = {state: float(state == stream.state) for state in _STATES}
    yield _collect_labelled("stream_state", "the state of the stream", "state", states)
    yield _counter("stream_restarts", "restarts of the stream", stream.restarts)
    yield _gauge("stream_batch", "the last batch of the stream", stream.batch)
    yield _gauge("stream_behind_rows", "rows that are in no batch yet", stream.behind_rows)
    yield _gauge("stream_behind_seconds", "age of the oldest of them", stream.behind_s)
    for name, says, value in (
        ("stream_batch_seconds", "how long the last batch took", stream.batch_seconds),
        ("stream_drift", "growth of the excess since flows were moved", stream.drift),
        ("stream_excess", "the excess of the stream's plan, of flooding", stream.excess),
    ):
        if value is not None:
            yield _gauge(name, says, value)
    rows, reasons = dict(stream.rows), dict(stream.quarantined)
    yield _collect_labelled("stream_rows", "rows read, by log", "log", rows)
    yield _collect_labelled("stream_quarantined", "rows put aside, by reason", "reason", reasons)


def _collect_waste(name: str, says: str, waste: Waste) -> Metric:
    parts = {
        "wanted": waste.wanted,
        "dropped_first": waste.dropped_first,
        "dropped_second": waste.dropped_second,
    }
    return _collect_labelled(f"{name}_rate", f"messages per second, {says}", "part", parts)


def _collect_labelled(name: str, says: str, label: str, values: Mapping[str, float]) -> Metric:
    metric = GaugeMetricFamily(f"{_PREFIX}_{name}", says, labels=[label])
    for key, value in values.items():
        metric.add_metric([key], value)
    return metric


def _gauge(name: str, says: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", says, value=float(value))


def _counter(name: str, says: str, value: float) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}_{name}", says, value=float(value))


def _count(names: Iterable[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found
