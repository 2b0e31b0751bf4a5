"""What happens to a soak's processes, and when: by the seed alone.

A round kills each kind of process once and suspends some, in random order; a fault may come while
others last.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["KINDS", "SUSPENDED", "Fault", "draw_faults"]

KINDS: Final = ("control", "stand-by", "stream", "nats", "publisher", "receiver")
SUSPENDED: Final = 5.0  # seconds
_SUSPENSIONS: Final = 2  # in a round
_LONGEST_PAUSE: Final = 3.0  # seconds before a killed process is started again


@dataclass(frozen=True, slots=True)
class Fault:
    """At `at` seconds a process is killed, and started again after a pause; or it is suspended.

    `which` chooses one of several processes of the kind.
    """

    at: float
    kind: str
    which: int
    kills: bool
    pause: float


def draw_faults(seed: int, seconds: float, every: float) -> Iterator[Fault]:
    """Draw faults for so many seconds, one in `every` on average."""
    rng = random.Random(f"faults {seed}")
    at = 0.0
    while True:
        kinds = [(kind, True) for kind in KINDS]
        kinds += [(kind, False) for kind in rng.sample(KINDS, _SUSPENSIONS)]
        rng.shuffle(kinds)
        for kind, kills in kinds:
            pause = rng.uniform(0.0, _LONGEST_PAUSE) if kills else SUSPENDED
            yield Fault(at, kind, rng.randrange(1 << 30), kills, pause)
            at += rng.uniform(0.5, 1.5) * every
            if at > seconds:
                return
