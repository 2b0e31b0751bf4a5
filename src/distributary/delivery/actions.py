"""The actions and reports of the delivery machines, besides sending and timers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from distributary.machines.actions import Send, SetTimer
from distributary.model import IndexArray, IntArray

__all__ = [
    "Brought",
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
    "Subscribed",
    "Unserved",
]

# Why packets are given up: all NAKs stayed unanswered; they left the sender's window; the sender
# was restarted; the receiver has no room to wait; flows moved while the receiver was away.
Reason = Literal["unanswered", "window", "restart", "room", "change"]


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Receive what is sent to the group of that name."""

    group: str


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Stop receiving what is sent to the group of that name."""

    group: str


@dataclass(frozen=True, slots=True)
class NeedPlan:
    """A receiver that was given a plan, or wants all that plans bring, lacks the sender's plan.

    Find it (`where` may help) and call `learn_plan`. Flows that are wanted by name come without it.
    """

    version: int
    fingerprint: int
    where: str


@dataclass(frozen=True, slots=True)
class Gap:
    """The receiver gave these packets of a stream up; `last` is None if the end is unknown.

    Stream 0 is the sender's journal of plan changes, from which the receiver then starts over.
    """

    incarnation: int
    stream: int
    first: int
    last: int | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class Missing:
    """These messages of a wanted flow are lost; reported when the flow's next message arrives."""

    incarnation: int
    flow: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """The receiver follows another incarnation; the last messages of the old one may be lost.

    Sequence numbers begin at 1 again, unless the receiver followed this incarnation before.
    """

    old: int
    new: int


@dataclass(frozen=True, slots=True)
class Rival:
    """Another sender is alive, but the receiver follows a later incarnation that answers too."""

    followed: int
    incarnation: int
    address: str


@dataclass(frozen=True, slots=True)
class Unserved:
    """The followed plan version does not carry these wanted flows; empty if it carries all again.

    Version 0 is the plan that the receiver had before it heard the sender.
    """

    version: int
    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Brought:
    """The sender says which flows its plan brings to this receiver, which wants all of them.

    The receiver wants all that the plan brings, and was given no plan. While a plan is upcoming,
    its flows are included.
    """

    version: int
    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """From now on the receiver delivers, or reports as missing, every message of these flows."""

    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a wanted flow."""

    flow: str
    sequence: int
    payload: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """Messages of wanted flows, in each flow's order, located in the received bytes.

    `names[flow[i]]` is the flow of message `i` and `buffer[start[i]:end[i]]` its payload. For
    whole batches the buffer is the caller's own: read the messages before reusing it.
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


Report = Brought | Gap | Missing | Restarted | Rival | NeedPlan | Subscribed | Unserved
MulticastAction = Send | SetTimer | JoinGroup | LeaveGroup | Messages | Report
