"""Latencies of a receiver's packets: from the sending, as packets say it, to their arrival.

Every data packet that is new counts once: first copies and repairs apart. A repair has the send
time of the packet that it repeats, so its latency includes the loss, the NAK and the way back.
How long messages wait in the receiver is not included.

Latencies are corrected by the estimated offset of the publisher's clock, but only if that is
larger than its own uncertainty. Else the clocks may well be the same, as on one host, and a
correction would only add its error. What was recorded before the first correction is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributary.delivery import _latency_kernels as kernels
from distributary.delivery import _latency_reference as reference
from distributary.delivery.clock import ClockEstimate
from distributary.delivery.wire import PacketKind
from distributary.model import IntArray

__all__ = ["Latencies", "LatencyStatistics", "find_quantile"]

_NO_STAMPS = np.empty(0, np.int64)
_KINDS = (PacketKind.DATA, PacketKind.REPAIR)


@dataclass(frozen=True, slots=True)
class LatencyStatistics:
    """A snapshot of the latencies of one publisher's packets, since its present incarnation."""

    publisher: str
    packets: int  # first copies that were measured
    median_seconds: float | None  # None without any; within 1/128 of the exact value, as is p99
    p99_seconds: float | None
    largest_seconds: float | None
    repairs: int  # that were measured
    repair_median_seconds: float | None
    repair_p99_seconds: float | None
    repair_largest_seconds: float | None
    unsaid: int  # packets that do not say when they were sent
    negative: int  # packets that arrived before they were sent
    absurd: int  # packets that were sent more than 73 minutes ago, or say no possible time
    uncorrected: int  # packets measured before the first correction, and dropped with it
    corrected: bool  # whether latencies are corrected by the clock offset
    clock_offset_seconds: float | None  # of the publisher's clock; None before its first reply
    clock_uncertainty_seconds: float | None


def find_quantile(histogram: IntArray, percent: int) -> int | None:
    """The least nanoseconds that so many per cent of the latencies do not exceed; None of none."""
    counts = histogram[: kernels.BUCKETS]
    total = int(counts.sum())
    if not total:
        return None
    rank = max(1, -(-total * percent // 100))
    bucket = int(np.searchsorted(np.cumsum(counts), rank))
    shift = max((bucket >> kernels.STEPS_BITS) - 1, 0)
    least = (bucket - (shift << kernels.STEPS_BITS)) << shift
    return min(least + (1 << shift >> 1), int(histogram[kernels.LARGEST]))


class Latencies:
    """Histograms by the publisher's row, and the stamps of the packets at hand.

    A stamp is the time at which a packet arrived, in nanoseconds since 1970. Without stamps nothing
    is measured.
    """

    def __init__(self, publishers: int) -> None:
        self._offsets = np.zeros(publishers, np.int64)  # by which stamps are corrected
        self._histograms = np.zeros((publishers, len(_KINDS), kernels.WIDTH), np.int64)
        self.arrivals = _NO_STAMPS, self._offsets, self._histograms  # `Arrivals` of the batch
        self.stamp = 0  # of the packet at hand; 0 if it has none
        self.measures = False  # whether any packet had one
        self._corrected = np.zeros(publishers, np.bool_)
        self._uncorrected = np.zeros(publishers, np.int64)

    def take_stamps(self, stamps: IntArray | None) -> None:
        """Take the stamps of a batch; None if it has none."""
        if stamps is None:
            stamps = _NO_STAMPS
        else:
            self.measures = True
        self.arrivals = stamps, self._offsets, self._histograms

    def take_stamp(self, stamp: int) -> None:
        """Take the stamp of a packet that is handled by itself; 0 if it has none."""
        self.take_stamps(np.array([stamp], np.int64) if stamp else None)
        self.stamp = stamp

    def choose(self, packet: int) -> None:
        """Have that packet of the batch at hand."""
        stamps = self.arrivals[0]
        self.stamp = int(stamps[packet]) if len(stamps) else 0

    def begin(self, row: int) -> None:
        """Begin to measure another incarnation."""
        self._histograms[row] = 0
        self._offsets[row] = 0
        self._corrected[row] = False
        self._uncorrected[row] = 0

    def record(self, row: int, kind: int, sent: int) -> None:
        """Record the latency of the packet at hand."""
        if self.stamp:
            received = self.stamp + int(self._offsets[row])
            reference.record_latency(self._histograms[row, kind - PacketKind.DATA], received, sent)

    def correct(self, row: int, clock: ClockEstimate) -> None:
        """Correct latencies from now on, once the clocks are known to differ."""
        if not self._corrected[row]:
            if abs(clock.offset) <= clock.uncertainty:
                return
            self._corrected[row] = True
            unsaid = self._histograms[row, :, kernels.UNSAID].copy()
            self._uncorrected[row] = (
                self._histograms[row, :, : kernels.LARGEST].sum() - unsaid.sum()
            )
            self._histograms[row] = 0
            self._histograms[row, :, kernels.UNSAID] = unsaid
        self._offsets[row] = clock.offset

    def make_statistics(
        self, row: int, publisher: str, clock: ClockEstimate | None
    ) -> LatencyStatistics:
        """A snapshot for one publisher."""
        first, repaired = self._histograms[row]
        apart = first + repaired
        return LatencyStatistics(
            publisher,
            *_summarize(first),
            *_summarize(repaired),
            unsaid=int(apart[kernels.UNSAID]),
            negative=int(apart[kernels.NEGATIVE]),
            absurd=int(apart[kernels.ABSURD]),
            uncorrected=int(self._uncorrected[row]),
            corrected=bool(self._corrected[row]),
            clock_offset_seconds=None if clock is None else clock.offset / 1e9,
            clock_uncertainty_seconds=None if clock is None else clock.uncertainty / 1e9,
        )


def _summarize(histogram: IntArray) -> tuple[int, float | None, float | None, float | None]:
    """How many were recorded, and their median, 99th percentile and maximum in seconds."""
    total = int(histogram[: kernels.BUCKETS].sum())
    if not total:
        return 0, None, None, None
    median, late = (find_quantile(histogram, percent) for percent in (50, 99))
    assert median is not None
    assert late is not None
    return total, median / 1e9, late / 1e9, int(histogram[kernels.LARGEST]) / 1e9
