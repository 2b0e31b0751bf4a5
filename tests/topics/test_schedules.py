"""Through loss, delay, restarts and any updates nobody ever loses a topic or an event."""

from __future__ import annotations

import pytest

from tests.topics.schedules import POLICIES, run_schedule


@pytest.mark.parametrize(
    ("policy", "schedules"), [("tamara", 30), ("ours", 30), ("told", 30), ("hasty", 15)]
)
def test_seeded_schedules_lose_nothing(policy: str, schedules: int) -> None:
    """One takes about 0.08 seconds; `make test-all` runs 4,000 more."""
    watches = [run_schedule(seed, policy) for seed in range(schedules)]
    assert max(watch.clusters for watch in watches) > 0  # something happened
    assert sum(watch.invited for watch in watches) > 0


def test_channels_merge_and_each_in_one_merge_at_a_time() -> None:
    """The watch of a schedule checks the locks of both whenever a merge is made."""
    watches = [run_schedule(seed, "hasty", crashes=False) for seed in range(115, 125)]
    assert sum(len(watch.merged) for watch in watches) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_many_more_schedules(policy: str, first: int) -> None:
    for seed in range(first, first + 100):
        run_schedule(seed, policy)
