from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from distributary.planning import Progress, Step, silent
from distributary.planning.best import Allowance, best
from distributary.planning.hierarchy import TwoLevelProblem
from distributary.planning.interruptible import SEARCH_THREAD, call_interruptibly
from tests.planning.test_best import random_things

STEP = Step("searching", 0, None)


def test_an_interrupt_is_answered_while_the_search_is_under_way_and_ends_it_at_its_next_step() -> (
    None
):
    go_on, left = threading.Event(), threading.Event()

    def search(progress: Progress) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        go_on.wait()
        try:
            progress(STEP)
        finally:
            left.set()
        pytest.fail("the search went on")

    told: list[Step] = []
    with pytest.raises(KeyboardInterrupt):
        call_interruptibly(search, told.append)
    assert SEARCH_THREAD in [thread.name for thread in threading.enumerate()]
    go_on.set()
    left.wait()
    assert told == []


def test_what_a_search_returns_raises_and_tells_is_as_without_a_thread() -> None:
    told: list[Step] = []

    def search(progress: Progress) -> float:
        progress(STEP)
        return float(np.float64(1) / np.float64(0))

    with np.errstate(divide="ignore"):
        assert call_interruptibly(search, told.append) == float("inf")
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        call_interruptibly(search, told.append)
    assert told == [STEP, STEP]


def test_on_another_thread_a_search_gives_its_result_or_its_error() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(call_interruptibly, lambda _: 7, silent).result() == 7
        with pytest.raises(ZeroDivisionError):
            pool.submit(call_interruptibly, lambda _: 1 // 0, silent).result()


@pytest.mark.parametrize("classes_side_by_side", [True, False])
def test_an_exception_ends_the_chains_of_best_that_run_beside_it(
    classes_side_by_side: bool,
) -> None:
    """With a budget of days: waiting for the others would be noticed."""

    def fail(step: Step) -> None:
        raise KeyboardInterrupt

    things = random_things(1, 400, 60).things
    n_groups, budget_s = (200, 5.0) if classes_side_by_side else (4, 1e6)
    problem = TwoLevelProblem(things, 300 if classes_side_by_side else 6, n_groups)
    with pytest.raises(KeyboardInterrupt):
        best(problem, np.random.default_rng(1), Allowance(budget_s, threads=2), fail)
