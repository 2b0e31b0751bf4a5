"""One stream to its end, in a process that can be killed: `python -m ... FOLDER`.

Says on stdout which step it is about to do, so that whoever kills it knows how far it came.
"""

from __future__ import annotations

import sys
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


if __name__ == "__main__":
    for constant, value in SMALL_SLICES.items():
        setattr(buckets, constant, value)
    with use_spark(MASTER, SETTINGS) as session:
        hooks = StreamHooks(step=lambda name: print(name, flush=True))
        stream(session, small_job(Path(sys.argv[1])), hooks)
