"""How two brokers find out which statements one of them has lost.

A broker's statements to a neighbour are a set of names, each with a filter that never changes. The
neighbour reports what it has heard as one digest per bucket of names, and only the buckets that
differ are sent again. Statements that the neighbour has in addition stem from a previous
incarnation of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b

from distributary.content.messages import Name
from distributary.model import Filter

__all__ = [
    "BUCKETS",
    "AskDigests",
    "HeardDigests",
    "Known",
    "StaleStatements",
    "SyncComplete",
    "SyncPart",
    "ToldBuckets",
    "bucket_of",
    "compute_digests",
]

BUCKETS = 64


@dataclass(frozen=True, slots=True)
class Known:
    """The advertisements and subscriptions that one broker has from another."""

    advertisements: Mapping[Name, Filter]
    subscriptions: Mapping[Name, Filter]

    def __bool__(self) -> bool:
        return bool(self.advertisements or self.subscriptions)

    def within(self, buckets: Iterable[int]) -> Known:
        """Those whose names are in these buckets."""
        wanted = frozenset(buckets)
        return self.select(lambda name: bucket_of(name) in wanted)

    def split(self, most: int, measure: Callable[[Filter], int], room: float) -> list[Known]:
        """Parts of at most `most` statements whose measures add up to `room`, or of a single one.

        There is at least one part, which may be empty. Advertisements come first.
        """
        parts = [Known({}, {})]
        count = size = 0
        for kind in ("advertisements", "subscriptions"):
            for name, filter in getattr(self, kind).items():
                more = measure(filter)
                if count and (count == most or size + more > room):
                    parts.append(Known({}, {}))
                    count = size = 0
                getattr(parts[-1], kind)[name] = filter
                count, size = count + 1, size + more
        return parts

    def select(self, wanted: Callable[[Name], bool]) -> Known:
        """Those with wanted names."""
        return Known(
            {name: filter for name, filter in self.advertisements.items() if wanted(name)},
            {name: filter for name, filter in self.subscriptions.items() if wanted(name)},
        )


@dataclass(frozen=True, slots=True)
class AskDigests:
    """Asks for `HeardDigests`: the sender has dropped statements that it could not send in time."""


@dataclass(frozen=True, slots=True)
class HeardDigests:
    """The digests of what the sender has heard from the receiver, one per bucket."""

    digests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ToldBuckets:
    """Everything that the sender tells the receiver in these buckets.

    Without buckets it is a part of that; the next one continues it.
    """

    buckets: tuple[int, ...]
    told: Known


@dataclass(frozen=True, slots=True)
class StaleStatements:
    """What the sender has heard from the receiver in addition."""

    heard: Known


class SyncPart(Enum):
    """A part of the state that can be complete; advertisements come first."""

    ADVERTISEMENTS = "advertisements"
    SUBSCRIPTIONS = "subscriptions"


@dataclass(frozen=True, slots=True)
class SyncComplete:
    """The sender has sent all of this part and lacks none of it itself."""

    part: SyncPart


def bucket_of(name: Name) -> int:
    """The bucket of a name, the same on every machine."""
    return _hash_name(name) % BUCKETS


def compute_digests(known: Known) -> tuple[int, ...]:
    """The XOR of the hashes of the names in each bucket; independent of their order."""
    digests = [0] * BUCKETS
    for name in (*known.advertisements, *known.subscriptions):
        number = _hash_name(name)
        digests[number % BUCKETS] ^= number
    return tuple(digests)


def _hash_name(name: Name) -> int:
    text = f"{name.number} {name.broker}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
