"""How long a running control plane takes from a shift of interest to the plan that follows from it.

It needs a network namespace whose loopback takes multicast:

    unshare -rn sh -c 'ip link set lo up multicast on; ip route add 224.0.0.0/4 dev lo;
                       exec python -m benchmarks control_shifts'
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.system.soak.world import World

from benchmarks.measure import Section, shown_seconds
from distributary.control.nats.client import ControlClient
from distributary.control.nats.members import Control
from distributary.control.status import AuditEntry
from distributary.delivery.udp import Publisher, Receiver
from distributary.machines.nats.options import find_server

WORLD = World(0)
TOPICS = 3  # that are wanted at a time, of all; each receiver wants two of them
SHIFTS = 6
GROUPS, SESSIONS = 4, 8
TRIGGER = 5  # seconds, the default
PATIENCE = 90.0  # seconds for a plan of the stream, which need not be worth it
SETTLE = 15.0  # seconds between two shifts
LOOK = 0.02  # seconds


class Shift:
    """What one shift of all receivers led to, in seconds after it."""

    def __init__(self) -> None:
        self.placed: float | None = None
        self.followed: float | None = None
        self.planned: float | None = None


def control_shifts() -> Section:
    """From a shift of interest to the plan in force."""
    load = os.getloadavg()[0]
    shifts = asyncio.run(_measure())
    assert all(shift.placed is not None for shift in shifts)
    rows = [
        _show("placed: in force", [shift.placed for shift in shifts]),
        _show("placed: all publishers go by it", [shift.followed for shift in shifts]),
        _show("planned on Spark: in force", [shift.planned for shift in shifts]),
    ]
    return Section(
        "Control plane: from a shift of interest to the plan in force",
        f"A control plane with its embedded NATS server and Spark stream, {WORLD.publishers} "
        f"publishers and {WORLD.receivers} receivers on the loopback of one machine. "
        f"{len(WORLD.flows)} flows in {WORLD.topics} topics, of which {TOPICS} are wanted at a "
        f"time; at each of {SHIFTS} shifts one topic goes and another comes, which no plan "
        f"carries, and all receivers want others than before. {GROUPS} groups, {SESSIONS} "
        f"sessions, a batch of the stream every {TRIGGER} s, moves without limit, otherwise as by "
        f"default. *After* is the time from the shift. Machine load {load:.0f} before and "
        f"{os.getloadavg()[0]:.0f} after, of which the benchmark makes about one: Spark shares two "
        "cores with everything else.",
        ["version", "shifts", "after, median", "worst"],
        rows,
        "A publisher announces a version half a second before it goes by it, so that receivers can "
        "follow. Here every receiver wants whole topics, and there is a group for each topic and "
        "one to spare: what is placed wastes nothing, so the stream has nothing to plan, and the "
        "last row has a shift only where rates that had not settled made one worth it.",
    )


def _show(name: str, seconds: Sequence[float | None]) -> list[str]:
    known = [each for each in seconds if each is not None]
    if not known:
        return [name, f"0 of {len(seconds)}", "", ""]
    median = shown_seconds(statistics.median(known))
    return [name, f"{len(known)} of {len(seconds)}", median, shown_seconds(max(known))]


async def _measure() -> list[Shift]:
    shifts = []
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
                        interest=_wanted(at, 0),
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
                while await _find(client, 0.0, "planned") is None:
                    pass
                for number in range(1, SHIFTS + 1):
                    await asyncio.sleep(SETTLE)
                    shifts.append(await _shift(client, publishers, receivers, number))
                for task in publishing:
                    task.cancel()
    return shifts


def _wanted(receiver: int, shift: int) -> list[str]:
    """What a receiver wants after a shift: two of the topics of the time."""
    topics = [(shift + at) % WORLD.topics for at in range(TOPICS)]
    left_out = (receiver + shift) % TOPICS
    chosen = [topic for at, topic in enumerate(topics) if at != left_out]
    return [flow for topic in chosen for flow in WORLD.flows_of(topic)]


async def _shift(
    client: ControlClient, publishers: list[Publisher], receivers: list[Receiver], number: int
) -> Shift:
    shift, began = Shift(), time.time()
    for at, receiver in enumerate(receivers):
        wanted = _wanted(at, number)
        receiver.want_also(wanted)
        receiver.unsubscribe(set(receiver.flows) - set(wanted))
    placed = await _find(client, began, "placed")
    assert placed is not None
    assert placed.version is not None
    shift.placed = placed.at - began
    while any(_version_of(each) < placed.version for each in publishers):
        await asyncio.sleep(LOOK)
    shift.followed = time.time() - began
    planned = await _find(client, began, "planned")
    shift.planned = None if planned is None else planned.at - began
    return shift


def _version_of(publisher: Publisher) -> int:
    seat = publisher.statistics.control
    return 0 if seat is None else seat.version


async def _find(client: ControlClient, since: float, kind: str) -> AuditEntry | None:
    """The first version of a kind since a time, if one comes soon enough."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        entries = [each for each in await client.changes(50) if each.at >= since]
        found = [each for each in entries if each.what == "in force" and each.kind == kind]
        if found:
            return found[-1]
        await asyncio.sleep(LOOK)
    return None


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
