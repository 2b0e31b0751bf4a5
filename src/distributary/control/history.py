"""What was measured and predicted in the last minutes, a point for each second."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from distributary.control.receivers import NOTHING, add_wastes
from distributary.control.status import HistoryPoint, Waste

__all__ = ["TrafficHistory", "dropped"]

_KEPT = 900  # points


class TrafficHistory:
    """Points, oldest first."""

    def __init__(self) -> None:
        self._points: deque[HistoryPoint] = deque(maxlen=_KEPT)

    def add(self, point: HistoryPoint) -> None:
        """Add a point that is later than all others."""
        self._points.append(point)

    def list_after(self, at: float) -> list[HistoryPoint]:
        """The points after a time."""
        found: list[HistoryPoint] = []
        for point in reversed(self._points):
            if point.at <= at:
                break
            found.append(point)
        return found[::-1]

    def average(self, after: float, until: float) -> tuple[Waste, Waste, int]:
        """What was measured and predicted on average, and in how many points."""
        points = [point for point in self.list_after(after) if point.at <= until]
        return (
            _average([point.measured for point in points]),
            _average([point.predicted for point in points]),
            len(points),
        )


def dropped(waste: Waste) -> float:
    """The messages per second that both filters of all receivers drop."""
    return waste.dropped_first + waste.dropped_second


def _average(wastes: Sequence[Waste]) -> Waste:
    if not wastes:
        return NOTHING
    total, n = add_wastes(wastes), len(wastes)
    return Waste(total.wanted / n, total.dropped_first / n, total.dropped_second / n)
