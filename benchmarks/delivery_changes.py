"""What a plan change costs, and many receivers that start together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import plan_change_run as run
from benchmarks.measure import Section, shown_seconds
from distributary.delivery import ReceiverMachine, ReceiverParams, SenderMachine
from distributary.delivery.simulation import Faults, MulticastNetwork, ReceiverNode, SenderNode
from distributary.machines.virtual import Link, Simulation

_FIRST_WIRE = "7e628af"  # the last commit of wire version 1
_SHARE = 0.01  # of the flows that move
_STARTS = (200, 1_000, 5_000)  # receivers
_START_FLOWS, _WANTED = 2_000, 20


def plan_change() -> Section:
    """A plan that moves few of many flows takes over under load."""
    root = Path(__file__).parent.parent
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", _FIRST_WIRE, "src"], cwd=root, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        runs = {
            "no change": _run_apart(root / "src", 0.0),
            "1 % of the flows move": _run_apart(root / "src", _SHARE),
            "the same by wire version 1": _run_apart(Path(folder) / "src", _SHARE),
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


def _run_apart(source: Path, share: float) -> dict[str, Any]:
    """The run in a process of its own, with the library at `source`."""
    done = subprocess.run(
        [sys.executable, run.__file__, str(share)],
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


SECTIONS = {"delivery_plan_change": plan_change, "delivery_start": start}
