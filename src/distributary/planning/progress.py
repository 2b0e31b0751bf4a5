"""How a solver tells what it is doing, without knowing who listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Progress", "Step", "silent"]


@dataclass(frozen=True, slots=True)
class Step:
    """One sign of life: the stage, how far it is, and the lowest cost found so far.

    `total` is None where nobody can say how much is left. `best` is messages per second, at the
    prices of the objective, or None while there is no plan yet.
    """

    stage: str
    done: int
    total: int | None
    best: float | None = None


Progress = Callable[[Step], None]


def silent(step: Step) -> None:
    """Listen to nothing."""
