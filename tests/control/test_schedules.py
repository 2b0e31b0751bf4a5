"""Whatever happens, one service decides, its log is true, and no wanted flow is forgotten."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.control.schedules import run_schedule
from tests.shrinking import checked

KINDS = ("first", "placed", "planned", "rolled back", "pinned", "limited")


def run_many(seeds: range) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in seeds:
        found += checked(run_schedule, seed)
    return found


def test_seeded_schedules() -> None:
    """150, which take 10 s of a CPU; `make test-all` runs 2,000 others."""
    found = run_many(range(150))
    assert all(found[kind] for kind in KINDS), found
    assert found["measured"]
    assert found["held"]
    assert found["rolled back by itself"]
    assert found["kept"]  # though it turned out worse: the plan before it is lost
    assert found["terms"] > 300


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 3_000, 100))
def test_many_more_schedules(first: int) -> None:
    run_many(range(first, first + 100))
