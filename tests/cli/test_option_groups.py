"""Groups of options: one dataclass in the command, one option per field on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from distributary.cli.option_groups import takes_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A group with one required option."""

    groups: Annotated[int, typer.Option(min=1)]
    sessions: Annotated[int | None, typer.Option()] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeAndSeed(Size):
    """A group that another one is part of."""

    sessions: Annotated[int | None, typer.Option(help="other words")] = 7
    seed: Annotated[int, typer.Option("--draw")] = 3


@takes_groups
def show(
    plan: Annotated[Path, typer.Argument()],
    size: SizeAndSeed,
    as_document: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show what came."""
    print(plan, size.groups, size.sessions, size.seed, as_document)


APP = typer.Typer()
APP.command()(show)


def test_a_command_gets_its_group_of_options_whole() -> None:
    ran = CliRunner().invoke(APP, ["p", "--groups", "2", "--draw", "5", "--json"])
    assert ran.output.split() == ["p", "2", "7", "5", "True"]


def test_a_required_option_of_a_group_is_required() -> None:
    ran = CliRunner().invoke(APP, ["p"])
    assert ran.exit_code == 2
    assert "--groups" in ran.output


def test_an_option_of_a_group_keeps_its_limits() -> None:
    assert CliRunner().invoke(APP, ["p", "--groups", "0"]).exit_code == 2
