"""Logs for streams: files of all formats, with rows of every kind."""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distributary.pipeline.ingest import Reason, TimeWindow

START = datetime(2025, 3, 3, 9, 0, tzinfo=UTC)
DAYS = TimeWindow(until=START + timedelta(days=365))
Row = dict[str, Any]


def write(path: Path, rows: list[Row], written: datetime) -> None:
    """Rows as a file by its extension, last changed at a given moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        names = list(rows[0])
        lines = [",".join("" if row[n] is None else str(row[n]) for n in names) for row in rows]
        path.write_text("\n".join([",".join(names), *lines]) + "\n")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (written.timestamp(), written.timestamp()))


def subscription(at: datetime, receiver: str, flow: str, action: str = "subscribe") -> Row:
    return {"ts": at.isoformat(), "receiver": receiver, "flow": flow, "action": action}


def publication(at: datetime, flow: str, size: int | None = 100) -> Row:
    return {"ts": at.isoformat(), "flow": flow, "size": size}


BAD_SUBSCRIPTIONS = (
    ({"receiver": ""}, Reason.NO_RECEIVER),
    ({"flow": None}, Reason.NO_FLOW),
    ({"action": "maybe"}, Reason.ACTION),
    ({"ts": None}, Reason.NO_TS),
    ({"ts": "soon"}, Reason.TS),
    ({"ts": "2999-03-06T00:00:00Z"}, Reason.OUTSIDE),
)
BAD_PUBLICATIONS = (
    ({"flow": ""}, Reason.NO_FLOW),
    ({"ts": ""}, Reason.NO_TS),
    ({"ts": "2025-02-30"}, Reason.TS),
    ({"ts": "2999-03-06T00:00:00Z"}, Reason.OUTSIDE),
    ({"size": -1}, Reason.SIZE),
)
SUBSCRIPTION_FILES, PUBLICATION_FILES = 3, 5
FORMATS = ("jsonl", "csv", "parquet")


def file_name(number: int) -> str:
    return f"{number:02d}.{FORMATS[number % 3]}"


def make_logs(
    folder: Path,
    files: int = PUBLICATION_FILES,
    subscription_files: int = SUBSCRIPTION_FILES,
    seed: int = 0,
) -> None:
    """Files of 20 minutes each in all formats, with ties, bad rows, late rows and changing tastes.

    The first files have a row of each bad kind. Late rows come two files late, so that they are
    late however files are put into batches.
    """
    rng = random.Random(seed)
    for number in range(files):
        base = START + timedelta(minutes=20 * number)
        moments = [base + timedelta(seconds=10 * step) for step in range(120)]
        written = base + timedelta(minutes=21)
        taste = number * 3
        busy = [(taste + rng.randrange(6)) % 16 for _ in range(150)]
        publishing = [
            publication(rng.choice(moments), f"f{flow}", rng.randrange(500)) for flow in busy
        ]
        publishing += [publication(base - timedelta(minutes=41), "f1")] * (number > 1)
        subscribing = [
            subscription(
                rng.choice(moments),
                f"r{rng.randrange(8)}",
                f"f{(taste + min(rng.randrange(12), rng.randrange(12))) % 16}",
                rng.choice(["subscribe", "subscribe", "unsubscribe"]),
            )
            for _ in range(40)
        ]
        if number == 0:
            good = subscription(base, "r1", "f1")
            subscribing += [good | change for change, _ in BAD_SUBSCRIPTIONS]
            publishing += [publication(base, "f1") | change for change, _ in BAD_PUBLICATIONS]
        write(folder / "publications" / file_name(number), publishing, written)
        if number < subscription_files:
            write(folder / "subscriptions" / file_name(number), subscribing, written)
    with (folder / "subscriptions" / file_name(0)).open("a") as file:
        file.write('{"ts": "2025-03-\n')
    os.utime(folder / "subscriptions" / file_name(0), (START.timestamp() + 1260,) * 2)
