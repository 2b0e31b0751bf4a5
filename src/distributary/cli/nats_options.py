"""The options that choose the NATS server of a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distributary.cli.options import reject_bad_values

if TYPE_CHECKING:
    from distributary.topics.nats import NatsOptions

__all__ = ["SERVER", "ServerChoice", "takes_server"]

SERVER = "NATS server"

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "state": (
        Annotated[
            Path | None,
            typer.Option(
                "--state",
                help="State folder of the service; use its embedded NATS server.",
                rich_help_panel=SERVER,
            ),
        ],
        None,
    ),
    "nats": (
        Annotated[
            str | None,
            typer.Option(
                "--nats", help="Your own NATS server, such as nats://HOST.", rich_help_panel=SERVER
            ),
        ],
        None,
    ),
    "token": (
        Annotated[
            str | None,
            typer.Option(envvar="NATS_TOKEN", help="Token for the server.", rich_help_panel=SERVER),
        ],
        None,
    ),
    "user": (
        Annotated[
            str | None,
            typer.Option(
                envvar="NATS_USER", help="User name for the server.", rich_help_panel=SERVER
            ),
        ],
        None,
    ),
    "password": (
        Annotated[
            str | None,
            typer.Option(
                envvar="NATS_PASSWORD", help="Password of the user.", rich_help_panel=SERVER
            ),
        ],
        None,
    ),
    "creds": (
        Annotated[
            Path | None,
            typer.Option(help="Credentials file (JWT and seed).", rich_help_panel=SERVER),
        ],
        None,
    ),
    "ca": (
        Annotated[
            Path | None,
            typer.Option(help="TLS: certificate authority of the server.", rich_help_panel=SERVER),
        ],
        None,
    ),
    "cert": (
        Annotated[
            Path | None, typer.Option(help="TLS: client certificate.", rich_help_panel=SERVER)
        ],
        None,
    ),
    "key": (
        Annotated[
            Path | None,
            typer.Option(help="TLS: key of the client certificate.", rich_help_panel=SERVER),
        ],
        None,
    ),
    "prefix": (
        Annotated[
            str,
            typer.Option(
                help="First part of every NATS subject that the service uses.",
                rich_help_panel=SERVER,
            ),
        ],
        "distributary",
    ),
}


@dataclass(frozen=True, slots=True)
class ServerChoice:
    """The NATS server that the options choose."""

    state: Path | None
    prefix: str
    own: NatsOptions | None

    def options(self) -> NatsOptions:
        """Find the server to connect to."""
        return self.find()[0]

    def find(self) -> tuple[NatsOptions, str]:
        """Find the server, and the address of its monitoring pages if known."""
        from distributary.topics.nats.options import find_server

        if self.own is not None:
            return self.own, ""
        if self.state is None:
            raise typer.BadParameter(
                "give a server with --nats, or a service's folder with --state"
            )
        return find_server(self.state)


def takes_server(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose a NATS server to a command; it gets them as `server`."""

    @wraps(command)
    def run(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in _OPTIONS}
        command(server=_choose_server(**chosen), **given)

    own = inspect.signature(command, eval_str=True)
    parameters = [p for name, p in own.parameters.items() if name != "server"]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _OPTIONS.items()
    ]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _choose_server(
    *,
    state: Path | None,
    prefix: str,
    nats: str | None,
    token: str | None,
    user: str | None,
    password: str | None,
    creds: Path | None,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
) -> ServerChoice:
    from distributary.topics.nats import NatsOptions
    from distributary.topics.nats.subjects import Subjects

    with reject_bad_values("'--prefix'"):
        Subjects(prefix)
    if nats is None:
        return ServerChoice(state, prefix, None)
    own = NatsOptions(nats, token, user, password, creds, ca, cert, key)
    return ServerChoice(state, prefix, own)
