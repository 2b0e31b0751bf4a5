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
    "Back",
    "Brought",
    "Claimed",
    "Contested",
    "Gap",
    "Gone",
    "HandedOver",
    "JoinGroup",
    "LeaveGroup",
    "Left",
    "Message",
    "Messages",
    "Missing",
    "MulticastAction",
    "NeedPlan",
    "Reason",
    "Refused",
    "Released",
    "Report",
    "Restarted",
    "Rival",
    "Subscribed",
    "Unfollowed",
    "Unserved",
]

# Why packets are given up: all NAKs stayed unanswered; they left the sender's window; the sender
# was restarted; the receiver has no room to wait; flows moved while the receiver was away; the
# publisher is gone, and another one goes on with its flows.
Reason = Literal["unanswered", "window", "restart", "room", "change", "gone"]


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
    """A receiver that was given a plan lacks the sender's present or upcoming one.

    Find it (`where` may help) and call `learn_plan`. Flows that are wanted by name come without it.
    """

    version: int
    fingerprint: int
    where: str


@dataclass(frozen=True, slots=True)
class Gap:
    """The receiver gave these packets of a stream up; `last` is None if the end is unknown.

    Messages of `flows`, the wanted ones in that stream, may have been in these packets; the first
    100 by name, and how many `more` there are. `Missing` says later which messages were. Stream 0
    is the sender's journal of plan changes, from which the receiver then starts over.
    """

    publisher: str
    incarnation: int
    stream: int
    first: int
    last: int | None
    reason: Reason
    flows: tuple[str, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class Missing:
    """These messages of a wanted flow are lost.

    Reported when the flow's next message arrives, or when its publisher says which was its last.
    `incarnation` is that with which the flow's numbers began.
    """

    publisher: str
    incarnation: int
    flow: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """A publisher has another incarnation; the last messages of the old one may be lost.

    Sequence numbers of its flows begin at 1 again, unless the receiver followed this incarnation
    before, or the publisher took a flow over and says where its numbers go on.
    """

    publisher: str
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class Rival:
    """Two senders of one name are alive; the receiver follows the later incarnation of them."""

    publisher: str
    followed: int
    incarnation: int
    address: str


@dataclass(frozen=True, slots=True)
class Unserved:
    """No publisher carries these wanted flows; empty if all are carried again.

    The version is that of the plan, the highest where publishers use several; 0 is the plan that
    the receiver had before it heard a publisher.
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
class Contested:
    """Two publishers claim these flows; the receiver goes on with the holder and takes no other."""

    holder: str
    claimant: str
    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The receiver takes these flows from another publisher than before.

    Their numbers go on, or begin `anew`: then the last messages of the one before may be lost,
    unless that one said which they were.
    """

    old: str
    publisher: str
    flows: tuple[str, ...]
    anew: bool


@dataclass(frozen=True, slots=True)
class Gone:
    """A publisher is silent and does not reply; messages of these flows may be missing.

    The receiver still takes them if it comes back, unless another publisher takes them over.
    """

    publisher: str
    incarnation: int
    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Back:
    """A publisher that was gone is heard again, in the same incarnation."""

    publisher: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Left:
    """A publisher has left, and said which messages were its last."""

    publisher: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """There are more publishers than the receiver follows; this is the first that it leaves out."""

    publisher: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Of a sender: another publisher has these flows; nothing of them is sent from now on."""

    holder: str
    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Claimed:
    """Of a sender: these flows, which it asked for, are its own from now on."""

    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """Of a sender: these flows can be claimed by others from now on."""

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


Report = (
    Brought
    | Gap
    | Missing
    | Restarted
    | Rival
    | NeedPlan
    | Subscribed
    | Unserved
    | Contested
    | HandedOver
    | Gone
    | Back
    | Left
    | Unfollowed
)
MulticastAction = Send | SetTimer | JoinGroup | LeaveGroup | Messages | Report
