"""Through loss, delay, restarts and any updates nobody ever loses a topic or an event."""

from __future__ import annotations

import pytest

from tests.protocol.topics.schedules import POLICIES, run_schedule


@pytest.mark.parametrize("policy", POLICIES)
def test_seeded_schedules_lose_nothing(policy: str) -> None:
    clusters = [run_schedule(seed, policy).clusters for seed in range(12)]
    assert max(clusters) > 0  # something happened


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_many_more_schedules(policy: str, first: int) -> None:
    for seed in range(first, first + 100):
        run_schedule(seed, policy)
