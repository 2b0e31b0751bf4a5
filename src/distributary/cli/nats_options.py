"""The options that choose the NATS server of a command, or the peer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distributary.cli.options import option, reject_bad_values

if TYPE_CHECKING:
    from distributary.topics.nats import NatsOptions
    from distributary.topics.peer.tcp import PeerOptions

__all__ = ["PEER", "SERVER", "CarrierChoice", "ServerChoice"]

SERVER, PEER = "NATS server", "Peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChoice:
    """The NATS server that the options choose."""

    state: Annotated[
        Path | None,
        option("State folder of the service; use its embedded NATS server.", SERVER, "--state"),
    ] = None
    nats: Annotated[
        str | None, option("Your own NATS server, such as nats://HOST.", SERVER, "--nats")
    ] = None
    token: Annotated[str | None, option("Token for the server.", SERVER, envvar="NATS_TOKEN")] = (
        None
    )
    user: Annotated[str | None, option("User name for the server.", SERVER, envvar="NATS_USER")] = (
        None
    )
    password: Annotated[
        str | None, option("Password of the user.", SERVER, envvar="NATS_PASSWORD")
    ] = None
    creds: Annotated[Path | None, option("Credentials file (JWT and seed).", SERVER)] = None
    ca: Annotated[Path | None, option("TLS: certificate authority of the server.", SERVER)] = None
    cert: Annotated[Path | None, option("TLS: client certificate.", SERVER)] = None
    key: Annotated[Path | None, option("TLS: key of the client certificate.", SERVER)] = None
    prefix: Annotated[
        str, option("First part of every NATS subject that the service uses.", SERVER)
    ] = "distributary"

    def __post_init__(self) -> None:
        from distributary.topics.nats.subjects import Subjects

        with reject_bad_values("'--prefix'"):
            Subjects(self.prefix)

    @property
    def own(self) -> NatsOptions | None:
        """The user's own server, if one is given."""
        from distributary.topics.nats import NatsOptions

        if self.nats is None:
            return None
        return NatsOptions(
            self.nats,
            self.token,
            self.user,
            self.password,
            self.creds,
            self.ca,
            self.cert,
            self.key,
        )

    def options(self) -> NatsOptions:
        """Find the server to connect to."""
        return self.find()[0]

    def find(self) -> tuple[NatsOptions, str]:
        """Find the server, and the address of its monitoring pages if known."""
        from distributary.machines.nats.options import find_server

        own = self.own
        if own is not None:
            return own, ""
        if self.state is None:
            raise typer.BadParameter(
                "give a server with --nats, or a service's folder with --state"
            )
        return find_server(self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierChoice(ServerChoice):
    """The NATS server, or the peer, that the options choose for a client."""

    peer: Annotated[
        str | None,
        option(
            "Peer to use instead of NATS, or several separated by commas. --user, --token, --ca, "
            "--cert and --key then prove the names of both.",
            PEER,
            "--peer",
            metavar="HOST:PORT",
        ),
    ] = None
    insecure: Annotated[
        bool, option("Allow a peer outside this machine without TLS.", PEER, "--insecure")
    ] = False

    def __post_init__(self) -> None:
        ServerChoice.__post_init__(self)
        if self.peer is not None and (self.nats is not None or self.state is not None):
            raise typer.BadParameter("give one of --peer, --nats and --state")

    def find_peer(self) -> PeerOptions | None:
        """The peer to connect to, if one is given."""
        from distributary.machines.real import TlsFiles
        from distributary.topics.peer.tcp import PeerOptions

        if self.peer is None:
            return None
        if self.key is not None and self.cert is None:
            raise typer.BadParameter("--key needs --cert")
        tls = TlsFiles(self.cert, self.key, self.ca) if self.ca or self.cert else None
        with reject_bad_values("'--peer'"):
            return PeerOptions(
                self.peer, self.user or "", self.token or "", tls, insecure=self.insecure
            )

    def find_carrier(self) -> NatsOptions | PeerOptions:
        """The options of a client."""
        return self.find_peer() or self.options()
