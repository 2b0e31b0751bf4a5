"""One run of the plan change benchmark: `python plan_change_run.py MOVED`, prints JSON.

It uses nothing but what the delivery machines of wire version 1 have too, so that the same run can
be made with either. Time is virtual: a tick of a millisecond from the sender to the receiver. CPU
is that of the machines' own calls.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections import Counter, defaultdict
from typing import Any

import numpy as np

from distributary.delivery import (
    JoinGroup,
    LeaveGroup,
    Messages,
    PacketBatch,
    ReceiverMachine,
    SenderMachine,
    SenderParams,
)
from distributary.machines.actions import Send, SetTimer
from distributary.model import Plan

FLOWS, SESSIONS, GROUPS = 10_000, 100, 10
WANTED_SESSIONS = 10
RATE = 100_000  # messages a second
TICK = 0.001
LOSS = 0.01
FIRST, CHANGE, END = 0.6, 1.5, 3.0  # seconds; a plan takes effect half a second after its change
BEFORE = (CHANGE - 0.5, CHANGE)
AROUND = (CHANGE, CHANGE + 1.0)
_PAYLOAD = struct.Struct("<d192x")


def make_plan(session_of: np.ndarray) -> Plan:
    """All flows in their sessions; the sessions take turns in the groups."""
    return Plan(
        ("r",),
        tuple(f"{flow:05}" for flow in range(len(session_of))),
        np.arange(len(session_of), dtype=np.int32),
        session_of.astype(np.int32),
        (np.arange(SESSIONS) % GROUPS).astype(np.int32),
        np.zeros(SESSIONS, np.int32),
        np.arange(SESSIONS, dtype=np.int32),
    )


class Run:
    """A sender, one receiver, and the network between them."""

    def __init__(self, share: float) -> None:
        self.rng = np.random.default_rng(1)
        before = np.arange(FLOWS) // (FLOWS // SESSIONS)
        after = before.copy()
        moved = self.rng.choice(FLOWS, round(share * FLOWS), replace=False)
        after[moved] = (after[moved] + self.rng.integers(1, SESSIONS, len(moved))) % SESSIONS
        self.plans = make_plan(before), make_plan(after)
        wanted = np.flatnonzero(before < WANTED_SESSIONS)
        self.flows = self.plans[0].flows
        params = SenderParams(max_age=0.005, rate=1e9, burst=1e9)
        self.sender = SenderMachine(self.plans[0], 7, params=params)
        self.receiver = ReceiverMachine(
            "r", [self.flows[flow] for flow in wanted], rng=np.random.default_rng(2)
        )
        self.receiver.prepare()
        self.now = 0.0
        self.cpu: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.joined: set[str] = set()
        self.due: dict[str, float] = {}
        self.on_way: list[tuple[str, bytes]] = []
        self.latency: list[tuple[float, float]] = []
        self.held = 0
        self.kinds: Counter[int] = Counter()

    def call(self, who: str, made: Any, *values: Any) -> None:
        """Make a timed call of a machine, and do what it answers."""
        began = time.thread_time()
        actions = made(*values)
        self.cpu[who, self.period()] += time.thread_time() - began
        replies = []
        for action in actions:
            if isinstance(action, SetTimer):
                self.due[who] = float("inf") if action.at is None else action.at
            elif isinstance(action, Send) and who == "sender":
                self.on_way.append((action.to, action.message))
                self.kinds[action.message[3]] += self.period() == "around"
            elif isinstance(action, Send):
                replies.append(action.message)
            elif isinstance(action, JoinGroup):
                self.joined.add(action.group)
            elif isinstance(action, LeaveGroup):
                self.joined.discard(action.group)
            elif isinstance(action, Messages):
                starts = zip(action.start.tolist(), action.end.tolist(), strict=True)
                buffer = action.buffer.data
                for start, end in starts:
                    self.latency.append(
                        (self.now, self.now - _PAYLOAD.unpack(buffer[start:end])[0])
                    )
        for packet in replies:
            self.call("sender", self.sender.on_message, "r", packet, self.now)

    def period(self) -> str:
        """Which part of the run this is."""
        if BEFORE[0] <= self.now < BEFORE[1]:
            return "before"
        return "around" if AROUND[0] <= self.now < AROUND[1] else "else"

    def offer(self, flows: list[int], payload: bytes) -> list[object]:
        """Offer a message of each of these flows."""
        actions: list[object] = []
        for flow in flows:
            actions += self.sender.offer(self.flows[flow], payload, self.now)
        return actions

    def tick(self) -> None:
        """Let what was sent arrive, and timers ring."""
        arrived = [
            packet
            for to, packet in self.on_way
            if (to in self.joined or not to.startswith("group ")) and self.rng.random() >= LOSS
        ]
        self.on_way = []
        if arrived:
            lengths = np.array([len(packet) for packet in arrived], np.int64)
            buffer = np.frombuffer(b"".join(arrived), np.uint8)
            batch = PacketBatch(buffer, np.cumsum(lengths) - lengths, lengths)
            self.call("receiver", self.receiver.on_packets, batch, self.now)
        for who, machine in (("sender", self.sender), ("receiver", self.receiver)):
            if self.due.get(who, float("inf")) <= self.now:
                self.due[who] = float("inf")
                self.call(who, machine.on_timer, "wake", self.now)
        self.held = max(self.held, self.receiver.statistics.held_packets)

    def play(self, change: bool) -> dict[str, Any]:
        """Play all of it; returns a summary."""
        for plan in self.plans:
            self.receiver.learn_plan(plan, 0.0)
        self.call("receiver", self.receiver.start, 0.0)
        self.call("sender", self.sender.start, 0.0)
        changed = False
        draws = self.rng.integers(0, FLOWS, round(RATE * END))
        sent = round(RATE * FIRST)
        while self.now < END:
            self.now += TICK
            if change and not changed and self.now >= CHANGE:
                changed = True
                self.call("sender", self.sender.change_plan, self.plans[1], self.now)
            payload = _PAYLOAD.pack(self.now)
            until = max(sent, round(RATE * self.now))
            self.call("sender", self.offer, draws[sent:until].tolist(), payload)
            sent = until
            self.tick()
        return self.summarise()

    def summarise(self) -> dict[str, Any]:
        """What came of it."""
        statistics = self.receiver.statistics
        assert statistics.missing_messages == 0
        summary: dict[str, Any] = {
            "messages": len(self.latency),
            "kinds": dict(self.kinds),
            "held": self.held,
            "naks": statistics.naks,
        }
        found = np.array(self.latency)
        for name, (begin, end) in {"before": BEFORE, "around": AROUND}.items():
            here = (found[:, 0] >= begin) & (found[:, 0] < end)
            summary[name] = {
                "latency": np.quantile(found[here, 1], [0.5, 0.99, 0.999]).tolist(),
                **{who: self.cpu[who, name] / (end - begin) for who in ("sender", "receiver")},
            }
        return summary


if __name__ == "__main__":
    print(json.dumps(Run(float(sys.argv[1])).play(float(sys.argv[1]) > 0)))
