"""The file of a run's events."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from distributary.cli.stages import View, show_run
from distributary.cli.step_events import StepEvents
from distributary.errors import InputError
from distributary.pipeline.progress import RunSummary, StepState
from distributary.pipeline.steps import RunEnd, RunEnding

KEYS = {
    *("event", "time", "step", "detail", "rows", "rows_per_s", "share"),
    *("seconds_left", "seconds"),
}


def read_events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_each_event_is_a_line_that_can_be_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text("of an earlier run\n")
    now = 0.0
    events = StepEvents(path, lambda: now, lambda: 1_700_000_000.25)
    events.start_run()
    assert read_events(path) == [
        {"event": "started", "time": "2023-11-14T22:13:20.250+00:00", "seconds": 0.0}
    ]
    events.begin_step(StepState("reading", 0.0))
    for now in (0.3, 0.6, 0.9, 1.2, 1.5):
        events.move_step(StepState("reading", now, 500, 0.25, 3.04))
    events.end_step(StepState("reading", 2.0, 1_000))
    written = read_events(path)[1:]
    assert all(set(event) == KEYS for event in written)
    assert [(event["event"], event["seconds"]) for event in written] == [
        ("progress", 0.0),
        ("progress", 1.2),
        ("step", 2.0),
    ]
    assert (written[1]["rows_per_s"], written[1]["seconds_left"]) == (416.7, 3.0)
    assert (written[2]["rows"], written[2]["share"]) == (1_000, None)
    events.end_run(RunEnd(RunEnding.FINISHED, None, RunSummary(2.5, ())))
    assert read_events(path)[-1]["event"] == "finished"


@pytest.mark.parametrize(
    ("error", "last"),
    [(None, "finished"), (ValueError("a\nb"), "failed"), (KeyboardInterrupt(), "interrupted")],
)
def test_the_last_line_says_how_the_run_ended(
    tmp_path: Path, error: BaseException | None, last: str
) -> None:
    path = tmp_path / "events"

    def work() -> None:
        with show_run(View(path)) as shown:
            shown.watch.begin("reading")
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(type(error)):
            work()
    events = read_events(path)
    assert [event["event"] for event in events] == ["started", "progress", "step", last]
    assert events[-1].get("error") == ("a b" if last == "failed" else None)
    assert [step["step"] for step in events[-1]["stages"]] == ["reading", "other"]


def test_a_file_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="cannot write the events: No such file or directory"),
        show_run(View(tmp_path / "none" / "events")),
    ):
        pytest.fail("the work has begun")


def test_a_full_disk_ends_the_events_and_not_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no disk that is always full")
    with show_run(View(Path("/dev/full"))) as shown:
        shown.watch.begin("reading")
    assert capsys.readouterr().err == (
        "warning: /dev/full: no more events are written: No space left on device\n"
    )


@pytest.mark.parametrize("number", [1, 2])
def test_events_on_stdout_do_not_overwrite_what_else_is_printed(
    capfd: pytest.CaptureFixture[str], number: int
) -> None:
    os.write(number, b"before\n")
    with show_run(View(Path(f"/dev/fd/{number}"))):
        os.write(number, b"between\n")
    os.write(number, b"after\n")
    lines = capfd.readouterr()[number - 1].splitlines()
    assert [line if line[0] != "{" else json.loads(line)["event"] for line in lines] == [
        *("before", "started", "between", "finished", "after"),
    ]


def test_a_program_can_follow_through_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got: list[str] = []
    reader = Thread(target=lambda: got.extend(path.read_text(encoding="utf-8").splitlines()))
    reader.start()
    with show_run(View(path)) as shown:
        shown.watch.begin("reading")
    reader.join()
    assert [json.loads(line)["event"] for line in got] == [
        *("started", "progress", "step", "finished"),
    ]
