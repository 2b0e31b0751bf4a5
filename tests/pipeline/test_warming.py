"""What is compiled before the first batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from distributary.model import Constraints
from distributary.pipeline import warming
from distributary.pipeline.warming import PlannerWarmUp, warm_up
from distributary.planning import Request

_FOLLOW = """
import gc, sys
import numpy as np, pyarrow as pa
from numba.core.dispatcher import Dispatcher
from distributary.model import Constraints
from distributary.pipeline.following import LiveDemand, PlanFollower
from distributary.pipeline.warming import warm_up
from distributary.planning import Request


def list_compiled():
    return {
        (one.py_func.__module__, one.py_func.__qualname__, str(signature))
        for one in gc.get_objects() if isinstance(one, Dispatcher) for signature in one.signatures
    }


constraints = Constraints(apart=(frozenset({"f1", "f2"}),)) if sys.argv[1] == "terms" else None
request = Request(3, 6, constraints=constraints or Constraints(), budget_s=0.05)
warm_up(request)
before, rng, reference = list_compiled(), np.random.default_rng(0), None
assert before
demand = LiveDemand()
demand.load([], None, 1.0)
follower, moves = PlanFollower(request, demand, None, 0.0, 5), 0
for batch in range(4):
    pairs = sorted({(f"r{r}", f"f{f}") for r, f in rng.integers(0, 60, (300, 2))})
    receivers, flows = zip(*pairs)
    on, ts = rng.random(len(pairs)) < 0.7, np.full(len(pairs), batch)
    rows = pa.table({"receiver": receivers, "flow": flows, "ts": ts, "on": on})
    names = sorted(set(flows))
    counts = pa.table({"flow": names, "messages": rng.integers(1, 99, len(names))})
    change = demand.apply(rows, counts, 9.0, lambda rows: np.zeros(rows.num_rows, bool))
    followed = follower.follow(change, reference)
    moves, reference = moves + followed.moves, followed.reference / 2
assert moves
follower.follow_base(followed.made.solution.plan, reference)
assert not list_compiled() - before, list_compiled() - before
"""


@pytest.mark.parametrize("terms", ["plain", "terms"])
def test_a_stream_compiles_nothing_after_the_warm_up(terms: str) -> None:
    """In a process of its own, because this one has compiled more already."""
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", _FOLLOW, terms],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    "request_",
    [
        Request(1),
        Request(2, objective="channel", receiver_weights={"somebody": 3.0}),
        Request(2, 9, constraints=Constraints(apart=(frozenset({"x", "y"}),)), max_sent=1.5),
    ],
)
def test_any_request_can_be_warmed_up(request_: Request) -> None:
    warm_up(request_)


def test_a_fault_of_the_warm_up_is_left_to_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: Request, ended: Event) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(warming, "warm_up", fail)
    warm = PlannerWarmUp(Request(1))
    warm.start()
    warm.wait()


def test_a_warm_up_that_is_ended_takes_no_further_step(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, steps = Event(), []

    class Follower:
        def __init__(self, *settings: object, **others: object) -> None:
            pass

        def follow(self, *change: object) -> None:
            steps.append(change)
            ended.set()

    monkeypatch.setattr(warming, "PlanFollower", Follower)
    warm_up(Request(1), ended)
    assert len(steps) == 1
