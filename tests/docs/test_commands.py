"""Every command of the documentation runs as it stands, with relative paths, on the examples.

A command needs no entry here: it is found in its page, gets the example files that it names and
what other documented commands write, and runs. Only commands that go on until somebody ends them
are known by name; what must differ here is in `SUBSTITUTIONS`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from tests.docs.living import LIVING, SERVED, Lives, is_living
from tests.docs.pages import Command, all_blocks, all_commands
from tests.docs.running import (
    MULTICAST,
    PATIENCE,
    SPARK,
    SUBSTITUTIONS,
    Ran,
    Runs,
    Substitution,
    substitute,
)
from tests.docs.systems import belongs_to_a_system

# Wait for a change of the code; what is here passes once it is made.
COMMANDS = all_commands()
# Each starts Python anew: by default the first of each runs, the others with the slow. All that
# start Java are slow; `tests/pipeline/test_command.py` calls those commands on one Spark.
COSTLY = MULTICAST


def cases() -> list[ParameterSet]:
    """Each command once, however many pages show it."""
    found: list[ParameterSet] = []
    texts: set[str] = set()
    names: set[str] = set()
    for command in COMMANDS:
        if command.text not in texts:
            marks = [pytest.mark.slow] if is_slow(command, command.name not in names) else []
            found.append(pytest.param(command, marks=marks, id=str(command)))
        texts.add(command.text)
        names.add(command.name)
    return found


def is_slow(command: Command, first: bool) -> bool:
    if belongs_to_a_system(command):  # `tests/system/test_up.py` starts one by default
        return True
    return command.name.startswith(SPARK) or (command.name in COSTLY and not first)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    runs = Runs(tmp_path_factory.mktemp("commands"), COMMANDS)
    yield runs
    runs.close()


@pytest.fixture(scope="session")
def lives(runs: Runs) -> Iterator[Lives]:
    with Lives(runs, COMMANDS) as lives:
        yield lives


@pytest.mark.parametrize("command", cases())
def test_a_documented_command_runs_as_it_stands(command: Command, runs: Runs, lives: Lives) -> None:
    if is_living(command) or command.name.startswith(SERVED):
        lives.try_out(command)
    else:
        check(command, runs.run(command))


def check(command: Command, ran: Ran) -> None:
    """It ended well, and what it is to write is there."""
    assert ran.status == 0, ran.err[-2000:]
    assert "Traceback" not in ran.err
    for name in command.outputs:
        written = ran.folder / name
        assert written.exists(), name
        assert any(written.iterdir()) if written.is_dir() else written.stat().st_size, name


def test_the_program_on_the_page_of_brokers_prints_what_it_publishes(lives: Lives) -> None:
    (block,) = (
        "\n".join(each.lines)
        for each in all_blocks()
        if each.language == "python" and "ContentClient" in "".join(each.lines)
    )
    lives.serve_network()
    code = substitute(Command(block, "page.md", 1, 1)).text
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("{'symbol': 'IBM', 'price': 121.5} b'any bytes' quotes A ")


@pytest.mark.parametrize("each", SUBSTITUTIONS, ids=lambda each: each.pattern)
def test_what_is_substituted_is_in_the_documentation(each: Substitution) -> None:
    assert any(re.search(each.pattern, command.text) for command in COMMANDS)


@pytest.mark.parametrize("name", LIVING)
def test_what_goes_on_until_it_is_ended_is_in_the_documentation(name: str) -> None:
    assert name in {command.name for command in COMMANDS}


def test_a_substituted_command_is_otherwise_the_same() -> None:
    command = Command("distributary plan --groups 4 --out plan", "page.md", 1, 1)
    assert substitute(command).text == "distributary plan --budget 1s --groups 4 --out plan"
    given = Command("distributary plan --groups 4 --budget 5s --out plan", "page.md", 1, 1)
    assert substitute(given).text == given.text


def test_a_command_finds_what_it_names_and_nothing_else(runs: Runs) -> None:
    text = "distributary evaluate plan --interest interest.csv --rates rates.csv --json"
    folder = runs.prepare(Command(text, "page.md", 1, 1))
    assert {path.name for path in folder.iterdir()} == {"plan", "interest.csv", "rates.csv"}


@pytest.mark.parametrize(
    "text",
    [
        "distributary evaluate plan --interest unheard-of.csv --rates rates.csv",
        "distributary plan --no-such-option",
        "distributary no-such-command",
        "false",
    ],
)
def test_a_command_that_cannot_run_is_noticed(runs: Runs, text: str) -> None:
    command = Command(text, "page.md", 1, 1)
    with pytest.raises(AssertionError):
        check(command, runs.run(command))
