"""Work that Ctrl-C ends: once, and never while it puts things back."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from distributary.pipeline import interruptible
from distributary.pipeline.interruptible import call_interruptibly
from distributary.pipeline.undisturbed import hold_off_interrupts, stay_undisturbed
from distributary.planning import Progress, Step, silent
from distributary.planning.interruptible import call_interruptibly as call_search


@pytest.fixture
def cancelled(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the jobs of Spark, which does not run here, are cancelled."""
    event = threading.Event()
    monkeypatch.setattr(interruptible, "_cancel_jobs", event.set)
    monkeypatch.setattr(interruptible, "_GRACE_S", 0.05)
    monkeypatch.setattr(interruptible, "_PAUSE_S", 0.02)
    return event


class Work:
    """Steps in Python for a while, then what has to be done whatever happens."""

    def __init__(self, cancelled: threading.Event) -> None:
        self.cancelled = cancelled
        self.finished: list[str] = []

    def fail_with_its_job(self) -> None:
        press_ctrl_c()
        assert self.cancelled.wait(60)
        raise RuntimeError("the job was cancelled")

    def compute(self) -> None:
        press_ctrl_c()
        take_steps(60)

    def start_java(self) -> None:
        with hold_off_interrupts():
            press_ctrl_c()
            assert self.cancelled.wait(60)
            take_steps(0.5)
            self.finished.append("start")
        take_steps(60)

    def put_back(self) -> None:
        stay_undisturbed()
        take_steps(0.5)
        self.finished.append("put back")


def press_ctrl_c() -> None:
    """Interrupt the main thread, once it has had time to begin to wait."""
    take_steps(0.3)
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


def take_steps(seconds: float) -> None:
    last = time.monotonic() + seconds
    while time.monotonic() < last:
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("begin", "finished"),
    [
        (Work.fail_with_its_job, ["put back"]),
        (Work.compute, ["put back"]),
        (Work.start_java, ["start", "put back"]),
    ],
)
def test_no_interrupt_meets_what_must_be_finished(
    cancelled: threading.Event, begin: object, finished: list[str]
) -> None:
    assert callable(begin)
    work = Work(cancelled)

    def run() -> None:
        try:
            begin(work)
        except BaseException:
            work.put_back()
            raise

    with pytest.raises(KeyboardInterrupt):
        call_interruptibly(run)
    assert work.finished == finished


def test_an_interrupt_ends_a_search_that_waits_for_threads_of_its_own(
    cancelled: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait without end hears no interrupt: the search would go on, and its folder stay."""
    monkeypatch.setattr(interruptible, "_LONGEST_S", 5.0)
    work, over = Work(cancelled), threading.Event()

    def anneal(progress: Progress) -> None:
        press_ctrl_c()
        while not over.wait(0.01):
            progress(Step("annealing", 1, 2))

    def search(progress: Progress) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(anneal, progress).result()

    def run() -> None:
        try:
            call_search(search, silent)
        except BaseException:
            work.put_back()
            raise

    try:
        with pytest.raises(KeyboardInterrupt):
            call_interruptibly(run)
        assert work.finished == ["put back"]
    finally:
        over.set()


def test_an_interrupt_of_work_that_makes_code_leaves_the_exit_status_alone(
    tmp_path: Path,
) -> None:
    """Python ends by SIGINT if a plain `KeyboardInterrupt` has left an `exec` of a text."""
    program = """
import os, signal, sys, threading, time
from distributary.pipeline import interruptible
interruptible._GRACE_S = interruptible._PAUSE_S = 0.05
def work():
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    exec("import time\\nwhile True: time.sleep(0.001)")
try:
    interruptible.call_interruptibly(work)
except KeyboardInterrupt:
    sys.exit(130)
"""
    (tmp_path / "program.py").write_text(program)
    words = [sys.executable, "-m", "program"]
    ended = subprocess.run(words, cwd=tmp_path, check=False, timeout=120)
    assert ended.returncode == 130


def test_work_that_nobody_interrupts_gives_its_result_or_its_error() -> None:
    assert call_interruptibly(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        call_interruptibly(lambda: 1 // 0)
