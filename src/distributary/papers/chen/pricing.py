"""What a broker's time costs: a fixed time for each message, and a time for each box it compares.

A publication is matched against every box in the table. A statement is compared with every box in
the table, too, once for each box of its own: a union of 30 boxes is as dear as 30 subscriptions.
"""

from __future__ import annotations

from distributary.protocol.content import ContentBroker
from distributary.simulation import Simulation, price_work

__all__ = ["SECONDS_PER_BOX", "SECONDS_PER_MESSAGE", "add_broker"]

SECONDS_PER_MESSAGE, SECONDS_PER_BOX = 0.01, 1.2e-5


def add_broker(
    simulation: Simulation, broker: ContentBroker, *, match: float, compare: float
) -> None:
    """Start a broker that takes so many seconds for each box, of publications and of statements."""
    service = price_work(SECONDS_PER_MESSAGE, compare=compare, match=match)
    simulation.add(broker.name, broker, service=service)
