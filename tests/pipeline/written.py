"""Logs of a generated day, written in shapes of all kinds, for tests that read them again."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from distributary.pipeline.shapes import quote_path
from distributary.workloads import (
    DayParams,
    TradingFloor,
    publication_log,
    spoil_rows,
    subscription_log,
    trading_floor,
)

__all__ = [
    "TIMES",
    "Writing",
    "publications",
    "subscriptions",
    "write_log",
    "write_row",
    "writings",
]

Row = Mapping[str, Any]
DAY = DayParams(messages=200, begin=datetime(2025, 3, 17, tzinfo=UTC), churn=0.3)


def subscriptions(rows: int) -> list[dict[str, Any]]:
    """The first rows of a generated subscription log; some are bad."""
    rng = np.random.default_rng(1)
    interest, _ = trading_floor(TradingFloor(symbols=200, receivers=20), rng)
    log = subscription_log(interest, DAY, rng).slice(0, rows)
    return list(spoil_rows(log, 0.1, rng).to_pylist())


def publications(rows: int) -> list[dict[str, Any]]:
    """A generated publication log; some rows are bad."""
    rng = np.random.default_rng(2)
    _, rates = trading_floor(TradingFloor(symbols=200, receivers=20), rng)
    return list(spoil_rows(publication_log(rates, DAY, rng, rows), 0.1, rng).to_pylist())


def _whole(scale: int) -> Callable[[datetime], Any]:
    return lambda time: _micros(time) * scale // 10**6


def _micros(time: datetime) -> int:
    return round(time.timestamp() * 10**6)


# How a time is written, and to how many microseconds.
TIMES: Mapping[str, tuple[Callable[[datetime], Any], int]] = {
    "iso": (lambda time: time.isoformat().replace("+00:00", "Z"), 1),
    "iso without zone": (lambda time: time.strftime("%Y-%m-%d %H:%M:%S.%f"), 1),
    "iso with comma": (lambda time: time.strftime("%Y-%m-%dT%H:%M:%S,%f+0000"), 1),
    "s": (_whole(1), 10**6),
    "ms": (_whole(10**3), 10**3),
    "us": (_whole(10**6), 1),
    "ns": (_whole(10**9), 1),
    "s as text": (lambda time: str(_micros(time) // 10**6), 10**6),
    "web": (lambda time: time.strftime("%d/%b/%Y:%H:%M:%S +0000"), 10**6),
    "brackets": (lambda time: time.strftime("[%d/%b/%Y:%H:%M:%S +0000]"), 10**6),
    "points": (lambda time: time.strftime("%d.%m.%Y %H:%M:%S.%f"), 1),
    "american": (lambda time: time.strftime("%m/%d/%Y %I:%M:%S %p"), 10**6),
    "compact": (lambda time: time.strftime("%Y%m%d%H%M%S"), 10**6),
    "compact with zone": (lambda time: time.strftime("%Y%m%dT%H%M%SZ"), 10**6),
    "slashes": (lambda time: time.strftime("%Y/%m/%d %H:%M"), 60 * 10**6),
    "long": (lambda time: time.strftime("%B %d, %Y %H:%M:%S UTC"), 10**6),
}
TYPED_TIMES: Mapping[str, tuple[Any, int]] = {
    "typed us": (pa.timestamp("us", "UTC"), 1),
    "typed ns": (pa.timestamp("ns", "UTC"), 1),
    "typed ms": (pa.timestamp("ms", "UTC"), 10**3),
    "typed local": (pa.timestamp("us"), 1),
}

NAMES: Mapping[str, Sequence[str]] = {
    "ts": [
        "ts",
        "time",
        "timestamp",
        "eventTime",
        "event_time",
        "@timestamp",
        "when",
        "created_at",
    ],
    "receiver": [
        "receiver",
        "client",
        "clientId",
        "client_id",
        "subscriber",
        "consumer",
        "userName",
    ],
    "flow": ["flow", "topic", "symbol", "channelName", "instrument_id", "ticker", "stream"],
    "action": ["action", "op", "operation", "event", "type", "cmd"],
    "size": ["size", "bytes", "length", "payloadBytes", "payload.size"],
}
WORDS = [
    ("subscribe", "unsubscribe"),
    ("SUB", "UNSUB"),
    ("join", "leave"),
    ("added", "removed"),
    ("session.subscribe", "session.unsubscribe"),
    ("1", "0"),
    ("on", "off"),
]
NOISE: Mapping[str, Callable[[int], Any]] = {
    "price": lambda n: 10.5 + n / 7,
    "note": lambda n: f'seen, and {n % 17} "more"',
    "region": lambda n: ["eu", "us", "asia"][n % 3],
    "valid": lambda n: n % 5 > 0,
    "trace": lambda n: {"span": n, "hops": [{"via": f"n{n % 4}"}]},
    "empty": lambda n: None,
}


@dataclass(frozen=True)
class Writing:
    """How a log is written: the steps of each column, the style of its times, and so on."""

    kind: str
    steps: Mapping[str, tuple[str, ...]]
    times: str
    words: tuple[str, str]
    noise: tuple[str, ...]
    format: str
    packed: bool

    @property
    def paths(self) -> dict[str, str]:
        """The path of each column, as `--column` takes it."""
        return {name: quote_path(steps) for name, steps in self.steps.items()}

    @property
    def grain(self) -> int:
        """How many microseconds a written time can tell apart."""
        return (TIMES | TYPED_TIMES)[self.times][1]


@st.composite
def writings(draw: st.DrawFn, kind: str, formats: Sequence[str] = ("jsonl",)) -> Writing:
    """Any way to write a log with names that can be told."""
    wanted = {"subscriptions": ["ts", "receiver", "flow", "action"]}.get(
        kind, ["ts", "flow", "size"]
    )
    format = draw(st.sampled_from(formats))
    parents = st.sampled_from([(), (), ("payload",), ("value", "data"), ("odd.name",)])
    typed = TYPED_TIMES if format == "parquet" else {}
    order = draw(st.permutations(wanted))
    return Writing(
        kind,
        {name: (*draw(parents), draw(st.sampled_from(NAMES[name]))) for name in order},
        draw(st.sampled_from([*TIMES, *typed])),
        draw(st.sampled_from(WORDS)),
        tuple(draw(st.lists(st.sampled_from([*NOISE]), unique=True, max_size=3))),
        format,
        draw(st.booleans()),
    )


def write_row(row: Row, writing: Writing, number: int = 0) -> dict[str, Any]:
    """A row as it is written, nested."""
    written: dict[str, Any] = {}
    for name in writing.noise:
        written[name] = NOISE[name](number)
    for name, steps in writing.steps.items():
        into = written
        for step in steps[:-1]:
            into = into.setdefault(step, {})
        into[steps[-1]] = _write_value(name, row[name], writing)
    return written


def _write_value(name: str, value: Any, writing: Writing) -> Any:
    if name == "ts" and value is not None and writing.times in TIMES:
        return TIMES[writing.times][0](value)
    if name == "action":
        return dict(zip(("subscribe", "unsubscribe"), writing.words, strict=True)).get(value, value)
    return value


def write_log(folder: Path, rows: Sequence[Row], writing: Writing) -> str:
    """Write a log; the path to read it from."""
    written = [write_row(row, writing, number) for number, row in enumerate(rows)]
    if writing.format == "parquet":
        path = folder / f"{writing.kind}.parquet"
        table = pa.Table.from_pylist(written)
        pq.write_table(_with_times(table, writing), path)
        return str(path)
    path = folder / f"{writing.kind}.{writing.format.split()[-1]}{'.gz' * writing.packed}"
    with gzip.open(path, "wt") if writing.packed else path.open("w") as file:
        if writing.format == "csv":
            sheet = csv.writer(file, lineterminator="\n")
            sheet.writerow(written[0])
            sheet.writerows([map(_write_cell, row.values()) for row in written])
        else:
            for row in written:
                texts = writing.format == "text in jsonl"
                whole = {
                    k: json.dumps(v) if texts and isinstance(v, dict) else v for k, v in row.items()
                }
                file.write(json.dumps(whole) + "\n")
    return str(path)


def _write_cell(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    return "" if value is None else str(value)


def _with_times(table: pa.Table, writing: Writing) -> pa.Table:
    """The table with its times in their type, wherever they are."""
    if writing.times not in TYPED_TIMES:
        return table
    schema = pa.schema([_retype(one, writing.steps["ts"], writing.times) for one in table.schema])
    return pa.Table.from_pylist(table.to_pylist(), schema)


def _retype(field: Any, steps: tuple[str, ...], times: str) -> Any:
    if field.name != steps[0]:
        return field
    if len(steps) == 1:
        return pa.field(field.name, TYPED_TIMES[times][0])
    inner = [_retype(one, steps[1:], times) for one in field.type]
    return pa.field(field.name, pa.struct(inner))
