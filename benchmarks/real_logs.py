"""Real logs through the whole pipeline, by the user's command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measure import Section

OUT = Path("out") / "real-logs"


@dataclass(frozen=True)
class RealLog:
    """A data set: its publications, and who wants what, given as files or generated."""

    name: str
    publications: str
    wanted: Callable[[Path, Path], list[str]]
    groups: int = 50
    sessions: int = 500


def real_logs() -> Section:
    """Every log of the folder DISTRIBUTARY_DATA; outputs and reports are kept in out/real-logs."""
    data = os.environ.get("DISTRIBUTARY_DATA")
    if not data:
        sys.exit("set DISTRIBUTARY_DATA to a folder with the data sets, or name other benchmarks")
    rows = []
    for log in LOGS:
        folder = Path(data) / log.name.split(",")[0]
        made = OUT / log.name.replace(", ", "-")
        made.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        manifest = _run(folder / log.publications, log.wanted(folder, made), made, log)
        seconds = time.perf_counter() - began
        rows.append([log.name, *_row(manifest), f"{seconds:.0f} s"])
    return Section(
        "Real logs, end to end",
        "`pipeline run --groups 50 --sessions 500 --budget 10s` on `local[2]`, from Parquet to "
        "the report. Received, unicast and flooding are the messages that all receivers get in "
        "the whole log, as multiples of the messages wanted; by unicast, receivers get exactly "
        "what they want, and each message is sent once per receiver. julia-registry is real "
        "throughout. cran-mirror-log: downloads stand for messages. debian: real uploads, "
        "maintainers subscribed from the start. The two stock logs are real; their filters are "
        "generated from a seed.",
        [
            "log",
            "rows in",
            "used",
            "put aside",
            "receivers x flows",
            "pairs",
            "Cx/Cf",
            "received / wanted",
            "flooding / wanted",
            "sends saved over unicast",
            "time",
        ],
        rows,
    )


def _run(publications: Path, wanted: list[str], made: Path, log: RealLog) -> dict[str, Any]:
    command = [sys.executable, "-m", "distributary", "pipeline", "run", "--json"]
    command += ["--publications", str(publications), *wanted, "--master", "local[2]"]
    command += ["--groups", str(log.groups), "--sessions", str(log.sessions), "--budget", "10s"]
    done = subprocess.run(
        [*command, "--out", str(made / "run")], stdout=subprocess.PIPE, text=True, check=True
    )
    assert json.loads(done.stdout)["valid"]
    manifest: dict[str, Any] = json.loads((made / "run" / "manifest.json").read_text())
    return manifest


def _row(manifest: dict[str, Any]) -> list[str]:
    logs = [
        manifest[name] for name in ("subscriptions", "filters", "publications") if name in manifest
    ]
    for log in logs:
        assert log["read"] == log["used"] + log["duplicates"] + log["quarantined"]
    ours, flooding = manifest["replay"]["plan"], manifest["replay"]["flooding"]
    plan = manifest["plan"]
    assert ours["unserved"] == 0
    sums = [sum(log[key] for log in logs) for key in ("read", "used", "quarantined")]
    return [
        *(f"{number:,}" for number in sums),
        f"{plan['receivers']:,} x {plan['flows']:,}",
        f"{manifest['interest']['pairs']:,}",
        f"{plan['filtering']['relative_excess']:.4f}",
        f"{ours['received'] / ours['wanted']:.2f}",
        f"{flooding['received'] / ours['wanted']:.1f}",
        f"{1 - ours['sent'] / ours['wanted']:.0%}",
    ]


# --- who wants what ------------------------------------------------------------------------------


def _read_subscriptions(folder: Path, made: Path) -> list[str]:
    return ["--subscriptions", str(folder / "subscriptions.parquet")]


def _subscribe_maintainers(folder: Path, made: Path) -> list[str]:
    """Maintainers subscribe to their packages from the start."""
    interest = pq.read_table(folder / "interest_maintainers.parquet")
    first = pc.min(pq.read_table(folder / "publications.parquet", columns=["ts"])["ts"])
    n = interest.num_rows
    table = pa.table(
        {
            "ts": pa.repeat(first, n),
            "receiver": interest["receiver"],
            "flow": interest["flow"],
            "action": pa.repeat("subscribe", n),
        }
    )
    pq.write_table(table, made / "subscriptions.parquet")
    return ["--subscriptions", str(made / "subscriptions.parquet")]


def _generate_filters(column: str, amount: str, price: str) -> Callable[[Path, Path], list[str]]:
    """300 receivers with one to three conditions each, on a category, an amount and a price."""

    def made_up(folder: Path, made: Path) -> list[str]:
        log = pq.read_table(folder / "publications.parquet", columns=[column, amount, price])
        kinds = sorted(kind for kind in pc.unique(log[column]).to_pylist() if kind)
        shares = [0.5, 0.8, 0.9, 0.99, 0.999]
        amounts = np.nanquantile(log[amount].to_numpy(), shares).astype(int)
        prices = np.round(np.nanquantile(log[price].to_numpy(), [0.1, 0.3, 0.5, 0.7, 0.9]), 0)
        rng = np.random.default_rng(7)
        rows = []
        for receiver in range(300):
            for _ in range(rng.integers(1, 4)):
                low, high = sorted(rng.choice(5, 2, replace=False))
                rows.append(
                    {
                        "receiver": f"r{receiver:03d}",
                        "filter": f"{column} = '{rng.choice(kinds)}' "
                        f"AND {amount} >= {rng.choice(amounts)} "
                        f"AND {price} BETWEEN {prices[low]:g} AND {prices[high]:g}",
                    }
                )
        pq.write_table(pa.Table.from_pylist(rows), made / "filters.parquet")
        return ["--filters", str(made / "filters.parquet")]

    return made_up


LOGS = (
    RealLog("julia-registry", "publications.parquet", _read_subscriptions),
    RealLog("cran-mirror-log", "downloads.parquet", _read_subscriptions),
    RealLog("debian, maintainers", "publications.parquet", _subscribe_maintainers),
    RealLog(
        "taiwan-stock-trades",
        "publications.parquet",
        _generate_filters("market", "trades", "close"),
    ),
    RealLog("us-stocks", "publications.parquet", _generate_filters("kind", "volume", "close")),
)
SECTIONS: dict[str, Callable[[], Section]] = {"real_logs": real_logs}
