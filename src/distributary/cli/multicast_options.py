"""The options that `publish`, `receive` and `calibrate` share, and how signals end them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from distributary.cli.console import notes
from distributary.cli.options import INPUT, NETWORK, option

if TYPE_CHECKING:
    from distributary.delivery.udp import GroupAddresses
    from distributary.delivery.udp.statistics import Snapshot

__all__ = [
    "GroupBase",
    "InterfaceName",
    "LineOptions",
    "MetricsOptions",
    "PlanFolder",
    "Port",
    "make_groups",
    "run_until_signal",
]

T = TypeVar("T")

PlanFolder = Annotated[
    Path | None, option("Plan folder; a new plan in it takes over.", INPUT, "--plan")
]
GroupBase = Annotated[
    str,
    option(
        "First multicast address, IPv4 or IPv6; the same as --base of `export`.",
        NETWORK,
        "--group-base",
        "--base",
    ),
]
Port = Annotated[int, option("UDP port of all groups.", NETWORK, min=1, max=65_535)]
InterfaceName = Annotated[
    str,
    option(
        "Network interface: its name, or its IPv4 address.",
        NETWORK,
        "--interface",
        show_default="the system's choice",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOptions:
    """Where groups are, and how packets get there."""

    group_base: GroupBase = "239.192.77.0"
    port: Port = 7702
    interface: InterfaceName = ""
    pairs: Annotated[
        bool,
        option(
            "Use two lines, A and B, for each group; --interface may name one for each: A,B.",
            NETWORK,
            "--pairs",
        ),
    ] = False
    group_source: Annotated[
        str,
        option(
            "Sender's address, for source-specific multicast: only it is received.",
            NETWORK,
            "--source",
        ),
    ] = ""
    key_file: Annotated[
        Path | None,
        option(
            "File with a key to authenticate packets: 16 to 64 bytes, readable by its owner only.",
            NETWORK,
        ),
    ] = None

    def check_control(self, control: str | None) -> None:
        """Refuse what a control plane decides for all of its members."""
        own = (self.group_base, self.port, self.pairs, self.group_source)
        if control is not None and own != ("239.192.77.0", 7702, False, ""):
            raise typer.BadParameter(
                "--group-base, --port, --pairs and --source are those of the control plane; leave "
                "them out"
            )

    def read_key(self) -> bytes | None:
        """Read the key file, if one is given."""
        from distributary.delivery.udp import read_key

        return None if self.key_file is None else read_key(self.key_file)

    def make_groups(self) -> GroupAddresses:
        """Make the addresses of the groups."""
        return make_groups(self.group_base, self.port, self.pairs, self.group_source)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsOptions:
    """Where statistics are served."""

    metrics: Annotated[
        int | None,
        option(
            "Serve Prometheus metrics on this port; 0 picks a free one.",
            "Metrics",
            "--metrics",
            min=0,
            max=65_535,
        ),
    ] = None
    metrics_address: Annotated[str, option("Address to serve the metrics on.", "Metrics")] = (
        "127.0.0.1"
    )

    def serve(self, snapshot: Callable[[], Snapshot]) -> AbstractContextManager[None]:
        """Serve the statistics while the block runs, if a port is given."""
        from distributary.delivery.udp import serve_metrics

        return self.serve_by(partial(serve_metrics, snapshot))

    @contextmanager
    def serve_by(self, serve: Callable[[int, str], AbstractContextManager[int]]) -> Iterator[None]:
        """Call a function that serves at a port and address, if a port is given."""
        port, address = self.metrics, self.metrics_address
        with nullcontext() if port is None else serve(port, address) as found:
            if found is not None:
                notes.print(f"metrics at http://{address}:{found}/metrics", markup=False)
            yield


def make_groups(
    base: str, port: int, pairs: bool = False, group_source: str = ""
) -> GroupAddresses:
    """Make the addresses of groups; refuse what is wrong with the option that says it."""
    from distributary.delivery.udp import GroupAddresses

    try:
        return GroupAddresses(base, port, pairs, group_source)
    except ValueError as error:
        option = "--source" if "the source" in str(error) else "--group-base"
        raise typer.BadParameter(f"{option}: {error}") from None


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
