"""Jobs that run in their own process, so that their memory can be measured.

`python -m benchmarks.apart plan FOLDER MASTER GROUPS SESSIONS` plans the interest and rates of a
folder on executors. `python -m benchmarks.apart run FOLDER MASTER GROUPS SESSIONS BYTES` runs the
whole pipeline on its logs, with a driver that may use BYTES for planning. Both write a plan and
print time and memory as JSON, the first also the seconds of each step and of the parts of a round.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark import SparkContext

from benchmarks.measure import timed
from benchmarks.processes import peaks
from distributary import Request
from distributary.files import write_plan
from distributary.pipeline.distributed import plan_on_executors
from distributary.pipeline.first_plan import Problem, run_tasks
from distributary.pipeline.flow_store import open_store
from distributary.pipeline.job import Job
from distributary.pipeline.run import run
from distributary.pipeline.spark import use_spark
from distributary.planning import Step


@dataclass(frozen=True)
class Size:
    """How many groups and sessions to plan."""

    groups: int
    sessions: int


def job_apart(
    what: str, folder: Path, master: str, size: Size, driver_limit: int = 0
) -> dict[str, Any]:
    """Run one of the jobs in its own process; return what it printed."""
    words = [what, str(folder), master, str(size.groups), str(size.sessions), str(driver_limit)]
    command = [sys.executable, "-m", "benchmarks.apart", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main(what: str, folder: Path, master: str, size: Size, driver_limit: int) -> None:
    request = Request(groups=size.groups, sessions=size.sessions)
    conf = {"spark.ui.enabled": "false", "spark.driver.memory": "1g"}
    memory = re.search(r"local-cluster\[\d+,\d+,(\d+)\]", master)
    if memory:
        conf["spark.executor.memory"] = f"{memory[1]}m"
    with peaks() as gib, use_spark(master, conf) as spark:
        began = time.perf_counter()
        result: dict[str, Any] = {}
        if what == "plan":
            interest = spark.read.parquet(str(folder / "interest.parquet"))
            rates = spark.read.parquet(str(folder / "rates.parquet"))
            steps = _Steps(began)
            made = plan_on_executors(interest, rates, request, folder / "rounds", steps)
            result = {"rounds": len(made.rounds) - 1, "steps": steps.seconds}
            result["work"] = made.totals.received + made.totals.accepted
            result["seconds"] = time.perf_counter() - began
            result["round"] = _split_round(spark.sparkContext, folder / "rounds", size, request)
            write_plan(made.plan, {}, folder / "plan")
        else:
            job = Job(
                folder / "out",
                str(folder / "publications"),
                request,
                subscriptions=str(folder / "subscriptions"),
                driver_limit=driver_limit,
            )
            document = run(spark, job).manifest
            result = {name: document[name] for name in ("plan", "interest")}
            result["seconds"] = time.perf_counter() - began
    print(json.dumps({**result, "gib": gib}))


def _split_round(
    context: SparkContext, folder: Path, size: Size, request: Request
) -> dict[str, float]:
    """The seconds of a round of tasks that do nothing, and of one whose tasks read their classes.

    Both are medians of several, on Python workers that have started.
    """
    rounds = sorted(folder.glob("round-*.npz"))
    with np.load(rounds[-1]) as told:
        flow_group, group = told["group"][told["session"]], told["group"]
    store = open_store(folder / "flows", pq.read_table(folder / "receivers").num_rows)
    problem = Problem(store, size.sessions, size.groups, 0, request.linear_prices)
    dealt = problem.deal_groups(len(rounds), np.bincount(group, minlength=size.groups))
    n_classes = int(dealt.max()) + 1

    def do_nothing(_: int) -> int:
        return 0

    def read(c: int) -> int:
        return len(store.read_things(np.flatnonzero(dealt[flow_group] == c)).members)

    found = {}
    for name, task in (("tasks that do nothing", do_nothing), ("reading the classes", read)):
        _, found[name] = timed(partial(run_tasks, context, n_classes, task))
    return found


class _Steps:
    """The seconds of each stage, from the reports of its end."""

    def __init__(self, began: float) -> None:
        self._last = began
        self.seconds: dict[str, float] = {}

    def __call__(self, step: Step) -> None:
        now = time.perf_counter()
        self.seconds[step.stage] = self.seconds.get(step.stage, 0.0) + now - self._last
        self._last = now
        print(f"{step.stage} {step.done}: {now:.1f} {step.best}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(
        sys.argv[1],
        Path(sys.argv[2]),
        sys.argv[3],
        Size(int(sys.argv[4]), int(sys.argv[5])),
        int(sys.argv[6]),
    )
