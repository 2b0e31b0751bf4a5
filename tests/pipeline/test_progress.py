"""What is known of the steps of a run, with clocks that the tests set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.pipeline import progress
from distributary.pipeline.progress import OTHER, StageCount, StepState, Tracker
from distributary.planning import Step


class Clocks:
    """A stopwatch, and a calendar that agrees with it."""

    def __init__(self) -> None:
        self.now = 50.0

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def tracker(self) -> Tracker:
        return Tracker(lambda: self.now, lambda: 1_000.0 + self.now)

    @property
    def now_ms(self) -> int:
        return int((1_000.0 + self.now) * 1000)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def stage(
    clocks: Clocks, name: str, done: int, total: int, rows: int = 0, number: int = 0, again: int = 0
) -> StageCount:
    return StageCount(number, again, name, clocks.now_ms, done, total, rows)


def present(tracker: Tracker) -> StepState:
    state = tracker.present()
    assert state is not None
    return state


def test_rows_share_and_time_left_come_from_the_tasks(clocks: Clocks) -> None:
    tracker = clocks.tracker()
    tracker.begin("reading")
    submitted = stage(clocks, "reading", 0, 8)
    tracker.count([submitted])
    clocks.wait(4)
    tracker.count([StageCount(0, 0, "reading", submitted.submitted_ms, 2, 8, 1_000)])
    state = present(tracker)
    assert (state.seconds, state.rows, state.rows_per_s) == (4.0, 1_000, 250.0)
    assert (state.share, state.seconds_left) == (0.25, 12.0)


def test_stages_of_a_step_add_up_and_only_those_at_work_say_what_is_left(clocks: Clocks) -> None:
    tracker = clocks.tracker()
    tracker.begin("reading")
    tracker.count([stage(clocks, "reading", 6, 6, 500)])
    clocks.wait(100)
    second = stage(clocks, "reading", 0, 4, 0, number=1)
    clocks.wait(2)
    tracker.count([StageCount(1, 0, "reading", second.submitted_ms, 2, 4, 40)])
    state = present(tracker)
    assert (state.rows, state.share, state.seconds_left) == (540, 0.8, 2.0)


def test_nothing_is_said_that_is_not_known(clocks: Clocks) -> None:
    tracker = clocks.tracker()
    assert tracker.present() is None
    tracker.begin("reading")
    assert present(tracker) == StepState("reading", 0.0)
    assert present(tracker).rows_per_s is None
    begun = stage(clocks, "reading", 1, 30, 0)
    clocks.wait(0.5)  # too short to extrapolate from
    tracker.count([begun])
    assert present(tracker).seconds_left is None
    clocks.wait(20)  # too small a share
    assert present(tracker).seconds_left is None
    assert present(tracker).rows is None
    tracker.count([StageCount(0, 0, "reading", begun.submitted_ms, 30, 30, 0)])
    assert present(tracker).share is None  # the step goes on, with what is not known
    tracker.count([stage(clocks, "another program's", 1, 2, 7)])
    assert present(tracker).rows is None


def test_a_repeated_attempt_does_not_count_its_rows_twice(clocks: Clocks) -> None:
    tracker = clocks.tracker()
    tracker.begin("reading")
    tracker.count([stage(clocks, "reading", 4, 4, 400)])
    tracker.count([stage(clocks, "reading", 1, 1, 100, again=1)])  # one task's result was lost
    assert present(tracker).rows == 400
    tracker.begin("writing")
    tracker.count([stage(clocks, "writing", 3, 4, 300)])
    tracker.count([stage(clocks, "writing", 1, 1, 100, again=1)])  # the task that was not done
    assert present(tracker).rows == 400
    assert tracker.states(0, 1)[0].rows == 400


def test_a_name_that_comes_again_is_another_step(clocks: Clocks) -> None:
    tracker = clocks.tracker()
    tracker.begin("reading")
    late = stage(clocks, "reading", 1, 1, 10)
    clocks.wait(1)
    tracker.begin("planning")
    clocks.wait(1)
    tracker.begin("reading")
    tracker.count([late, stage(clocks, "reading", 1, 1, 5, number=1)])
    assert [state.rows for state in tracker.states(0, 2)] == [10, None]
    assert present(tracker).rows == 5
    assert {step.name: step.rows for step in tracker.summarize().steps} == {
        "reading": 15,
        "planning": None,
        OTHER: None,
    }


def test_the_driver_reports_on_its_own_work(clocks: Clocks) -> None:
    tracker = clocks.tracker()
    tracker.report(Step("nobody asked", 1, 2))
    tracker.begin("planning")
    tracker.report(Step("compiling", 0, None))
    clocks.wait(30)
    assert present(tracker) == StepState("planning", 30.0, detail="compiling")
    tracker.report(Step("annealing", 100, 1_000))
    clocks.wait(10)
    tracker.report(Step("annealing", 300, 1_000))
    state = present(tracker)
    assert (state.share, state.detail) == (0.3, "annealing")
    assert state.seconds_left == pytest.approx(35)  # at 20 % in 10 s, compiling left out
    tracker.report(Step("annealing", 1_000, 1_000))
    assert present(tracker).share is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", None]),
            st.floats(0, 1e5, allow_nan=False),
            st.integers(0, 10**12),
        ),
        max_size=30,
    ),
    st.integers(1, 40),
)
def test_the_parts_add_up_to_the_whole(
    taken: list[tuple[str | None, float, int]], most: int
) -> None:
    clocks = Clocks()
    tracker = clocks.tracker()
    rows: dict[str | None, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "_MOST_ENTRIES", most)
        for number, (name, seconds, read) in enumerate(taken):
            tracker.begin(name)
            if name is not None:
                tracker.count([stage(clocks, name, 1, 1, read, number)])
                rows[name] = rows.get(name, 0) + read
            clocks.wait(seconds)
    summary = tracker.summarize()
    whole = sum(seconds for _, seconds, _ in taken)
    assert summary.seconds == pytest.approx(whole)
    assert sum(step.seconds for step in summary.steps) == pytest.approx(whole)
    if summary.seconds:  # the clock may not show what is very short
        assert sum(step.share for step in summary.steps) == pytest.approx(1)
    assert {step.name: step.rows or 0 for step in summary.steps if step.name != OTHER} == {
        name: read for name, read in rows.items() if name is not None
    }
    names = [step.name for step in summary.steps]
    assert names[-1] == OTHER
    assert len(names) == len(set(names))
