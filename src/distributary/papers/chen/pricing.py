"""A broker's service time: a fixed time per message, plus a time for each box it compares.

A publication is matched against every box in the table. A statement is compared with every box in
the table too, once for each box of its own: a union of 30 boxes costs as much as 30 subscriptions.
"""

from __future__ import annotations

from distributary.machines.virtual.node import Service, price_work

__all__ = ["SECONDS_PER_BOX", "SECONDS_PER_MESSAGE", "price_broker"]

# Section V-B: during congestion brokers handled 3.3 messages a second. The fullest core broker has
# about 18,000 boxes then, under active covering.
SECONDS_PER_MESSAGE, SECONDS_PER_BOX = 0.01, 1.63e-5


def price_broker(*, match: float, compare: float) -> Service:
    """A service of `match` seconds per box for publications, and `compare` for statements."""
    return price_work(SECONDS_PER_MESSAGE, compare=compare, match=match)
