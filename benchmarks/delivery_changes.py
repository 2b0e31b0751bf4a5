"""What a plan change costs, and many receivers that start together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import heartbeat_run
from benchmarks import plan_change_run as run
from benchmarks.measure import Section, shown_seconds
from distributary.delivery import ReceiverMachine, ReceiverParams, SenderMachine
from distributary.delivery.simulation import Faults, MulticastNetwork, ReceiverNode, SenderNode
from distributary.machines.virtual import Link, Simulation

_FIRST_WIRE = "7e628af"  # the last commit of wire version 1
_ROOT = Path(__file__).parent.parent
_OURS = _ROOT / "src"
_SHARE = 0.01  # of the flows that move
_IDLE = ((100, 10, 0), (1_000, 50, 0), (1_000, 50, 50))  # sessions, groups, active sessions
_STARTS = (200, 1_000, 5_000)  # receivers
_START_FLOWS, _WANTED = 2_000, 20


def plan_change() -> Section:
    """A plan that moves few of many flows takes over under load."""
    with _first_wire() as first:
        runs = {
            "no change": _run_apart(run, _OURS, 0.0),
            "1 % of the flows move": _run_apart(run, _OURS, _SHARE),
            "the same by wire version 1": _run_apart(run, first, _SHARE),
        }
    return Section(
        "Delivery: a plan change under load",
        f"{run.FLOWS:,} flows in {run.SESSIONS} sessions and {run.GROUPS} groups, "
        f"{run.RATE:,} messages/s, a receiver of {run.WANTED_SESSIONS} sessions that loses "
        f"{run.LOSS:.0%} of its packets. A plan that moves {_SHARE:.0%} of the flows to other "
        "sessions is announced, and takes over half a second later. Counts and times are of the "
        "second from the announcement on, in virtual time on a network of 1 ms; CPU is that of "
        "the machines' calls for a second of traffic. By wire version 1 (the code of commit "
        f"{_FIRST_WIRE}, in the same run) all {run.SESSIONS} streams end with the plan, and as "
        "many begin. No message was missing "
        "(asserted).",
        [
            "",
            *("data and journal packets", "heartbeats", "repairs", "NAKs of the whole run"),
            *("latency, median", "99 %", "99.9 %", "packets held at most"),
            *("CPU of the sender", "of the receiver", "of the receiver before"),
        ],
        [[name, *_row(found)] for name, found in runs.items()],
    )


def heartbeats() -> Section:
    """Heartbeats of a publisher most of whose sessions are idle."""
    rows = []
    with _first_wire() as first:
        for sessions, groups, active in _IDLE:
            now, before = (
                _run_apart(heartbeat_run, source, sessions, groups, active)
                for source in (_OURS, first)
            )
            rows.append(
                [
                    *(f"{count:,}" for count in (sessions, groups, active)),
                    *(f"{found['packets']:,.1f}" for found in (now, before)),
                    f"{before['packets'] / now['packets']:.1f}",
                    *(f"{found['bytes']:,.0f}" for found in (now, before)),
                ]
            )
    return Section(
        "Delivery: heartbeats of idle sessions",
        "A publisher that has sent one message in each session. The active ones send another every "
        "10 ms, the others are idle; heartbeats are counted over "
        f"{heartbeat_run.END - heartbeat_run.BEGIN:.0f} s of virtual time. Wire version 1 (the "
        f"code of commit {_FIRST_WIRE}, in the same run) has one heartbeat for each idle session, "
        "ours one for each group that has any.",
        [
            *("sessions", "groups", "active", "heartbeats a second", "by wire version 1"),
            *("ratio", "bytes a second", "by wire version 1"),
        ],
        rows,
    )


@contextmanager
def _first_wire() -> Iterator[Path]:
    """The library as it was with wire version 1."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", _FIRST_WIRE, "src"], cwd=_ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder) / "src"


def _run_apart(module: ModuleType, source: Path, *values: float) -> dict[str, Any]:
    """A module's run in a process of its own, with the library at `source`."""
    assert module.__file__ is not None
    done = subprocess.run(
        [sys.executable, module.__file__, *map(str, values)],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _row(found: dict[str, Any]) -> list[str]:
    kinds, around = found["kinds"], found["around"]
    return [
        *(f"{kinds.get(str(kind), 0):,}" for kind in (1, 3, 2)),
        f"{found['naks']:,}",
        *map(shown_seconds, around["latency"]),
        f"{found['held']:,}",
        *(shown_seconds(around[who]) for who in ("sender", "receiver")),
        shown_seconds(found["before"]["receiver"]),
    ]


def start() -> Section:
    """Receivers that start together, without plans."""
    return Section(
        "Delivery: receivers that start together",
        f"Receivers that want {_WANTED} of {_START_FLOWS:,} flows each, by name, start at once "
        "beside a publisher that has long been there, in virtual time on a network of 1 to 2 ms. "
        "They wait up to 50 ms before they look flows up, and take every block of the directory "
        "that they hear.",
        [
            *("receivers", "lookups that came", "packets of the directory sent"),
            *("copies of the directory", "announcements", "all knew after"),
        ],
        [_start(receivers) for receivers in _STARTS],
    )


def _start(receivers: int) -> list[str]:
    rng = np.random.default_rng(3)
    plan = run.make_plan(np.arange(_START_FLOWS) // (_START_FLOWS // run.SESSIONS))
    network = MulticastNetwork(Link(0.001, 0.001), Faults(), rng)
    simulation = Simulation(network)
    sender = SenderMachine(plan, 1)
    simulation.add("sender", SenderNode(sender, network))
    simulation.post(0.0, "sender", "start", sender="caller")
    params = ReceiverParams(receivers=receivers, back_off=0.05)
    machines = []
    for at in range(receivers):
        wanted = [plan.flows[flow] for flow in rng.choice(_START_FLOWS, _WANTED, replace=False)]
        seeded = np.random.default_rng(at)
        machines.append(ReceiverMachine(f"r{at}", wanted, rng=seeded, params=params))
        simulation.add(f"r{at}", ReceiverNode(machines[-1], network))
        simulation.post(10.0, f"r{at}", "start", sender="caller")
    simulation.run(until=9.9)
    announced = sender.statistics.announcements
    now = 10.0
    while not all(len(machine.following) == _WANTED for machine in machines):
        now += 0.01
        simulation.run(until=now)
    simulation.run(until=12.0)
    found = sender.statistics
    copy = sum(len(sender._log.bodies_of(block)) for block in range(sender._log.blocks))
    return [
        f"{receivers:,}",
        f"{found.lookups:,}",
        f"{found.directory_packets:,}",
        f"{found.directory_packets / copy:.2f}",
        f"{found.announcements - announced:,}",
        shown_seconds(now - 10.0),
    ]


SECTIONS = {
    "delivery_plan_change": plan_change,
    "delivery_heartbeats": heartbeats,
    "delivery_start": start,
}
