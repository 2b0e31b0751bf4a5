"""Brokers that collect changes of subscriptions and spread them together, once in a period."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor

from distributary.content import Broker, SubscribeRequest, UnsubscribeRequest
from distributary.machines.actions import Action, Message, Send, SetTimer, Work

__all__ = ["Batch", "BatchingBroker"]

Change = SubscribeRequest | UnsubscribeRequest
_TIMER = "batch"


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes in the order in which they were made."""

    changes: tuple[Change, ...]


class BatchingBroker:
    """A broker that holds its clients' changes until the next multiple of the period."""

    def __init__(self, broker: Broker, period: float) -> None:
        self._broker = broker
        self._period = period
        self._held: list[Change] = []

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Hold a change of a client; apply a batch; leave events to the broker."""
        if isinstance(message, Batch):
            return self._apply(message.changes, now)
        if not isinstance(message, Change):
            return self._broker.on_message(sender, message, now)
        self._held.append(message)
        if len(self._held) > 1:
            return []
        return [SetTimer(_TIMER, self._period * (floor(now / self._period) + 1))]

    def on_timer(self, name: str, now: float) -> list[Action]:
        """The period is over."""
        held, self._held = self._held, []
        return self._apply(held, now)

    def _apply(self, changes: Iterable[Change], now: float) -> list[Action]:
        """Apply changes and send each neighbour those that it needs in one message."""
        behind: dict[str, list[Change]] = {}
        units = 0.0
        for change in changes:
            for action in self._broker.on_message("", change, now):
                if isinstance(action, Send):
                    behind.setdefault(action.to, []).append(action.message)
                elif isinstance(action, Work) and action.kind == "change":
                    units += action.units
        return [
            *(Send(to, Batch(tuple(found))) for to, found in behind.items()),
            Work("change", units),
            Work("send", len(behind)),
        ]
