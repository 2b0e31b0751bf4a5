"""`--help`: quick, the same everywhere, and true."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from distributary.cli.app import COMMANDS, app
from tests.cli.conftest import CommandLine

ROOT: Any = typer.main.get_command(app)
CONTEXT: Any = ROOT.make_context("distributary", [], resilient_parsing=True)
HEAVY = (
    "numpy",
    "numba",
    "pyarrow",
    "pyspark",
    "plotly",
    "jinja2",
    "matplotlib",
    "msgspec",
    "nats",
)


def walk(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and all below it, each with the words that lead to it."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk((*words, name), inner)


ALL = [found for name in COMMANDS for found in walk((name,), ROOT.load(name, CONTEXT))]


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("--version",), ("nosuch",)])
def test_help_of_all_commands_imports_none_of_them(words: tuple[str, ...]) -> None:
    code = f"""
import sys
from distributary.cli import main
sys.argv = ["distributary", *{words!r}]
try:
    main()
except SystemExit:
    print([name for name in {HEAVY!r} if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    own = re.split(r"\n\s*\n", ROOT.load(name, CONTEXT).help)[0]
    assert COMMANDS[name].help == " ".join(own.split())


@pytest.mark.parametrize(("words", "command"), ALL)
def test_h_is_help_everywhere(cli: CommandLine, words: tuple[str, ...], command: Any) -> None:
    ran = cli(*words, "-h")
    assert ran.status == 0
    assert ran.out == cli(*words, "--help").out
    assert " ".join(words) in ran.out.partition("Usage: ")[2].splitlines()[0]


@pytest.mark.parametrize(("words", "command"), [((), ROOT), *ALL])
def test_no_switch_looks_as_if_it_took_a_value(words: tuple[str, ...], command: Any) -> None:
    for param in command.get_params(CONTEXT):
        if getattr(param, "is_flag", False):
            assert param.display_type_rich(CONTEXT) == "", param.opts


def test_a_misspelt_command_is_answered_with_one_that_exists(cli: CommandLine) -> None:
    ran = cli("evalute")
    assert ran.status == 2
    assert "Did you mean 'evaluate'?" in ran.err


@pytest.mark.parametrize(("words", "command"), ALL)
def test_every_option_is_explained_and_stands_in_a_named_panel(
    words: tuple[str, ...], command: Any
) -> None:
    for param in command.params:
        assert param.help, param.name
        if param.param_type_name == "option":
            assert param.rich_help_panel, param.opts


def test_a_default_is_shown_as_one_would_type_it(cli: CommandLine) -> None:
    said = cli("pipeline", "run", "--help").out
    for default in ("30s", "100%", "4GiB"):
        assert f"[default: {default}]" in said
