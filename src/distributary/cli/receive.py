"""`distributary receive`: packets in, messages out as JSON lines."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from distributary.cli.console import notes, print_json
from distributary.cli.multicast_options import (
    GroupBase,
    InterfaceName,
    KeyFile,
    LargestPacket,
    MetricsAddress,
    MetricsPort,
    PlanFolder,
    Port,
    key_from,
    metrics_page,
    network_from,
    run_until_signal,
    tell_fault,
)
from distributary.cli.multicast_table import shown_live, statistics_table
from distributary.errors import OutputError
from distributary.files import read_interest

if TYPE_CHECKING:
    from distributary.live.multicast import Report
    from distributary.protocol.multicast import Message, Messages

__all__ = ["receive"]


def receive(
    plan: PlanFolder,
    name: Annotated[str, typer.Option("--as", help="The receiver, by its name in the plan.")],
    interest: Annotated[
        Path | None,
        typer.Option(help="Who wants what: receiver, flow. Without it: all of its sessions."),
    ] = None,
    flow: Annotated[list[str] | None, typer.Option(help="A wanted flow; can be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write there, and not to stdout.")] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many messages; else with Ctrl-C.")
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Ask for what the sender has of the time before.")
    ] = False,
    group_base: GroupBase = "239.192.77.0",
    port: Port = 7702,
    interface: InterfaceName = "",
    largest_packet: LargestPacket = 9_216,
    key_file: KeyFile = None,
    metrics: MetricsPort = None,
    metrics_address: MetricsAddress = "127.0.0.1",
    as_document: Annotated[
        bool, typer.Option("--json", help="With --out: print statistics as JSON at the end.")
    ] = False,
) -> None:
    """Receive the wanted flows of a plan, each message once and in its flow's order."""
    from distributary.live.multicast import Receiver, document
    from distributary.protocol.multicast import ReceiverParams

    if as_document and out is None:
        raise typer.BadParameter("--json needs --out: messages go to stdout")
    if interest is not None and flow:
        raise typer.BadParameter("--flow and --interest exclude each other")
    stop = asyncio.Event()
    with ExitStack() as stack:
        lines = _Lines(_opened(out, stack), count, stop)
        receiver = Receiver(
            plan,
            flow or (read_interest(interest).value if interest else None),
            name=name,
            network=network_from(group_base, port, interface, largest_packet=largest_packet),
            params=ReceiverParams(history=history),
            key=key_from(key_file),
            on_messages=lines.take,
            on_report=lines.report,
            on_fault=tell_fault,
        )
        if not receiver.flows:
            raise typer.BadParameter(
                f"{name!r} wants nothing that is known of: check the name, or name flows"
            )

        async def work(signalled: asyncio.Event) -> dict[str, Any]:
            async with receiver, shown_live(lambda: receiver.statistics):
                with metrics_page(lambda: receiver.statistics, metrics, metrics_address):
                    await _first_of(receiver.wait(), signalled.wait(), stop.wait())
                    return document(receiver.statistics)

        told = run_until_signal(work)
    if lines.broken:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if as_document:
        print_json(told)
    else:
        notes.print(statistics_table(told))


class _Lines:
    """Messages and reports as JSON lines, each written whole."""

    def __init__(self, file: IO[bytes], count: int | None, stop: asyncio.Event) -> None:
        self._file = file
        self._left = count
        self._stop = stop
        self._encode = msgspec.json.Encoder().encode
        self.broken = False

    def take(self, messages: Messages) -> None:
        """Write messages, up to as many as are asked for."""
        lines = []
        for message in messages:
            if self._left == 0:
                break
            lines.append(self._encode(_told(message)) + b"\n")
            if self._left is not None:
                self._left -= 1
        self._write(b"".join(lines))
        if self._left == 0:
            self._stop.set()

    def report(self, report: Report) -> None:
        """Write what is not there, where it would have been."""
        kind = type(report).__name__.lower()
        if self._left != 0:
            self._write(self._encode({"report": kind, **asdict(report)}) + b"\n")

    def _write(self, lines: bytes) -> None:
        if self._stop.is_set() and self.broken:
            return
        try:
            self._file.write(lines)
            self._file.flush()
        except BrokenPipeError:  # whoever read it has had enough
            self.broken = True
            self._stop.set()


def _told(message: Message) -> dict[str, object]:
    told: dict[str, object] = {"flow": message.flow, "sequence": message.sequence}
    try:
        told["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        told["payload_base64"] = base64.b64encode(message.payload).decode()
    return told


def _opened(out: Path | None, stack: ExitStack) -> IO[bytes]:
    if out is None:
        return sys.stdout.buffer
    try:
        return stack.enter_context(out.open("wb"))
    except OSError as error:
        raise OutputError(error.strerror or str(error), path=str(out)) from None


async def _first_of(*works: Any) -> None:
    """Wait for one of them to end, or to fail."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
