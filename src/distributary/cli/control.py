"""`distributary control`: run a control plane, look at it, and operate it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from distributary.cli.console import print_json, results, wide_results
from distributary.cli.control_choice import CONTROL, ControlAddress, ControlCredentials
from distributary.cli.control_serve import ApproveName, read_limits_text, serve
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import INPUT, OUTPUT, Json, option

if TYPE_CHECKING:
    from distributary.control.nats.client import ControlClient
    from distributary.control.requests import Done
    from distributary.control.status import ControlStatus

__all__ = ["app"]

T = TypeVar("T")
OperatorName = Annotated[
    str,
    option("Your name, for the log of changes.", CONTROL, "--as", show_default="your user's name"),
]

app = typer.Typer(
    help="Run a control plane, look at it, and approve or change its plans.",
    no_args_is_help=True,
)


def status(
    control: ControlAddress,
    credentials: ControlCredentials,
    name: OperatorName = "",
    as_document: Json = False,
) -> None:
    """Show the plan in force, what receivers want and drop, all members, Spark and alarms."""
    from distributary.cli.control_tables import render_status

    found = _run(credentials, control, name, lambda client: client.status())
    if as_document:
        print_json(_describe(found))
    else:
        wide_results.print(render_status(found))


def plan(
    control: ControlAddress,
    credentials: ControlCredentials,
    name: OperatorName = "",
    as_document: Json = False,
) -> None:
    """Show the plan that waits for approval: what it saves, what moves, and who is touched."""
    from distributary.cli.control_tables import render_proposal

    found = _run(credentials, control, name, lambda client: client.status())
    if as_document:
        print_json(
            {
                "mode": found.mode,
                "force": _describe(found.force),
                "proposal": _describe(found.proposal),
            }
        )
    else:
        wide_results.print(render_proposal(found))


def changes(
    control: ControlAddress,
    credentials: ControlCredentials,
    name: OperatorName = "",
    count: Annotated[int, option("Show at most this many.", OUTPUT, min=1)] = 20,
    as_document: Json = False,
) -> None:
    """Show who changed what, when and why, with predicted and measured waste; newest first."""
    from distributary.cli.control_tables import render_changes

    found = _run(credentials, control, name, lambda client: client.changes(count))
    if as_document:
        print_json({"changes": _describe(found)})
    else:
        wide_results.print(render_changes(found))


def approve(
    number: Annotated[
        int | None,
        typer.Argument(help="Number of the proposal.", show_default="the one that waits"),
    ] = None,
    name: OperatorName = "",
    as_document: Json = False,
    *,
    control: ControlAddress,
    credentials: ControlCredentials,
) -> None:
    """Put the plan that waits for approval in force."""

    async def order(client: ControlClient) -> Done:
        return await client.approve(await _find_proposal(client, number), name)

    _operate(credentials, control, name, order, as_document)


def reject(
    number: Annotated[
        int | None,
        typer.Argument(help="Number of the proposal.", show_default="the one that waits"),
    ] = None,
    why: Annotated[str, option("Reason, for the log of changes.", INPUT, "--why")] = "",
    name: OperatorName = "",
    as_document: Json = False,
    *,
    control: ControlAddress,
    credentials: ControlCredentials,
) -> None:
    """Drop the plan that waits for approval."""

    async def order(client: ControlClient) -> Done:
        return await client.reject(await _find_proposal(client, number), why, name)

    _operate(credentials, control, name, order, as_document)


def rollback(
    version: Annotated[
        int | None,
        typer.Argument(help="Version to go back to.", min=1, show_default="the one before"),
    ] = None,
    name: OperatorName = "",
    as_document: Json = False,
    *,
    control: ControlAddress,
    credentials: ControlCredentials,
) -> None:
    """Put an earlier version of the plan in force again."""
    _operate(credentials, control, name, lambda client: client.rollback(version, name), as_document)


def pin(
    flow: Annotated[str, typer.Argument(help="Name of the flow.")],
    group: Annotated[int, typer.Argument(help="Number of the group, from 0.", min=0)],
    name: OperatorName = "",
    as_document: Json = False,
    *,
    control: ControlAddress,
    credentials: ControlCredentials,
) -> None:
    """Keep a flow in a group."""
    _operate(credentials, control, name, lambda client: client.pin(flow, group, name), as_document)


def unpin(
    flow: Annotated[str, typer.Argument(help="Name of the flow.")],
    name: OperatorName = "",
    as_document: Json = False,
    *,
    control: ControlAddress,
    credentials: ControlCredentials,
) -> None:
    """Let a pinned flow go to any group again."""
    _operate(credentials, control, name, lambda client: client.pin(flow, None, name), as_document)


def limits(
    source: Annotated[
        str,
        typer.Argument(
            help="Limits of the network: a TOML file, the name of a profile (`limits list`), or "
            "`none`.",
            metavar="FILE|PROFILE|none",
        ),
    ],
    name: OperatorName = "",
    as_document: Json = False,
    *,
    control: ControlAddress,
    credentials: ControlCredentials,
) -> None:
    """Set the limits of the network that every plan keeps to, from now on."""
    text = "" if source == "none" else read_limits_text(source, "'FILE'")
    _operate(credentials, control, name, lambda client: client.set_limits(text, name), as_document)


def mode(
    mode: Annotated[ApproveName, typer.Argument(help="Who approves new plans.")],
    name: OperatorName = "",
    as_document: Json = False,
    *,
    control: ControlAddress,
    credentials: ControlCredentials,
) -> None:
    """Let better plans take effect by themselves (auto), or wait for `control approve` (manual)."""
    _operate(
        credentials, control, name, lambda client: client.set_mode(mode.value, name), as_document
    )


def permissions(
    users: Annotated[
        Path,
        typer.Argument(
            help='Names and their tokens, by role: JSON, {"operator": {NAME: TOKEN}, '
            '"viewer": ..., "publisher": ..., "receiver": ...}.',
        ),
    ],
    prefix: Annotated[str, option("The --prefix of `control serve`.", CONTROL)] = "distributary",
) -> None:
    """Print the users and permissions for the configuration of your own NATS server.

    Put the output into its `authorization` block, beside a user for `control serve` itself.
    """
    from distributary.cli.options import reject_bad_values
    from distributary.control.nats.permissions import read_users
    from distributary.machines.nats.users import format_users

    with reject_bad_values("'--prefix'"):
        found = read_users(users, prefix)
    results.out(format_users(found), highlight=False)


app.command("serve")(serve)
for _command in (
    *(status, plan, approve, reject, rollback, pin, unpin, limits, mode, changes, permissions),
):
    app.command(_command.__name__)(takes_groups(_command))


def _operate(
    credentials: ControlCredentials,
    control: str,
    name: str,
    order: Callable[[ControlClient], Awaitable[Done]],
    as_document: bool,
) -> None:
    """Send an order, and print what came of it."""
    done = _run(credentials, control, name, order)
    if as_document:
        print_json({"says": done.says, "version": done.version})
    else:
        results.print(done.says, markup=False)


def _run(
    credentials: ControlCredentials,
    control: str,
    name: str,
    ask: Callable[[ControlClient], Awaitable[T]],
) -> T:
    async def work() -> T:
        async with credentials.make_client(control, name) as client:
            return await ask(client)

    return asyncio.run(work())


async def _find_proposal(client: ControlClient, number: int | None) -> int:
    """The number of the proposal that is meant."""
    from distributary.control.errors import ControlRefusedError

    if number is not None:
        return number
    found: ControlStatus = await client.status()
    if found.proposal is None:
        raise ControlRefusedError(
            "no plan waits for approval; `distributary control status` shows the plan in force"
        )
    return found.proposal.number


def _describe(found: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(found)
