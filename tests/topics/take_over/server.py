"""A NATS server as services and clients see it: subjects, one stream with a fence, and one key.

What it stores survives its absence; who listens must say so again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from distributary.machines.actions import Action, Send
from distributary.topics import Policy
from distributary.topics.records import HostState

SERVER = "server"


class Listen(NamedTuple):
    subject: str


class Unlisten(NamedTuple):
    subject: str


class Publish(NamedTuple):
    """A message to all who listen to a subject."""

    subject: str
    sender: str
    message: Any
    reply: str = ""


class Heard(NamedTuple):
    """What they get."""

    subject: str
    sender: str
    message: Any
    reply: str = ""


class Ask(NamedTuple):
    """A request of a service; its number is in the `Reply`."""

    number: int
    request: Any


class Reply(NamedTuple):
    number: int
    result: Any


# --- requests ------------------------------------------------------------------------------------


class LookUp(NamedTuple):
    """Who has the lease, as a `Holder`."""


class Holder(NamedTuple):
    revision: int
    name: str  # nobody's without


class Claim(NamedTuple):
    """Write the key of the lease after a revision; answered with the new one, or 0."""

    name: str
    last: int


class Release(NamedTuple):
    """Delete the key after a revision."""

    last: int


class Piece(NamedTuple):
    """A part of a batch of records; `fresh` ones replace what was before."""

    writer: str
    number: int  # of the writer's
    last: bool
    fresh: bool
    records: tuple[bytes, ...]


class AppendPiece(NamedTuple):
    """Store a piece that follows a number of others; answered with whether it does."""

    after: int
    piece: Piece


class FindPiece(NamedTuple):
    """The piece after a number of others; False if there is none."""

    after: int


class CountPieces(NamedTuple):
    """How many pieces there are."""


class Read(NamedTuple):
    """The pieces up to a number that are not purged."""

    upto: int


class Purge(NamedTuple):
    """Forget the pieces before a number."""

    before: int


# --- the server ----------------------------------------------------------------------------------


@dataclass
class Server:
    """The `Machine` of the server. Without `fenced` it stores whatever comes: see the tests.

    It drops messages with the probability `loss`, and a fifth as many requests and answers.
    """

    rng: np.random.Generator
    loss: float = 0.0
    fenced: bool = True

    def __post_init__(self) -> None:
        self.pieces: list[Piece] = []
        self.purged = 0
        self.holder = Holder(0, "")
        self._listeners: dict[str, dict[str, None]] = {}

    def forget_listeners(self) -> None:
        self._listeners.clear()

    def on_message(self, sender: str, message: Any, now: float) -> Iterable[Action]:
        del now
        match message:
            case Publish(subject, by, said, reply):
                heard, names = Heard(subject, by, said, reply), self._listeners.get(subject, ())
                return [Send(name, heard) for name in names if not self._loses(1.0)]
            case Listen(subject):
                self._listeners.setdefault(subject, {})[sender] = None
            case Unlisten(subject):
                self._listeners.get(subject, {}).pop(sender, None)
            case Ask(number, request) if not self._loses(0.2):
                answer = Send(sender, Reply(number, self._answer(request)))
                return [] if self._loses(0.2) else [answer]
        return ()

    def on_timer(self, name: str, now: float) -> Iterable[Action]:
        raise ValueError(f"there is no timer {name!r} at {now}")

    def _loses(self, share: float) -> bool:
        return self.loss > 0.0 and self.rng.random() < share * self.loss

    def _answer(self, request: Any) -> Any:
        match request:
            case LookUp():
                return self.holder
            case Claim(name, last):
                if last != self.holder.revision:
                    return 0
                self.holder = Holder(last + 1, name)
                return self.holder.revision
            case Release(last):
                if last == self.holder.revision:
                    self.holder = Holder(last + 1, "")
                return True
            case AppendPiece(after, piece):
                if self.fenced and after != len(self.pieces):
                    return False
                self.pieces.append(piece)
                return True
            case FindPiece(after):
                return self.pieces[after] if after < len(self.pieces) else False
            case CountPieces():
                return len(self.pieces)
            case Read(upto):
                return self.pieces[self.purged : upto]
            case Purge(before):
                self.purged = max(self.purged, before)
                return True
        raise TypeError(f"the server does not understand {request!r}")


def join_batches(pieces: Iterable[Piece]) -> Iterator[tuple[bool, list[bytes]]]:
    """Whether each complete batch is fresh, and its records."""
    body: list[bytes] = []
    writer = ""
    for piece in pieces:
        if piece.writer != writer:  # what another one left incomplete never counted
            writer, body = piece.writer, []
        body += piece.records
        if piece.last:
            yield piece.fresh, body
            body = []


def replay(pieces: Iterable[Piece], policy: Policy) -> HostState:
    """The state that pieces make."""
    state = HostState()
    for fresh, records in join_batches(pieces):
        if fresh:
            state = HostState()
        for record in records:
            state.replay(record, policy)
    return state
