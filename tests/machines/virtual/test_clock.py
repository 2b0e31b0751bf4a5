"""Virtual time goes forward, and ends where it is told to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.virtual import Clock

TIMES = st.floats(0.0, 10.0)


@given(st.lists(st.tuples(TIMES, st.lists(TIMES, max_size=3)), max_size=20))
def test_time_never_goes_back_and_ties_keep_their_order(
    plan: list[tuple[float, list[float]]],
) -> None:
    clock = Clock()
    seen: list[tuple[float, int]] = []
    for time, more in plan:

        def happen(more: list[float] = more, number: int = clock.scheduled) -> None:
            seen.append((clock.now, number))
            for later in more:
                number = clock.scheduled
                clock.at(clock.now + later, lambda n=number: seen.append((clock.now, n)))

        clock.at(time, happen)
    assert clock.run() == len(plan) + sum(len(more) for _, more in plan)
    assert seen == sorted(seen)


def test_nothing_can_happen_in_the_past_or_at_no_time() -> None:
    clock = Clock()
    clock.run(until=5.0)
    assert clock.now == 5.0
    for time in (4.9, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="cannot schedule"):
            clock.at(time, lambda: None)


def test_a_run_stops_at_a_time_or_after_so_many_events() -> None:
    clock = Clock()
    seen: list[float] = []
    for time in (1.0, 2.0, 3.0, 4.0):
        clock.at(time, lambda: seen.append(clock.now))
    assert clock.run(until=2.0) == 2
    assert (seen, clock.now) == ([1.0, 2.0], 2.0)
    assert clock.run(until=10.0, max_events=1) == 1
    assert (seen, clock.now) == ([1.0, 2.0, 3.0], 3.0)
    assert clock.run() == 1
    assert clock.now == 4.0
