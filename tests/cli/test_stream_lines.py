"""What `pipeline stream` prints of each batch."""

from __future__ import annotations

import json

import pytest

from distributary.cli import stream


def test_a_batch_tells_how_long_it_took_and_planning_within_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(stream, "perf_counter", lambda: now)
    printer = stream._BatchPrinter(as_document=True)
    for planning, later in (("planning", 0.5), (None, 0.0)):  # nothing to plan in the second
        for step, seconds in (("listing the files", 1.0), (planning, 0.5), ("planned", 0.25)):
            if step is not None:
                printer.note_step(step)
            now += seconds
        printer.print_batch({"batch": 7})
        told = json.loads(capsys.readouterr().out)
        assert told == {"batch": 7, "seconds": 1.75, "planning_seconds": later}
