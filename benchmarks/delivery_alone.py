"""Measures receivers one at a time, each on a core of its own, under traffic that is replayed."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.delivery_receivers import place
from benchmarks.delivery_replay import Attendant, Recording, replay
from distributary.delivery import group_name
from distributary.delivery.udp.measured import (
    MeasuredReceiver,
    MeasuredReceiverSettings,
    run_measured_receiver,
)
from distributary.model import IntArray

__all__ = ["LOOK_EVERY", "Bench", "Observation", "Traffic"]

LOOK_EVERY = 0.001  # seconds from one look to the next, as receivers have it under load
TRIES = 3  # of a run in which packets are lost
PATIENCE = 20.0  # seconds for a receiver to learn where its flows travel
QUIET = 0.3  # seconds without a question, after which it knows
_COUNTED = (
    *("messages", "packets", "unwanted_packets", "unwanted_messages", "cpu_seconds"),
    *("overrun", "naks", "gaps", "missing_messages", "duplicates", "malformed", "stale", "reports"),
)


@dataclass(frozen=True)
class Share:
    """What of the traffic is for a receiver, in messages; and in packets."""

    groups: int
    received: int  # of the groups that it joins
    accepted: int  # of the sessions that it subscribes to
    wanted: int
    packets: int


@dataclass(frozen=True)
class Traffic:
    """A plan's packets, and how many messages of each flow are in them."""

    folder: str  # of the plan
    recording: Recording
    counts: IntArray

    def find_share(self, flows: IntArray) -> Share:
        """What is for a receiver of these flows."""
        plan = self.recording.plan
        per_session = np.zeros(plan.n_sessions, np.int64)
        np.add.at(per_session, plan.placement_session, self.counts[plan.placement_flow])
        sessions = np.unique(plan.placement_session[np.isin(plan.placement_flow, flows)])
        groups = np.unique(plan.session_group[sessions])
        return Share(
            groups=len(groups),
            received=int(per_session[np.isin(plan.session_group, groups)].sum()),
            accepted=int(per_session[sessions].sum()),
            wanted=int(self.counts[flows].sum()),
            packets=self.recording.count_packets({group_name(at) for at in groups.tolist()}),
        )


@dataclass(frozen=True)
class Observation:
    """One receiver under one plan; counts in messages."""

    cpu: float  # seconds
    seconds: float
    late: float  # how many times as long as it should have taken
    sent: int
    received: int
    accepted: int
    delivered: int
    groups: int  # joined

    @property
    def load(self) -> float:
        """The share of a core."""
        return self.cpu / self.seconds


class Bench:
    """The publisher's socket, and the cores of both ends."""

    def __init__(self, own: socket.socket) -> None:
        self._own = own
        cores = sorted(os.sched_getaffinity(0))
        self._publisher, self._receiver = cores[0], cores[-1]
        self.repeated = 0  # runs in which packets were lost

    def measure(
        self, traffic: Traffic, name: str, flows: IntArray, speed: float
    ) -> Observation | None:
        """Measure a receiver; again if packets are lost, as while the machine does other work.

        None if they are lost each time."""
        for _ in range(TRIES):
            found = self.try_to_measure(traffic, name, flows, speed)
            if found is not None:
                return found
            self.repeated += 1
        return None

    def try_to_measure(
        self, traffic: Traffic, name: str, flows: IntArray, speed: float
    ) -> Observation | None:
        """Replay all traffic to a new receiver; None if packets were lost."""
        share = traffic.find_share(flows)
        settings = MeasuredReceiverSettings(
            traffic.folder,
            flows=tuple(traffic.recording.plan.flows[flow] for flow in flows.tolist()),
            gather=LOOK_EVERY,
            **place(name),
        )
        with ExitStack() as stack:
            with _on_core(self._receiver):
                receiver = stack.enter_context(run_measured_receiver(settings))
            with _on_core(self._publisher):
                attendant = Attendant(traffic.recording, self._own)
                _await_joins(attendant, receiver, len(flows), share.groups)
                before = receiver.report()
                seconds = replay(traffic.recording, self._own, attendant, speed)
                change = _await_share(receiver, before, share)
        if _lost_any(change, share):
            return None
        _check_answers(name, change, share)
        return Observation(
            cpu=change["cpu_seconds"],
            seconds=seconds,
            late=seconds * speed / traffic.recording.seconds,
            sent=traffic.recording.messages,
            received=share.received,
            accepted=change["messages"] + change["unwanted_messages"],
            delivered=change["messages"],
            groups=share.groups,
        )


def _await_joins(attendant: Attendant, receiver: MeasuredReceiver, flows: int, groups: int) -> None:
    """Attend to a receiver until it knows where its flows travel and asks nothing more."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        attendant.attend()
        time.sleep(0.002)
        if not attendant.started or time.monotonic() < attendant.asked_at + QUIET:
            continue
        report = receiver.report()
        if report["followed_flows"] == flows and report["joined_groups"] == groups + 1:
            return  # one is the control group
    raise RuntimeError(f"the receiver does not follow its {flows} flows in {groups} groups")


def _lost_any(change: dict[str, Any], share: Share) -> bool:
    """Whether packets were lost on the way, which a receiver asks for."""
    passed = change["messages"] + change["unwanted_messages"]
    short = passed < share.accepted or change["packets"] < share.packets
    return bool(short or change["overrun"] or change["naks"])


def _check_answers(name: str, change: dict[str, Any], share: Share) -> None:
    """Check that a receiver got each message of its flows once, and filtered as the plan says."""
    said = (name, change, share)
    assert change["messages"] == share.wanted, said
    assert change["messages"] + change["unwanted_messages"] == share.accepted, said
    wrong = ("reports", "gaps", "missing_messages", "duplicates", "malformed", "stale")
    assert not any(change[key] for key in wrong), said
    if share.received == share.accepted:
        assert change["unwanted_packets"] == 0, said
    else:
        assert 0 < change["unwanted_packets"] <= share.packets, said


def _await_share(
    receiver: MeasuredReceiver, before: dict[str, Any], share: Share
) -> dict[str, Any]:
    """Wait for a few seconds until all is there; returns what the counts grew by."""
    change: dict[str, Any] = {}
    for _ in range(300):
        after = receiver.report()
        change = {key: after[key] - before[key] for key in _COUNTED}
        passed = change["messages"] + change["unwanted_messages"]
        if passed >= share.accepted and change["packets"] >= share.packets:
            break
        time.sleep(0.01)
    return change


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    """Run on one core, and start processes there, while the block lasts."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
