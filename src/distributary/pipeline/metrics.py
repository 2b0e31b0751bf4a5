"""The state of a stream for Prometheus; needs the package prometheus_client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from distributary.machines.real.metrics import serve_collector
from distributary.pipeline.ledger import LedgerState

__all__ = ["StreamMetrics"]

_PREFIX = "distributary_stream"
_FROM_HISTORY: Final[Mapping[str, tuple[str, str]]] = {
    "version": ("plan_version", "version of the plan in force"),
    "excess": ("excess_ratio", "Cx/Cf of the plan in force"),
    "drift": ("drift_ratio", "growth of Cx/Cf above the reference, before flows moved"),
    "drift_cost": ("drift_cost", "wasted work per second that drift costs now"),
    "drift_share": ("drift_share", "the cost of drift as a share of all work"),
    "age_batches": ("plan_age_batches", "batches since the plan was made or flows last moved"),
    "age_s": ("plan_age_seconds", "seconds of the log since the plan was made or flows last moved"),
    "saved": ("saved", "wasted work per second that the last moves saved"),
    "saved_share": ("saved_share", "what the last moves saved as a share of all work before"),
    "moves": ("moves", "flows that changed their session in the latest batch"),
    "new": ("new_flows", "new flows in the latest batch"),
    "unserved": ("unserved_pairs", "wanted pairs that the plan in force does not serve"),
}
"""Keys of a line of the history, and the names and meanings of their gauges."""


class StreamMetrics(Collector):
    """The state of a stream after its latest batch. Before it is known there are no metrics."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._taken: tuple[LedgerState, float] | None = None

    def take(self, state: LedgerState) -> None:
        """Show this state from now on."""
        self._taken = state, self._clock()

    def serve(self, port: int, address: str = "127.0.0.1") -> AbstractContextManager[int]:
        """Serve the metrics over HTTP while the block runs; yields the port, a free one for 0."""
        return serve_collector(self, port, address)

    def collect(self) -> Iterator[Metric]:
        """All metrics of the state; a number that is not known is left out."""
        if self._taken is None:
            return
        state, moment = self._taken
        entry: dict[str, Any] = {"unserved": 0, **state.entry}
        for key, (name, says) in _FROM_HISTORY.items():
            if entry.get(key) is not None:
                yield _gauge(name, says, entry[key])
        yield CounterMetricFamily(f"{_PREFIX}_batches", "batches committed", value=state.batch + 1)
        yield _gauge("committed_seconds", "Unix time of the latest commit, or of the start", moment)
        if state.latest is not None:
            latest = state.latest / 1e6
            yield _gauge("latest_message_seconds", "Unix time of the latest message", latest)
        yield from _collect_rows(state)
        yield from _collect_tables(state)


def _collect_rows(state: LedgerState) -> Iterator[Metric]:
    rows = CounterMetricFamily(
        f"{_PREFIX}_rows", "rows by what became of them", labels=["log", "fate"]
    )
    quarantined = CounterMetricFamily(
        f"{_PREFIX}_quarantined_rows", "rows put aside", labels=["log", "reason"]
    )
    for log, counts in state.counts.items():
        for fate in ("used", "duplicates"):
            rows.add_metric([log, fate], counts[fate])
        rows.add_metric([log, "quarantined"], sum(counts["reasons"].values()))
        for reason, number in counts["reasons"].items():
            quarantined.add_metric([log, reason], number)
    yield rows
    yield quarantined


def _collect_tables(state: LedgerState) -> Iterator[Metric]:
    rows = GaugeMetricFamily(f"{_PREFIX}_state_rows", "stored rows of a table", labels=["table"])
    files = GaugeMetricFamily(f"{_PREFIX}_state_files", "files of a table", labels=["table"])
    for name, table in state.tables.items():
        rows.add_metric([name], table.rows)
        files.add_metric([name], len(table.files))
    yield rows
    yield files


def _gauge(name: str, says: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", says, value=value)
