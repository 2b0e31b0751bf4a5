"""The two lines of each group, as a receiver hears them.

With pairs the sender sends each packet for a group on two lines, A and B. The first copy of it
counts, whichever line brings it, and the other is dropped. So each line fills the gaps of the
other, and a gap is asked for only after the other line had time to fill it.
"""

from __future__ import annotations

from dataclasses import dataclass

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery.receiver_params import ReceiverParams
from distributary.model import IntArray

__all__ = ["LINES", "LineStatistics", "Lines"]

LINES = ("A", "B")
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class LineStatistics:
    """A snapshot of the counters of one line."""

    line: str
    packets: int  # received, of any kind
    first_copies: int  # packets with messages that this line brought first
    copies: int  # packets that had arrived before, mostly by the other line
    filled_gaps: int  # packets that were missing, because the other line lost them or is later
    silent_seconds: float | None  # since the last packet; None before the first


class Lines:
    """Counts by line, and decides how long a gap waits for the other line.

    `first` and `again` are the indices of `counts` for packets of the present line: for those that
    are new, and for those that had arrived before.
    """

    def __init__(self, params: ReceiverParams, counts: IntArray) -> None:
        self._params = params
        self._counts = counts
        self._packets = [0] * len(LINES)
        self._filled = [0] * len(LINES)
        self._heard_at = [_NEVER] * len(LINES)
        self.hear(None, 0, 0.0)

    def hear(self, line: int | None, packets: int, now: float) -> None:
        """Note the line of the packets that follow; None for unicast, or where there is but one."""
        self.line = line
        if line is None:
            self.first, self.again = kernels.FIRST_ELSEWHERE, kernels.DUPLICATE
            return
        self.first, self.again = kernels.FIRST_COPIES + line, kernels.COPIES + line
        if packets:
            self._packets[line] += packets
            self._heard_at[line] = now

    def wait_for_other(self, now: float) -> float:
        """How long a gap that the present line shows is left to the other line."""
        if self.line is None:
            return 0.0
        silence = now - self._heard_at[1 - self.line]
        return self._params.line_wait if silence <= self._params.line_silence else 0.0

    def note_filled(self) -> None:
        """Note that the present line brought a packet that was missing."""
        if self.line is not None:
            self._filled[self.line] += 1

    def make_statistics(self, now: float) -> tuple[LineStatistics, ...]:
        """A snapshot of the counters of each line."""
        return tuple(
            LineStatistics(
                line=name,
                packets=self._packets[at],
                first_copies=int(self._counts[kernels.FIRST_COPIES + at]),
                copies=int(self._counts[kernels.COPIES + at]),
                filled_gaps=self._filled[at],
                silent_seconds=None if heard == _NEVER else max(0.0, now - heard),
            )
            for at, (name, heard) in enumerate(zip(LINES, self._heard_at, strict=True))
        )
