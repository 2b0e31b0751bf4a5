"""Commands whose modules are imported only when they run, so that `--help` is fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from distributary.cli.start import exit_on_interrupt

__all__ = ["CommandEntry", "LazyGroup"]


class CommandEntry(NamedTuple):
    """Where a command is defined, and its line and panel in the list of commands."""

    module: str
    attribute: str
    help: str
    panel: str


class LazyGroup(TyperGroup):
    """A group that lists its commands from a table and imports only the one that is run."""

    table: ClassVar[Mapping[str, CommandEntry]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, entry in self.table.items():
            stub = TyperCommand(name, help=entry.help, rich_help_panel=entry.panel)
            self.commands[name] = stub

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that is run, and resolve it."""
        if args[0] in self.table:
            self.load(args[0], ctx)
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> Any:
        """List the group's own options."""
        params = super().get_params(ctx)
        _hide_values_of_switches(params)
        return params

    def load(self, name: str, ctx: Any) -> Any:
        """Import a command and replace its stub."""
        entry = self.table[name]
        with exit_on_interrupt():
            found = getattr(import_module(entry.module), entry.attribute)
        command = _make_command(name, found)
        _hide_values(command, ctx)
        self.commands[name] = command
        return command


def _make_command(name: str, found: typer.Typer | Callable[..., Any]) -> Any:
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name = name
        return group
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(name)(found)
    return get_command(single)


def _hide_values(command: Any, ctx: Any) -> None:
    _hide_values_of_switches(command.get_params(ctx))
    for inner in getattr(command, "commands", {}).values():
        _hide_values(inner, ctx)


def _hide_values_of_switches(params: Any) -> None:
    """Show a switch as `--json`; Typer would show `--json <bool>`, as if it took a value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
