"""The plain twin of `_latency_kernels.py`."""

from __future__ import annotations

from distributary.delivery import _latency_kernels as kernels
from distributary.model import IntArray

__all__ = ["record_latency"]


def record_latency(histogram: IntArray, received: int, sent: int) -> None:
    """Record the latency of a packet, or count why it has none."""
    latency = received - sent
    if not sent:
        histogram[kernels.UNSAID] += 1
    elif sent >= 1 << 63 or latency >= 1 << kernels.LONGEST_BITS:
        histogram[kernels.ABSURD] += 1
    elif latency < 0:
        histogram[kernels.NEGATIVE] += 1
    else:
        shift = max(latency.bit_length() - 1 - kernels.STEPS_BITS, 0)
        histogram[(shift << kernels.STEPS_BITS) + (latency >> shift)] += 1
        histogram[kernels.LARGEST] = max(int(histogram[kernels.LARGEST]), latency)
