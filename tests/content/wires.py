"""Connections in virtual time: in order while up; what is under way is lost when one breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from distributary.content.codec import Codec
from distributary.machines.virtual import Clock
from tests.content.worlds import SCHEMA

CODEC = Codec(SCHEMA)
MOMENT = 0.001
RETRY = 0.7


class World(Protocol):
    """What a wire is in."""

    clock: Clock
    rng: np.random.Generator
    encodes: bool


@dataclass(eq=False)
class Wire:
    """One connection; each side takes messages and is told when it closes."""

    world: World
    delay: float
    takes: list[Callable[[Any], None]] = field(default_factory=list)
    closes: list[Callable[[], None]] = field(default_factory=list)
    is_open: bool = True
    last: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def send(self, side: int, message: Any) -> None:
        """Send from a side to the other one."""
        if self.world.encodes:
            message = CODEC.decode(CODEC.encode(message))
        at = self.last[side] = max(self.last[side], self.world.clock.now + self.delay)
        self.world.clock.at(at, partial(self._arrive, 1 - side, message))

    def _arrive(self, side: int, message: Any) -> None:
        if self.is_open:
            self.takes[side](message)

    def close(self, *, after: float = 0.0) -> None:
        """Break the connection; both sides hear of it, each in its own time."""
        if after:
            self.world.clock.at(self.world.clock.now + after, self.close)
        elif self.is_open:
            self.is_open = False
            for close in self.closes:
                late = float(self.world.rng.uniform(0, 0.3))
                self.world.clock.at(self.world.clock.now + late, close)
