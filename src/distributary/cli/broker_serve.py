"""`distributary broker serve`: run a content broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distributary.cli.console import notes
from distributary.cli.multicast_options import MetricsOptions, run_until_signal
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import INPUT, NETWORK, option, reject_bad_values
from distributary.cli.trust import make_tls, make_trust

if TYPE_CHECKING:
    from distributary.content import Covering
    from distributary.content.tcp.service import BrokerLink, BrokerService, BrokerSettings

__all__ = ["serve"]

SECURITY, STORAGE, ROUTING = "Security", "Storage", "Routing"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityOptions:
    """Certificates and tokens, and whether there may be none."""

    tls_cert: Annotated[
        Path | None, option("TLS: certificate of this broker (PEM).", SECURITY, "--tls-cert")
    ] = None
    tls_key: Annotated[
        Path | None, option("TLS: key of the certificate (PEM).", SECURITY, "--tls-key")
    ] = None
    tls_ca: Annotated[
        Path | None,
        option(
            "TLS: authority of the network (PEM); brokers and clients then need certificates of "
            "it, or tokens.",
            SECURITY,
            "--tls-ca",
        ),
    ] = None
    tokens: Annotated[
        Path | None,
        option(
            'Tokens that brokers and clients prove their names by: JSON, {"broker": {NAME: TOKEN}, '
            '"client": {NAME: TOKEN}}, readable by its owner only.',
            SECURITY,
            "--tokens",
        ),
    ] = None
    insecure: Annotated[
        bool,
        option("Allow addresses outside this machine without TLS.", SECURITY, "--insecure"),
    ] = False


@takes_groups
def serve(
    name: Annotated[str, option("Name of this broker, unique in the network.", NETWORK)],
    listen: Annotated[
        str,
        option(
            "Address for clients and other brokers; port 0 picks a free one.",
            NETWORK,
            metavar="HOST:PORT",
        ),
    ],
    state: Annotated[Path, option("Folder for the state of this broker.", STORAGE)],
    schema: Annotated[
        Path,
        option(
            'Attributes of events: JSON such as {"symbol": "string", "price": "double"}; kinds: '
            "string, int, double, boolean, timestamp. The same for all brokers.",
            INPUT,
        ),
    ],
    link: Annotated[
        list[str] | None,
        option(
            "Broker to link with; repeatable. One end of a link is enough, and links must not "
            "form a cycle.",
            NETWORK,
            "--link",
            metavar="NAME=HOST:PORT",
        ),
    ] = None,
    remove: Annotated[
        list[str] | None,
        option(
            "Former neighbour to take out for good, with what is kept for it; repeatable.",
            NETWORK,
            "--remove",
            metavar="NAME",
        ),
    ] = None,
    policy: Annotated[
        str,
        option("Covering policy: none, active, lazy, packing, pruning or merging.", ROUTING),
    ] = "merging",
    fsync: Annotated[
        bool, option("Confirm events only once they are on disk (fsync).", STORAGE, "--fsync")
    ] = False,
    *,
    security: SecurityOptions,
    metrics: MetricsOptions,
) -> None:
    """Run a content broker that clients publish and subscribe at, linked with others.

    Stop it with Ctrl-C (exit 0) or kill it; started again with the same --state, it delivers every
    event that it has confirmed, once and in order.
    """
    from distributary.content.tcp.service import BrokerSettings
    from distributary.content.tcp.trust import ROLES
    from distributary.files.schemas import read_schema
    from distributary.machines.real import parse_address

    with reject_bad_values("'--listen'"):
        address = parse_address(listen)
    links = tuple(_parse_link(each) for each in link or ())
    covering = _find_policy(policy)
    tls = make_tls("broker", security.tls_cert, security.tls_key, security.tls_ca)
    with reject_bad_values():
        settings = BrokerSettings(
            name,
            address,
            state,
            read_schema(schema),
            covering,
            links=links,
            removed=tuple(remove or ()),
            tls=tls,
            trust=make_trust(security.tls_ca, security.tokens, ROLES),
            insecure=security.insecure,
            sync=fsync,
        )
    run_until_signal(partial(_serve, settings, metrics))


def _find_policy(name: str) -> Covering:
    from distributary.content import COVERING_POLICIES

    if name not in COVERING_POLICIES:
        known = ", ".join(COVERING_POLICIES)
        raise typer.BadParameter(f"{name!r} is not one of {known}", param_hint="'--policy'")
    return COVERING_POLICIES[name]


def _parse_link(text: str) -> BrokerLink:
    from distributary.content.tcp.service import BrokerLink
    from distributary.machines.real import parse_address

    name, equals, address = text.rpartition("=")
    if not (equals and name):
        raise typer.BadParameter(f"{text!r} is not NAME=HOST:PORT", param_hint="'--link'")
    with reject_bad_values("'--link'"):
        return BrokerLink(name, parse_address(address))


async def _serve(settings: BrokerSettings, metrics: MetricsOptions, stop: asyncio.Event) -> None:
    from distributary.content.tcp.metrics import serve_metrics
    from distributary.content.tcp.service import BrokerService
    from distributary.machines.real import own_tasks

    service = BrokerService(settings, report=_print)
    serve_at = partial(serve_metrics, service, asyncio.get_running_loop())
    with metrics.serve_by(serve_at):
        async with own_tasks() as start:
            start(_stop_at_signal(service, stop))
            start(_announce(service))
            await service.run()


async def _stop_at_signal(service: BrokerService, stop: asyncio.Event) -> None:
    await stop.wait()
    service.stop()


async def _announce(service: BrokerService) -> None:
    await service.started.wait()
    for report in service.reports:
        _print(f"warning: {report}")
    folder = service.settings.folder
    _print(f"broker {service.settings.name} at {service.address}, state in {folder}")


def _print(line: str) -> None:
    notes.print(line, markup=False)
