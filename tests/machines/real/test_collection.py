"""The garbage collector while a process restores its state."""

from __future__ import annotations

import gc

import pytest

from distributary.machines.real.collection import collect_rarely, hold_collection


@pytest.mark.parametrize("was_enabled", [True, False])
def test_much_that_a_block_makes_is_not_looked_at_and_the_collector_is_as_before(
    was_enabled: bool,
) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if was_enabled else gc.disable)()
        with hold_collection():
            assert not gc.isenabled()
            made: list[list[object]] = [[] for _ in range(150_000)]
        assert gc.isenabled() is was_enabled
        assert gc.get_freeze_count() >= len(made)
        assert not any(each is made[0] for each in gc.get_objects())
    finally:
        gc.unfreeze()
        (gc.enable if before else gc.disable)()


def test_little_that_a_block_makes_is_left_to_the_collector() -> None:
    gc.collect()
    before = gc.get_freeze_count()
    with hold_collection():
        made: list[list[object]] = [[] for _ in range(1_000)]
    assert gc.get_freeze_count() == before
    assert any(each is made[0] for each in gc.get_objects())


def test_the_collector_is_as_before_after_an_error() -> None:
    with pytest.raises(KeyError), hold_collection():
        raise KeyError
    assert gc.isenabled()


def test_old_objects_are_looked_at_rarely_and_cycles_of_young_ones_as_before() -> None:
    before = gc.get_threshold()
    with collect_rarely():
        assert gc.get_threshold()[:2] == before[:2]
        assert gc.get_threshold()[2] >= 1_000
    assert gc.get_threshold() == before
