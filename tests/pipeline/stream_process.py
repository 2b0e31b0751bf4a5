"""One stream to its end, in a process that can be killed: `python -m ... FOLDER OUT [STEP NTH]`.

Says on stdout which step it is about to do, so that whoever kills it knows how far it came. With a
step it kills itself and its Spark when the step comes for the nth time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

from distributary.pipeline import buckets
from distributary.pipeline.spark import use_spark
from distributary.pipeline.stream import StreamHooks, StreamJob, stream
from distributary.planning import Request
from tests.spark import MASTER, SETTINGS

SMALL_SLICES = {"SMALLEST_RUN": 8, "SLICE_ROWS": 16, "_ROW_GROUP": 8}
"""Constants of `buckets` with which a few rows make levels and slices."""


def small_job(folder: Path, out: str = "out", **changes: object) -> StreamJob:
    """A stream over `subscriptions` and `publications` of a folder, file by file."""
    settings: dict[str, object] = {
        "out": folder / out,
        "subscriptions": str(folder / "subscriptions"),
        "publications": str(folder / "publications"),
        "request": Request(groups=2, sessions=4, seed=7, budget_s=60),
        "rate_window": timedelta(hours=1),
        "late": timedelta(minutes=10),
        "until_idle": True,
        "files_per_batch": 1,
    }
    return StreamJob(**{**settings, **changes})  # type: ignore[arg-type]


def _run(folder: str, out: str, last: str = "", nth: str = "0") -> None:
    reached = Counter[str]()

    def step(name: str) -> None:
        print(name, flush=True)
        reached[name] += 1
        if name == last and reached[name] == int(nth):
            os.killpg(0, signal.SIGKILL)

    base = Path(folder) / "base"
    job = small_job(Path(folder), out, base=base if base.exists() else None)
    with use_spark(MASTER, SETTINGS) as session:
        stream(session, job, StreamHooks(step=step))


if __name__ == "__main__":
    for constant, value in SMALL_SLICES.items():
        setattr(buckets, constant, value)
    _run(*sys.argv[1:])
