"""A run on terminals of several widths."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from distributary.cli.stages import View, show_run
from distributary.cli.step_lines import ended_line, idle_line, present_line, summary_table
from distributary.pipeline.progress import RunSummary, StepState, StepTotal

READ = StepState("reading the subscriptions", 4.1, 5_000_000)
NOW = StepState("reading the publications", 4.15, 5_000_000, 0.42, 5.3)
LONG = StepState("replaying " + "every " * 20 + "plan", 400.0, 3, 0.999, 7_300.0, "a detail")


def test_a_step_that_ended_leaves_what_fits() -> None:
    wide = "reading the subscriptions          5.0 M rows read   1.2 M rows/s      4.1 s"
    assert ended_line(READ, 200).plain == ended_line(READ, 80).plain == wide
    middle = "reading the subscriptions          5.0 M rows read      4.1 s"
    assert ended_line(READ, 70).plain == middle
    assert ended_line(READ, 40).plain == "reading the subscriptions          4.1 s"
    assert ended_line(StepState("planning", 99.96), 40).plain.split() == [
        *("planning", "1", "min", "40", "s"),
    ]


def test_the_present_step_shows_share_and_time_left() -> None:
    assert present_line(NOW, 100).plain[1:] == (
        " reading the publications  5.0 M rows read  1.2 M rows/s  4.2 s  42 %  6 s left"
    )
    assert present_line(NOW, 60).plain[1:] == " reading the publications  4.2 s  42 %  6 s left"
    assert present_line(NOW, 40).plain[1:] == " reading the publicat…  42 %  6 s left"
    assert present_line(StepState("planning", 0.0), 40).plain[1:] == " planning  0.0 s"
    annealing = StepState("planning", 2.0, None, 0.5, detail="annealing")
    assert present_line(annealing, 60).plain[1:] == " planning: annealing  2.0 s  50 %"


@pytest.mark.parametrize("width", [1, 10, 20, 40, 59, 61, 76, 80, 200])
@pytest.mark.parametrize("step", [READ, NOW, LONG])
def test_no_line_wraps(step: StepState, width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, soft_wrap=True)
    lines = ended_line(step, width), present_line(step, width), idle_line(step.name, 1.0, width)
    for line in lines:
        console.print(line, soft_wrap=False)
    assert len(out.getvalue().splitlines()) == 3
    assert max(map(len, out.getvalue().splitlines())) <= width


def table_lines(width: int) -> list[str]:
    steps = (StepTotal(READ.name, 3.0, 0.75, 12_345), StepTotal("other", 1.0, 0.25, None))
    out = io.StringIO()
    Console(file=out, width=width).print(summary_table(RunSummary(4.0, steps), width))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_the_table_adds_up_and_leaves_out_rows_where_it_is_narrow() -> None:
    wide = table_lines(80)
    assert wide[0] == "step seconds share rows read"
    assert wide[1] == "reading the subscriptions 3.0 75.0% 12,345"
    assert wide[-1] == "the whole run 4.0 100.0%"
    narrow = table_lines(40)
    assert narrow[0].split() == ["step", "seconds", "share"]
    assert narrow[1].endswith("3.0 75.0%")


def show(console: Console, *, keep: bool, idle: str = "") -> None:
    with show_run(View(keep=keep, idle=idle, console=console)) as shown:
        shown.watch.begin("counting sheep")
        time.sleep(0.5)
        with shown.make_way():
            console.print("a batch")
        shown.watch.begin("sleeping")
        if idle:
            shown.watch.begin(None)
            time.sleep(0.3)


def test_a_terminal_shows_each_step_and_anything_else_nothing() -> None:
    drawn, quiet = io.StringIO(), io.StringIO()
    show(Console(file=drawn, force_terminal=True, width=70), keep=True)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.getvalue())
    assert re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] counting sheep  0\.\d s", text)
    assert re.search(r"(^|\r)counting sheep +0\.\d s$", text, re.MULTILINE)
    assert re.search(r"the whole run +0\.\d +100\.0%", text)
    assert drawn.getvalue().rfind("\x1b[?25h") > drawn.getvalue().rfind("\x1b[?25l")  # the cursor
    show(Console(file=quiet), keep=True)
    assert quiet.getvalue() == "a batch\n"


def test_a_stream_leaves_no_line_for_each_step() -> None:
    drawn = io.StringIO()
    show(Console(file=drawn, force_terminal=True, width=70), keep=False)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.getvalue())
    assert not re.search(r"(^|\r)counting sheep +0\.\d s$", text, re.MULTILINE)
    assert re.search(r"counting sheep +0\.\d +\d+\.\d%", text)


def test_between_batches_a_stream_says_that_it_waits() -> None:
    drawn, silent = io.StringIO(), io.StringIO()
    show(Console(file=drawn, force_terminal=True, width=70), keep=False, idle="waiting for sheep")
    assert re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] waiting for sheep", drawn.getvalue())
    show(Console(file=silent, force_terminal=True, width=70), keep=False)
    assert "waiting" not in silent.getvalue()
