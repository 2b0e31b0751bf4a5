"""`distributary topics peer`: run a peer of a ring that hosts topics without a centre."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from distributary.cli.console import notes
from distributary.cli.multicast_options import MetricsOptions, run_until_signal
from distributary.cli.options import (
    NETWORK,
    duration_option,
    option,
    reject_bad_values,
    seed_option,
)
from distributary.cli.quantities import Seconds
from distributary.cli.trust import make_tls, make_trust

if TYPE_CHECKING:
    from distributary.machines.real import NetworkAddress
    from distributary.topics import Policy
    from distributary.topics.peer.tcp import PeerService, PeerSettings

__all__ = ["peer"]

SECURITY, STORAGE, CHANNELS = "Security", "Storage", "Channels"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSecurity:
    """Certificates and tokens, and whether there may be none."""

    tls_cert: Annotated[
        Path | None,
        option(
            "TLS: certificate of this peer (PEM), which names its host and has OU=peer.",
            SECURITY,
            "--tls-cert",
        ),
    ] = None
    tls_key: Annotated[
        Path | None, option("TLS: key of the certificate (PEM).", SECURITY, "--tls-key")
    ] = None
    tls_ca: Annotated[
        Path | None,
        option(
            "TLS: authority of the network (PEM); peers and clients then need certificates of it, "
            "or tokens.",
            SECURITY,
            "--tls-ca",
        ),
    ] = None
    tokens: Annotated[
        Path | None,
        option(
            'Tokens that peers and clients prove their names by: JSON, {"peer": {"HOST:PORT": '
            'TOKEN}, "client": {NAME: TOKEN}}, readable by its owner only.',
            SECURITY,
            "--tokens",
        ),
    ] = None
    insecure: Annotated[
        bool,
        option("Allow addresses outside this machine without TLS.", SECURITY, "--insecure"),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How channels decide which topics share one."""

    interval: Annotated[
        Seconds,
        duration_option(
            "Price of a subscription: it costs as much as one message per this time.", CHANNELS
        ),
    ] = Seconds("1m")
    survey_every: Annotated[
        Seconds | None,
        option(
            "How often a channel surveys its subscribers.",
            CHANNELS,
            parser=Seconds,
            metavar="TIME",
            show_default="--interval",
        ),
    ] = None
    phi: Annotated[
        float,
        option(
            "Chance that a cluster notices in time that a topic now pays.",
            CHANNELS,
            min=0.0,
            max=1.0,
        ),
    ] = 0.99
    sample: Annotated[
        int, option("Subscribers that a survey asks of a large channel.", CHANNELS, min=1)
    ] = 384
    notify_price: Annotated[
        float,
        option("Price of handing an event to a channel, in messages.", CHANNELS, min=0.0),
    ] = 1.0
    associate_price: Annotated[
        float,
        option("Price of a topic of a cluster, in messages per --interval.", CHANNELS, min=0.0),
    ] = 1.0
    dead_after: Annotated[
        Seconds, duration_option("Silence after which a client is considered dead.", CHANNELS)
    ] = Seconds("10s")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """What is stored where, and how safely."""

    copies: Annotated[
        int,
        option(
            "Peers that have an event before it counts as accepted; fewer if the ring is smaller. "
            "The same for all peers.",
            STORAGE,
            min=1,
            max=9,
        ),
    ] = 3
    history: Annotated[
        int, option("Events per topic to keep for clients that were away.", STORAGE, min=1)
    ] = 1_000
    history_bytes: Annotated[
        int,
        option("Maximum bytes per topic to keep; the last event is always kept.", STORAGE, min=0),
    ] = 1 << 24
    fsync: Annotated[
        bool, option("Confirm events only once they are on disk (fsync).", STORAGE, "--fsync")
    ] = False


def peer(
    listen: Annotated[
        str,
        option(
            "Address for clients and other peers, and the name of this peer; port 0 picks a free "
            "one.",
            NETWORK,
            metavar="HOST:PORT",
        ),
    ],
    state: Annotated[Path, option("Folder for the state of this peer.", STORAGE)],
    join: Annotated[
        list[str] | None,
        option(
            "Peer whose ring to join; repeatable. Without it, a new peer starts a ring, and one "
            "that was part of a ring finds it again.",
            NETWORK,
            "--join",
            metavar="HOST:PORT",
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        option(
            "Address where others reach this peer, if it is another one; then the peer's name.",
            NETWORK,
            metavar="HOST:PORT",
            show_default="--listen",
        ),
    ] = None,
    seed: Annotated[int, seed_option(CHANNELS)] = 0,
    *,
    copies: CopyOptions,
    clusters: ClusterOptions,
    security: PeerSecurity,
    metrics: MetricsOptions,
) -> None:
    """Run a peer that hosts topics together with others, without a server.

    Any peer may die: others have copies of its topics and take over. Stop it with Ctrl-C (it hands
    its copies on, exit 0) or kill it; started again with the same --state, it is the same peer.
    """
    from distributary.topics.peer.tcp import PeerSettings
    from distributary.topics.peer.tcp.greeting import ROLES

    address = _parse("'--listen'", listen)
    joined = tuple(_parse("'--join'", each) for each in join or ())
    advertised = None if advertise is None else _parse("'--advertise'", advertise)
    tls = make_tls("peer", security.tls_cert, security.tls_key, security.tls_ca)
    with reject_bad_values():
        settings = PeerSettings(
            address,
            state,
            joined,
            advertised,
            copies=copies.copies,
            policy=_make_policy(clusters, copies),
            tls=tls,
            trust=make_trust(security.tls_ca, security.tokens, ROLES),
            insecure=security.insecure,
            sync=copies.fsync,
            dead_after=float(clusters.dead_after),
            seed=seed,
        )
    run_until_signal(partial(_serve, settings, metrics))


def _parse(hint: str, text: str) -> NetworkAddress:
    from distributary.machines.real import parse_address

    with reject_bad_values(hint):
        return parse_address(text)


def _make_policy(clusters: ClusterOptions, copies: CopyOptions) -> Policy:
    from distributary.topics.peer.tcp import live_peer_policy

    return live_peer_policy(
        interval=float(clusters.interval),
        survey_every=None if clusters.survey_every is None else float(clusters.survey_every),
        phi=clusters.phi,
        sample=float(clusters.sample),
        notify_price=clusters.notify_price,
        associate_price=clusters.associate_price,
        history=copies.history,
        history_bytes=copies.history_bytes,
    )


async def _serve(settings: PeerSettings, metrics: MetricsOptions, stop: asyncio.Event) -> None:
    from distributary.machines.real import own_tasks
    from distributary.topics.peer.tcp import PeerService
    from distributary.topics.peer.tcp.metrics import serve_metrics

    service = PeerService(settings, report=_print)
    serve_at = partial(serve_metrics, service, asyncio.get_running_loop())
    with metrics.serve_by(serve_at):
        async with own_tasks() as start:
            start(_stop_at_signal(service, stop))
            start(_announce(service))
            await service.run()


async def _stop_at_signal(service: PeerService, stop: asyncio.Event) -> None:
    await stop.wait()
    service.stop()


async def _announce(service: PeerService) -> None:
    await service.started.wait()
    for report in service.reports:
        _print(f"warning: {report}")
    _print(f"peer {service.name}, state in {service.settings.folder}")
    await service.joined.wait()
    others = len(service.peer.overlay.pastry.leaves.members)
    named = "1 other peer" if others == 1 else f"{others:,} other peers"
    _print(f"in a ring with {named}" if others else "started a ring")


def _print(line: str) -> None:
    notes.print(line, markup=False)
