"""Progress reports of solvers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Progress", "Step", "silent"]


@dataclass(frozen=True, slots=True)
class Step:
    """One progress report: the stage, how far it is, and the lowest cost found so far.

    `total` is None if the remaining work is unknown. `best` is in messages per second, at the
    prices of the objective, or None if there is no plan yet.
    """

    stage: str
    done: int
    total: int | None
    best: float | None = None


Progress = Callable[[Step], None]


def silent(step: Step) -> None:
    """Ignore the report."""
