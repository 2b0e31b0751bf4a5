"""How two brokers find out what one of them has forgotten.

What a broker has told a neighbour is a set of names, each with a filter that never changes. The
neighbour says what it has heard as a few numbers, one for each bucket of names; only buckets that
differ are told again. What the neighbour had heard besides, the broker told it in a former life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b

from distributary.model import Filter
from distributary.protocol.content.messages import Name

__all__ = [
    "BUCKETS",
    "Complete",
    "Extra",
    "Known",
    "Part",
    "Recall",
    "Recount",
    "bucket_of",
    "digest",
]

BUCKETS = 64


@dataclass(frozen=True, slots=True)
class Known:
    """Advertisements and subscriptions that one broker has from another."""

    advertisements: Mapping[Name, Filter]
    subscriptions: Mapping[Name, Filter]

    def __bool__(self) -> bool:
        return bool(self.advertisements or self.subscriptions)

    def within(self, buckets: Iterable[int]) -> Known:
        """Those of some buckets."""
        wanted = frozenset(buckets)
        return self._those(lambda name: bucket_of(name) in wanted)

    def without(self, other: Known) -> Known:
        """Those that the other does not have."""
        return self._those(
            lambda name: name not in other.advertisements and name not in other.subscriptions
        )

    def _those(self, wanted: Callable[[Name], bool]) -> Known:
        return Known(
            {name: filter for name, filter in self.advertisements.items() if wanted(name)},
            {name: filter for name, filter in self.subscriptions.items() if wanted(name)},
        )


@dataclass(frozen=True, slots=True)
class Recall:
    """This is what I have heard from you, in digests."""

    digests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recount:
    """In these buckets, this is all that I tell you."""

    buckets: tuple[int, ...]
    told: Known


@dataclass(frozen=True, slots=True)
class Extra:
    """And these I have heard from you besides."""

    heard: Known


class Part(Enum):
    """What can be complete: subscriptions only where the advertisements they meet are."""

    ADVERTISEMENTS = "advertisements"
    SUBSCRIPTIONS = "subscriptions"


@dataclass(frozen=True, slots=True)
class Complete:
    """Of this I have told you all that there is: I lack none of it myself."""

    part: Part


def bucket_of(name: Name) -> int:
    """The bucket of a name, the same on every machine."""
    return _number(name) % BUCKETS


def digest(known: Known) -> tuple[int, ...]:
    """A number for the names of each bucket, whatever their order."""
    digests = [0] * BUCKETS
    for name in (*known.advertisements, *known.subscriptions):
        number = _number(name)
        digests[number % BUCKETS] ^= number
    return tuple(digests)


def _number(name: Name) -> int:
    text = f"{name.number} {name.broker}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
