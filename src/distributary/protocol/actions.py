"""What a protocol is to whoever runs it: inputs and the time in, actions out, and no I/O.

A simulator runs a machine in virtual time, a process in real time; the machine cannot tell.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Action", "Deliver", "Machine", "Save", "Send", "SetTimer", "Work"]

Message = Any


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a node, or to whatever else the network knows by that name."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand a message over to a client of this node; it was published at the time `since`."""

    client: str
    message: Message
    since: float


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Set the timer of that name, anew if it is running already; with no time stop it."""

    name: str
    at: float | None


@dataclass(frozen=True, slots=True)
class Save:
    """Keep a value under a key where a crash cannot reach it; None forgets what was kept.

    What one input makes a machine do is done together or not at all, and what is to be kept is
    kept before anything is sent.
    """

    key: Hashable
    value: object


@dataclass(frozen=True, slots=True)
class Work:
    """This much work of a kind was done; what it costs is for others to say."""

    kind: str
    units: float


Action = Send | Deliver | SetTimer | Save | Work


class Machine(Protocol):
    """The state of one node. It changes by calls to these alone, one after the other."""

    def on_message(self, sender: str, message: Message, now: float) -> Iterable[Action]:
        """Take a message in."""
        ...

    def on_timer(self, name: str, now: float) -> Iterable[Action]:
        """A timer that was set has run out, and is set no more."""
        ...
