"""Ranges of the numbers in messages; decoding refuses numbers outside of them.

The range of counts leaves room for increments within 64 bits.
"""

from __future__ import annotations

from sys import float_info
from typing import Annotated

from msgspec import Meta

__all__ = ["MOST", "Cost", "Count", "Flow"]

MOST = 1 << 62

Count = Annotated[int, Meta(ge=0, le=MOST)]  # counts and versions
Flow = Annotated[float, Meta(ge=0.0, le=float_info.max)]  # events per interval; finite
Cost = Annotated[float, Meta(ge=-float_info.max, le=float_info.max)]
