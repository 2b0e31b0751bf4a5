"""The options of commands that are clients of a content broker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distributary.cli.options import duration_option, option, reject_bad_values
from distributary.cli.quantities import Seconds

if TYPE_CHECKING:
    from distributary.content.client_actions import ClientParams
    from distributary.content.tcp import ContentClient, Credentials
    from distributary.machines.real import TlsFiles

__all__ = ["BROKER", "BrokerChoice", "ClientName"]

BROKER = "Broker"
ClientName = Annotated[
    str, option("Name of this client; one process at a time may use it.", BROKER, "--as")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChoice:
    """The broker to connect to, and how."""

    broker: Annotated[str, option("Address of a broker.", BROKER, "--broker", metavar="HOST:PORT")]
    token: Annotated[
        str,
        option(
            "Token that proves the client's name.",
            BROKER,
            envvar="DISTRIBUTARY_TOKEN",
            show_default=False,
        ),
    ] = ""
    tls: Annotated[
        bool,
        option("Use TLS with the system's authorities; --tls-ca implies it.", BROKER, "--tls"),
    ] = False
    tls_ca: Annotated[
        Path | None, option("TLS: authority of the brokers (PEM).", BROKER, "--tls-ca")
    ] = None
    tls_cert: Annotated[
        Path | None, option("TLS: certificate of this client (PEM).", BROKER, "--tls-cert")
    ] = None
    tls_key: Annotated[
        Path | None, option("TLS: key of the client's certificate (PEM).", BROKER, "--tls-key")
    ] = None
    insecure: Annotated[
        bool,
        option("Allow a broker outside this machine without TLS.", BROKER, "--insecure"),
    ] = False
    timeout: Annotated[Seconds, duration_option("How long to wait for an answer.", BROKER)] = (
        Seconds("30s")
    )

    def __post_init__(self) -> None:
        from distributary.machines.real import parse_address

        with reject_bad_values("'--broker'"):
            parse_address(self.broker)
        if self.tls_key is not None and self.tls_cert is None:
            raise typer.BadParameter("--tls-key needs --tls-cert")

    def make_tls(self) -> TlsFiles | None:
        """The TLS files, if there is TLS."""
        from distributary.machines.real import TlsFiles

        if not (self.tls or self.tls_ca or self.tls_cert):
            return None
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_ca)

    def make_credentials(self, name: str) -> Credentials:
        """Say who the client is."""
        from distributary.content.tcp import Credentials

        return Credentials(name, self.token, self.make_tls(), self.insecure)

    def make_client(self, name: str, params: ClientParams | None = None) -> ContentClient:
        """Make the client."""
        from distributary.cli.console import warn
        from distributary.content.client_actions import ClientParams
        from distributary.content.tcp import ContentClient, ContentClientSettings

        timeout = float(self.timeout)
        settings = ContentClientSettings(
            connect_within=min(timeout, 10.0), timeout=timeout, session=params or ClientParams()
        )
        return ContentClient(
            self.broker,
            name=name,
            token=self.token,
            tls=self.make_tls(),
            insecure=self.insecure,
            settings=settings,
            report=warn,
        )
