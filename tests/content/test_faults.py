"""Seeded runs on bad networks: loss, reordering, doubling, cuts, crashes, at any moment."""

from __future__ import annotations

import numpy as np
import pytest

from distributary.content import COVERING_POLICIES
from tests.content.faults import BadWorld
from tests.content.test_schedules import POLICIES, homes_for, play
from tests.content.worlds import random_tree
from tests.shrinking import checked


class Faulty(BadWorld):
    """Between what clients do, things go wrong."""

    def run(self, seconds: float = float("inf")) -> None:
        if seconds == float("inf"):
            super().run(seconds)
            return
        super().run(seconds)
        self.settle()

    def misfortune(self, rng: np.random.Generator) -> None:
        """Something breaks, or comes back."""
        what = rng.random()
        names = self.topology.brokers
        name = names[int(rng.integers(len(names)))]
        if self.down and what < 0.4:
            self.start(sorted(self.down)[0])
        elif self.cuts and what < 0.4:
            self.heal(sorted(self.cuts)[0])
        elif what < 0.6 and name not in self.down:
            self.crash(name)
        elif what < 0.8 and name not in self.cuts:
            self.cut(name)
        elif name not in self.down:
            self.snap(name)


def run_schedule(seed: int, policy: str | None = None, steps: int | None = None) -> Faulty:
    """One run; an `AssertionError` says what went wrong and how to run it again."""
    rng = np.random.default_rng([seed, 66])
    drawn = POLICIES[int(rng.integers(len(POLICIES)))]
    name = drawn if policy is None else policy
    world = Faulty(
        COVERING_POLICIES[name],
        random_tree(rng, int(rng.integers(2, 7))),
        rng,
        loss=float(rng.choice([0.0, 0.05, 0.3])),
        reorders=bool(rng.random() < 0.5),
        save_pause=float(rng.choice([0.1, 3.0, np.inf])),
    )
    again = f"run_schedule({seed}, {name!r}, {steps})"
    left = 1_000 if steps is None else steps
    world.watch.moves = False
    homes = homes_for(world, rng)
    try:
        world.mend()
        for part in range(int(rng.integers(1, 10))):
            n_steps = min(int(rng.integers(1, 25)), left)
            play(world, rng, n_steps, homes, 100 * part, moves=False)
            left -= n_steps
            if not left:
                break
            if rng.random() < 0.8:
                world.misfortune(rng)
            if rng.random() < 0.4:
                world.mend()
        world.mend()
    except AssertionError as error:
        raise AssertionError(f"{again}: {error}") from None
    problems = [*world.watch.problems(), *world.table_problems(), *world.late_problems()]
    assert not problems, f"{again}: {problems[0]} and {len(problems) - 1} more"
    return world


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_lost_or_doubled_whatever_breaks(seed: int, policy: str) -> None:
    checked(run_schedule, seed, policy)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_hundreds_of_schedules(policy: str) -> None:
    for seed in range(1_000, 1_500):
        checked(run_schedule, seed, policy)
