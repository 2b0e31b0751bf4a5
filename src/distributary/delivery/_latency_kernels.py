"""A histogram of latencies; `_latency_reference.py` has the same functions in plain Python.

Its buckets are those of an HdrHistogram: 64 of equal width for each power of two, so a value is
known to within 1/128 of itself, whatever its size. Nanoseconds below 128 have a bucket each.
"""

from __future__ import annotations

import numpy as np

from distributary.compiled import highest_bit, kernel
from distributary.model import IntArray

__all__ = [
    "ABSURD",
    "BUCKETS",
    "LARGEST",
    "LONGEST_BITS",
    "NEGATIVE",
    "STEPS_BITS",
    "UNSAID",
    "WIDTH",
    "record_latency",
]

STEPS_BITS = 6  # each power of two has 2 to this many buckets
LONGEST_BITS = 42  # latencies are below 2 to this many nanoseconds, 73 minutes
BUCKETS = (LONGEST_BITS - STEPS_BITS + 1) << STEPS_BITS
# Behind the buckets: packets that are in none, and the largest latency of the others.
UNSAID, NEGATIVE, ABSURD, LARGEST = range(BUCKETS, BUCKETS + 4)
WIDTH = BUCKETS + 4


@kernel
def record_latency(
    histogram: IntArray,  # OUT  one, `WIDTH` numbers
    received: int,  # IN   when the packet came, by the sender's clock, in ns
    sent: np.uint64,  # IN   when it was sent, as its header says
) -> None:
    """Record the latency of a packet, or count why it has none."""
    if sent == np.uint64(0):
        histogram[UNSAID] += 1
        return
    if sent >= np.uint64(1 << 63):
        histogram[ABSURD] += 1
        return
    if received < np.int64(sent):
        histogram[NEGATIVE] += 1
        return
    latency = received - np.int64(sent)
    if latency >= 1 << LONGEST_BITS:
        histogram[ABSURD] += 1
        return
    shift = max(np.int64(highest_bit(np.uint64(latency | 1))) - STEPS_BITS, 0)
    histogram[(shift << STEPS_BITS) + (latency >> shift)] += 1
    if latency > histogram[LARGEST]:
        histogram[LARGEST] = latency
