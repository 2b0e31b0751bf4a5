"""`distributary dashboard`: web pages over a running control plane."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from distributary.cli.console import print_json, results, warn
from distributary.cli.control_choice import CONTROL, ControlAddress, ControlCredentials
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import Json, option, reject_bad_values

if TYPE_CHECKING:
    from distributary.control.nats.client import ControlClient
    from distributary.dashboard import BrokerLook, DashboardSettings, TopicLook

__all__ = ["dashboard"]

PAGES, BESIDE = "Pages", "Also shown"


@dataclass(frozen=True, kw_only=True)
class ViewerCredentials(ControlCredentials):
    """How the dashboard proves its name to the NATS server of the control plane."""

    token_file: Annotated[
        Path | None,
        option(
            "File with the token that proves the name given with --as; readable by its owner only.",
            CONTROL,
            "--control-token-file",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """Where the pages are, and who may act on them."""

    host: Annotated[
        str, option("Address to listen on; the pages have no encryption of their own.", PAGES)
    ] = "127.0.0.1"
    port: Annotated[
        int, option("Port of the pages; 0 picks a free one.", PAGES, min=0, max=65_535)
    ] = 8_088
    operator_token_file: Annotated[
        Path | None,
        option(
            "File with the token that lets an operator approve, reject, roll back and pin on the "
            "pages; readable by its owner only.",
            PAGES,
            "--token-file",
            show_default="the pages are read-only",
        ),
    ] = None
    names: Annotated[
        list[str] | None,
        option(
            "Another host name that browsers may use for the pages, such as that of a proxy in "
            "front; repeatable.",
            PAGES,
            "--name",
            metavar="HOST",
        ),
    ] = None

    def make_settings(self) -> DashboardSettings:
        """Make the settings; reads the operator's token."""
        from distributary.dashboard import DashboardSettings
        from distributary.machines.real.tokens import read_token

        token = read_token(self.operator_token_file) if self.operator_token_file else ""
        return DashboardSettings(self.host, self.port, token, tuple(self.names or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """Topic services to show."""

    topics: Annotated[
        list[str] | None,
        option(
            "NATS server of a topic service, such as nats://HOST, or its --state folder; "
            "repeatable.",
            BESIDE,
            "--topics",
            metavar="URL|FOLDER",
        ),
    ] = None
    topics_prefix: Annotated[str, option("The --prefix of `topics serve`.", BESIDE)] = (
        "distributary"
    )

    def make_looks(self) -> list[TopicLook]:
        """Make what asks the services."""
        from distributary.dashboard import TopicLook
        from distributary.machines.nats import NatsOptions, find_server

        return [
            TopicLook(
                NatsOptions(url) if "://" in url else find_server(Path(url))[0],
                self.topics_prefix,
            )
            for url in self.topics or ()
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Content brokers to show."""

    brokers: Annotated[
        list[str] | None,
        option("Content broker; repeatable.", BESIDE, "--brokers", metavar="HOST:PORT"),
    ] = None
    broker_as: Annotated[
        str, option("Name to ask brokers under, where they want names to be proved.", BESIDE)
    ] = "status"
    broker_token_file: Annotated[
        Path | None,
        option("File with the token that proves it; readable by its owner only.", BESIDE),
    ] = None
    broker_ca: Annotated[
        Path | None, option("TLS: certificate authority of the brokers (PEM).", BESIDE)
    ] = None
    insecure: Annotated[
        bool,
        option("Allow brokers outside this machine without TLS.", BESIDE, "--insecure"),
    ] = False

    def __post_init__(self) -> None:
        from distributary.machines.real import parse_address

        with reject_bad_values("'--brokers'"):
            for address in self.brokers or ():
                parse_address(address)

    def make_looks(self) -> list[BrokerLook]:
        """Make what asks the brokers."""
        from distributary.content.tcp import Credentials
        from distributary.dashboard import BrokerLook
        from distributary.machines.real import TlsFiles
        from distributary.machines.real.tokens import read_token

        token = read_token(self.broker_token_file) if self.broker_token_file else ""
        tls = TlsFiles(None, None, self.broker_ca) if self.broker_ca else None
        credentials = Credentials(self.broker_as, token, tls, self.insecure)
        return [BrokerLook(address, credentials) for address in self.brokers or ()]


@takes_groups
def dashboard(
    control: ControlAddress,
    credentials: ViewerCredentials,
    pages: PageOptions,
    topics: TopicOptions,
    brokers: BrokerOptions,
    name: Annotated[
        str,
        option("Name to ask the control plane under, where names are proved.", CONTROL, "--as"),
    ] = "",
    as_document: Json = False,
) -> None:
    """Show a running control plane on web pages: traffic, plan, receivers, changes and Spark.

    The pages are read-only. With --token-file, who signs in with its token may approve, reject,
    roll back and pin. Runs until Ctrl-C.
    """
    settings = pages.make_settings()
    client = credentials.make_client(control, name)
    looks = (topics.make_looks(), brokers.make_looks())

    def show(address: str) -> None:
        if as_document:
            print_json({"page": address, "operators": bool(settings.token)})
            return
        who = "an operator signs in with the token of --token-file"
        if not settings.token:
            who = "read-only: give --token-file to approve and roll back there"
        results.print(f"pages at {address} ({who})", markup=False, soft_wrap=True)

    if not settings.is_local:
        warn(
            f"whoever reaches {settings.host} can read the pages, and on the way the operator's "
            "token; put a proxy with TLS in front"
        )
    with suppress(asyncio.CancelledError):  # SIGTERM ends it, Ctrl-C interrupts it
        asyncio.run(_serve(client, settings, looks, show))


async def _serve(
    client: ControlClient,
    settings: DashboardSettings,
    looks: tuple[Sequence[TopicLook], Sequence[BrokerLook]],
    show: Callable[[str], None],
) -> None:
    from distributary.dashboard import run_dashboard

    serving = asyncio.current_task()
    assert serving is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    topics, brokers = looks
    async with client:
        await run_dashboard(client, settings, topics=topics, brokers=brokers, on_ready=show)
