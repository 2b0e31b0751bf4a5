"""Schedules on two lines, one of which is cut at times; the judge is that of `schedules.py`."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tests.delivery.interest_schedules import InterestJudge, InterestWorld
from tests.delivery.schedules import MENDED, Judge, World


class LineWorld(World):
    """A world in which each group has two lines, of which B may be later than A."""

    def play(self) -> None:
        rng = np.random.default_rng([5, self.seed])
        self.network.pairs = True
        self.network.line_delay = float(rng.choice([0.0, 0.002, 0.05]))
        at, time = self.simulation.clock.at, 0.0
        while time < MENDED:
            begin, time = np.sort(rng.uniform(time, MENDED + 0.5, 2)).tolist()
            line = int(rng.integers(2))
            at(begin, lambda line=line: self.network.cut_lines.add(line))
            at(time, self.network.cut_lines.clear)
        super().play()

    def mend(self) -> None:
        super().mend()
        self.network.cut_lines.clear()


class InterestLineWorld(LineWorld, InterestWorld):
    """A world of two lines in which interest changes too."""


def run_interest_line_schedule(seed: int) -> Counter[str]:
    """Play a schedule with changing interest on two lines and judge it."""
    world = InterestLineWorld(seed)
    try:
        world.play()
        return InterestJudge(world).check()
    except Exception as error:
        raise AssertionError(
            f"schedule {seed} on two lines: {error}\nagain: python -c 'from tests.delivery."
            f"line_schedules import run_interest_line_schedule as run; run({seed})'"
        ) from error


def run_line_schedule(seed: int) -> Counter[str]:
    """Play a schedule on two lines and judge it: counts of what happened, or AssertionError."""
    world = LineWorld(seed)
    try:
        world.play()
        counts = Judge(world).check()
        for lives in world.lives.values():
            for line in (line for life in lives for line in life.machine.line_statistics(0.0)):
                counts["filled gaps"] += line.filled_gaps
                counts["copies"] += line.copies
                counts[f"first on {line.line}"] += line.first_copies
    except Exception as error:
        raise AssertionError(
            f"schedule {seed} on two lines: {error}\nagain: python -c 'from "
            f"tests.delivery.line_schedules import run_line_schedule; run_line_schedule({seed})'"
        ) from error
    return counts
