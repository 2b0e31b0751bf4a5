"""Colours that have the same meaning everywhere on the pages.

All have a contrast of at least 3:1 with a white and a near-black background, and differ in
lightness as well as in hue.
"""

from __future__ import annotations

__all__ = ["ACCENTS", "FLOW_DROPPED", "MISSED", "SESSION_DROPPED", "WANTED"]

WANTED = "#2f74c0"
FLOW_DROPPED = "#cf8417"
SESSION_DROPPED = "#8b9299"
MISSED = "#d1361c"

# For lines that mean none of the above, in this order.
ACCENTS = ("#2f74c0", "#cf8417", "#2a9179", "#a5549b", "#8b9299", "#c2503a", "#5f7fd9", "#7d8c2b")
