"""Jobs that run in their own process, so that their memory can be measured.

`python -m benchmarks.apart plan FOLDER MASTER` plans the interest and rates of a folder on
executors. `python -m benchmarks.apart run FOLDER MASTER BYTES` runs the whole pipeline on its logs,
with a driver that may use BYTES for planning. Both write a plan and print time and memory as JSON.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.processes import peaks
from distributary import Request
from distributary.files import write_plan
from distributary.pipeline.distributed import plan_on_executors
from distributary.pipeline.job import Job
from distributary.pipeline.run import run
from distributary.pipeline.spark import use_spark

REQUEST = Request(groups=200, sessions=2_000)


def job_apart(what: str, folder: Path, master: str, driver_limit: int = 0) -> dict[str, Any]:
    """Run one of the jobs in its own process; return what it printed."""
    words = [what, str(folder), master, str(driver_limit)]
    command = [sys.executable, "-m", "benchmarks.apart", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main(what: str, folder: Path, master: str, driver_limit: int) -> None:
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
            made = plan_on_executors(interest, rates, REQUEST, folder / "rounds")
            result = {"rounds": len(made.rounds) - 1}
            result["work"] = made.totals.received + made.totals.accepted
            result["seconds"] = time.perf_counter() - began
            write_plan(made.plan, {}, folder / "plan")
        else:
            job = Job(
                folder / "out",
                str(folder / "publications"),
                REQUEST,
                subscriptions=str(folder / "subscriptions"),
                driver_limit=driver_limit,
            )
            document = run(spark, job).manifest
            result = {name: document[name] for name in ("plan", "interest")}
            result["seconds"] = time.perf_counter() - began
    print(json.dumps({**result, "gib": gib}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int((*sys.argv, 0)[4]))
