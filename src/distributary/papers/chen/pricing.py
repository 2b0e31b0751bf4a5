"""What a broker's time costs: a fixed time for each message, and a time for each box it compares.

A publication is matched against every box in the table. A statement is compared with every box in
the table, too, once for each box of its own: a union of 30 boxes is as dear as 30 subscriptions.
"""

from __future__ import annotations

from distributary.protocol.actions import Action, Message, Work
from distributary.protocol.content import ContentBroker
from distributary.protocol.content.messages import Packed, Subscribed
from distributary.simulation import Simulation, priced

__all__ = ["SECONDS_PER_BOX", "SECONDS_PER_MESSAGE", "Weighed", "add_broker"]

SECONDS_PER_MESSAGE, SECONDS_PER_BOX = 0.01, 1.2e-5


def add_broker(
    simulation: Simulation, broker: ContentBroker, *, match: float, compare: float
) -> None:
    """Start a broker that takes so many seconds for each box, of publications and of statements."""
    service = priced(SECONDS_PER_MESSAGE, compare=compare, match=match)
    simulation.add(broker.name, Weighed(broker), service=service)


class Weighed:
    """A broker for which each box of a statement is work, not only the first."""

    def __init__(self, broker: ContentBroker) -> None:
        self.broker = broker

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """What the broker does, and the work it has with further boxes."""
        table = self.broker.subscriptions.boxes
        actions = self.broker.on_message(sender, message, now)
        further = _boxes_beyond_one(message)
        return [*actions, Work("compare", further * table)] if further else actions

    def on_timer(self, name: str, now: float) -> list[Action]:
        """What the broker does."""
        return self.broker.on_timer(name, now)


def _boxes_beyond_one(message: Message) -> int:
    statements = message.statements if isinstance(message, Packed) else (message,)
    return sum(len(each.filter.boxes) - 1 for each in statements if isinstance(each, Subscribed))
