"""What a client does with the events of its brokers: it hands each on once, and acknowledges it."""

from __future__ import annotations

from collections.abc import Collection

from distributary.content.client_actions import (
    ClientAction,
    ClientParams,
    HandEvent,
    HandLoss,
    LostEvents,
    ReceivedEvent,
)
from distributary.content.client_inbox import EventInbox
from distributary.content.client_session import BrokerSession, RequestKey, TakenFrom
from distributary.content.client_wishes import ClientWishes
from distributary.content.protocol import Dropped, Event
from distributary.machines.actions import SetTimer

__all__ = ["ClientDeliveries"]

_TIMER = "acknowledge "


class ClientDeliveries:
    """Hands events to the subscriptions that want them, and says when they are acknowledged."""

    def __init__(self, params: ClientParams, wishes: ClientWishes) -> None:
        self._params = params
        self._wishes = wishes
        self._inbox = EventInbox()
        self._timers: set[str] = set()
        self.duplicates = 0
        self.delivered = 0

    def take(
        self,
        session: BrokerSession,
        taken: TakenFrom,
        message: Event | Dropped,
        now: float,
        ignored: Collection[int] = (),
    ) -> list[ClientAction]:
        """Give a delivery to the application, but not to the `ignored` subscriptions."""
        if isinstance(message, Dropped):
            count = message.last - message.first + 1
            actions = self.report_loss(session, taken, count, message.reason)
        else:
            actions = self._take_event(session, taken, message, ignored)
        return [*actions, *self.acknowledge(session, now)]

    def _take_event(
        self, session: BrokerSession, taken: TakenFrom, message: Event, ignored: Collection[int]
    ) -> list[ClientAction]:
        new = self._inbox.take_new(message, ignored)
        self.duplicates += not new
        event = ReceivedEvent(
            message.attributes,
            message.payload,
            message.publisher,
            message.broker,
            message.number,
            message.published,
            taken,
        )
        wanted: list[int] = []
        takers = 0
        for number in new:
            key = RequestKey("subscription", number)
            if key in self._wishes.texts:
                wanted.append(number)
            elif key in self._wishes.unclaimed:
                self._wishes.unclaimed[key].append(event)
                takers += 1
        session.hand(taken, takers + len(wanted))
        self.delivered += len(wanted)
        return [HandEvent(tuple(wanted), event)] if wanted else []

    def hand_kept(
        self, subscription: int, kept: list[ReceivedEvent | LostEvents]
    ) -> list[ClientAction]:
        """Hand what came for a subscription of an earlier process to the one that takes it over."""
        actions: list[ClientAction] = []
        for item in kept:
            if isinstance(item, LostEvents):
                actions.append(HandLoss((subscription,), item))
            else:
                self.delivered += 1
                actions.append(HandEvent((subscription,), item))
        return actions

    def report_loss(
        self, session: BrokerSession, taken: TakenFrom, count: int | None, reason: str
    ) -> list[ClientAction]:
        """Tell all subscriptions, at this place among their events, that some are missing."""
        loss = LostEvents(count, reason, taken)
        whose = tuple(key.number for key in self._wishes.texts if key.kind == "subscription")
        unclaimed = self._wishes.unclaimed.items()
        kept = [items for key, items in unclaimed if key.kind == "subscription"]
        for items in kept:
            items.append(loss)
        session.hand(taken, len(whose) + len(kept))
        return [HandLoss(whose, loss)] if whose else []

    def acknowledge(self, session: BrokerSession, now: float) -> list[ClientAction]:
        """Acknowledge now if much is processed, else soon."""
        processed = session.unacknowledged
        if not processed:
            return []
        if processed >= self._params.acknowledge_every:
            return [*session.acknowledge()]
        timer = f"{_TIMER}{session.place}"
        if timer in self._timers:
            return []
        self._timers.add(timer)
        return [SetTimer(timer, now + self._params.acknowledge_after)]

    def on_timer(self, name: str) -> int:
        """A timer has expired: return the place whose broker is to be told."""
        self._timers.discard(name)
        return int(name.removeprefix(_TIMER))
