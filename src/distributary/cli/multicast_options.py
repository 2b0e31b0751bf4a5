"""The options that `publish`, `receive` and `calibrate` share, and how signals end them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.markup import escape

from distributary.cli.console import notes
from distributary.cli.options import INPUT, NETWORK
from distributary.errors import DistributaryError

if TYPE_CHECKING:
    from distributary.delivery.udp import NetworkOptions
    from distributary.delivery.udp.statistics import Snapshot

__all__ = [
    "GroupBase",
    "GroupSource",
    "InterfaceName",
    "KeyFile",
    "LargestPacket",
    "MetricsAddress",
    "MetricsPort",
    "Pairs",
    "PlanFolder",
    "Port",
    "Ttl",
    "make_network",
    "read_key_file",
    "run_until_signal",
    "serve_metrics_page",
    "warn_of_fault",
]

T = TypeVar("T")

PlanFolder = Annotated[
    Path,
    typer.Option("--plan", help="Plan folder; a new plan in it takes over.", rich_help_panel=INPUT),
]
GroupBase = Annotated[
    str,
    typer.Option(
        help="First multicast address, IPv4 or IPv6; the same as --base of `export`.",
        rich_help_panel=NETWORK,
    ),
]
Port = Annotated[
    int,
    typer.Option(min=1, max=65_535, help="UDP port of all groups.", rich_help_panel=NETWORK),
]
InterfaceName = Annotated[
    str,
    typer.Option(
        "--interface",
        help="Network interface: its name, or its IPv4 address.",
        show_default="the system's choice",
        rich_help_panel=NETWORK,
    ),
]
Pairs = Annotated[
    bool,
    typer.Option(
        "--pairs",
        help="Use two lines, A and B, for each group; --interface may name one for each: A,B.",
        rich_help_panel=NETWORK,
    ),
]
GroupSource = Annotated[
    str,
    typer.Option(
        "--source",
        help="Sender's address, for source-specific multicast: only it is received.",
        rich_help_panel=NETWORK,
    ),
]
Ttl = Annotated[
    int,
    typer.Option(
        min=0,
        max=255,
        help="Time to live of multicast packets: 0 stays on this machine, 1 on this link.",
        rich_help_panel=NETWORK,
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help="File with a key to authenticate packets: 16 to 64 bytes, readable by its owner only.",
        rich_help_panel=NETWORK,
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics",
        min=0,
        max=65_535,
        help="Serve Prometheus metrics on this port; 0 picks a free one.",
        rich_help_panel="Metrics",
    ),
]
MetricsAddress = Annotated[
    str, typer.Option(help="Address to serve the metrics on.", rich_help_panel="Metrics")
]
LargestPacket = Annotated[
    int,
    typer.Option(
        min=512,
        max=65_507,
        help="Maximum size of received packets, in bytes.",
        rich_help_panel=NETWORK,
    ),
]


def make_network(
    group_base: str,
    port: int,
    interface: str,
    ttl: int = 1,
    largest_packet: int = 9_216,
    pairs: bool = False,
    group_source: str = "",
) -> NetworkOptions:
    """Make the network settings of the options."""
    from distributary.delivery.udp import GroupAddresses, NetworkOptions

    try:
        groups = GroupAddresses(group_base, port, pairs, group_source)
    except ValueError as error:
        option = "--source" if "the source" in str(error) else "--group-base"
        raise typer.BadParameter(f"{option}: {error}") from None
    return NetworkOptions(groups, interface, ttl, largest_packet=largest_packet)


def read_key_file(path: Path | None) -> bytes | None:
    """Read the key file, if one is given."""
    from distributary.delivery.udp import read_key

    return None if path is None else read_key(path)


@contextmanager
def serve_metrics_page(
    snapshot: Callable[[], Snapshot], port: int | None, address: str
) -> Iterator[None]:
    """Serve the statistics while the block runs, if a port is given."""
    from distributary.delivery.udp import serve_metrics

    with nullcontext() if port is None else serve_metrics(snapshot, port, address) as found:
        if found is not None:
            notes.print(f"metrics at http://{address}:{found}/metrics", markup=False)
        yield


def warn_of_fault(error: DistributaryError) -> None:
    """Print why a new plan or interest table cannot be used."""
    notes.print(f"[bold yellow]keeping the previous one:[/] {escape(str(error))}")


def run_until_signal(work: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine; SIGINT or SIGTERM sets its event, a second signal interrupts it."""

    async def run() -> T:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def ask_to_stop(number: int) -> None:
            loop.remove_signal_handler(number)
            stop.set()

        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, ask_to_stop, number)
        try:
            return await work(stop)
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    return asyncio.run(run())
