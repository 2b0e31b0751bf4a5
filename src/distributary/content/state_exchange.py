"""Brings two brokers to the same state after either has restarted, or could not be told all.

Each reports digests of what it has heard, and is sent the buckets that differ, in parts: a message
has a bounded number of statements, and so does what is done at once. When nothing is missing any
more, each tells the other, advertisements first: see `DurableBroker`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distributary.content.broker import ContentBroker
from distributary.content.connections import Connection
from distributary.content.messages import (
    AdvertiseStatement,
    Name,
    Statement,
    SubscribeStatement,
)
from distributary.content.resync import (
    HeardDigests,
    Known,
    StaleStatements,
    SyncComplete,
    SyncPart,
    ToldBuckets,
    compute_digests,
)
from distributary.content.sizes import measure_filter
from distributary.machines.actions import Action

__all__ = ["StateExchange"]

# The statements of one message: what its receiver does at once is bounded.
MOST_STATEMENTS = 16
_AROUND = 200  # bytes of a statement besides its filter


class StateExchange:
    """What is known of the neighbours' states, and what they know of the broker's own.

    Everything is sent on the connections, in messages of about `room` bytes at most; the actions
    returned are those of the core.
    """

    def __init__(
        self, core: ContentBroker, connections: Mapping[str, Connection], room: int
    ) -> None:
        self._core = core
        self._connections = connections
        self._room = room
        # Neighbours whose state is incomplete here, and those not yet told that ours is complete.
        self._lacks: dict[SyncPart, set[str]] = {part: set() for part in SyncPart}
        self._owes: dict[SyncPart, set[str]] = {part: set() for part in SyncPart}
        self._synchronised: set[str] = set()  # neighbours that were sent the buckets they lacked
        self._awaited: set[str] = set()  # neighbours whose digests are awaited, to tell them all
        self._told: dict[str, set[Name]] = {}  # by an answer of which more parts follow

    @property
    def incomplete(self) -> set[str]:
        """The neighbours behind which there may be subscriptions that are unknown here."""
        return self._lacks[SyncPart.SUBSCRIPTIONS]

    @property
    def knows_advertisements(self) -> bool:
        """Whether all advertisements are known."""
        return not self._lacks[SyncPart.ADVERTISEMENTS]

    def is_complete(self, neighbour: str) -> bool:
        """Whether a neighbour's state is known, and it was sent what it lacked."""
        return neighbour not in self.incomplete and neighbour in self._synchronised

    def awaits(self, neighbour: str) -> bool:
        """Whether a neighbour gets no statements, since its digests are awaited."""
        return neighbour in self._awaited

    def add(self, neighbour: str) -> None:
        """A link comes up, or the broker starts."""
        for part in SyncPart:
            self._lacks[part].add(neighbour)
            self._owes[part].add(neighbour)
        self._core.retraction_blocked.add(neighbour)

    def remove(self, neighbour: str) -> None:
        """A link is gone for good."""
        for part in SyncPart:
            self._lacks[part].discard(neighbour)
            self._owes[part].discard(neighbour)
        self._synchronised.discard(neighbour)
        self._awaited.discard(neighbour)
        self._told.pop(neighbour, None)

    # --- digests and answers ---------------------------------------------------------------------

    def begin(self, neighbour: str) -> None:
        """Compare states with a neighbour after either side has restarted."""
        for owed in self._owes.values():
            owed.add(neighbour)
        self._synchronised.discard(neighbour)
        self._told.pop(neighbour, None)
        self.ask(neighbour)

    def await_digests(self, neighbour: str) -> None:
        """A neighbour was not told everything: it has to report what it has heard."""
        for owed in self._owes.values():
            owed.add(neighbour)
        self._synchronised.discard(neighbour)
        self._awaited.add(neighbour)

    def ask(self, neighbour: str) -> None:
        """Ask a neighbour for what it tells and is not known here."""
        digests = compute_digests(self._core.collect_received(neighbour))
        self._connections[neighbour].send(HeardDigests(digests), keep=False)

    def answer(self, neighbour: str, report: HeardDigests) -> None:
        """Send what is in the buckets that differ."""
        told = self._core.collect_sent(neighbour)
        pairs = zip(compute_digests(told), report.digests, strict=True)
        differ = tuple(at for at, (mine, theirs) in enumerate(pairs) if mine != theirs)
        if differ:
            *parts, last = self._split(told.within(differ))
            for part in parts:
                self._connections[neighbour].send(ToldBuckets((), part), keep=False)
            self._connections[neighbour].send(ToldBuckets(differ, last), keep=False)
        self._synchronised.add(neighbour)
        self._awaited.discard(neighbour)

    def take_told(self, neighbour: str, reply: ToldBuckets, now: float) -> list[Action]:
        """Take over what is new; after the last part, report what the neighbour did not tell."""
        told = self._told.setdefault(neighbour, set())
        told.update(reply.told.advertisements, reply.told.subscriptions)
        new = reply.told.select(lambda name: not self._has_heard(neighbour, name))
        if reply.buckets:
            del self._told[neighbour]
            heard = self._core.collect_received(neighbour).within(reply.buckets)
            extra = heard.select(lambda name: name not in told)
            for part in self._split(extra) if extra else ():
                self._connections[neighbour].send(StaleStatements(part), keep=False)
        return self.replay(neighbour, new, now)

    def _split(self, known: Known) -> list[Known]:
        return known.split(
            MOST_STATEMENTS, lambda filter: _AROUND + measure_filter(filter), self._room
        )

    def _has_heard(self, neighbour: str, name: Name) -> bool:
        entry = self._core.subscriptions.get(name)
        if entry is not None and entry.hop == neighbour:
            return True
        return self._core.advertisements.hops.get(name) == neighbour

    def replay(self, neighbour: str, known: Known, now: float) -> list[Action]:
        """Handle what a neighbour has said as if it said it now."""
        return [
            action
            for each in _list_statements(known)
            for action in self._core.on_message(neighbour, each, now)
        ]

    # --- completeness ----------------------------------------------------------------------------

    def announce_complete(self, now: float) -> list[Action]:
        """Tell neighbours which parts are complete; allow retraction where nothing is missing."""
        lacks_ads, lacks = self._lacks[SyncPart.ADVERTISEMENTS], self._lacks[SyncPart.SUBSCRIPTIONS]
        actions: list[Action] = []
        for neighbour in self._connections:
            if lacks_ads <= {neighbour}:
                self._send_complete(neighbour, SyncPart.ADVERTISEMENTS)
            if lacks <= {neighbour} and neighbour not in lacks_ads:
                self._send_complete(neighbour, SyncPart.SUBSCRIPTIONS)
                if neighbour in self._core.retraction_blocked and not lacks_ads:
                    actions += self._core.allow_retraction(neighbour, now)
        return actions

    def _send_complete(self, neighbour: str, part: SyncPart) -> None:
        if neighbour in self._owes[part] & self._synchronised:
            self._owes[part].remove(neighbour)
            self._connections[neighbour].send(SyncComplete(part), keep=False)

    def note_complete(self, neighbour: str, part: SyncPart) -> None:
        """A neighbour's state is complete."""
        self._lacks[part].discard(neighbour)


def _list_statements(known: Known) -> Iterator[Statement]:
    for name, filter in known.advertisements.items():
        yield AdvertiseStatement(name, filter)
    for name, filter in known.subscriptions.items():
        yield SubscribeStatement(name, filter)
