"""What a multicast machine wants done, and what it has to tell, besides sending and timers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from distributary.machines.actions import Send, SetTimer
from distributary.model import IndexArray, IntArray

__all__ = [
    "Gap",
    "JoinGroup",
    "LeaveGroup",
    "Message",
    "Messages",
    "Missing",
    "MulticastAction",
    "NeedPlan",
    "Reason",
    "Report",
    "Restarted",
    "Rival",
    "Unserved",
]

# Why packets are given up: asked for too often in vain; the sender has them no more; it began anew;
# the receiver has no room to wait for them; a plan change left the session behind.
Reason = Literal["unanswered", "window", "restart", "room", "change"]


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Receive what is sent to the group of that name."""

    group: str


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Receive no more of what is sent to the group of that name."""

    group: str


@dataclass(frozen=True, slots=True)
class NeedPlan:
    """The sender's plan is not known here: find it (its `where` may help), and have it learnt."""

    version: int
    fingerprint: int
    where: str


@dataclass(frozen=True, slots=True)
class Gap:
    """These packets of a session are given up; `last` is None where the end is not known."""

    incarnation: int
    version: int
    session: int
    first: int
    last: int | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class Missing:
    """These messages of a wanted flow were in packets given up: the next message shows it."""

    incarnation: int
    flow: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """Another incarnation is followed: what the old one had sent last may be lost.

    Numbers begin at 1 again, unless it is one that was followed before.
    """

    old: int
    new: int


@dataclass(frozen=True, slots=True)
class Rival:
    """Another sender is alive and not followed, as a later incarnation answers too."""

    followed: int
    incarnation: int
    address: str


@dataclass(frozen=True, slots=True)
class Unserved:
    """These wanted flows do not come by the plan version that is followed; none: all come again.

    Version 0 is the plan at hand before the sender was heard.
    """

    version: int
    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a wanted flow."""

    flow: str
    sequence: int
    payload: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """Messages of wanted flows, in each flow's order, as places in the bytes that came.

    `names[flow[i]]` is the flow of message `i` and `buffer[start[i]:end[i]]` its payload. The
    buffer is the caller's own where whole batches are taken in: read it before using it again.
    """

    incarnation: int
    names: tuple[str, ...]
    buffer: NDArray[np.uint8]
    flow: IndexArray
    sequence: IntArray
    start: IntArray
    end: IntArray

    def __len__(self) -> int:
        return len(self.flow)

    def __iter__(self) -> Iterator[Message]:
        view = self.buffer.data
        columns = (self.flow.tolist(), self.sequence.tolist(), self.start.tolist())
        for flow, sequence, start, end in zip(*columns, self.end.tolist(), strict=True):
            yield Message(self.names[flow], sequence, view[start:end].tobytes())


Report = Gap | Missing | Restarted | Rival | NeedPlan | Unserved
MulticastAction = Send | SetTimer | JoinGroup | LeaveGroup | Messages | Report
