"""Run the command line as another program would, without starting Python anew each time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from distributary.cli import main


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """Commands run in a folder of their own, with no terminal."""

    folder: Path
    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch

    def __call__(self, *words: str | Path) -> Ran:
        self.patch.setattr("sys.argv", ["distributary", *map(str, words)])
        self.capture.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = self.capture.readouterr()
        return Ran(int(stop.value.code or 0), out, err)

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path


@pytest.fixture
def cli(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return CommandLine(tmp_path, capsys, monkeypatch)


@pytest.fixture
def inputs(cli: CommandLine) -> tuple[str, ...]:
    """A small demand in files, as the options that name it."""
    cli.write("interest.csv", "receiver,flow\nann,a\nann,b\nbob,b\nbob,c\ncyd,c\ncyd,d\n")
    cli.write("rates.csv", "flow,rate\na,1\nb,2\nc,3\nd,4\nunheard,5\n")
    return ("--interest", "interest.csv", "--rates", "rates.csv")
