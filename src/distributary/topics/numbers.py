"""Numbers in messages: whoever decodes one refuses those that no machine of ours would send.

Counts go up by one here and there: with room above them they never leave what 64 bits hold.
"""

from __future__ import annotations

from sys import float_info
from typing import Annotated

from msgspec import Meta

__all__ = ["MOST", "Cost", "Count", "Flow"]

MOST = 1 << 62

Count = Annotated[int, Meta(ge=0, le=MOST)]  # of anything, and versions
Flow = Annotated[
    float, Meta(ge=0.0, le=float_info.max)
]  # events per interval; not infinite, a number
Cost = Annotated[float, Meta(ge=-float_info.max, le=float_info.max)]
