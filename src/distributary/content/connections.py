"""One end of a link between two brokers: exactly-once, ordered delivery over a bad network.

Packets may be lost, duplicated, delayed and reordered, the link may be cut, and either end may
crash and restart. A broker's *incarnation* grows with each start. A *pairing* is one incarnation
here and one there; each packet names both as its sender knows them. An end enters a pairing once,
when it first hears of that incarnation of its peer, and never returns to an older one. Numbers can
therefore start from 1 in each pairing, and a packet of an older pairing changes nothing, however
late it arrives.

Within a pairing every message is delivered once and in order. The receiver acknowledges numbers in
two stages: a message that is *received* is not retransmitted, and one that is *done* is forgotten
by its sender. Messages to be kept until they are done are offered again in the next pairing if they
were not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from distributary.content._connection_halves import ReceiveHalf, SendHalf, Timing
from distributary.machines.actions import Action, Message, Send, SetTimer

__all__ = ["Connection", "Packet", "Received", "Timing"]


# Beyond a gap, messages are held up to this number ahead; no peer has a window as wide.
_FARTHEST = 1 << 16


@dataclass(frozen=True, slots=True)
class Packet:
    """Messages, from the number `first` on, and acknowledgements.

    `sender` and `receiver` are the incarnations of the ends; `receiver` is 0 while the sender does
    not know it. Everything up to `received` has arrived, and `held`, unless 0, is the next number
    that has: those in between are missing. If `asks`, the sender wants a packet back.
    """

    sender: int
    receiver: int
    received: int = 0
    done: int = 0
    held: int = 0
    first: int = 0
    messages: tuple[Message, ...] = ()
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """The content of a packet, to be handled in the order of the fields.

    With a `reset` a new pairing has begun, and all statements of the previous one are void: send
    the routing state, then the result of `Connection.take_kept`. `messages` come with the number
    for `Connection.finish`; `finished` are kept messages that the peer is done with.
    """

    reset: bool
    messages: tuple[tuple[int, Message], ...]
    finished: tuple[Message, ...]


_NOTHING = Received(False, (), ())


class Connection:
    """One incarnation's end of the link to `peer`; later incarnations have higher numbers.

    Calls only record what is to be done, and `flush` returns the actions: call it when the
    connection is new, and after all calls for one input, so that messages share packets. `timer` is
    the name of the connection's timer. A connection with nothing outstanding sends nothing, so it
    does not tell whether the peer is alive. `measure` tells how many bytes a message takes.
    """

    def __init__(
        self,
        peer: str,
        incarnation: int,
        timing: Timing,
        measure: Callable[[Message], int] = lambda message: 0,
    ) -> None:
        if incarnation < 1:
            raise ValueError(f"incarnations count from 1, not {incarnation}")
        self.peer = peer
        self.incarnation = incarnation
        self.peer_incarnation = 0
        self.timer = f"connection {peer}"
        self.packets_sent = 0
        self.packets_received = 0
        self.resent = 0  # retransmitted messages
        self.duplicates = 0  # duplicate messages received
        self.stale = 0  # packets of no use to this pairing
        self._timing = timing
        self._measure = measure
        self._out = SendHalf(timing, measure)
        self._in = ReceiveHalf()
        self._left: list[Message] = []  # kept from earlier pairings, to be taken
        self._base = 0  # offset of this pairing's numbers, which makes them unique
        self._acknowledged = 0  # the last number acknowledged to the peer
        self._wait = timing.resend
        self._retry_at = -inf  # when to retry; at once for a new connection
        self._answer_at = inf
        self._timer_at = inf

    @property
    def backlog(self) -> int:
        """The number of messages that the peer has not received, for back-pressure."""
        return len(self._out.unreceived) + len(self._left)

    @property
    def kept(self) -> int:
        """The number of messages kept because the peer is not done with them."""
        return len(self._out.undone) + len(self._left)

    @property
    def idle(self) -> bool:
        """Whether the peer is known and nothing is outstanding in either direction."""
        said = not self.backlog and not self.kept and self._answer_at == inf
        return self.peer_incarnation > 0 and said and self._in.finished

    def send(self, message: Message, *, keep: bool) -> None:
        """Queue a message; `keep` it until the peer is done with it.

        While the peer is unknown, messages to keep are stored for `take_kept`; others are dropped,
        since the coming reset makes them void.
        """
        if self.peer_incarnation:
            self._out.add(message, keep)
        elif keep:
            self._left.append(message)

    @property
    def unsent(self) -> int:
        """The number of messages that were never sent, because the window is full."""
        return self._out.unsent

    def count_unsent(self, what: Callable[[Message], bool]) -> int:
        """The number of certain messages among those that were never sent."""
        return self._out.count_unsent(what)

    def take_unsent(self) -> list[Message]:
        """Take back all messages that were never sent, kept ones too."""
        return self._out.take_unsent()

    def finish(self, number: int, now: float) -> None:
        """Let the peer forget a message; those of earlier pairings are already forgotten."""
        if number > self._base + self._in.received:
            raise ValueError(f"message {number} was not delivered, so it cannot be finished")
        if self._in.complete(number - self._base):
            self._answer_by(now + self._timing.answer)

    def take_kept(self) -> list[Message]:
        """Hand over the messages kept from earlier pairings, in order.

        The connection forgets them; the caller sends them again or not.
        """
        taken, self._left = self._left, []
        return taken

    def on_packet(self, packet: Packet, now: float) -> Received:
        """Handle a packet of the peer."""
        self.packets_received += 1
        if packet.sender < self.peer_incarnation or packet.receiver > self.incarnation:
            self.stale += 1
            return _NOTHING
        reset = packet.sender > self.peer_incarnation
        if reset:
            self._enter(packet.sender)
        if packet.receiver != self.incarnation:
            self.stale += packet.receiver > 0
            self._answer_at = now  # the peer does not know this incarnation
            return Received(reset, (), ())
        is_ahead = packet.first > self._in.received + _FARTHEST
        if is_ahead or not packet.done <= packet.received <= self._out.sent:
            self.stale += 1  # a correct peer never does either
            return Received(reset, (), ())
        return Received(reset, self._take(packet, now), self._acknowledge(packet))

    def hurry(self, now: float) -> None:
        """Retry at the next flush, because the way to the peer is open again."""
        self._wait = self._timing.resend
        if not self.peer_incarnation or self._out.unreceived or self._out.undone:
            self._retry_at = now

    def on_timer(self, now: float) -> list[Action]:
        """Handle the connection's timer."""
        self._timer_at = inf
        return self.flush(now)

    def flush(self, now: float) -> list[Action]:
        """All actions that are due now."""
        actions: list[Action] = []
        if now >= self._retry_at:
            actions.append(self._retry(now))
        was_quiet = not self._out.in_flight
        again, new = self._out.take_retransmissions(), self._out.take_new_packets()
        self.resent += sum(map(len, again))
        actions += [self._packet(span) for span in again + new]
        if was_quiet and new:
            self._reset_retry()
        if now >= self._answer_at:
            actions.append(self._packet())
        self._set_timer(now, actions)
        return actions

    def _enter(self, peer_incarnation: int) -> None:
        """Start a new pairing; all numbers start from 1."""
        self.peer_incarnation = peer_incarnation
        self._left += self._out.undone.values()
        self._base += self._in.received
        self._out = SendHalf(self._timing, self._measure)
        self._in = ReceiveHalf()
        self._acknowledged = 0
        self._answer_at = inf
        self._reset_retry()

    def _take(self, packet: Packet, now: float) -> tuple[tuple[int, Message], ...]:
        if packet.asks:
            self._answer_at = now
        if not packet.messages:
            return ()
        number = self._base + self._in.received + 1
        taken, duplicates = self._in.take(packet.first, packet.messages)
        self.duplicates += duplicates
        # The peer may be waiting if half a window is unacknowledged.
        waits = self._in.received - self._acknowledged < self._timing.window // 2
        self._answer_by(now + self._timing.answer if waits else now)
        return tuple(enumerate(taken, number))

    def _acknowledge(self, packet: Packet) -> tuple[Message, ...]:
        progress, finished = self._out.acknowledge(packet.received, packet.held, packet.done)
        if progress:
            self._reset_retry()
        return finished

    def _reset_retry(self) -> None:
        """Reset the back-off; the time-out starts at the next flush."""
        self._wait = self._timing.resend
        self._retry_at = inf

    def _answer_by(self, time: float) -> None:
        self._answer_at = min(self._answer_at, time)

    def _retry(self, now: float) -> Send:
        """Retransmit the oldest missing messages, or else ask for an answer."""
        self._wait = min(2 * self._wait, self._timing.longest)
        self._retry_at = now + self._wait
        if not self._out.in_flight:
            return self._packet(asks=True)
        span = self._out.time_out()
        self.resent += len(span)
        return self._packet(span)

    def _packet(self, span: range = range(0), *, asks: bool = False) -> Send:
        self.packets_sent += 1
        self._answer_at = inf
        self._acknowledged = self._in.received
        messages = tuple(map(self._out.unreceived.__getitem__, span))
        packet = Packet(
            self.incarnation,
            self.peer_incarnation,
            self._in.received,
            self._in.done,
            self._in.first_held,
            span.start,
            messages,
            asks,
        )
        return Send(self.peer, packet)

    def _set_timer(self, now: float, actions: list[Action]) -> None:
        """Set the timer if it would be late; an early one is harmless and saves a reset."""
        waits = not self.peer_incarnation or self._out.unreceived or self._out.undone
        if not waits:
            self._retry_at = inf
        elif self._retry_at == inf:
            self._retry_at = now + self._wait
        deadline = min(self._retry_at, self._answer_at)
        if deadline < self._timer_at:
            self._timer_at = deadline
            actions.append(SetTimer(self.timer, deadline))
