"""A broker's service time: a fixed time per message, plus a time for each box it compares.

A publication is matched against every box in the table. A statement is compared with every box in
the table too, once for each box of its own: a union of 30 boxes costs as much as 30 subscriptions.
"""

from __future__ import annotations

from distributary.machines.virtual.node import Service, price_work

__all__ = [
    "FIRST_RATE",
    "FIRST_SECONDS_PER_BOX",
    "SECONDS_PER_BOX",
    "SECONDS_PER_MESSAGE",
    "price_broker",
]

# Section V-B: during congestion brokers handled 3.3 messages a second. The fullest core broker has
# about 16,000 boxes then, under active covering, and the price of a box is reckoned with these.
# Fig. 7's page states how many messages it handles.
SECONDS_PER_MESSAGE, SECONDS_PER_BOX = 0.01, 1.85e-5
# The first price was reckoned with 18,000 boxes; the figures then came to this many messages.
FIRST_SECONDS_PER_BOX, FIRST_RATE = 1.63e-5, 3.8


def price_broker(*, match: float, compare: float) -> Service:
    """A service of `match` seconds per box for publications, and `compare` for statements."""
    return price_work(SECONDS_PER_MESSAGE, compare=compare, match=match)
