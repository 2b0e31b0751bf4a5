"""Messages between clients and brokers of content-based routing."""

from __future__ import annotations

from dataclasses import dataclass

from distributary.model import Filter, Key

__all__ = ["ContentEvent", "Forward", "PublishEvent", "SubscribeRequest", "UnsubscribeRequest"]


@dataclass(frozen=True, slots=True)
class ContentEvent:
    """An event: its values as keys of the schema, when and by whom it was published.

    The publisher gives the number.
    """

    number: int
    keys: tuple[Key | None, ...]
    published: float
    publisher: str = ""
    payload: bytes = b""

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return 100 + len(self.payload) + sum(len(k) for k in self.keys if isinstance(k, str))


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A client subscribes to a filter, replacing its subscription with the same number."""

    client: str
    number: int
    filter: Filter


@dataclass(frozen=True, slots=True)
class UnsubscribeRequest:
    """A client ends a subscription."""

    client: str
    number: int


@dataclass(frozen=True, slots=True)
class PublishEvent:
    """A client publishes an event at its broker."""

    event: ContentEvent


@dataclass(frozen=True, slots=True)
class Forward:
    """An event in transit along the tree of `root`, with `receivers` if they are listed."""

    event: ContentEvent
    root: str
    receivers: tuple[str, ...] = ()
