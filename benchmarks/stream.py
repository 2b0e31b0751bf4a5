"""Streams: what a batch costs, by its rows and by the state; and how long rows wait for it."""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measure import Section, shown_seconds
from benchmarks.processes import cpu_seconds

STATES = (1_000_000, 5_000_000, 30_000_000)
BATCHES = {1_000: 24, 30_000: 16, 1_000_000: 6}  # rows, and how often
FORMER, FORMER_STATES = "c9504bd", STATES[:2]
FORMER_BATCHES = {1_000: 3, 30_000: 3}
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class _Measured:
    """What each batch took, by the number of its rows: see `stream_run`."""

    seconds: dict[int, list[float]]
    written: dict[int, list[int]]
    cpu: dict[int, list[float]]
    own: dict[int, list[float]]
    sizes: dict[str, int]
    load: tuple[float, float]  # of the machine, before and after
    cores: float  # that the run itself kept busy

    def median(self, rows: int) -> float:
        return statistics.median(self.seconds[rows])


def stream_state() -> Section:
    """Batches of three sizes on states of three sizes, beside a stream that rewrites its state."""
    found = {pairs: _measure(ROOT / "src", pairs, BATCHES) for pairs in STATES}
    former = _measure_former()
    rows = [
        [
            f"{pairs:,}",
            f"{size:,}",
            f"{one.load[0]:.1f} to {one.load[1]:.1f}, {one.cores:.1f} ours",
            shown_seconds(one.median(size)),
            shown_seconds(max(one.seconds[size])),
            shown_seconds(statistics.mean(one.cpu[size])),
            shown_seconds(statistics.mean(one.own[size])),
            _shown_bytes(statistics.mean(one.written[size])),
            _shown_ratio(former.get(pairs), one, size),
        ]
        for pairs, one in found.items()
        for size in BATCHES
    ]
    by_state = ", ".join(
        f"{_exponent(STATES, [found[pairs].median(size) for pairs in STATES]):.2f} at {size:,} rows"
        for size in BATCHES
    )
    by_cpu = ", ".join(
        f"{_exponent(STATES, [statistics.mean(found[one].cpu[size]) for one in STATES]):.2f} at "
        f"{size:,} rows"
        for size in BATCHES
    )
    by_rows = ", ".join(
        f"{_exponent(list(BATCHES), [one.median(size) for size in BATCHES]):.2f} at {pairs:,} pairs"
        for pairs, one in found.items()
    )
    sizes = "; ".join(
        f"{one.sizes['pairs']:,} pairs as {one.sizes['stored']:,} rows in {one.sizes['files']} "
        f"files with {_shown_bytes(one.sizes['bytes'])}"
        for one in found.values()
    )
    return Section(
        "The state of a stream",
        "Batches of subscriptions on a state of so many pairs of receiver and flow: each row is "
        "about a pair drawn by lot, of which one in eleven is new. A batch is read and checked by "
        "Spark (`local[2]`), taken into the state and committed, without planning, and so without "
        "the check that the interest stays within `--driver-limit`; the worst one "
        "includes merging. CPU seconds are means, of all processes and of the driver's Python, "
        "which keeps the state. Each size of state is run by itself, and *load* is that of the "
        "machine in the minute before and at the end, and what the run itself made of it: its CPU "
        "seconds over its time, in two processes, Python and Java. Compare CPU seconds where the "
        "loads differ. The state after all batches equals a recomputation. The former way (commit "
        f"{FORMER}) rewrote the state in each batch; its CPU seconds are the mean of "
        f"{FORMER_BATCHES[1_000]}.",
        [
            *("pairs", "rows", "load", "median", "worst", "CPU", "driver's CPU"),
            *("driver writes", "former way, CPU"),
        ],
        rows,
        f"Exponent in the state's size, of the median: {by_state}; of CPU seconds: {by_cpu}. "
        f"Exponent of the median in the batch's size: {by_rows} "
        f"(a batch has a fixed cost, mostly that of Spark's jobs). Stored after all batches: "
        f"{sizes}.",
    )


def _measure(source: Path, pairs: int, batches: dict[int, int]) -> _Measured:
    """Run the batches in a process of its own, with the package in `source`."""
    load = os.getloadavg()[0]
    script = Path(__file__).with_name("stream_run.py")
    asked = [f"{rows}:{times}" for rows, times in batches.items()]
    with TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(script), folder, str(pairs), *asked],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    cores = found.pop("cores")
    taken = {int(rows): columns for rows, columns in found.pop("batches").items()}
    seconds, written, cpu, own = (
        {rows: columns[at] for rows, columns in taken.items()} for at in range(4)
    )
    return _Measured(seconds, written, cpu, own, found, (load, os.getloadavg()[0]), cores)


def _measure_former() -> dict[int, _Measured]:
    packed = subprocess.run(
        ["git", "archive", FORMER, "src"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    ).stdout
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        source = Path(folder) / "src"
        return {pairs: _measure(source, pairs, FORMER_BATCHES) for pairs in FORMER_STATES}


def _shown_ratio(former: _Measured | None, one: _Measured, rows: int) -> str:
    if former is None or rows not in former.seconds:
        return "-"
    cpu = statistics.mean(former.cpu[rows])
    return f"{shown_seconds(cpu)}, {cpu / statistics.mean(one.cpu[rows]):.1f} x"


def _shown_bytes(amount: float) -> str:
    return f"{amount / 1e6:.3g} MB"


def _exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


# --- latency -------------------------------------------------------------------------------------

SECONDS = 300
RECEIVERS, FLOWS, WANTED = 5_000, 1_000, 20  # each receiver begins with so many flows
ACTIONS_PER_S, MESSAGES_PER_S = 1_000, 9_000
GROUPS, SESSIONS = 16, 64


def stream_latency() -> Section:
    """10,000 rows a second for five minutes: from the arrival of a file to its commit."""
    load = os.getloadavg()[0]
    with TemporaryDirectory() as folder:
        arrived, lines, cores = _follow_logs(Path(folder))
    waits = _waits(arrived, lines)
    used = sum(line["subscriptions"] + line["publications"] for line in lines)
    rows = SECONDS * (ACTIONS_PER_S + MESSAGES_PER_S) + RECEIVERS * WANTED
    assert used + sum(line["duplicates"] + line["quarantined"] for line in lines) == rows
    later = lines[1:]
    took, planned = ([line[key] for line in later] for key in ("seconds", "planning_seconds"))
    worst = max(later, key=lambda line: line["seconds"])
    moving = sum(line["moves"] > 0 for line in later)
    return Section(
        "The latency of a stream",
        f"`pipeline stream --trigger 1s` on two cores, while a file of {ACTIONS_PER_S:,} actions "
        f"and one of {MESSAGES_PER_S:,} messages arrive each second for {SECONDS} s. A file's wait "
        "is from its arrival to the commit of its batch, with the plan that serves it. The plan "
        f"has {RECEIVERS:,} receivers, {FLOWS:,} flows, {GROUPS} groups and "
        f"{SESSIONS} sessions, for about {RECEIVERS * WANTED:,} pairs. The "
        "first batch, with the first plan and all that is compiled before it, is left out. "
        "*Planning* is the part of a batch that follows the demand, with a new version.",
        [
            *("batches", "median wait", "worst wait", "median batch", "of it planning"),
            *("worst batch", "of it planning", "flows it moved", "batches that moved", "versions"),
        ],
        [
            [
                f"{len(later)}",
                shown_seconds(statistics.median(waits)),
                shown_seconds(max(waits)),
                shown_seconds(statistics.median(took)),
                shown_seconds(statistics.median(planned)),
                shown_seconds(worst["seconds"]),
                shown_seconds(worst["planning_seconds"]),
                f"{worst['moves']}",
                f"{moving}",
                f"{lines[-1]['version']}",
            ]
        ],
        f"All {rows:,} rows were used, or counted as duplicates. The load of the machine was "
        f"{load:.1f} in the minute before and {os.getloadavg()[0]:.1f} at the end; the three "
        "processes of this benchmark (what writes the files, and the stream's Python and Java) "
        f"kept {cores:.1f} cores busy.",
    )


def _waits(arrived: list[float], lines: list[dict[str, Any]]) -> list[float]:
    """How long each file waited that came after the first batch."""
    waits: list[float] = []
    first = 0
    for line in lines:
        last = first + line["files"]
        if line["batch"]:
            waits += [line["seen"] - moment for moment in arrived[first:last]]
        first = last
    assert first == len(arrived)
    return waits


def _follow_logs(folder: Path) -> tuple[list[float], list[dict[str, Any]], float]:
    """The moments at which files arrived, the lines of the stream that followed them, and how many
    cores that kept busy.
    """
    logs = [folder / name for name in ("subscriptions", "publications", "made")]
    for path in logs:
        path.mkdir()
    rng = np.random.default_rng(0)
    pairs = RECEIVERS * WANTED
    wanted = (
        np.arange(pairs) // WANTED,
        (np.arange(pairs) * 7919 + rng.integers(0, 9, pairs)) % FLOWS,
    )
    arrived: list[float] = []
    _put(folder, "subscriptions", 0, _actions(*wanted, np.ones(pairs, np.bool_), 0), arrived)
    lines: list[dict[str, Any]] = []
    with _start(folder) as process:
        reader = threading.Thread(target=_read_lines, args=(process, lines))
        reader.start()
        try:
            while not lines:  # the first plan
                assert process.poll() is None
                time.sleep(0.1)
            began, cpu = time.time(), cpu_seconds()
            for second in range(1, SECONDS + 1):
                time.sleep(max(0.0, began + second - time.time()))
                who = rng.integers(0, RECEIVERS, ACTIONS_PER_S)
                what = rng.integers(0, FLOWS, ACTIONS_PER_S)
                on = rng.random(ACTIONS_PER_S) < pairs / (RECEIVERS * FLOWS)
                # Both appear together, or a batch could have one without the other.
                _put(folder, "subscriptions", second, _actions(who, what, on, second), arrived)
                flows = rng.zipf(1.3, MESSAGES_PER_S) % FLOWS
                _put(folder, "publications", second, _messages(flows, second), arrived)
            last = time.time() + 120
            while sum(line["files"] for line in lines) < len(arrived):
                assert process.poll() is None
                assert time.time() < last, "the stream does not keep up"
                time.sleep(0.1)
            cores = (cpu_seconds() - cpu) / (time.time() - began)
        finally:
            process.terminate()
            reader.join()
    return sorted(arrived), lines, cores


def _start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "distributary", "pipeline", "stream", "--json"]
    command += ["--subscriptions", "subscriptions", "--publications", "publications"]
    command += ["--groups", str(GROUPS), "--sessions", str(SESSIONS), "--out", "live"]
    command += ["--trigger", "1s", "--master", "local[2]", "--conf", "spark.driver.memory=2g"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def _read_lines(process: subprocess.Popen[str], lines: list[dict[str, Any]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:  # others look at the list meanwhile
        lines.append({**json.loads(line), "seen": time.time()})  # noqa: PERF401


def _put(folder: Path, log: str, number: int, rows: pa.Table, arrived: list[float]) -> None:
    made = folder / "made" / f"{number:06d}.parquet"
    pq.write_table(rows, made)
    made.rename(folder / log / made.name)
    arrived.append(time.time())


def _actions(who: Any, what: Any, on: Any, second: int) -> pa.Table:
    kinds = pa.array(["unsubscribe", "subscribe"])
    return pa.table(
        {
            "ts": _times(len(who), second),
            "receiver": _names("r", who),
            "flow": _names("f", what),
            "action": kinds.take(pa.array(on.astype(np.int8))),
        }
    )


def _messages(what: Any, second: int) -> pa.Table:
    return pa.table({"ts": _times(len(what), second), "flow": _names("f", what)})


def _times(rows: int, second: int) -> pa.Array:
    micros = 1_700_000_000_000_000 + second * 1_000_000 + np.arange(rows)
    return pa.array(micros).cast(pa.timestamp("us", tz="UTC"))


def _names(letter: str, numbers: Any) -> pa.Array:
    return pc.binary_join_element_wise(letter, pa.array(numbers).cast(pa.string()), "")


SECTIONS: dict[str, Callable[[], Section]] = {
    "stream_state": stream_state,
    "stream_latency": stream_latency,
}
