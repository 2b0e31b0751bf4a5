"""Through crashes, joins, sleep, partitions and loss: all that is accepted, once, in order."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.shrinking import checked
from tests.topics.peer.schedules import run_schedule


def test_seeded_schedules_lose_nothing() -> None:
    """`make test` runs these 92, of about 100 ms each; `make test-all` runs 5,000 more."""
    done: Counter[str] = Counter()
    costs: list[tuple[float, float]] = []
    for seed in range(8, 100):
        schedule = checked(run_schedule, seed)
        done += Counter(schedule.counts)
        if schedule.policy == "ours":
            costs.append(schedule.measure_cost())
    ways = "crash", "return", "leave", "join", "cut", "sleep", "unwant", "create", "remove"
    assert min(done[way] for way in ways) > 0
    assert done["clusters"] > 10
    assert sum(cost for cost, _ in costs) < sum(plain for _, plain in costs)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 6_000, 250))
def test_many_more_schedules(first: int) -> None:
    for seed in range(first, first + 250):
        checked(run_schedule, seed)


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = run_schedule(5), run_schedule(5)
    assert first.network.count_messages() == second.network.count_messages()
    for client in first.clients:
        assert first.network.delivered(client) == second.network.delivered(client)
