"""A broker's service time: a fixed time per message, plus a time for each box it compares.

A publication is matched against every box in the table. A statement is compared with every box in
the table too, once for each box of its own: a union of 30 boxes costs as much as 30 subscriptions.
"""

from __future__ import annotations

from distributary.content import ContentBroker
from distributary.machines.virtual import Simulation, price_work

__all__ = ["SECONDS_PER_BOX", "SECONDS_PER_MESSAGE", "add_broker"]

SECONDS_PER_MESSAGE, SECONDS_PER_BOX = 0.01, 1.2e-5


def add_broker(
    simulation: Simulation, broker: ContentBroker, *, match: float, compare: float
) -> None:
    """Add a broker that takes `match` seconds per box of publications, `compare` of statements."""
    service = price_work(SECONDS_PER_MESSAGE, compare=compare, match=match)
    simulation.add(broker.name, broker, service=service)
