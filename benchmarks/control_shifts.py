"""How long a running control plane takes from a shift of interest to the plan that follows from it.

It needs a network namespace whose loopback takes multicast:

    unshare -rn sh -c 'ip link set lo up multicast on; ip route add 224.0.0.0/4 dev lo;
                       exec python -m benchmarks control_shifts'
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.system.soak.world import World

from benchmarks.measure import Section, shown_seconds
from distributary.control.nats.client import ControlClient
from distributary.control.nats.members import Control
from distributary.control.status import AuditEntry
from distributary.delivery.udp import Publisher, Receiver
from distributary.machines.nats.options import find_server

WORLD = World(0)
TOPICS = 3  # that are wanted at a time, of all; each receiver wants two of them
CIRCLES = 4  # of receivers with the same interest, when all flows are wanted
SHIFTS = 6  # of each kind
GROUPS, SESSIONS = 4, 8
TRIGGER = 5  # seconds, the default
PATIENCE = 180.0  # seconds for a version
SETTLE = 15.0  # seconds between two shifts
LOOK = 0.02  # seconds


class Shift(NamedTuple):
    """What one shift of all receivers led to, in seconds after it."""

    in_force: float
    followed: float  # all publishers go by it


def control_shifts() -> Section:
    """From a shift of interest to the plan in force."""
    load = os.getloadavg()[0]
    found = asyncio.run(_measure())
    rows = []
    for name, shifts in found.items():
        assert len(shifts) == SHIFTS
        rows += [
            _show(f"{name}: in force", [shift.in_force for shift in shifts]),
            _show(f"{name}: all publishers go by it", [shift.followed for shift in shifts]),
        ]
    return Section(
        "Control plane: from a shift of interest to the plan in force",
        f"A control plane with its embedded NATS server and Spark stream, {WORLD.publishers} "
        f"publishers and {WORLD.receivers} receivers on the loopback of one machine. "
        f"{len(WORLD.flows)} flows in {WORLD.topics} topics; {GROUPS} groups, {SESSIONS} sessions, "
        f"a batch of the stream every {TRIGGER} s, moves without limit, otherwise as by default. "
        f"*Placed*: {TOPICS} topics are wanted at a time; at each shift one of them goes and "
        "another comes, which no plan carries, and all receivers want others than before. "
        f"*Planned on Spark*: the plan carries all flows, for {CIRCLES} circles of receivers with "
        "the same interest; at each shift every circle exchanges most of its flows for those of "
        "others, so that no group suits anybody any more. *After* is the time from the shift. "
        f"Machine load {load:.0f} before and {os.getloadavg()[0]:.0f} after, of which the "
        "benchmark makes about one: Spark shares two cores with everything else.",
        ["version", "shifts", "after, median", "worst"],
        rows,
        "A publisher announces a version half a second before it goes by it, so that receivers can "
        "follow.",
    )


def _show(name: str, seconds: Sequence[float]) -> list[str]:
    median, worst = statistics.median(seconds), max(seconds)
    return [name, f"{len(seconds)}", shown_seconds(median), shown_seconds(worst)]


async def _measure() -> dict[str, list[Shift]]:
    found = {}
    with TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(_serve(Path(folder)))
            control = Control(Path(folder), interface="lo", within=60.0)
            publishers = [
                await stack.enter_async_context(
                    Publisher(control=control, name=name, flows=WORLD.published_by(name), stay=0.0)
                )
                for name in WORLD.publisher_names
            ]
            receivers = [
                await stack.enter_async_context(
                    Receiver(
                        interest=_want_topics(at, 0),
                        name=name,
                        control=control,
                        on_messages=_drop,
                        on_report=_drop,
                    )
                )
                for at, name in enumerate(WORLD.receiver_names)
            ]
            options, _ = find_server(Path(folder))
            client = await stack.enter_async_context(ControlClient(options, within=60.0))
            async with asyncio.TaskGroup() as group:
                publishing = [group.create_task(_publish(each)) for each in publishers]
                await _wait_for_stream(client)
                for name, kind, wants in (
                    ("placed", "placed", _want_topics),
                    ("planned on Spark", "planned", _want_circles),
                ):
                    _want(receivers, wants, 0)
                    found[name] = []
                    for number in range(1, SHIFTS + 1):
                        await asyncio.sleep(SETTLE)
                        began = time.time()
                        _want(receivers, wants, number)
                        found[name].append(await _follow(client, publishers, kind, began))
                for task in publishing:
                    task.cancel()
    return found


def _want_topics(receiver: int, shift: int) -> list[str]:
    """What a receiver wants after a shift: two of the topics of the time."""
    topics = [(shift + at) % WORLD.topics for at in range(TOPICS)]
    left_out = (receiver + shift) % TOPICS
    chosen = [topic for at, topic in enumerate(topics) if at != left_out]
    return [flow for topic in chosen for flow in WORLD.flows_of(topic)]


def _want_circles(receiver: int, shift: int) -> list[str]:
    """What a receiver wants after a shift: the flows of its circle, drawn anew each time."""
    flows = WORLD.flows
    random.Random(shift).shuffle(flows)
    return flows[receiver % CIRCLES :: CIRCLES]


def _want(receivers: list[Receiver], wants: Callable[[int, int], list[str]], number: int) -> None:
    for at, receiver in enumerate(receivers):
        wanted = wants(at, number)
        receiver.want_also(wanted)
        receiver.unsubscribe(set(receiver.flows) - set(wanted))


async def _follow(
    client: ControlClient, publishers: list[Publisher], kind: str, began: float
) -> Shift:
    """Wait for the first version of a kind, and for all publishers to go by it."""
    version = await _find(client, began, kind)
    assert version.version is not None
    while any(_version_of(each) < version.version for each in publishers):
        await asyncio.sleep(LOOK)
    return Shift(version.at - began, time.time() - began)


def _version_of(publisher: Publisher) -> int:
    seat = publisher.statistics.control
    return 0 if seat is None else seat.version


async def _wait_for_stream(client: ControlClient) -> None:
    """Wait until Spark has started and plans."""
    async with asyncio.timeout(PATIENCE):
        while (await client.status()).stream.batch < 1:
            await asyncio.sleep(0.5)


async def _find(client: ControlClient, since: float, kind: str) -> AuditEntry:
    """The first version of a kind since a time."""
    async with asyncio.timeout(PATIENCE):
        while True:
            entries = [each for each in await client.changes(50) if each.at >= since]
            found = [each for each in entries if each.what == "in force" and each.kind == kind]
            if found:
                return found[-1]
            await asyncio.sleep(LOOK)


async def _publish(publisher: Publisher) -> None:
    """Publish each flow at its rate."""
    due = {flow: time.monotonic() for flow in WORLD.published_by(publisher.name)}
    while True:
        flow = min(due, key=due.__getitem__)
        await asyncio.sleep(max(0.0, due[flow] - time.monotonic()))
        await publisher.publish(flow, b"x" * 20)
        due[flow] += 1.0 / WORLD.rate_of(flow)


def _drop(what: object) -> None:
    """Nobody looks at messages and reports."""


@asynccontextmanager
async def _serve(folder: Path) -> AsyncIterator[None]:
    words = [
        *("control", "serve", "--state", str(folder), "--ttl", "0"),
        *("--groups", str(GROUPS), "--sessions", str(SESSIONS), "--trigger", f"{TRIGGER}s"),
        *("--max-moves", str(len(WORLD.flows))),
    ]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "distributary", *words),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()


SECTIONS = {"control_shifts": control_shifts}
