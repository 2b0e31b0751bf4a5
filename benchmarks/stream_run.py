"""Batches of a stream on a state: `python stream_run.py FOLDER PAIRS ROWS:TIMES ...`, prints JSON.

Reads and takes in batches as `pipeline stream` does, without planning. It uses only what streams
that rewrite their state have too, so that it can run with former versions.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from distributary.pipeline.batches import BatchSteps, StreamHooks
from distributary.pipeline.job import StreamJob
from distributary.pipeline.ledger import Ledger
from distributary.pipeline.spark import use_spark
from distributary.planning import Request
from processes import cpu_seconds

FLOWS = 1_000
NEW_SHARE = 0.1  # of the pairs in a batch
LOADED_AT_ONCE = 5_000_000
SETTINGS = {"spark.driver.memory": "4g", "spark.ui.enabled": "false"}
_ARRIVALS = "log STRING, path STRING, length BIGINT, value STRING, block BIGINT, line BIGINT"


class _Unplanned(BatchSteps):
    """Batches up to the plan."""

    def _follow_demand(self, state: Any, *_others: Any) -> Any:
        return state


class _Growing:
    """A log that grows file by file, and the last action of each pair in plain arrays."""

    def __init__(self, folder: Path, pairs: int) -> None:
        self._folder, self._rng = folder, np.random.default_rng(pairs)
        self._rows, self._files = 0, 0
        self.known = np.zeros(int(pairs * (1 + NEW_SHARE)), np.bool_)
        self.on = np.zeros(len(self.known), np.bool_)

    def draw(self, rows: int) -> Path:
        """A file with actions of pairs drawn by lot, some of them new."""
        return self.write(
            self._rng.integers(0, len(self.known), rows), self._rng.random(rows) < 0.5
        )

    def write(self, pair: Any, on: Any) -> Path:
        """A file with these actions, each later than the one before it."""
        self.known[pair], self.on[pair] = True, on  # the last of a pair's actions wins
        ts = 1_700_000_000_000_000 + self._rows + np.arange(len(pair))
        actions = pa.array(["unsubscribe", "subscribe"])
        columns = {
            "ts": pa.array(ts).cast(pa.timestamp("us", tz="UTC")),
            "receiver": _names("r", pair // FLOWS),
            "flow": _names("f", pair % FLOWS),
            "action": actions.take(pa.array(on.astype(np.int8))),
        }
        path = self._folder / f"{self._files:06d}.parquet"
        pq.write_table(pa.table(columns), path)
        self._rows, self._files = self._rows + len(pair), self._files + 1
        return path


def _names(letter: str, numbers: Any) -> pa.Array:
    return pc.binary_join_element_wise(letter, pa.array(numbers).cast(pa.string()), "")


def _measure(folder: Path, pairs: int, batches: list[tuple[int, int]]) -> dict[str, Any]:
    for name in ("subscriptions", "publications"):
        (folder / name).mkdir(parents=True)
    job = StreamJob(
        out=folder / "out",
        subscriptions=str(folder / "subscriptions"),
        publications=str(folder / "publications"),
        request=Request(groups=4),
        rate_window=timedelta(hours=1),
    )
    log = _Growing(folder / "subscriptions", pairs)
    began, cpu = time.perf_counter(), cpu_seconds()
    with use_spark("local[2]", SETTINGS) as spark, Ledger(job.out).open() as ledger:
        steps = _Unplanned(spark, job, ledger, StreamHooks())
        warm_up = getattr(steps, "_warm_up", None)  # former versions have none
        if warm_up is not None:
            warm_up.wait()  # a plan would; otherwise it compiles beside the batches
        for first in range(0, pairs, LOADED_AT_ONCE):
            loaded = np.arange(first, min(first + LOADED_AT_ONCE, pairs))
            _take(spark, steps, ledger, log.write(loaded, np.ones(len(loaded), np.bool_)))
        found: dict[str, Any] = {}
        for rows, times in batches:
            _take(spark, steps, ledger, log.draw(rows))  # Spark compiles
            taken = [_take(spark, steps, ledger, log.draw(rows)) for _ in range(times)]
            found[str(rows)] = [list(column) for column in zip(*taken, strict=True)]
        cores = (cpu_seconds() - cpu) / (time.perf_counter() - began)
        return {"batches": found, "cores": cores, **_check(ledger, log)}


def _take(
    spark: SparkSession, steps: BatchSteps, ledger: Ledger, path: Path
) -> tuple[float, int, float, float]:
    """What a batch takes: seconds, bytes that the driver writes, CPU seconds of all processes.

    The last are the CPU seconds of the driver's Python, which keeps the state.
    """
    row = ("subscriptions", path.as_uri(), path.stat().st_size, None, None, None)
    batch = spark.createDataFrame([row], _ARRIVALS)
    before = (time.perf_counter(), _written(), cpu_seconds(), time.process_time())
    steps.run(batch, ledger.state.batch + 1)
    after = (time.perf_counter(), _written(), cpu_seconds(), time.process_time())
    seconds, written, cpu, own = (end - begin for begin, end in zip(before, after, strict=True))
    return seconds, int(written), cpu, own


def _written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("wchar")))


def _check(ledger: Ledger, log: _Growing) -> dict[str, Any]:
    """Compare the stored last actions with those of the arrays; the sizes of both."""
    try:
        from distributary.pipeline.kept_tables import ACTIONS
    except ImportError:  # a version that rewrites its state
        return {"pairs": int(log.known.sum())}
    seen = np.zeros(len(log.known), np.bool_)
    table = ledger.table(ACTIONS)
    for rows in table.read():
        receiver, flow = (
            pc.utf8_slice_codeunits(rows[name], 1).cast(pa.int64()).to_numpy()
            for name in ("receiver", "flow")
        )
        pair = receiver * FLOWS + flow
        assert not seen[pair].any()
        seen[pair] = True
        assert (log.on[pair] == rows["on"].to_numpy()).all()
    assert (seen == log.known).all()
    return {
        "pairs": int(seen.sum()),
        "stored": table.stored.rows,
        "files": len(table.stored.files),
        "bytes": sum(path.stat().st_size for path in table.paths),
    }


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    asked = [tuple(map(int, one.split(":"))) for one in sys.argv[3:]]
    print(json.dumps(_measure(Path.cwd(), int(sys.argv[2]), asked)))  # type: ignore[arg-type]
