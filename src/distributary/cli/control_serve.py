"""`distributary control serve`: run the control plane, or stand by for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from distributary.cli.constraints import check_profile
from distributary.cli.log_lines import LogOptions
from distributary.cli.multicast_options import (
    GroupBase,
    MetricsOptions,
    Port,
    make_groups,
    run_until_signal,
)
from distributary.cli.nats_options import SERVER, ServerChoice
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    LIMITS,
    NETWORK,
    SPARK,
    SparkOptions,
    duration_option,
    option,
    reject_bad_values,
    share_option,
)
from distributary.cli.quantities import Seconds, Share

if TYPE_CHECKING:
    from distributary.control.nats.stream_process import SparkChoice
    from distributary.control.settings import ControlSettings, NetworkSettings
    from distributary.machines.nats import NatsOptions
    from distributary.machines.nats.users import NatsUser
    from distributary.machines.real import NetworkAddress
    from distributary.machines.real.log_lines import Log

__all__ = ["serve"]

DECISIONS = "Decisions"
_ANY_PORT = "127.0.0.1:0"
SESSIONS_PER_GROUP = 4


class ApproveName(StrEnum):
    """Who approves a new plan."""

    AUTO = "auto"
    MANUAL = "manual"


class SparkName(StrEnum):
    """Who runs the stream on Spark."""

    EMBEDDED = "embedded"
    EXTERNAL = "external"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlServer(ServerChoice):
    """The NATS server: an embedded one, or the user's own."""

    state: Annotated[
        Path,
        option(
            "Folder of this service: the embedded NATS server's store, and files for Spark. A "
            "service that stands by needs a folder of its own.",
            SERVER,
            "--state",
        ),
    ]
    nats: Annotated[
        str | None,
        option(
            "Your own NATS server with JetStream, such as nats://HOST, or the state folder of "
            "another service, to stand by for it on its server.",
            SERVER,
            "--nats",
            show_default="an embedded server",
        ),
    ] = None
    listen: Annotated[
        str,
        option(
            "Address of the embedded server; port 0 picks the previous port, or a free one.",
            SERVER,
            metavar="HOST:PORT",
        ),
    ] = _ANY_PORT
    users: Annotated[
        Path | None,
        option(
            "Who may do what on the embedded server: JSON, "
            '{"operator": {NAME: TOKEN}, "viewer": {NAME: TOKEN}, "publisher": {NAME: TOKEN}, '
            '"receiver": {NAME: TOKEN}}, readable by its owner only. `control permissions` makes '
            "the same for your own server.",
            SERVER,
            show_default="who can read --state may do everything",
        ),
    ] = None
    insecure: Annotated[
        bool,
        option(
            "Let the embedded server listen beyond this machine, where tokens can be read on the "
            "way; a server of your own can have TLS.",
            SERVER,
            "--insecure",
        ),
    ] = False
    fsync: Annotated[
        bool,
        option("Let the embedded server confirm only what is on disk (fsync).", SERVER, "--fsync"),
    ] = False

    def __post_init__(self) -> None:
        ServerChoice.__post_init__(self)
        if self.nats is not None:
            if self.users is not None or self.listen != _ANY_PORT:
                raise typer.BadParameter(
                    "--listen and --users are for the embedded server; leave out --nats, or "
                    "configure your own server"
                )
        elif not self.insecure and not _stays_here(self.address):
            raise typer.BadParameter(
                "tokens could be read on the way; give --insecure, or run your own server with "
                "TLS and give its address with --nats",
                param_hint="'--listen'",
            )
        elif self.users is None and not _stays_here(self.address):
            raise typer.BadParameter(
                "members on other machines cannot read the token in --state; give --users, too",
                param_hint="'--listen'",
            )

    @property
    def address(self) -> NetworkAddress:
        """Where the embedded server listens."""
        from distributary.machines.real import parse_address

        with reject_bad_values("'--listen'"):
            return parse_address(self.listen)

    def find_own(self) -> NatsOptions | None:
        """The user's own server, or that of another service's folder."""
        from distributary.machines.nats import find_server

        if self.nats is not None and "://" not in self.nats and Path(self.nats).is_dir():
            return find_server(Path(self.nats))[0]
        return self.own

    def read_users(self) -> list[NatsUser]:
        """Read who may use the embedded server."""
        from distributary.control.nats.permissions import read_users

        return [] if self.users is None else read_users(self.users, self.prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class TermOptions:
    """What every plan keeps to; operators can change limits and pins later."""

    groups: Annotated[int, option("Maximum number of multicast groups.", LIMITS, min=1)] = 32
    sessions: Annotated[
        int | None,
        option(
            "Maximum number of sessions: channels inside groups, which receivers filter by.",
            LIMITS,
            min=1,
            show_default=f"{SESSIONS_PER_GROUP} per group",
        ),
    ] = None
    limits: Annotated[
        str | None,
        option(
            "Limits of the network: a TOML file, or the name of a profile (`limits list`). Counts "
            "at the first start; later `control limits` changes them.",
            LIMITS,
            metavar="FILE|PROFILE",
        ),
    ] = None
    pins: Annotated[
        Path | None,
        option(
            "Table of flows that must be in a given group, with columns flow, group. Counts at the "
            "first start; later `control pin` changes them.",
            LIMITS,
        ),
    ] = None
    max_moves: Annotated[
        int | None,
        option(
            "Maximum number of flows that move in one change of the plan.",
            LIMITS,
            min=0,
            show_default="2% of the flows",
        ),
    ] = None

    def read_limits(self) -> str:
        """Read the text of the limits."""
        return "" if self.limits is None else read_limits_text(self.limits, "'--limits'")

    def read_pins(self) -> dict[str, int]:
        """Read the pinned flows."""
        from distributary.files import read_pins

        return {} if self.pins is None else read_pins(self.pins)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOptions:
    """When a new plan is worth it, and who approves."""

    approve: Annotated[
        ApproveName,
        option(
            "Put a better plan in force at once, or wait for `control approve`. Counts at the "
            "first start; later `control mode` changes it.",
            DECISIONS,
        ),
    ] = ApproveName.AUTO
    drift: Annotated[
        Share,
        share_option(
            "Plan anew when wasted messages have grown by more than this share.", DECISIONS
        ),
    ] = Share("10%")
    tolerance: Annotated[
        Share,
        share_option(
            "Roll back a new plan whose measured waste is above the predicted by more than this "
            "share.",
            DECISIONS,
        ),
    ] = Share("50%")
    rate_window: Annotated[
        Seconds, duration_option("Time over which rates are averaged.", DECISIONS)
    ] = Seconds("1m")
    trigger: Annotated[
        Seconds, duration_option("How often the stream on Spark takes what is new.", DECISIONS)
    ] = Seconds("5s")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """Where the groups are; all members get it from here."""

    group_base: GroupBase = "239.192.77.0"
    port: Port = 7702
    pairs: Annotated[
        bool, option("Use two lines, A and B, for each group.", NETWORK, "--pairs")
    ] = False
    group_source: Annotated[
        str,
        option("Sender's address, for source-specific multicast.", NETWORK, "--source"),
    ] = ""
    ttl: Annotated[
        int,
        option(
            "Time to live of multicast packets: 0 stays on this machine, 1 on this link.",
            NETWORK,
            min=0,
            max=255,
        ),
    ] = 1

    def make_network(self, groups: int) -> NetworkSettings:
        """Make the settings for members; refuses a base with too few addresses."""
        from distributary.control.settings import NetworkSettings

        make_groups(self.group_base, self.port, self.pairs, self.group_source).assign(groups)
        return NetworkSettings(self.group_base, self.port, self.pairs, self.group_source, self.ttl)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions(SparkOptions):
    """Who runs the stream that plans."""

    spark: Annotated[
        SparkName,
        option(
            "Run `pipeline stream` on Spark, print the command for you to run, or do without: "
            "then flows are placed as they come to be wanted, and never moved.",
            SPARK,
            "--spark",
        ),
    ] = SparkName.EMBEDDED

    def make_choice(self) -> SparkChoice:
        """Make the choice."""
        from distributary.control.nats.stream_process import SparkChoice

        words = [] if self.master is None else ["--master", self.master]
        for key, value in self.parse_settings().items():
            words += ["--conf", f"{key}={value}"]
        mode: Literal["embedded", "external", "off"] = self.spark.value
        return SparkChoice(mode, tuple(words))


@takes_groups
def serve(
    server: ControlServer,
    terms: TermOptions,
    decisions: DecisionOptions,
    groups: GroupOptions,
    stream: StreamOptions,
    metrics: MetricsOptions,
    logs: LogOptions,
) -> None:
    """Run the control plane: it knows who wants what, and keeps the plan that everybody goes by.

    Publishers and receivers join it with --control. It has an embedded NATS server unless --nats
    is given. Stop it with Ctrl-C (exit 0) or kill it; started again with the same --state or
    --nats, it goes on. A second service on the same server stands by, and takes over within
    seconds when the first one ends.
    """
    settings = _make_settings(server.prefix, terms, decisions, groups)
    choice = stream.make_choice()
    run_until_signal(partial(_serve, server, settings, choice, metrics, logs.make_log()))


def read_limits_text(source: str, hint: str) -> str:
    """Read a limits file, or a profile, and check it; returns its text."""
    from distributary.files import parse_limits, read_profile
    from distributary.files.faults import read_fault
    from distributary.files.limits import list_profiles

    path = Path(source)
    if source in list_profiles():
        return read_profile(source)
    if not path.suffix and not path.exists():
        check_profile(source, hint)
    try:
        text = path.read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        raise read_fault(path, error) from None
    parse_limits(text, source)
    return text


def _make_settings(
    prefix: str, terms: TermOptions, decisions: DecisionOptions, groups: GroupOptions
) -> ControlSettings:
    from distributary.control.settings import ControlSettings
    from distributary.control.terms import read_terms

    mode: Literal["auto", "manual"] = decisions.approve.value
    sessions = terms.sessions
    with reject_bad_values():
        settings = ControlSettings(
            groups=terms.groups,
            sessions=SESSIONS_PER_GROUP * terms.groups if sessions is None else sessions,
            mode=mode,
            drift=float(decisions.drift),
            max_moves=terms.max_moves,
            tolerance=float(decisions.tolerance),
            rate_window=float(decisions.rate_window),
            trigger=float(decisions.trigger),
            network=groups.make_network(terms.groups),
            limits=terms.read_limits(),
            pins=terms.read_pins(),
            prefix=prefix,
        )
        read_terms(settings)
    return settings


async def _serve(
    server: ControlServer,
    settings: ControlSettings,
    choice: SparkChoice,
    metrics: MetricsOptions,
    log: Log,
    stop: asyncio.Event,
) -> None:
    """Serve, or stand by, until told to stop."""
    from distributary.control.nats.metrics import serve_metrics
    from distributary.control.nats.service import ControlService
    from distributary.machines.real import own_tasks

    service: ControlService | None = None
    serving = asyncio.current_task()
    assert serving is not None

    def end() -> None:
        if service is not None and service.standing_by.is_set():
            service.stop()
        else:
            serving.cancel()  # nothing has begun that would have to finish

    def note_refused(name: str) -> None:
        if service is not None:
            service.note_refused(name)

    with suppress(asyncio.CancelledError):
        async with own_tasks() as start, AsyncExitStack() as stack:
            start(_call_when(stop, end))
            options = server.find_own() or await _run_server(server, log, note_refused, stack)
            service = ControlService(options, settings, server.state, spark=choice, log=log)
            with metrics.serve_by(partial(serve_metrics, lambda: service.latest)):
                await service.run()


async def _run_server(
    server: ControlServer, log: Log, on_refused: Callable[[str], None], stack: AsyncExitStack
) -> NatsOptions:
    """Run the embedded server until the stack ends."""
    from distributary.machines.nats import run_embedded_server
    from distributary.machines.real.log_lines import LogLine

    address = server.address
    embedded = await stack.enter_async_context(
        run_embedded_server(
            server.state,
            host=address.host,
            port=address.port,
            users=server.read_users(),
            sync=server.fsync,
            on_restart=lambda what: log(LogLine("warning", "server", what)),
            on_refused=on_refused,
        )
    )
    facts = {"url": embedded.options.address}
    log(LogLine("info", "embedded server", embedded.options.address, facts))
    return embedded.options


async def _call_when(event: asyncio.Event, call: Callable[[], None]) -> None:
    await event.wait()
    call()


def _stays_here(address: NetworkAddress) -> bool:
    from distributary.machines.real.addresses import is_local

    return address.host == "localhost" or is_local([address.host])
