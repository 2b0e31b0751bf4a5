"""Pages over a real control service on a real NATS server; members only report, without traffic."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import msgspec
from nats.aio.client import Client

from distributary.control.nats import ControlClient
from distributary.control.nats.layout import Layout
from distributary.control.reports import (
    InterestRecord,
    PublisherRecord,
    PublisherReport,
    ReceiverReport,
)
from distributary.dashboard import DashboardSettings, run_dashboard
from distributary.machines.nats import connect_to_server, run_embedded_server
from tests.control.nats.services import serving
from tests.dashboard.served import TOKEN

__all__ = ["WANTS", "serve_real"]

RATES = {f"EQ.{number:02}": 10 + 3 * number for number in range(24)}
WANTS = {
    "rates-1": tuple(list(RATES)[:10]),
    "fx-1": tuple(list(RATES)[6:18]),
    "energy-1": (*list(RATES)[14:], "<b>nobody publishes it</b>"),
}
LAYOUT = Layout("distributary")


@contextmanager
def serve_real(folder: Path) -> Iterator[str]:
    """Serve pages over a control plane with three receivers and a publisher; yields the address."""
    ready: Queue[str | BaseException] = Queue()
    stop: Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Queue()

    async def work() -> None:
        stopped = asyncio.Event()
        stop.put((asyncio.get_running_loop(), stopped))
        try:
            await _serve(folder, ready, stopped)
        except BaseException as error:
            ready.put(error)
            raise

    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    found = ready.get(timeout=60)
    if isinstance(found, BaseException):
        raise found
    try:
        yield found.rstrip("/")
    finally:
        loop, stopped = stop.get()
        loop.call_soon_threadsafe(stopped.set)
        thread.join(timeout=60)
        assert not thread.is_alive(), "the control plane did not end"


async def _serve(folder: Path, ready: Queue[str | BaseException], stopped: asyncio.Event) -> None:
    async with (
        run_embedded_server(folder / "nats") as server,
        serving(server.options, folder / "s", mode="manual", judge_after=0.5, judge_over=1.0),
        connect_to_server(server.options, name="members") as nc,
        ControlClient(server.options) as client,
    ):
        await _join(nc)
        settings = DashboardSettings(port=0, token=TOKEN, every=0.2)
        page = asyncio.create_task(run_dashboard(client, settings, on_ready=ready.put))
        reporting = asyncio.create_task(_report(nc, client))
        await asyncio.wait(
            [page, reporting, asyncio.create_task(stopped.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in (page, reporting):
            if task.done():
                task.result()
            task.cancel()
        await asyncio.wait([page, reporting])


async def _join(nc: Client) -> None:
    members = await nc.jetstream().key_value(LAYOUT.members)
    records: Mapping[str, InterestRecord | PublisherRecord] = {
        LAYOUT.member_key("publisher", "nyse"): PublisherRecord(
            "nyse-1", "process 1 on feed-1", time.time(), tuple(RATES)
        ),
        **{
            LAYOUT.member_key("receiver", name): InterestRecord(
                f"{name}-1", f"process 2 on {name}", time.time(), flows
            )
            for name, flows in WANTS.items()
        },
    }
    for key, record in records.items():
        await members.put(key, msgspec.msgpack.encode(record))


async def _report(nc: Client, client: ControlClient) -> None:
    """Report every second: receivers what the plan lets them get, but for a little more."""
    number = 0
    while True:
        found = await client.status()
        version = found.force.version if found.force else 0
        await _store(nc, "publisher", "nyse", _make_publisher_report(number, version))
        for name, flows in WANTS.items():
            report = ReceiverReport(
                incarnation=f"{name}-1",
                number=number,
                seconds=1.0,
                wanted=sum(RATES.get(flow, 0) for flow in flows),
                dropped_packets=20,
                dropped_messages=60,
                groups=3,
                gaps=1 if name == "fx-1" else 0,
                missing=4 if name == "fx-1" else 0,
                repairs=number,
                unserved=(),
                cpu_share=0.07,
            )
            await _store(nc, "receiver", name, report)
        number += 1
        await asyncio.sleep(0.2 if number < 20 else 1.0)


def _make_publisher_report(number: int, version: int) -> PublisherReport:
    return PublisherReport(
        incarnation="nyse-1",
        number=number,
        names=tuple(RATES),
        first_second=int(time.time()),
        counts=tuple((0, at, rate) for at, rate in enumerate(RATES.values())),
        plan_version=version,
        unplanned=0,
        messages_per_packet=2.0,
        cpu_share=0.1,
    )


async def _store(
    nc: Client, role: str, name: str, report: PublisherReport | ReceiverReport
) -> None:
    subject = LAYOUT.report("publisher" if role == "publisher" else "receiver", name)
    await nc.jetstream().publish(subject, msgspec.msgpack.encode(report))
