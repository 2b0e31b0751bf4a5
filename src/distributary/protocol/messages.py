"""What clients and content brokers say to each other."""

from __future__ import annotations

from dataclasses import dataclass

from distributary.model import Filter, Key

__all__ = ["Event", "Forward", "Publish", "Subscribe", "Unsubscribe"]


@dataclass(frozen=True, slots=True)
class Event:
    """An event: its values, as the schema's `keys` of them, and when it was published."""

    number: int
    keys: tuple[Key | None, ...]
    published: float


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A client wants what matches a filter; this replaces its subscription of the same number."""

    client: str
    number: int
    filter: Filter


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """A client takes a subscription back."""

    client: str
    number: int


@dataclass(frozen=True, slots=True)
class Publish:
    """A client hands an event to its broker."""

    event: Event


@dataclass(frozen=True, slots=True)
class Forward:
    """An event on its way along the tree of `root`; `receivers` if they were listed there."""

    event: Event
    root: str
    receivers: tuple[str, ...] = ()
