"""The options that `publish`, `receive` and `calibrate` share, and how these commands end."""

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
    "key_from",
    "metrics_page",
    "network_from",
    "run_until_signal",
    "tell_fault",
]

T = TypeVar("T")

PlanFolder = Annotated[
    Path,
    typer.Option(
        "--plan", help="The plan folder; a new plan in it is taken up.", rich_help_panel=INPUT
    ),
]
GroupBase = Annotated[
    str,
    typer.Option(
        "--group-base",
        "--base",
        help="The first multicast address, IPv4 or IPv6, as `export --base` takes it.",
        rich_help_panel=NETWORK,
    ),
]
Port = Annotated[
    int,
    typer.Option(min=1, max=65_535, help="The UDP port of all groups.", rich_help_panel=NETWORK),
]
InterfaceName = Annotated[
    str,
    typer.Option(
        "--interface",
        help="The name of the interface, or its IPv4 address.",
        rich_help_panel=NETWORK,
    ),
]
Pairs = Annotated[
    bool,
    typer.Option(
        "--pairs",
        help="Two lines, A and B, for each group; --interface may name one for each: A,B.",
        rich_help_panel=NETWORK,
    ),
]
GroupSource = Annotated[
    str,
    typer.Option(
        "--source",
        help="The sender's address, for source-specific multicast: it alone is heard.",
        rich_help_panel=NETWORK,
    ),
]
Ttl = Annotated[
    int,
    typer.Option(
        min=0,
        max=255,
        help="How far packets go: 0 this machine, 1 this link.",
        rich_help_panel=NETWORK,
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help="A key for packets, 16 to 64 bytes; only its owner may have access.",
        rich_help_panel=NETWORK,
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics",
        min=0,
        max=65_535,
        help="Serve Prometheus at this port.",
        rich_help_panel="Metrics",
    ),
]
MetricsAddress = Annotated[
    str, typer.Option(help="The address to serve Prometheus at.", rich_help_panel="Metrics")
]
LargestPacket = Annotated[
    int,
    typer.Option(
        min=512, max=65_507, help="The longest packet to accept, in bytes.", rich_help_panel=NETWORK
    ),
]


def network_from(
    group_base: str,
    port: int,
    interface: str,
    ttl: int = 1,
    largest_packet: int = 9_216,
    pairs: bool = False,
    group_source: str = "",
) -> NetworkOptions:
    """Make the network that the options describe."""
    from distributary.delivery.udp import GroupAddresses, NetworkOptions

    try:
        groups = GroupAddresses(group_base, port, pairs, group_source)
    except ValueError as error:
        option = "--source" if "the source" in str(error) else "--group-base"
        raise typer.BadParameter(f"{option}: {error}") from None
    return NetworkOptions(groups, interface, ttl, largest_packet=largest_packet)


def key_from(path: Path | None) -> bytes | None:
    """Read the key file, if one was named."""
    from distributary.delivery.udp import read_key

    return None if path is None else read_key(path)


@contextmanager
def metrics_page(
    snapshot: Callable[[], Snapshot], port: int | None, address: str
) -> Iterator[None]:
    """Serve statistics for as long as the block lasts, if a port was named."""
    from distributary.delivery.udp import serve_metrics

    with nullcontext() if port is None else serve_metrics(snapshot, port, address) as found:
        if found is not None:
            notes.print(f"statistics at http://{address}:{found}/metrics", markup=False)
        yield


def tell_fault(error: DistributaryError) -> None:
    """Say that a plan in the folder, or a table of interest, cannot be used."""
    notes.print(f"[bold yellow]kept what was there before:[/] {escape(str(error))}")


def run_until_signal(work: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine; SIGINT or SIGTERM sets its event, and a second signal interrupts it."""

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
