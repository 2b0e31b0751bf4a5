"""Runs a receiver in a process of its own, to measure its CPU time.

`python -m distributary.delivery.udp.measured SETTINGS`, with settings as JSON, prints
`ready` when it listens, answers each line of its input with its statistics, and ends with its
input. `MeasuredReceiver` is the caller's side.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from distributary.delivery import Messages, ReceiverParams
from distributary.delivery.addresses import GroupAddresses
from distributary.delivery.udp.faults import Loss
from distributary.delivery.udp.network import NetworkOptions
from distributary.delivery.udp.receiver import Receiver
from distributary.delivery.udp.statistics import snapshot_document
from distributary.model import FloatArray

__all__ = ["MeasuredReceiver", "MeasuredReceiverSettings", "run_measured_receiver"]

Use = Literal["count", "read", "check"]


@dataclass(frozen=True, slots=True)
class MeasuredReceiverSettings:
    """The settings of a measured receiver, which counts, reads or checks messages.

    To be checked, a payload begins with the time it was published at, in nanoseconds of the
    monotonic clock, and numbers are to follow one another in each flow.
    """

    plan: str
    name: str
    flows: tuple[str, ...] | None = None
    base: str = GroupAddresses().base
    port: int = GroupAddresses().port
    interface: str = ""
    largest_packet: int = 9_216
    batch: int = 64
    gather: float | None = None
    sender: str = ""  # address of a sender that announces by unicast
    loss: float = 0.0
    seed: int = 0
    use: Use = "count"
    params: dict[str, float] = field(default_factory=dict)


class MeasuredReceiver:
    """A receiver that runs in another process."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self.address = address  # its unicast address

    def report(self) -> dict[str, Any]:
        """The receiver's statistics; `cpu_seconds` is the CPU time of its process."""
        assert self._process.stdin is not None
        self._process.stdin.write("report\n")
        self._process.stdin.flush()
        return _read_line(self._process)

    def await_messages(self, messages: int, patience: float = 60.0) -> dict[str, Any]:
        """Wait until the receiver has delivered so many messages."""
        return self.await_count("messages", messages, patience)

    def await_count(self, name: str, least: int, patience: float = 60.0) -> dict[str, Any]:
        """Wait until one of the counts has reached a value; asks every 10 ms."""
        until = time.monotonic() + patience
        while (report := self.report())[name] < least and time.monotonic() < until:
            time.sleep(0.01)
        return report


@contextmanager
def run_measured_receiver(settings: MeasuredReceiverSettings) -> Iterator[MeasuredReceiver]:
    """Run a receiver in another process until the block ends."""
    command = [sys.executable, "-m", __name__, json.dumps(asdict(settings))]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        yield MeasuredReceiver(process, _read_line(process)["address"])
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _read_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the measured receiver ended with {process.wait(10)}")
    report: dict[str, Any] = json.loads(line)
    return report


# --- the process ---------------------------------------------------------------------------------


class _Consumer:
    """Uses messages, as cheaply as possible, so that the filters dominate the cost."""

    def __init__(self, use: Use) -> None:
        self.take = {"count": self._count, "read": self._read, "check": self._check}[use]
        self.bytes = self.wrong = self.reports = 0
        self._next: dict[int, int] = {}
        self._waits: list[FloatArray] = []

    def _count(self, messages: Messages) -> None:
        pass

    def _read(self, messages: Messages) -> None:
        view = messages.buffer.data
        places = zip(messages.start.tolist(), messages.end.tolist(), strict=True)
        payloads = [view[start:end].tobytes() for start, end in places]
        self.bytes += sum(map(len, payloads))

    def _check(self, messages: Messages) -> None:
        now = time.monotonic_ns()
        stamps = messages.buffer[messages.start[:, None] + np.arange(8)].view("<i8")[:, 0]
        self._waits.append((now - stamps) / 1e9)
        pairs = zip(messages.flow.tolist(), messages.sequence.tolist(), strict=True)
        for flow, sequence in pairs:
            self.wrong += sequence != self._next.get(flow, 1)
            self._next[flow] = sequence + 1

    def document(self) -> dict[str, Any]:
        report: dict[str, Any] = {"wrong": self.wrong, "reports": self.reports}
        if self._waits:
            found = np.concatenate(self._waits)
            report["latency"] = np.quantile(found, [0.5, 0.99, 1.0]).tolist()
        return report

    def report(self, report: object) -> None:
        self.reports += 1


async def _serve(settings: MeasuredReceiverSettings) -> None:
    consumer = _Consumer(settings.use)
    network = NetworkOptions(
        GroupAddresses(settings.base, settings.port),
        settings.interface,
        largest_packet=settings.largest_packet,
        batch=settings.batch,
    )
    receiver = Receiver(
        settings.plan,
        settings.flows,
        name=settings.name,
        network=network,
        params=ReceiverParams(**settings.params),  # type: ignore[arg-type]
        sender=settings.sender,
        seed=settings.seed,
        gather=settings.gather,
        loss=Loss(settings.loss, settings.seed),
        on_messages=consumer.take,
        on_report=consumer.report,
    )
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answer() -> None:
        if not os.read(0, 4_096):
            ended.set()
            return
        report = {**snapshot_document(receiver.statistics), **consumer.document()}
        print(json.dumps(report), flush=True)

    async with receiver:
        loop.add_reader(0, answer)
        print(json.dumps({"ready": True, "address": receiver.address}), flush=True)
        await ended.wait()
        loop.remove_reader(0)


if __name__ == "__main__":
    asyncio.run(_serve(MeasuredReceiverSettings(**json.loads(sys.argv[1]))))
