"""A client's move from one broker to another, as far as it is.

It takes four steps, and loses nothing:

1. *Make*: the client opens a session at the new broker and repeats its subscriptions and
   advertisements there, until all brokers know them. It goes on at the old broker meanwhile.
2. *Release*: it withdraws its advertisements at the old broker, which is confirmed once everything
   published there is delivered. New publications wait, so that they cannot overtake old ones.
3. *Drain*: it publishes at the new broker, and takes from the old one all that is on its way. The
   events of the new broker wait.
4. *Break*: the old session ends. Of the events of the new broker, those that came from the old one
   too are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from distributary.content.client_session import (
    BrokerSession,
    RequestKey,
    RequestState,
    TakenFrom,
)
from distributary.content.protocol import Dropped, Event, SendFrame

__all__ = ["ClientMove", "MoveState"]


class MoveState(Enum):
    """How far a move is."""

    MAKING = "make"
    RELEASING = "release"
    DRAINING = "drain"


@dataclass(slots=True)
class ClientMove:
    """A move under way; `held` is what the new broker has delivered.

    `ignored` are subscriptions that only the new broker delivers events for. They had not settled
    at the old broker when it was released, so its events for them may have gaps that the new broker
    fills.
    """

    old: BrokerSession
    old_broker: str
    ticket: int
    abandons: bool
    state: MoveState = MoveState.MAKING
    ignored: set[int] = field(default_factory=set)
    held: deque[tuple[TakenFrom, Event | Dropped]] = field(default_factory=deque)
    _withdraws: bool = False  # its advertisements at the old broker

    def release(self, wanted: Iterable[RequestKey]) -> None:
        """All brokers know what the client wants: leave the old broker."""
        self.state = MoveState.RELEASING
        self.ignored = {
            key.number
            for key in wanted
            if key.kind == "subscription" and self.old.state_of(key) is not RequestState.SETTLED
        }

    def withdraw(self, wanted: Iterable[RequestKey]) -> list[SendFrame]:
        """Withdraw the advertisements at the old broker, if that is not done yet.

        With them goes the one that the broker made by itself, for a client that has none.
        """
        if self._withdraws:
            return []
        self._withdraws = True
        own = [key for key in wanted if key.kind == "advertisement"]
        if not own and self.old.has_published:
            own = [RequestKey("advertisement", 0)]
        return [frame for key in own for frame in self.old.end(key)]

    @property
    def has_withdrawn(self) -> bool:
        """Whether everything that was published at the old broker is delivered."""
        return self._withdraws and not any(key.kind == "advertisement" for key in self.old.ending)
