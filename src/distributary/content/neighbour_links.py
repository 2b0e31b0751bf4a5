"""A broker's links with its neighbours: what is sent at once, and what waits for its turn.

Statements are sent at once. Publications and barriers wait until the neighbour's state is known.
What is said to a neighbour that is away is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from distributary.content.broker import ContentBroker
from distributary.content.connections import Connection, Timing
from distributary.content.link_queue import LinkLimits, LinkQueue
from distributary.content.messages import (
    Barrier,
    BarrierPassed,
    Packed,
    Publication,
    Statement,
)
from distributary.content.resync import AskDigests, SyncComplete
from distributary.content.sizes import measure_message
from distributary.content.state_exchange import StateExchange
from distributary.machines.actions import Action, Message, Send, SetTimer

__all__ = ["NeighbourLinks"]


class NeighbourLinks:
    """The connections of one incarnation of a broker, and the queues in front of them."""

    def __init__(
        self, core: ContentBroker, incarnation: int, timing: Timing, limits: LinkLimits
    ) -> None:
        self.connections: dict[str, Connection] = {}
        self.queues: dict[str, LinkQueue] = {}
        self.exchange = StateExchange(core, self.connections, timing.packet // 2)
        self.is_away: Callable[[str], bool] = lambda neighbour: False
        self._incarnation = incarnation
        self._timing = timing
        self._limits = limits

    @property
    def idle(self) -> bool:
        """Whether no message is outstanding."""
        return (
            not self.exchange.incomplete
            and all(each.idle for each in self.connections.values())
            and not any(map(len, self.queues.values()))
        )

    def add(self, neighbour: str) -> None:
        """A link comes up, or the broker starts."""
        self.connections[neighbour] = Connection(
            neighbour, self._incarnation, self._timing, measure_message
        )
        self.queues[neighbour] = LinkQueue(self._limits)
        self.exchange.add(neighbour)

    def remove(self, neighbour: str) -> SetTimer:
        """A link is gone for good; stop its timer."""
        timer = self.connections.pop(neighbour).timer
        del self.queues[neighbour]
        self.exchange.remove(neighbour)
        return SetTimer(timer, None)

    def divert_sends(self, actions: Iterable[Action]) -> list[Action]:
        """Send statements over the connections; return the other actions."""
        left: list[Action] = []
        for action in actions:
            if not isinstance(action, Send):
                left.append(action)
            elif not (self.exchange.awaits(action.to) and _is_statement(action.message)):
                self.connections[action.to].send(action.message, keep=False)
        return left

    def bound_statements(self, neighbour: str) -> None:
        """Drop the statements for a neighbour that is away, and compare states when it is back.

        Until then nothing else is sent: neither publications nor a barrier must arrive before what
        was said before them.
        """
        connection, most = self.connections[neighbour], self._limits.statements
        if connection.unsent <= most or not self.is_away(neighbour):
            return
        if connection.count_unsent(_is_statement) <= most:
            return
        unsent = connection.take_unsent()
        queued = (Publication, Barrier, BarrierPassed)
        self.queues[neighbour].take_back(each for each in unsent if isinstance(each, queued))
        self.exchange.await_digests(neighbour)
        for message in unsent:
            if not _is_statement(message) and not isinstance(message, (*queued, SyncComplete)):
                connection.send(message, keep=False)
        connection.send(AskDigests(), keep=False)

    def release(
        self, neighbour: str, may_want: Callable[[str, Publication], bool]
    ) -> list[Publication]:
        """Send what waits for a neighbour whose state is known; return what it does not want."""
        if not self.exchange.is_complete(neighbour):
            return []
        connection, queue = self.connections[neighbour], self.queues[neighbour]
        unwanted: list[Publication] = []
        for message, sure in queue.take():
            if not isinstance(message, Publication):
                connection.send(message, keep=False)
            elif sure or may_want(neighbour, message):
                queue.note_sent(message)
                connection.send(message, keep=True)
            else:
                unwanted.append(message)
        return unwanted


def _is_statement(message: Message) -> bool:
    return isinstance(message, Statement | Packed)
