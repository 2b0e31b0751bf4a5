"""One stream to its end, in a process that can be killed: `python -m ... FOLDER OUT [STEP NTH]`.

Says on stdout which step it is about to do, so that whoever kills it knows how far it came. With a
step it kills itself and its Spark when the step comes for the nth time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from distributary.pipeline import buckets
from distributary.pipeline.ledger import LedgerState
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


class StoppedError(Exception):
    """What a hook raises to stop a stream."""


SETTLING = ("quarantine in place", "version in place", "plan in place", "history in place")
"""The steps after a commit."""


def start_stream(*words: Any) -> subprocess.Popen[str]:
    """This module, with these words, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", __name__, *map(str, words)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )


Checks = Generator[None, LedgerState, None]


def check_batches(
    spark: SparkSession, job: StreamJob, checks: Checks, notes: list[str] | None = None
) -> None:
    """One stream in which `checks` goes on after each batch, with its state, up to the last one.

    So it looks at what a batch left, and may change what the next one finds.
    """

    def show(state: LedgerState) -> None:
        if state.batch < 0:
            next(checks)
            return
        assert checks.gi_frame is not None, "there are more batches than checks"
        with suppress(StopIteration):
            checks.send(state)

    stream(spark, job, StreamHooks(note=[].append if notes is None else notes.append, show=show))
    assert checks.gi_frame is None, "there are fewer batches than checks"


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
