"""The receiver's state of streams and flows: what is missing, held, and on its way elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from distributary.delivery._wire_kernels import ByteArray
from distributary.delivery.gaps import Gaps

__all__ = [
    "Entry",
    "HeldMessage",
    "IncomingFlow",
    "IncomingStream",
    "Leg",
    "Numbering",
    "PublisherIdentity",
]

Entry = tuple[
    int, int, int, int
]  # flow, sequence, and where the payload begins and ends in its bytes
Numbering = tuple[int, int]  # publisher and incarnation with which the numbers of a flow began
_NEVER = float("inf")


class PublisherIdentity(NamedTuple):
    """A publisher in one incarnation; `row` is its row in the receiver's tables."""

    row: int
    number: int
    incarnation: int
    name: str = ""


@dataclass(slots=True, eq=False)
class IncomingStream:
    """A stream that the receiver follows; `slot` is its index in the receiver's arrays."""

    publisher: PublisherIdentity
    number: int
    group: str | None  # None: by unicast
    slot: int
    gaps: Gaps
    started: bool = False  # whether it is known with which packet the stream starts
    resumed: bool = False  # whether it goes on where the receiver left it before
    origin: int = 0  # the packet before the first
    blind: bool = False  # whether a flow came there, nobody knows when, before the stream starts
    poll_at: float = _NEVER  # when to poll for the stream's present packet
    polls: int = 0
    legs: int = 0  # of flows that travel, or will travel, in this stream
    leaving: dict[IncomingFlow, None] = field(default_factory=dict)  # until a known packet
    _held: dict[int, tuple[ByteArray, list[Entry]]] = field(default_factory=dict)
    _order: list[int] = field(default_factory=list)

    @property
    def holds(self) -> int:
        """How many packets are held."""
        return len(self._held)

    def hold(self, sequence: int, packet: ByteArray, entries: list[Entry]) -> bool:
        """Keep a packet's messages until all before them arrived or were given up.

        Returns False if the packet was held already, and now is with these messages too.
        """
        if sequence in self._held:
            packet, before = self._held[sequence]
            self._held[sequence] = packet, before + entries
            return False
        self._held[sequence] = packet, entries
        heappush(self._order, sequence)
        return True

    def release(self, below: int) -> Iterator[tuple[int, ByteArray, list[Entry]]]:
        """Take out the held packets below a sequence number, in order."""
        while self._order and self._order[0] < below:
            sequence = heappop(self._order)
            yield sequence, *self._held.pop(sequence)

    def drop_flow(self, slot: int) -> list[ByteArray]:
        """Drop held messages of a flow; returns the packets that are not held any more."""
        gone = []
        for sequence, (packet, entries) in list(self._held.items()):
            rest = [entry for entry in entries if entry[0] != slot]
            self._held[sequence] = packet, rest
            if not rest:
                del self._held[sequence]
                gone.append(packet)
        if gone:
            self._order = sorted(self._held)
        return gone


@dataclass(slots=True, eq=False)
class Leg:
    """A part of a flow's way: in this stream, up to packet `until` once that is known."""

    stream: IncomingStream
    number: int  # of the flow, by the publisher of the stream
    since: int | None  # packets up to this one passed without a look at the flow; None: `origin`
    until: int | None = None
    final: int | None = None  # the number that follows the flow's last one there, once it is known

    @property
    def unseen(self) -> int:
        """The last packet that passed without a look at the flow."""
        return self.stream.origin if self.since is None else self.since


class HeldMessage(NamedTuple):
    """A message that waits for those that its flow sent by another stream."""

    stream: IncomingStream
    packet: int
    buffer: ByteArray
    entry: Entry


@dataclass(slots=True, eq=False)
class IncomingFlow:
    """A wanted flow; `slot` is its index in the receiver's arrays.

    It travels in the stream of its first leg. There are further legs while it moves: it is then
    guarded, and only its next message may be delivered from whichever stream, until the first leg
    is complete.
    """

    name: str
    slot: int
    row: int = -1  # in the tables, of the publisher that it is taken from; -1 if from none
    publisher: str = ""  # the name of that one, or of the last one
    since: int = 0  # of the publisher's claim by which it is taken
    numbering: Numbering | None = None  # the publisher and incarnation that began its numbers
    placed: list[tuple[int, int]] = field(default_factory=list)  # rows and numbers in the tables
    legs: list[Leg] = field(default_factory=list)
    prepared: bool = False  # the last leg begins when the upcoming plan takes effect
    retired: bool = False  # not wanted behind its first leg
    held: list[HeldMessage] = field(default_factory=list)

    @property
    def served(self) -> bool:
        """Whether the flow travels to the receiver now, not only by the upcoming plan."""
        return len(self.legs) > self.prepared

    @property
    def guarded(self) -> bool:
        """Whether the flow moves."""
        return len(self.legs) > 1 or (bool(self.legs) and self.legs[0].until is not None)
