"""A job on executors that are processes of their own, one of which is killed in mid-round.

Run by a test: python -m tests.pipeline.cluster_job SUBSCRIPTIONS PUBLICATIONS OUT. Prints the id of
the process it killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from distributary.pipeline import distributed, first_plan, flow_store
from distributary.pipeline.job import Job
from distributary.pipeline.run import run
from distributary.pipeline.spark import use_spark
from distributary.planning import Request

REQUEST = Request(groups=24, sessions=40, seed=1)
MASTER = "local-cluster[2,1,1024]"
CONF = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "3"}


SMALL = {
    (first_plan, "SAMPLE_PAIRS"): 50,
    (first_plan, "BLOCK_PAIRS"): 100,
    (first_plan, "GROUPS_PER_CLASS"): 6,
    (flow_store, "PAIRS_PER_BUCKET"): 100,
    (distributed, "MOST_ROUNDS"): 3,
    (distributed, "ENOUGH"): -1.0,
}


def small_steps() -> None:
    for (module, name), value in SMALL.items():
        setattr(module, name, value)


def job(subscriptions: str, publications: str, out: Path) -> Job:
    return Job(
        out=out,
        subscriptions=subscriptions,
        publications=publications,
        request=REQUEST,
        driver_limit=1_000,
    )


def main() -> None:
    subscriptions, publications, out = sys.argv[1:]
    small_steps()
    killer = threading.Thread(target=kill_one_executor, args=(Path(out),), daemon=True)
    with use_spark(MASTER, CONF) as spark:
        killer.start()
        run(spark, job(subscriptions, publications, Path(out)))
    killer.join(1)


def kill_one_executor(out: Path) -> None:
    """Once the first round is whole, so in the second one."""
    first = out.parent / f".{out.name}.rounds" / "round-001.npz"
    for _ in range(2_000):
        if first.exists():
            break
        time.sleep(0.05)
    executors = [pid for pid in descendants(os.getpid()) if "ExecutorBackend" in command(pid)]
    if executors:
        os.kill(min(executors), signal.SIGKILL)
        print("killed", min(executors), "of", len(executors), flush=True)


def descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task").glob("*/children")
        found = [int(child) for file in children for child in file.read_text().split()]
    except OSError:
        return []
    return found + [below for child in found for below in descendants(child)]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
