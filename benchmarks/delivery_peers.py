"""Others that get the same messages: a ZeroMQ SUB socket with prefix filters, and nats-py.

`python -m benchmarks.delivery_peers ROLE SETTINGS` is the subscriber, in a process of its own. It
says `ready`, and at the end how many messages it was given and its CPU seconds for them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
import zmq

END = "END"
_TICKS = os.sysconf("SC_CLK_TCK")
PeerReport = dict[str, float]


@contextmanager
def _subscriber(role: str, **settings: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", __name__, role, json.dumps(settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def _outcome(process: subprocess.Popen[str]) -> PeerReport:
    assert process.stdout is not None
    report: PeerReport = json.loads(process.stdout.readline())
    return report


# --- ZeroMQ --------------------------------------------------------------------------------------


def zmq_receiver(
    flows: Sequence[str], wanted: Sequence[str], messages: int, payload: bytes, *, at_receiver: bool
) -> PeerReport:
    """CPU of a SUB socket, which filters itself, or whose publisher filters for it.

    A publisher's socket filters by its subscribers' prefixes. With `at_receiver` an empty prefix
    lets everything through, and the SUB socket's own filter does the work.
    """
    context = zmq.Context()
    with context.socket(zmq.XPUB) as publisher:
        publisher.set_hwm(0)
        publisher.setsockopt(zmq.LINGER, 10_000)
        publisher.setsockopt(zmq.XPUB_MANUAL, 1)
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        with _subscriber("zmq", port=port, wanted=list(wanted)) as process:
            for at in range(len(wanted) + 1):
                prefix = publisher.recv()[1:]
                if not at_receiver:
                    publisher.setsockopt(zmq.SUBSCRIBE, prefix)
                elif at == 0:
                    publisher.setsockopt(zmq.SUBSCRIBE, b"")
            began = time.process_time()
            lines = [flow.encode() + b" " + payload for flow in flows]
            for at in range(messages):
                publisher.send(lines[at % len(lines)], copy=True)
            sending = time.process_time() - began
            publisher.send(END.encode())
            report = _outcome(process)
    context.term()
    return {**report, "sender_cpu": sending}


def _zmq_subscriber(port: int, wanted: list[str]) -> None:
    context = zmq.Context()
    with context.socket(zmq.SUB) as subscriber:
        subscriber.set_hwm(0)
        subscriber.connect(f"tcp://127.0.0.1:{port}")
        for flow in (*wanted, END):
            subscriber.subscribe(flow)
        print("ready", flush=True)
        received, end, recv = 0, END.encode(), subscriber.recv
        began = time.process_time()
        while recv() != end:
            received += 1
        print(json.dumps({"messages": received, "cpu": time.process_time() - began}), flush=True)
    context.term()


# --- NATS ----------------------------------------------------------------------------------------


def nats_receiver(
    flows: Sequence[str], wanted: Sequence[str], messages: int, payload: bytes
) -> PeerReport:
    """CPU of nats-py with one subscription for each wanted flow, and of the server for all."""
    port = 14_222
    command = [
        str(Path(sys.executable).with_name("nats-server")),
        "-a",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            url = f"nats://127.0.0.1:{port}"
            with _subscriber("nats", url=url, wanted=list(wanted)) as process:
                before = _cpu_of(server.pid)
                asyncio.run(_nats_publish(url, flows, messages, payload))
                report = _outcome(process)
                return {**report, "server_cpu": _cpu_of(server.pid) - before}
        finally:
            server.terminate()


async def _nats_publish(url: str, flows: Sequence[str], messages: int, payload: bytes) -> None:
    nc = await nats.connect(url)
    for at in range(messages):
        await nc.publish(flows[at % len(flows)], payload)
        if at % 500 == 499:
            await nc.flush()
    await nc.publish(END, b"")
    await nc.drain()


async def _nats_subscriber(url: str, wanted: list[str]) -> None:
    for attempt in range(100):
        try:
            nc = await nats.connect(url, allow_reconnect=False)
            break
        except (OSError, nats.errors.Error):
            assert attempt < 99
            await asyncio.sleep(0.1)
    received, ended = 0, asyncio.Event()

    async def take(message: Any) -> None:
        nonlocal received
        received += 1

    async def end(message: Any) -> None:
        ended.set()

    for flow in wanted:
        await nc.subscribe(flow, cb=take, pending_msgs_limit=10**7, pending_bytes_limit=10**10)
    await nc.subscribe(END, cb=end)
    await nc.flush()
    print("ready", flush=True)
    began = time.process_time()
    await ended.wait()
    await nc.drain()
    print(json.dumps({"messages": received, "cpu": time.process_time() - began}), flush=True)


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    role, settings = sys.argv[1], json.loads(sys.argv[2])
    if role == "zmq":
        _zmq_subscriber(**settings)
    else:
        asyncio.run(_nats_subscriber(**settings))
