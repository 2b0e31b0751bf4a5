"""The publishers and the receivers of a soak: what an application does, and what it writes down.

A publisher writes what it is about to publish, and what was dropped because no plan carried it. A
receiver writes what it asked for, what it was told, and what it got, in the order in which it
happened to the application. Once the folder has a file `rest`, receivers shift no more; SIGTERM
ends either in good order.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from distributary.control.nats.members import Control
from distributary.delivery import (
    Back,
    Gap,
    Gone,
    Missing,
    Restarted,
    SenderParams,
    Subscribed,
    Unserved,
)
from distributary.delivery.udp import Publisher, Receiver
from tests.system.soak.diary import Diary, name_diary
from tests.system.soak.world import Appetite, World

__all__ = ["REST", "run_publisher", "run_receiver"]

REST: Final = "rest"
PATIENCE: Final = 300.0  # seconds in which a member that starts looks for its control plane
# One message a packet, so that packets that the first filter drops are messages.
PARAMS = SenderParams(messages_per_packet=1)
_PR_SET_PDEATHSIG = 1


def run_publisher(world: World, name: str, run: int, folder: str, url: str) -> None:
    """Be a run of a publisher, in a process of its own."""
    _run(Path(folder), name, run, lambda diary: _publish(world, name, run, url, diary))


def run_receiver(world: World, name: str, run: int, folder: str, url: str) -> None:
    """Be a run of a receiver, in a process of its own."""
    _run(
        Path(folder),
        name,
        run,
        lambda diary: _receive(world, name, run, url, Path(folder) / REST, diary),
    )


def _run(
    folder: Path, name: str, run: int, work: Callable[[Diary], Coroutine[Any, Any, None]]
) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    errors = os.open(folder / f"{name}.{run}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(errors, 2)
    diary = Diary(name_diary(folder, name, run))
    try:
        asyncio.run(work(diary))
    except BaseException:
        diary.write("failed", traceback.format_exc())
        sys.exit(1)
    diary.write("end")


def _listen() -> asyncio.Event:
    """An event that SIGTERM sets."""
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    return end


# --- publishers -----------------------------------------------------------------------------------


async def _publish(world: World, name: str, run: int, url: str, diary: Diary) -> None:
    end = _listen()
    incarnation = time.time_ns()
    diary.write("begin", name, run, incarnation)
    flows = world.published_by(name)
    control = Control(url, interface="lo", within=PATIENCE)
    async with Publisher(
        control=control,
        name=name,
        flows=flows,
        incarnation=incarnation,
        params=PARAMS,
        on_fault=lambda error: diary.write("fault", str(error)),
    ) as publisher:
        diary.write("open")
        await _publish_until(end, world, publisher, run, flows, diary)
        diary.write("ending")


async def _publish_until(
    end: asyncio.Event,
    world: World,
    publisher: Publisher,
    run: int,
    flows: list[str],
    diary: Diary,
) -> None:
    """Publish each flow at its rate; what a suspended process missed is not published."""
    numbers = dict.fromkeys(flows, 0)
    now = time.monotonic()
    due = [(now + at / len(flows) / world.rate_of(flow), flow) for at, flow in enumerate(flows)]
    heapq.heapify(due)
    while not end.is_set():
        at, flow = heapq.heappop(due)
        await _wait_until(at, end)
        numbers[flow] += 1
        number, dropped = numbers[flow], publisher.unplanned.get(flow, 0)
        diary.write("sent", flow, number)
        await publisher.publish(flow, b"%d %d" % (run, number))
        if publisher.unplanned.get(flow, 0) > dropped:
            diary.write("dropped", flow, number)
        heapq.heappush(due, (max(at, time.monotonic() - 1.0) + 1.0 / world.rate_of(flow), flow))


async def _wait_until(at: float, end: asyncio.Event) -> None:
    left = at - time.monotonic()
    if left > 0:
        try:
            async with asyncio.timeout(left):
                await end.wait()
        except TimeoutError:
            pass


# --- receivers ------------------------------------------------------------------------------------


async def _receive(world: World, name: str, run: int, url: str, rest: Path, diary: Diary) -> None:
    end = _listen()
    diary.write("begin", name, run)
    appetite = Appetite(world, name, run)
    diary.write("want", sorted(appetite.wanted))
    async with Receiver(
        interest=sorted(appetite.wanted),
        name=name,
        control=Control(url, interface="lo", within=PATIENCE),
        on_report=lambda report: _write_report(diary, report),
        on_fault=lambda error: diary.write("fault", str(error)),
    ) as receiver:
        diary.write("open")
        receiver.want_also(appetite.wanted)  # so that it tells from when on nothing is lost
        tasks = [
            asyncio.ensure_future(work)
            for work in (
                _take(receiver, diary),
                _shift(receiver, appetite, rest, diary),
                _state(receiver, diary),
                end.wait(),
            )
        ]
        done, _ = await asyncio.wait(
            [tasks[0], tasks[2], tasks[3]], return_when=asyncio.FIRST_COMPLETED
        )
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in [*done, tasks[1]]:
            if not task.cancelled():
                task.result()


async def _take(receiver: Receiver, diary: Diary) -> None:
    while True:
        message = await receiver.receive()
        run, _, number = message.payload.partition(b" ")
        diary.write("got", message.flow, message.sequence, int(run), int(number))


async def _shift(receiver: Receiver, appetite: Appetite, rest: asyncio.Event, diary: Diary) -> None:
    """Come to want flows, and leave others."""
    while True:
        await asyncio.sleep(appetite.pause())
        if rest.exists():
            return
        shift = appetite.shift()
        diary.write("want", shift.gained)
        receiver.want_also(shift.gained)
        diary.write("leave", shift.lost)
        receiver.unsubscribe(shift.lost)
        diary.write("left", shift.lost)


async def _state(receiver: Receiver, diary: Diary) -> None:
    """Write the counters twice a second."""
    while True:
        now = receiver.statistics
        machine = now.machine
        diary.write(
            "state",
            machine.messages,
            machine.unwanted_packets,
            machine.unwanted_messages,
            now.cpu_seconds,
            list(receiver.unserved),
        )
        await asyncio.sleep(0.5)


def _write_report(diary: Diary, report: object) -> None:
    match report:
        case Subscribed(flows):
            diary.write("subscribed", flows)
        case Unserved(_, flows):
            diary.write("unserved", flows)
        case Missing(publisher, incarnation, flow, first, last):
            diary.write("missing", publisher, incarnation, flow, first, last)
        case Gap(publisher, incarnation, _, _, _, _, flows, more):
            diary.write("gap", publisher, incarnation, flows, more, repr(report))
        case Restarted(publisher, old, _):
            diary.write("over", publisher, old, repr(report))
        case Gone(publisher, incarnation, _):
            diary.write("over", publisher, incarnation, repr(report))
        case Back():
            diary.write("report", repr(report))
        case _:
            diary.write("report", repr(report))
