"""Calls the command line in this process: Python and the compiled loops are there already."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path

import pytest

from distributary.cli import main


def call_main(words: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """The status, output and errors of a command that is called in a folder, with no terminal."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "200")
        patch.setattr("sys.argv", list(words))
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as stop,
        ):
            main()
    return int(stop.value.code or 0), out.getvalue(), err.getvalue()
