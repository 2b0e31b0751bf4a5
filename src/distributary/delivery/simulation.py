"""The delivery machines in virtual time, on a network that loses, duplicates and damages packets.

Nodes take packets and, by `Simulation.post`, what a caller would do: `MessageOffer`, `PlanChange`,
`ClaimFlows` and `ReleaseFlows` for a sender; `LearnPlan`, `Subscribe` and `Unsubscribe` for a
receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distributary.delivery import (
    CONTROL_GROUP,
    Claimed,
    FullError,
    JoinGroup,
    LeaveGroup,
    Messages,
    MulticastAction,
    NeedPlan,
    PacketBatch,
    ReceiverMachine,
    Refused,
    Released,
    Report,
    SenderMachine,
)
from distributary.delivery.errors import NotHeldError
from distributary.delivery.sender import SenderAction
from distributary.machines import Action, Deliver, Send, SetTimer
from distributary.machines.virtual.network import Link, VirtualNetwork
from distributary.model import Plan

__all__ = [
    "ClaimFlows",
    "Faults",
    "LearnPlan",
    "LinePacket",
    "MessageOffer",
    "MulticastNetwork",
    "PlanChange",
    "ReceiverNode",
    "ReleaseFlows",
    "SenderNode",
    "Subscribe",
    "Unsubscribe",
]

_LINE_B = ", line B"  # behind the name of a group


@dataclass(frozen=True, slots=True)
class MessageOffer:
    """Tells a sender to send a message."""

    flow: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class PlanChange:
    """Tells a sender to change to a plan."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class ClaimFlows:
    """Tells a sender to claim flows."""

    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseFlows:
    """Tells a sender to release flows."""

    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LearnPlan:
    """Gives a receiver a plan."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Have a receiver subscribe to flows."""

    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Have a receiver unsubscribe from flows."""

    flows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinePacket:
    """A packet on one line of a pair."""

    line: int
    packet: bytes


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults between two nodes, as probabilities for each packet.

    Bursts follow Gilbert's model: with each packet a good link turns bad with probability `burst`,
    and a bad one good with `relief`; a bad link loses everything. `damaged` packets have some of
    their bytes flipped.
    """

    burst: float = 0.0
    relief: float = 1.0
    doubled: float = 0.0
    damaged: float = 0.0


class MulticastNetwork(VirtualNetwork):
    """A network with multicast groups; each member's copy of a packet has faults of its own.

    With `pairs` each group has two lines. Those in `cut_lines` lose everything, and packets on line
    B take `line_delay` seconds longer.
    """

    def __init__(
        self,
        link: Link,
        faults: Faults,
        rng: np.random.Generator,
        *,
        pairs: bool = False,
        line_delay: float = 0.0,
    ) -> None:
        super().__init__({}, rng, default=link)
        self.faults = faults
        self.pairs = pairs
        self.cut_lines: set[int] = set()
        self.line_delay = line_delay
        self._members: dict[str, dict[str, None]] = {}
        self._bad: set[tuple[str, str]] = set()

    def join(self, node: str, group: str) -> None:
        """Let a node receive what is sent to a group."""
        self._members.setdefault(group, {})[node] = None

    def leave(self, node: str, group: str) -> None:
        """Stop a node from receiving what is sent to a group."""
        self._members.get(group, {}).pop(node, None)

    def leave_all(self, node: str) -> None:
        """Leave all groups, as a node that crashes does."""
        for members in self._members.values():
            members.pop(node, None)

    def arrivals(self, sender: str, to: str, now: float) -> Iterator[tuple[str, float | None]]:
        """Who gets a packet, and when: all members where `to` is a group, or a line of one."""
        to, is_b, _ = to.partition(_LINE_B)
        line = int(bool(is_b))
        for member, at in self._arrivals(sender, to, now):
            cut = line in self.cut_lines and to.startswith("group ")
            yield member, None if at is None or cut else at + line * self.line_delay

    def split_lines(self, actions: Iterable[Action]) -> list[Action]:
        """A sender's actions, in which each packet to a group is sent on all its lines."""
        if not self.pairs:
            return list(actions)
        split: list[Action] = []
        for action in actions:
            if isinstance(action, Send) and action.to.startswith("group "):
                split.append(Send(action.to, LinePacket(0, action.message)))
                split.append(Send(action.to + _LINE_B, LinePacket(1, action.message)))
            else:
                split.append(action)
        return split

    def _arrivals(self, sender: str, to: str, now: float) -> Iterator[tuple[str, float | None]]:
        members = self._members.get(to)
        if members is None and to.startswith("group "):
            return
        for member in [to] if members is None else list(members):
            if self._in_burst(sender, member):
                yield member, None
                continue
            yield from super().arrivals(sender, member, now)
            if self.faults.doubled and self._rng.random() < self.faults.doubled:
                yield from super().arrivals(sender, member, now)

    def damage(self, packet: bytes) -> bytes:
        """A packet as it arrives, with a probability of flipped bytes."""
        if not self.faults.damaged or self._rng.random() >= self.faults.damaged:
            return packet
        bytes_of = np.frombuffer(packet, np.uint8).copy()
        at = self._rng.integers(len(bytes_of), size=int(self._rng.integers(1, 4)))
        bytes_of[at] ^= self._rng.integers(1, 256, size=len(at)).astype(np.uint8)
        return bytes_of[: len(bytes_of) - int(self._rng.integers(0, 2))].tobytes()

    def _in_burst(self, sender: str, member: str) -> bool:
        if not self.faults.burst:
            return False
        way = sender, member
        if way in self._bad:
            if self._rng.random() < self.faults.relief:
                self._bad.discard(way)
        elif self._rng.random() < self.faults.burst:
            self._bad.add(way)
        return way in self._bad


@dataclass(slots=True)
class SenderNode:
    """A sender as a node; it retries messages that the full queue refused."""

    machine: SenderMachine
    network: MulticastNetwork
    address: str = "sender"
    retry: float = 0.005
    taken: list[tuple[str, bytes]] = field(default_factory=list)
    refused: list[MessageOffer] = field(default_factory=list)
    not_held: list[MessageOffer] = field(default_factory=list)
    notes: list[tuple[float, Claimed | Refused | Released]] = field(default_factory=list)

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        """Take a packet, or a caller's request."""
        match message:
            case MessageOffer():
                self.refused.append(message)
                return self._offer(now)
            case PlanChange(plan):
                return self._send(self.machine.change_plan(plan, now), now)
            case ClaimFlows(flows):
                return self._send(self.machine.claim(flows, now), now)
            case ReleaseFlows(flows):
                return self._send(self.machine.release(flows, now), now)
            case "leave":
                return self._send(self.machine.leave(now), now)
            case "start":
                self.network.join(self.address, CONTROL_GROUP)
                return self._send(self.machine.start(now), now)
            case LinePacket(_, packet):
                message = packet
        return self._send(self.machine.on_message(sender, self.network.damage(message), now), now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        """A timer of the machine, or the time to retry refused messages."""
        if name == "retry":
            return self._offer(now)
        return self._send(self.machine.on_timer(name, now), now)

    def _send(self, actions: Iterable[SenderAction], now: float) -> list[Action]:
        """Keep reports; return the rest to the simulation."""
        rest: list[Action] = []
        for action in actions:
            if isinstance(action, Send | SetTimer):
                rest.append(action)
            else:
                self.notes.append((now, action))
        return self.network.split_lines(rest)

    def _offer(self, now: float) -> list[Action]:
        actions: list[Action] = []
        while self.refused:
            found = self.refused[0]
            try:
                actions += self._send(self.machine.offer(found.flow, found.payload, now), now)
            except FullError:
                actions.append(SetTimer("retry", now + self.retry))
                break
            except NotHeldError:
                self.not_held.append(self.refused.pop(0))
                continue
            self.taken.append((found.flow, found.payload))
            self.refused.pop(0)
        return actions


@dataclass(slots=True)
class ReceiverNode:
    """A receiver as a node; `notes` has its reports with their times.

    With a `batch` time it gathers packets for that long and takes them together, as from a socket
    that returns many at once; without one it takes each as it arrives. `wall_clock` returns the
    stamp of a packet that arrives at a time; without one packets have no stamps.
    """

    machine: ReceiverMachine
    network: MulticastNetwork
    batch: float = 0.0
    find_plan: Callable[[NeedPlan], Plan | None] = lambda need: None
    wall_clock: Callable[[float], int] | None = None
    notes: list[tuple[float, Report]] = field(default_factory=list)
    gathered: list[tuple[str, int | None, bytes, int]] = field(default_factory=list)

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        """Take a packet, or a caller's request."""
        match message:
            case LearnPlan(plan):
                return self._perform(self.machine.learn_plan(plan, now), now)
            case Subscribe(flows):
                return self._perform(self.machine.subscribe(flows, now), now)
            case Unsubscribe(flows):
                return self._perform(self.machine.unsubscribe(flows, now), now)
            case "start":
                return self._perform(self.machine.start(now), now)
        line = message.line if isinstance(message, LinePacket) else None
        packet = self.network.damage(message if line is None else message.packet)
        stamp = 0 if self.wall_clock is None else self.wall_clock(now)
        if not self.batch:
            taken = self.machine.on_packet(packet, now, sender, line=line, stamp=stamp)
            return self._perform(taken, now)
        self.gathered.append((sender, line, packet, stamp))
        return [SetTimer("batch", now + self.batch)] if len(self.gathered) == 1 else []

    def on_timer(self, name: str, now: float) -> list[Action]:
        """A timer of the machine, or the time to take the gathered packets."""
        if name != "batch":
            return self._perform(self.machine.on_timer(name, now), now)
        gathered, self.gathered = self.gathered, []
        actions: list[Action] = []
        for line in {line: None for _, line, _, _ in gathered}:  # a batch is of one line
            rows = [(source, packet, at) for source, of, packet, at in gathered if of == line]
            sources, packets, times = zip(*rows, strict=True)
            stamps = None if self.wall_clock is None else np.array(times, np.int64)
            lengths = np.array([len(packet) for packet in packets], np.int64)
            buffer = np.frombuffer(b"".join(packets), np.uint8)
            batch = PacketBatch(buffer, np.cumsum(lengths) - lengths, lengths)
            taken = self.machine.on_packets(batch, now, sources, line=line, stamps=stamps)
            actions += self._perform(taken, now)
        return actions

    def _perform(self, actions: list[MulticastAction], now: float) -> list[Action]:
        """Perform actions on groups and keep reports; return the rest to the simulation."""
        left: list[Action] = []
        needs: list[NeedPlan] = []
        for action in actions:
            match action:
                case JoinGroup(group):
                    self.network.join(self.machine.name, group)
                case LeaveGroup(group):
                    self.network.leave(self.machine.name, group)
                case Messages():
                    left += [Deliver("caller", message, now) for message in action]
                case Send() | SetTimer():
                    left.append(action)
                case _:
                    self.notes.append((now, action))
                    needs += [action] if isinstance(action, NeedPlan) else []
        for need in needs:
            plan = self.find_plan(need)
            if plan is not None:
                left += self._perform(self.machine.learn_plan(plan, now), now)
        return left
