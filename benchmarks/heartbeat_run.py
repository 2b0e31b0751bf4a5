"""A run of the heartbeat benchmark: `python heartbeat_run.py SESSIONS GROUPS ACTIVE`, prints JSON.

Like `plan_change_run` it uses only what the sender of wire version 1 has too. Time is virtual.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from distributary.delivery import SenderMachine, SenderParams
from distributary.machines.actions import Send, SetTimer
from distributary.model import Plan

BEGIN, END = 10.0, 60.0  # seconds in which heartbeats are counted
_HEARTBEAT = 3
_EVERY = 0.01  # seconds between two messages of an active session


def make_plan(sessions: int, groups: int) -> Plan:
    """A flow in each session; the sessions take turns in the groups."""
    every = np.arange(sessions, dtype=np.int32)
    return Plan(
        ("r",),
        tuple(f"{flow:05}" for flow in range(sessions)),
        every,
        every,
        (every % groups).astype(np.int32),
        np.zeros(sessions, np.int32),
        every,
    )


def count_heartbeats(sessions: int, groups: int, active: int) -> dict[str, float]:
    """Heartbeats and their bytes a second, while some sessions are active and the others idle."""
    sender = SenderMachine(make_plan(sessions, groups), 7, params=SenderParams(rate=1e9, burst=1e9))
    found = {"packets": 0, "bytes": 0}
    due = float("inf")

    def do(actions: list[object], now: float) -> None:
        nonlocal due
        for action in actions:
            if isinstance(action, SetTimer):
                due = float("inf") if action.at is None else action.at
            elif isinstance(action, Send) and action.message[3] == _HEARTBEAT and now >= BEGIN:
                found["packets"] += 1
                found["bytes"] += len(action.message)

    do([*sender.start(0.0)], 0.0)
    now, offers = 0.0, 1.0
    while now < END:
        now = min(due, offers)
        if now < offers:
            due = float("inf")
            do([*sender.on_timer("wake", now)], now)
            continue
        for flow in range(sessions if offers == 1.0 else active):  # each has sent something once
            do([*sender.offer(f"{flow:05}", bytes(100), now)], now)
        offers += _EVERY
    return {name: count / (END - BEGIN) for name, count in found.items()}


if __name__ == "__main__":
    print(json.dumps(count_heartbeats(*map(int, sys.argv[1:]))))
