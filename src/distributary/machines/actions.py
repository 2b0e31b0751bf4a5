"""The interface between a machine and its host: inputs and the time in, actions out, no I/O.

A simulator runs a machine in virtual time, a process in real time; the machine is the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Action", "Append", "Deliver", "Machine", "Save", "Send", "SetTimer", "Work"]

Message = Any


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a node, or to another destination that the network knows by name."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Deliver:
    """Deliver a message, published at the time `since`, to a client of this node."""

    client: str
    message: Message
    since: float


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Set or reset the timer of that name; without a time, stop it."""

    name: str
    at: float | None


@dataclass(frozen=True, slots=True)
class Save:
    """Store a value durably under a key; None deletes it.

    The actions of one input are performed together or not at all, and saves come before sends.
    """

    key: Hashable
    value: object


@dataclass(frozen=True, slots=True)
class Append:
    """Append a record to the node's log, durably.

    As with `Save`, this comes before the sends of the same input. A restarted node gets its log.
    """

    record: bytes


@dataclass(frozen=True, slots=True)
class Work:
    """Reports an amount of work of a kind; its cost is the host's business."""

    kind: str
    units: float


Action = Send | Deliver | SetTimer | Save | Append | Work


class Machine(Protocol):
    """The state of one node, changed only by these calls, one at a time."""

    def on_message(self, sender: str, message: Message, now: float) -> Iterable[Action]:
        """Handle a message."""
        ...

    def on_timer(self, name: str, now: float) -> Iterable[Action]:
        """Handle a timer that has expired and is no longer set."""
        ...
