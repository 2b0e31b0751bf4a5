"""What to run: the jobs of the pipeline, and the outcome of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from distributary.cost import Evaluation
from distributary.model import Demand, Plan, Previous, Unit
from distributary.pipeline.ingest import TimeWindow
from distributary.pipeline.shapes import LogShapes
from distributary.pipeline.times import to_micros
from distributary.planning import Request

__all__ = ["DRIVER_LIMIT", "LOGS", "Job", "Outcome", "StreamJob", "driver_need"]

LOGS = ("subscriptions", "publications")
SLOTS = 60

DRIVER_LIMIT = 4 * 2**30
_BYTES_PER_PAIR, _BYTES_PER_SEAT = 140, 5
_LEAST_BATCH, _BATCHES_PER_LIMIT = 32 * 2**20, 16


@dataclass(frozen=True, slots=True)
class Job:
    """A run: the logs, how to make interest, rates and a plan of them, and the output.

    `out` is a folder, by its path or URI; tables of a catalog whose names begin with `out_table`
    are written as well. `shared` is a folder that all machines have mounted, for planning on
    executors; by default the one that `out` is in.

    Interest comes from either `subscriptions` or `filters`. `previous` is the plan to compare with,
    and to start from if the moves are limited; by default the plan in `out`, if there is one.
    `shapes` says how the logs are written. `count` is what rates, costs and caps count.
    """

    out: Path | str
    publications: str
    request: Request
    subscriptions: str | None = None
    filters: str | None = None
    shapes: LogShapes = field(default_factory=LogShapes)
    window: TimeWindow = field(default_factory=TimeWindow)
    rate_half_life: timedelta | None = None
    presence_half_life: timedelta | None = None
    floor: float | None = None
    peak_window: timedelta | None = None
    count: Unit = "messages"
    max_flows: int = 1_000
    max_bad: float = 1.0
    previous: Path | str | None = None
    out_table: str | None = None
    shared: Path | None = None
    max_moves: int | None = None
    restarts: int = 1
    driver_limit: int = DRIVER_LIMIT

    def __post_init__(self) -> None:
        if (self.subscriptions is None) == (self.filters is None):
            raise ValueError("give either a subscription log or a table of filters")
        if self.restarts < 1:
            raise ValueError(f"restarts must be at least 1, not {self.restarts}")
        if self.max_moves is not None:
            _check_following(self.request, self.max_moves)


@dataclass(frozen=True, slots=True)
class StreamJob:
    """A stream: the logs to watch, the plan to keep current, and the output folder.

    `subscriptions` and `publications` are folders, or `kafka://host:port/topic` with JSON values.
    `base` is the folder of a plan to go on from, looked at before each batch.
    `max_moves` is the most flows that may change their session in one batch, by default 2 %. A
    batch takes at most `files_per_batch` files of each log, or, without it, `bytes_per_batch`.
    """

    out: Path
    subscriptions: str
    publications: str
    request: Request
    shapes: LogShapes = field(default_factory=LogShapes)
    trigger: timedelta = timedelta(seconds=10)
    rate_window: timedelta = timedelta(hours=1)
    late: timedelta = timedelta(minutes=10)
    drift: float = 0.1
    max_moves: int | None = None
    until_idle: bool = False
    files_per_batch: int | None = None
    driver_limit: int = DRIVER_LIMIT
    base: Path | None = None

    def __post_init__(self) -> None:
        if self.request.solver.name != "best" or self.request.change.previous is not None:
            raise ValueError("a stream plans with `best`, starting from its own running plan")
        _check_following(self.request, 0 if self.max_moves is None else self.max_moves)
        if not self.drift >= 0:
            raise ValueError(f"drift must be at least 0, not {self.drift}")
        if self.files_per_batch is not None and self.files_per_batch < 1:
            raise ValueError(f"files_per_batch must be at least 1, not {self.files_per_batch}")
        if self.rate_window < timedelta(seconds=1) or self.late < timedelta(0):
            raise ValueError("rate_window must be at least a second and late at least 0")

    @property
    def logs(self) -> dict[str, str]:
        """The folder or topic of each log, by its name."""
        return {"subscriptions": self.subscriptions, "publications": self.publications}

    @property
    def bytes_per_batch(self) -> int:
        """How large the files of a log in one batch may be together, if there is more than one.

        What a backlog of files holds thus fits beside the demand, also where files are compressed.
        """
        return max(_LEAST_BATCH, self.driver_limit // _BATCHES_PER_LIMIT)

    @property
    def slot_us(self) -> int:
        """The length of the slots in which messages are counted, in microseconds."""
        return max(to_micros(self.rate_window) // SLOTS, 1_000_000)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The outcome of a run; `demand` and `evaluation` are None if executors made the plan.

    `folder` is where the output is: a version of it, on stores that have versions.
    """

    manifest: dict[str, Any]
    plan: Plan
    demand: Demand | None
    evaluation: Evaluation | None
    minutes: Any
    receivers: Any
    folder: str = ""


def _check_following(request: Request, max_moves: int) -> None:
    """Raise a `ValueError` if a plan cannot be improved on these terms."""
    request.replace(previous=Previous({}, np.zeros(1, np.int32)), max_moves=max_moves)


def driver_need(pairs: int, receivers: int, sessions: int, groups: int) -> int:
    """An estimate of the bytes that planning on the driver takes."""
    return _BYTES_PER_PAIR * pairs + _BYTES_PER_SEAT * receivers * (sessions + groups)
