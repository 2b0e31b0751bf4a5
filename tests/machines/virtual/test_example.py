"""The example prints what is recorded beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.machines.virtual import example


def test_the_example_prints_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    example.main()
    recorded = Path(example.__file__).with_suffix(".txt").read_text(encoding="utf-8")
    assert capsys.readouterr().out == recorded
