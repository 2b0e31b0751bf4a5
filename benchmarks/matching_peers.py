"""The same filters in other systems: NumPy masks, qlobber, a real NATS server."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import nats
import numpy as np
from nats.aio.msg import Msg
from numpy.typing import NDArray

Values = NDArray[np.int64]  # -1 in a filter: no test


class NumpyMasks:
    """For each value of each attribute, a bit per filter that accepts it; ANDed event by event."""

    def __init__(self, filters: Values, n_values: int) -> None:
        n, attributes = filters.shape
        words = -(-n // 64) * 8
        self.bits = np.zeros((attributes, n_values, words), np.uint8)
        for at in range(attributes):
            for value in range(n_values):
                passing = (filters[:, at] == value) | (filters[:, at] < 0)
                packed = np.packbits(passing)
                self.bits[at, value, : len(packed)] = packed
        self.words = self.bits.view(np.uint64)
        self.at = np.arange(attributes)

    def count(self, events: Values) -> NDArray[np.int64]:
        """The number of matches of each event."""
        found = np.empty(len(events), np.int64)
        for row, event in enumerate(events):
            both = np.bitwise_and.reduce(self.words[self.at, event], axis=0)
            found[row] = np.bitwise_count(both).sum()
        return found


def qlobber(filters: Values, events: Values) -> tuple[float, int]:
    """Seconds and matches of the npm package, which is installed into its own folder."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "qlobber@8"]
        subprocess.run(install, cwd=folder, check=True, capture_output=True)
        (folder / "patterns").write_text("\n".join(map(subject, filters)) + "\n")
        (folder / "topics").write_text("\n".join(map(subject, events)) + "\n")
        script = Path(__file__).parent / "peers" / "qlobber_match.js"
        command = ["node", str(script), str(folder), str(folder / "patterns")]
        done = subprocess.run(
            [*command, str(folder / "topics")], check=True, capture_output=True, text=True
        )
    result = json.loads(done.stdout)
    return result["seconds"], result["matches"]


def subject(values: NDArray[np.int64]) -> str:
    """A filter or event as a subject with one token per attribute."""
    return ".".join("*" if value < 0 else f"v{value}" for value in values)


def nats_server(filters: Values, events: Values) -> tuple[float, int]:
    """Seconds and deliveries of a real server, from the first publish to the last delivery."""
    return asyncio.run(_through_nats(filters, events))


async def _through_nats(filters: Values, events: Values) -> tuple[float, int]:
    async with _server() as address:
        subscriber, publisher = await nats.connect(address), await nats.connect(address)
        got, last = 0, asyncio.Event()

        async def count(message: Msg) -> None:
            nonlocal got
            got += 1
            if message.data == b"last":
                last.set()

        for pattern in map(subject, filters):
            await subscriber.subscribe(pattern, cb=count, pending_msgs_limit=-1)
        await subscriber.subscribe("end", cb=count)
        await subscriber.flush(timeout=60)
        began = time.perf_counter()
        for topic in map(subject, events):
            await publisher.publish(topic, b"x")
        await publisher.publish("end", b"last")
        await publisher.flush(timeout=60)
        await asyncio.wait_for(last.wait(), 300)
        while True:  # deliveries of other subscriptions may still be in transit
            before = got
            await asyncio.sleep(0.2)
            if got == before:
                break
        seconds = time.perf_counter() - began
        await subscriber.close()
        await publisher.close()
    return seconds, got - 1


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    """A server on a free loopback port, stopped by its process id."""
    server = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("nats-server"),
        *("-a", "127.0.0.1", "-p", "-1"),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield await asyncio.wait_for(_address(server), 20)
    finally:
        server.terminate()
        await asyncio.wait_for(server.communicate(), 20)


async def _address(server: asyncio.subprocess.Process) -> str:
    assert server.stderr is not None
    async for line in server.stderr:
        if found := re.search(rb"client connections on (127\.0\.0\.1:\d+)", line):
            return f"nats://{found[1].decode()}"
    raise RuntimeError("nats-server ended before it listened")
