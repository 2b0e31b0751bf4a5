"""Where a curve of costs stops falling steeply.

Reference: V. Satopää, J. Albrecht, D. Irwin, B. Raghavan, "Finding a 'Kneedle' in a Haystack:
Detecting Knee Points in System Behavior" (2011), section III.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["ROUNDING", "Knee", "find_knee"]

FLAT = 0.01  # share of the first point's excess; a sweep that saves less has no knee
STRAIGHT = 0.05  # share of the whole sweep's saving; a curve that bends less has no knee
# Smaller differences of Cx/Cf may come from adding the same rates in another order.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Knee:
    """The number of groups after which one more saves less than the sweep's average group.

    As shares of flooding's excess: each group up to here saved `share_before` on average, and no
    group after it saves more than `share_after`, averaged from here to any later point.
    """

    groups: int
    share_before: float
    share_after: float


def find_knee(groups: Sequence[int], relative_excess: Sequence[float]) -> Knee | None:
    """Find where more groups begin to save little: the point farthest below the chord.

    The chord is the straight line from the first point to the last, and the distance is measured
    along the axis of Cx/Cf (as in Kneedle, without smoothing). Groups are counted linearly and not
    logarithmically, because each one has a price. Two properties follow for any curve: between any
    earlier point and the knee, a group saved more than the average group of the whole sweep, and
    between the knee and any later point it saves no more than that. The units of the axes do not
    matter, but the range of the sweep does, because the average is taken between its ends.

    A point that is worse than one with fewer groups counts as that one, since its plan would do as
    well. Of several points equally far below the chord, the first is the knee. There is no knee
    (None)

    - if there are fewer than 3 points;
    - if more groups hardly help: the last saves less than `FLAT` of the first's excess;
    - if the curve is straight or bends the other way: no point is below the chord by `STRAIGHT` of
      the whole sweep's saving.
    """
    x = np.asarray(groups, np.float64)
    y = np.minimum.accumulate(np.asarray(relative_excess, np.float64)) if len(x) else x
    if len(relative_excess) != len(x) or np.any(np.diff(x) <= 0):
        raise ValueError(
            "a curve needs one excess for each number of groups, and groups in ascending order"
        )
    if len(x) < 3 or y[0] - y[-1] <= max(FLAT * y[0], ROUNDING):
        return None
    depth = (y[0] - y) / (y[0] - y[-1]) - (x - x[0]) / (x[-1] - x[0])
    if depth.max() < STRAIGHT:
        return None
    at = int(np.argmax(depth >= depth.max() - ROUNDING))
    return Knee(
        groups=int(groups[at]),
        share_before=float((y[0] - y[at]) / (x[at] - x[0])),
        share_after=float(np.max((y[at] - y[at + 1 :]) / (x[at + 1 :] - x[at]))),
    )
