"""Through loss, delay, restarts and any updates nobody ever loses a topic or an event."""

from __future__ import annotations

import pytest

from tests.topics.schedules import POLICIES, run_schedule


@pytest.mark.parametrize(
    ("policy", "schedules"), [("tamara", 60), ("ours", 60), ("told", 60), ("hasty", 20)]
)
def test_seeded_schedules_lose_nothing(policy: str, schedules: int) -> None:
    """`make test` runs these 200, of about 65 ms each; `make test-all` runs 5,000 more.

    With those of peers and of services that take over it is 492 schedules by default, which take
    half a minute of processor time; 5,000 would take five minutes, and nobody would run them.
    """
    watches = [run_schedule(seed, policy) for seed in range(schedules)]
    assert max(watch.clusters for watch in watches) > 0  # something happened
    assert sum(watch.invited for watch in watches) > 0
    assert sum(watch.misled for watch in watches) <= schedules // 50  # see `has_lost_reports`


def test_channels_merge_and_each_in_one_merge_at_a_time() -> None:
    """The watch of a schedule checks the locks of both whenever a merge is made."""
    watches = [run_schedule(seed, "hasty", crashes=False) for seed in range(115, 125)]
    assert sum(len(watch.merged) for watch in watches) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("first", range(1_000, 2_250, 125))
def test_many_more_schedules(policy: str, first: int) -> None:
    for seed in range(first, first + 125):
        run_schedule(seed, policy)
