"""Whatever happens to services that take over from each other: all, once, in order, by one."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.shrinking import checked
from tests.topics.take_over.schedules import Schedule, run_schedule

DEFAULT = 200  # seeds


def find_failures(**flaws: bool) -> list[str]:
    """What the oracle says of services with a flaw."""
    found = []
    for seed in range(30):
        try:
            run_schedule(seed, **flaws)
        except AssertionError as error:
            found.append(str(error))
    return found


def test_seeded_schedules_lose_nothing_and_nobody_is_served_by_two() -> None:
    """`make test` runs these 200, of about 60 ms each; `make test-all` runs 5,000 more."""
    done: Counter[str] = Counter()
    terms = 0
    for seed in range(DEFAULT):
        schedule: Schedule = checked(run_schedule, seed)
        done += schedule.counts
        terms += len(schedule.terms)
    ways = "crash", "stop", "sleep", "nap", "absence", "cut service", "cut client", "create"
    assert min(done[way] for way in ways) > 0
    assert terms > 2 * DEFAULT  # by turns
    assert done["clusters"] > DEFAULT // 10


def test_a_log_without_a_fence_is_found_out() -> None:
    assert any("twice" in error for error in find_failures(fenced=False))


def test_services_that_send_without_the_lease_are_found_out() -> None:
    assert any("serve at" in error for error in find_failures(leased=False))


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = run_schedule(5), run_schedule(5)
    assert first.terms == second.terms
    assert first.read() == second.read()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 6_000, 250))
def test_many_more_schedules(first: int) -> None:
    for seed in range(first, first + 250):
        checked(run_schedule, seed)
