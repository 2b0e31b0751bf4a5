"""The options that choose a control plane, and prove a name to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distributary.cli.options import option, reject_bad_values

if TYPE_CHECKING:
    from distributary.control.nats.client import ControlClient
    from distributary.control.nats.members import Control
    from distributary.machines.nats import NatsOptions

__all__ = ["CONTROL", "ControlAddress", "ControlCredentials", "ControlMember"]

CONTROL = "Control plane"

ControlAddress = Annotated[
    str,
    option(
        "The control plane: its NATS server, such as nats://HOST, or the --state folder of "
        "`control serve` with an embedded one.",
        CONTROL,
        "--control",
        metavar="URL|FOLDER",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCredentials:
    """How a name proves itself to the NATS server of a control plane."""

    token_file: Annotated[
        Path | None,
        option(
            "File with the token that proves the name given with --as; readable by its owner only.",
            CONTROL,
        ),
    ] = None
    creds: Annotated[
        Path | None, option("Credentials file of NATS (JWT and seed).", CONTROL, "--creds")
    ] = None
    ca: Annotated[
        Path | None, option("TLS: certificate authority of the server.", CONTROL, "--ca")
    ] = None
    cert: Annotated[Path | None, option("TLS: client certificate.", CONTROL, "--cert")] = None
    key: Annotated[Path | None, option("TLS: key of the client certificate.", CONTROL, "--key")] = (
        None
    )
    prefix: Annotated[str, option("The --prefix of `control serve`.", CONTROL, "--prefix")] = (
        "distributary"
    )

    def __post_init__(self) -> None:
        from distributary.machines.nats.subjects import check_prefix

        with reject_bad_values("'--prefix'"):
            check_prefix(self.prefix)
        if self.key is not None and self.cert is None:
            raise typer.BadParameter("--key needs --cert")

    def make_control(self, address: str, name: str) -> Control:
        """Make what a member joins by."""
        from distributary.control.nats.members import Control

        folder = _find_folder(address)
        if folder is not None and self.token_file is None:
            return Control(folder, self.prefix)  # waits for one that is just starting
        return Control(self._make_options(address, name), self.prefix)

    def make_client(self, address: str, name: str) -> ControlClient:
        """Make a client that looks and operates."""
        from distributary.control.nats.client import ControlClient

        return ControlClient(self._make_options(address, name), self.prefix)

    def _make_options(self, address: str, name: str) -> NatsOptions:
        from distributary.machines.nats import NatsOptions, find_server
        from distributary.machines.real.tokens import read_token

        if self.token_file is not None and not name:
            raise typer.BadParameter("--token-file proves a name: give it with --as")
        folder = _find_folder(address)
        options = NatsOptions(address) if folder is None else find_server(folder)[0]
        if self.token_file is not None:
            token = read_token(self.token_file)
            options = replace(options, token=None, user=name, password=token)
        return replace(
            options, credentials=self.creds, ca=self.ca, certificate=self.cert, key=self.key
        )


@dataclass(frozen=True, kw_only=True)
class _Address:
    """Comes before the credentials."""

    control: Annotated[
        str | None,
        option(
            "Be part of a control plane, without a plan folder: its NATS server, such as "
            "nats://HOST, or the --state folder of `control serve`. Needs --as.",
            CONTROL,
            "--control",
            metavar="URL|FOLDER",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlMember(ControlCredentials, _Address):
    """The control plane that a publisher or a receiver is part of, if any."""

    def __post_init__(self) -> None:
        ControlCredentials.__post_init__(self)
        given = (self.token_file, self.creds, self.ca, self.cert)
        if self.control is None and any(each is not None for each in given):
            raise typer.BadParameter("--token-file, --creds, --ca and --cert need --control")

    def check(self, name: str, plan: Path | None, **refused: object) -> None:
        """Refuse what does not go together; `refused` are options that need a plan's folder."""
        if self.control is None:
            return
        if plan is not None:
            raise typer.BadParameter("give --plan or --control, not both")
        if not name:
            raise typer.BadParameter("a member of a control plane needs a name: give it with --as")
        for option_name, value in refused.items():
            if value:
                raise typer.BadParameter(
                    f"--{option_name} needs --plan: a control plane has no plans of filters"
                )

    def join(self, name: str) -> Control | None:
        """What the member joins by; None if it goes by a plan alone."""
        return None if self.control is None else self.make_control(self.control, name)


def _find_folder(address: str) -> Path | None:
    """The folder that is meant, if it is no URL."""
    if "://" in address:
        return None
    if not Path(address).exists() and "/" not in address and ":" in address:
        raise typer.BadParameter(
            f"{address!r} is no folder; write the address of a server as nats://{address}",
            param_hint="'--control'",
        )
    return Path(address)
