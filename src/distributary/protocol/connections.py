"""One end of a link between two brokers: nothing lost, nothing twice, in order, over a bad network.

Packets may be lost, doubled, late and out of order, the link may be cut, and either end may crash
and come back. A broker counts its lives: its *incarnation* grows with each start. A *pairing* is
one life here and one life there; each packet names both as its sender knows them. Each end enters a
pairing once, when it first hears of that life of its peer, and never goes back to an older one. So
numbers can start from 1 in each pairing, and a packet of an older one changes nothing, however late
it comes.

Within a pairing every message is delivered once and in order. Its receiver says two things of the
numbers up to some number: they were *received*, so they are not sent again, and it is *done* with
them, so they are forgotten here. What is to be kept until it is done, and was not when the pairing
ended, is offered for the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from distributary.protocol._connection_halves import Incoming, Outgoing
from distributary.protocol.actions import Action, Message, Send, SetTimer

__all__ = ["Connection", "Packet", "Received", "Timing"]


@dataclass(frozen=True, slots=True)
class Timing:
    """When a connection sends what, times in seconds.

    What is not acknowledged within `resend` goes out again, later after twice that and so on up to
    `longest`; `resend` should be more than a round trip and `answer`. Acknowledgements wait for
    `answer` to travel with messages. At most `window` messages are on their way, up to `batch` of
    them in one packet.
    """

    resend: float = 0.2
    longest: float = 5.0
    answer: float = 0.01
    window: int = 256
    batch: int = 32

    def __post_init__(self) -> None:
        if not (0 < self.resend <= self.longest < inf and 0 <= self.answer < inf):
            raise ValueError(
                f"cannot answer after {self.answer} s, and send again after {self.resend} s and "
                f"up to {self.longest} s"
            )
        if self.window < 1 or self.batch < 1:
            raise ValueError(f"no message fits a window of {self.window}, a batch of {self.batch}")


@dataclass(frozen=True, slots=True)
class Packet:
    """What one end tells the other: messages, from the number `first` on, and acknowledgements.

    `sender` and `receiver` are the incarnations of the ends; that of the receiver is 0 while the
    sender does not know it. Everything up to `received` came, and `held`, if it is not 0, is the
    next that did: what is between is missing. One that `asks` wants a packet back.
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
    """What a packet brought; to be handled in the order of the fields.

    With a `reset` a new pairing has begun, and all statements of the one before are void: now is
    the time to send the state of the routing, then what `Connection.take_kept` gives. `messages`
    come with the number to call `Connection.done` with; `finished` are kept ones the peer is done
    with.
    """

    reset: bool
    messages: tuple[tuple[int, Message], ...]
    finished: tuple[Message, ...]


_NOTHING = Received(False, (), ())


class Connection:
    """One life's end of the link to `peer`; a later life must have a higher `incarnation`.

    Calls only note what is to be done, until `flush` says what that is: call it when a connection
    is new, and after all that one input made its owner do. Then messages share packets. The timer
    of the connection is called `timer`. Once all is said and done nothing more is sent, so this
    does not tell whether the peer is alive.
    """

    def __init__(self, peer: str, incarnation: int, timing: Timing) -> None:
        if incarnation < 1:
            raise ValueError(f"incarnations count from 1, not {incarnation}")
        self.peer = peer
        self.incarnation = incarnation
        self.peer_incarnation = 0
        self.timer = f"connection {peer}"
        self.packets_sent = 0
        self.packets_received = 0
        self.resent = 0  # messages sent again
        self.duplicates = 0  # messages that had come already
        self.stale = 0  # packets that were of no use to this pairing
        self._timing = timing
        self._out = Outgoing(timing.window, timing.batch)
        self._in = Incoming()
        self._left: list[Message] = []  # kept from earlier pairings, to be taken
        self._base = 0  # what is added to the numbers of this pairing, so that none comes twice
        self._told = 0  # up to where the peer was told that messages were received
        self._wait = timing.resend
        self._retry_at = -inf  # when to say again what was not answered; a new one says hello
        self._answer_at = inf
        self._timer_at = inf

    @property
    def backlog(self) -> int:
        """How many messages the peer has not received, for owners that would slow down."""
        return len(self._out.unreceived) + len(self._left)

    @property
    def kept(self) -> int:
        """How many messages are held here because the peer is not done with them."""
        return len(self._out.undone) + len(self._left)

    @property
    def idle(self) -> bool:
        """Whether the peer is known, and nothing is left to send, to keep or to be done with."""
        said = not self.backlog and not self.kept and self._answer_at == inf
        return self.peer_incarnation > 0 and said and self._in.finished

    def send(self, message: Message, *, keep: bool) -> None:
        """Send a message in its turn; `keep` it until the peer is done with it.

        While the peer has not been heard of, only what is to be kept waits for it, where
        `take_kept` finds it; the rest is void by the reset that will come.
        """
        if self.peer_incarnation:
            self._out.add(message, keep)
        elif keep:
            self._left.append(message)

    def done(self, number: int, now: float) -> None:
        """Let the peer forget a message; those of earlier pairings are forgotten already."""
        if number > self._base + self._in.received:
            raise ValueError(f"message {number} was not delivered: it cannot be done")
        if self._in.complete(number - self._base):
            self._answer_by(now + self._timing.answer)

    def take_kept(self) -> list[Message]:
        """What was kept and not done when its pairing ended, in order, to be sent again or not.

        The connection knows nothing of these messages any more.
        """
        taken, self._left = self._left, []
        return taken

    def on_packet(self, packet: Packet, now: float) -> Received:
        """Take a packet from the peer in."""
        self.packets_received += 1
        if packet.sender < self.peer_incarnation or packet.receiver > self.incarnation:
            self.stale += 1
            return _NOTHING
        reset = packet.sender > self.peer_incarnation
        if reset:
            self._enter(packet.sender)
        if packet.receiver != self.incarnation:
            self.stale += packet.receiver > 0
            self._answer_at = now  # it has not heard of this life
            return Received(reset, (), ())
        if not packet.done <= packet.received <= self._out.sent:
            self.stale += 1  # nobody who keeps to the rules acknowledges what was never sent
            return Received(reset, (), ())
        return Received(reset, self._take(packet, now), self._acknowledge(packet))

    def on_timer(self, now: float) -> list[Action]:
        """The timer of the connection has run out."""
        self._timer_at = inf
        return self.flush(now)

    def flush(self, now: float) -> list[Action]:
        """All that is to be done at this time."""
        actions: list[Action] = []
        if now >= self._retry_at:
            actions.append(self._retry(now))
        was_quiet = not self._out.in_flight
        again, new = self._out.repeats(), self._out.advances()
        self.resent += sum(map(len, again))
        actions += [self._packet(span) for span in again + new]
        if was_quiet and new:
            self._be_patient()
        if now >= self._answer_at:
            actions.append(self._packet())
        self._set_timer(now, actions)
        return actions

    def _enter(self, peer_incarnation: int) -> None:
        """Begin a new pairing, with all numbers from 1."""
        self.peer_incarnation = peer_incarnation
        self._left += self._out.undone.values()
        self._base += self._in.received
        self._out = Outgoing(self._timing.window, self._timing.batch)
        self._in = Incoming()
        self._told = 0
        self._answer_at = inf
        self._be_patient()

    def _take(self, packet: Packet, now: float) -> tuple[tuple[int, Message], ...]:
        if packet.asks:
            self._answer_at = now
        if not packet.messages:
            return ()
        number = self._base + self._in.received + 1
        taken, duplicates = self._in.take(packet.first, packet.messages)
        self.duplicates += duplicates
        # Half a window that was not acknowledged may be what the peer waits for.
        waits = self._in.received - self._told < self._timing.window // 2
        self._answer_by(now + self._timing.answer if waits else now)
        return tuple(enumerate(taken, number))

    def _acknowledge(self, packet: Packet) -> tuple[Message, ...]:
        progress, finished = self._out.acknowledge(packet.received, packet.held, packet.done)
        if progress:
            self._be_patient()
        return finished

    def _be_patient(self) -> None:
        """Wait as at the beginning, from the next flush on, before saying anything again."""
        self._wait = self._timing.resend
        self._retry_at = inf

    def _answer_by(self, time: float) -> None:
        self._answer_at = min(self._answer_at, time)

    def _retry(self, now: float) -> Send:
        """Send the oldest missing messages again; else ask for an answer."""
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
        self._told = self._in.received
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
        """Have the timer run out in time; too early does no harm, and saves setting it anew."""
        waits = not self.peer_incarnation or self._out.unreceived or self._out.undone
        if not waits:
            self._retry_at = inf
        elif self._retry_at == inf:
            self._retry_at = now + self._wait
        deadline = min(self._retry_at, self._answer_at)
        if deadline < self._timer_at:
            self._timer_at = deadline
            actions.append(SetTimer(self.timer, deadline))
