"""Two services that are killed and suspended at random lose, double and disorder nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.topics.nats.storm import storm


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_two_services_in_a_storm_keep_what_they_confirmed(tmp_path: Path, seed: int) -> None:
    account = asyncio.run(storm(tmp_path, seconds=60.0, seed=seed))
    assert sum(map(len, account.acknowledged.values())) > 100
    assert min(account.faults[kind] for kind in ("killed", "suspended", "moved")) > 0
    account.check()
