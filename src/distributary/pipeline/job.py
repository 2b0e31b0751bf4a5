"""What a run of the pipeline is asked for, and what it made."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from distributary.cost import Evaluation
from distributary.model import Demand, Plan
from distributary.pipeline.ingest import Window
from distributary.planning import Request

__all__ = ["DRIVER_LIMIT", "Job", "Outcome", "driver_need"]

DRIVER_LIMIT = 4 * 2**30
_BYTES_PER_PAIR, _BYTES_PER_SEAT = 140, 5


@dataclass(frozen=True, slots=True)
class Job:
    """What to run: where the logs are, what to make of them, where to put it.

    Either `subscriptions` or `filters` says who wants what. `previous` is a plan to compare with,
    and to start from if the moves are limited; the one in `out`, if any, without it.
    """

    out: Path
    publications: str
    request: Request
    subscriptions: str | None = None
    filters: str | None = None
    window: Window = field(default_factory=Window)
    rate_half_life: timedelta | None = None
    presence_half_life: timedelta | None = None
    floor: float | None = None
    peak_window: timedelta | None = None
    max_flows: int = 1_000
    max_bad: float = 1.0
    previous: Path | None = None
    max_moves: int | None = None
    restarts: int = 1
    driver_limit: int = DRIVER_LIMIT

    def __post_init__(self) -> None:
        if (self.subscriptions is None) == (self.filters is None):
            raise ValueError("name either a subscription log or a table of filters")
        if self.restarts < 1:
            raise ValueError(f"restarts must be at least 1, not {self.restarts}")


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a run made. `demand` and `evaluation` are there if the driver planned."""

    manifest: dict[str, Any]
    plan: Plan
    demand: Demand | None
    evaluation: Evaluation | None
    minutes: Any
    receivers: Any


def driver_need(pairs: int, receivers: int, sessions: int, groups: int) -> int:
    """Bytes that planning on the driver takes, roughly."""
    return _BYTES_PER_PAIR * pairs + _BYTES_PER_SEAT * receivers * (sessions + groups)
