"""Every wanted message once and in order, or reported missing with a reason, come what may."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.delivery.interest_schedules import run_interest_schedule
from tests.delivery.publisher_schedules import run_publisher_schedule
from tests.delivery.schedules import run_schedule


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_schedules(first: int) -> None:
    for seed in range(first, first + 20):
        run_schedule(seed)


def test_schedules_reach_what_they_are_for() -> None:
    """A schedule in which nothing happens proves nothing: all kinds of trouble occur."""
    total: Counter[str] = Counter()
    for seed in range(0, 40):
        total += run_schedule(seed)
    for what in (
        "delivered", "benign", "late", "missing", "changes", "restarts", "undisturbed",
    ):  # fmt: skip
        assert total[what] > 0, what
    assert {"gap window", "gap unanswered", "gap restart", "gap room"} <= set(total)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 4_000, 250))
def test_thousands_of_schedules(first: int) -> None:
    for seed in range(first, first + 250):
        run_schedule(seed)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_schedules_in_which_interest_changes(first: int) -> None:
    for seed in range(first, first + 20):
        run_interest_schedule(seed)


def test_schedules_of_interest_reach_what_they_are_for() -> None:
    total: Counter[str] = Counter()
    for seed in range(60, 100):
        total += run_interest_schedule(seed)
    for what in ("delivered", "firm", "to the end", "subscribed"):
        assert total[what] > 0, what


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 4_000, 250))
def test_thousands_of_schedules_in_which_interest_changes(first: int) -> None:
    for seed in range(first, first + 250):
        run_interest_schedule(seed)


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_schedules_with_several_publishers(first: int) -> None:
    for seed in range(first, first + 20):
        run_publisher_schedule(seed)


def test_schedules_with_several_publishers_reach_what_they_are_for() -> None:
    total: Counter[str] = Counter()
    for seed in range(80, 120):
        total += run_publisher_schedule(seed)
    for what in (
        "delivered", "to the end", "left", "Left", "Gone", "Back", "Restarted", "HandedOver",
        "Claimed", "Refused", "Released",
    ):  # fmt: skip
        assert total[what] > 0, what


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 11_000, 250))
def test_thousands_of_schedules_with_several_publishers(first: int) -> None:
    for seed in range(first, first + 250):
        run_publisher_schedule(seed)
