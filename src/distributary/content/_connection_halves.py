"""The two halves of a connection within one pairing: the sending and the receiving one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from distributary.machines.actions import Message

__all__ = ["ReceiveHalf", "SendHalf", "Timing"]


@dataclass(frozen=True, slots=True)
class Timing:
    """When a connection sends; times in seconds.

    A packet that is not acknowledged within `resend` is retransmitted, with exponential back-off up
    to `longest`; `resend` should exceed a round trip plus `answer`. Acknowledgements wait for
    `answer` to be piggybacked on messages. At most `window` messages are in flight, up to `batch`
    of them per packet, which has at most `packet` bytes unless a single message has more.
    """

    resend: float = 0.2
    longest: float = 5.0
    answer: float = 0.01
    window: int = 256
    batch: int = 32
    packet: int = 16 << 20

    def __post_init__(self) -> None:
        if not (0 < self.resend <= self.longest < inf and 0 <= self.answer < inf):
            raise ValueError(
                f"times must be 0 < resend <= longest and 0 <= answer, not resend={self.resend}, "
                f"longest={self.longest}, answer={self.answer}"
            )
        if min(self.window, self.batch, self.packet) < 1:
            raise ValueError(
                f"window, batch and packet must be at least 1, not {self.window}, {self.batch} and "
                f"{self.packet}"
            )


class SendHalf:
    """Messages numbered from 1, which are queued, in flight, received or done.

    After a time-out one packet is retransmitted, and nothing else is sent until it is acknowledged.
    From then on what was in flight at the time-out is retransmitted gap by gap, as the peer reports
    the gaps, so that the peer gets nothing twice.
    """

    def __init__(self, timing: Timing, measure: Callable[[Message], int]) -> None:
        self.unreceived: dict[int, Message] = {}
        self.undone: dict[int, Message] = {}
        self._window = timing.window
        self._batch = timing.batch
        self._packet = timing.packet
        self._measure = measure
        self._last = 0
        self.sent = 0
        self._received = 0
        self._done = 0
        self._held = 0  # the first number that the peer holds beyond a gap, or 0
        self._silent = False  # from a time-out to the next acknowledgement
        self._doubtful = 0  # the last number in flight at the last time-out
        self._repeated = 0  # the last number retransmitted since

    @property
    def in_flight(self) -> int:
        """The number of messages in flight."""
        return self.sent - self._received

    def add(self, message: Message, keep: bool) -> None:
        """Queue a message."""
        self._last += 1
        self.unreceived[self._last] = message
        if keep:
            self.undone[self._last] = message

    @property
    def unsent(self) -> int:
        """The number of messages that were never sent."""
        return self._last - self.sent

    def count_unsent(self, what: Callable[[Message], bool]) -> int:
        """The number of certain messages among those that were never sent."""
        return sum(what(self.unreceived[at]) for at in range(self.sent + 1, self._last + 1))

    def take_unsent(self) -> list[Message]:
        """Take back all messages that were never sent."""
        numbers = range(self.sent + 1, self._last + 1)
        self._last = self.sent
        for at in numbers:
            self.undone.pop(at, None)
        return [self.unreceived.pop(at) for at in numbers]

    def acknowledge(self, received: int, held: int, done: int) -> tuple[bool, tuple[Message, ...]]:
        """Whether this makes progress, and the kept messages that are done now."""
        progress = received > self._received
        if progress:
            for number in range(self._received + 1, received + 1):
                del self.unreceived[number]
            self._received, self._held, self._silent = received, held, False
        elif received == self._received and held:
            self._held = min(self._held or held, held)
        if done <= self._done:
            return progress, ()
        numbers = range(self._done + 1, done + 1)
        self._done = done
        finished = tuple(self.undone.pop(at) for at in numbers if at in self.undone)
        # Messages in flight must not wait longer because an earlier one is done.
        return progress or not self.in_flight, finished

    def time_out(self) -> range:
        """The oldest missing messages, at most one packet of them."""
        self._silent = True
        self._doubtful = self.sent
        end = min(self._gap_end(), self._received + self._batch)
        first = self._split_range(self._received, end)[0]
        self._repeated = first.stop - 1
        return first

    def take_retransmissions(self) -> list[range]:
        """The packets, as ranges of numbers, to retransmit now: those of the first gap."""
        start, end = max(self._received, self._repeated), self._gap_end()
        if self._silent or start >= end:
            return []
        self._repeated = end
        return self._split_range(start, end)

    def take_new_packets(self) -> list[range]:
        """The packets, as ranges of numbers, that can be sent now for the first time."""
        start, end = self.sent, min(self._last, self._received + self._window)
        if self._silent or start >= end:
            return []
        self.sent = end
        return self._split_range(start, end)

    def _gap_end(self) -> int:
        return min(self._doubtful, self._held - 1) if self._held else self._doubtful

    def _split_range(self, start: int, end: int) -> list[range]:
        """Packets of the messages after `start` up to `end`; at least one."""
        spans: list[range] = []
        first, size = start + 1, 0
        for number in range(start + 1, end + 1):
            more = self._measure(self.unreceived[number])
            if number > first and (number - first == self._batch or size + more > self._packet):
                spans.append(range(first, number))
                first, size = number, 0
            size += more
        return [*spans, range(first, end + 1)]


class ReceiveHalf:
    """Messages numbered from 1, which are held beyond a gap, received or done."""

    def __init__(self) -> None:
        self.received = 0
        self.done = 0
        self._held: dict[int, Message] = {}
        self._order: list[int] = []  # a heap of the numbers in `_held`
        self._early: set[int] = set()  # done while lower numbers are not

    @property
    def first_held(self) -> int:
        """The first number held beyond a gap, or 0."""
        return self._order[0] if self._order else 0

    @property
    def finished(self) -> bool:
        """Whether every message received is done and none is held."""
        return self.done == self.received and not self._held

    def take(self, first: int, messages: tuple[Message, ...]) -> tuple[list[Message], int]:
        """The messages that are in order now, and the number of duplicates."""
        if first > self.received + 1:
            return [], self._hold(first, messages)
        old = min(self.received + 1 - first, len(messages))
        taken = list(messages[old:])
        self.received += len(taken)
        while self._order and self._order[0] <= self.received + 1:
            number = heappop(self._order)
            message = self._held.pop(number)
            if number > self.received:
                self.received = number
                taken.append(message)
            else:
                old += 1
        return taken, old

    def _hold(self, first: int, messages: tuple[Message, ...]) -> int:
        old = 0
        for number, message in enumerate(messages, first):
            if number in self._held:
                old += 1
            else:
                self._held[number] = message
                heappush(self._order, number)
        return old

    def complete(self, number: int) -> bool:
        """Mark a message as done; whether that advances `done`."""
        if number <= self.done:
            return False
        self._early.add(number)
        before = self.done
        while self.done + 1 in self._early:
            self.done += 1
            self._early.remove(self.done)
        return self.done > before
