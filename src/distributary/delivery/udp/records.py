"""Reads messages to publish from files or a stream: flow, payload and time.

The extension decides: Parquet, or JSON lines. Anything else is lines, each of them a flow, a tab
and the payload, or a JSON object. Columns are `flow`, `payload` (text or binary) and optionally
`ts`, a timestamp or seconds, which paces the messages.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from distributary.delivery.udp.publisher import Publisher
from distributary.errors import DistributaryError, InputError

__all__ = [
    "Pace",
    "Record",
    "feed_chunks",
    "publish_records",
    "read_lines",
    "read_records",
    "to_seconds",
]

T = TypeVar("T")

_CHUNK = 1 << 16
_ROWS = 4_096
_QUEUED = 4  # chunks that are read ahead
_JSON = (".jsonl", ".json", ".ndjson")
_AHEAD = 0.001  # seconds; shorter waits are skipped


class Record(NamedTuple):
    """A message to publish; `ts` is in seconds, from any starting point."""

    flow: str
    payload: bytes
    ts: float | None = None


class _Line(msgspec.Struct):
    flow: str
    payload: str | None = None
    payload_base64: str | None = None
    ts: float | str | None = None


def read_records(path: str | os.PathLike[str]) -> Iterator[list[Record]]:
    """Read the records of a file in chunks; raises `InputError` for what cannot be used."""
    path = Path(path)
    try:
        if path.suffix == ".parquet":
            yield from _read_parquet(path)
        else:
            with path.open("rb", buffering=0) as file:
                yield from read_lines(file, str(path), only_json=path.suffix in _JSON)
    except OSError as error:
        raise InputError(
            error.strerror or str(error), path=str(path), remedy="check the path"
        ) from None


def read_lines(
    file: io.RawIOBase, name: str = "the input", *, only_json: bool = False
) -> Iterator[list[Record]]:
    """Read the records of lines, as many at a time as are available without waiting.

    The file has to be unbuffered, since a buffer would wait until it is full.
    """
    row, rest = 0, b""
    while chunk := file.read(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        found = [_parse_line(line, name, row + at, only_json) for at, line in enumerate(lines, 1)]
        row += len(lines)
        yield [record for record in found if record is not None]
    last = _parse_line(rest, name, row + 1, only_json)
    if last is not None:
        yield [last]


def _parse_line(line: bytes, name: str, row: int, only_json: bool) -> Record | None:
    line = line.rstrip(b"\r")
    if not line.strip():
        return None
    if only_json or line.lstrip().startswith(b"{"):
        return _parse_json(line, name, row)
    flow, tab, payload = line.partition(b"\t")
    try:
        decoded = flow.decode()
    except UnicodeDecodeError:
        tab = b""
    if not tab or not flow:
        raise InputError(
            "a line is a flow, a tab and the payload, or a JSON object",
            path=name,
            row=row,
            value=line[:80],
            remedy="check the line",
        )
    return Record(decoded, payload)


def _parse_json(line: bytes, name: str, row: int) -> Record:
    try:
        message = msgspec.json.decode(line, type=_Line)
        return Record(message.flow, _decode_payload(message), to_seconds(message.ts))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"is not a message ({error})",
            path=name,
            row=row,
            remedy='write lines such as {"flow": "IBM", "payload": "101.5"}',
        ) from None


def _decode_payload(message: _Line) -> bytes:
    """The payload of a line, which has to have exactly one; it may be empty."""
    if (message.payload is None) == (message.payload_base64 is None):
        raise ValueError("it needs exactly one of `payload` and `payload_base64`")
    if message.payload is not None:
        return message.payload.encode()
    return base64.b64decode(message.payload_base64 or "", validate=True)


def to_seconds(ts: object) -> float | None:
    """A time as seconds: a number, a point in time, or the text of one."""
    if ts is None or isinstance(ts, (int, float)):
        return None if ts is None else float(ts)
    if isinstance(ts, datetime):
        return (ts if ts.tzinfo else ts.replace(tzinfo=UTC)).timestamp()
    moment = datetime.fromisoformat(str(ts))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _read_parquet(path: Path) -> Iterator[list[Record]]:
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            for column in ("flow", "payload"):
                if column not in names:
                    raise InputError(
                        f"has no column {column!r}",
                        path=str(path),
                        remedy="it needs flow and payload, and may have ts",
                    )
            wanted = [name for name in ("flow", "payload", "ts") if name in names]
            for batch in file.iter_batches(_ROWS, columns=wanted):
                yield _parse_batch(batch, path)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"is not a Parquet file ({error})", path=str(path), remedy="check the file"
        ) from None


def _parse_batch(batch: Any, path: Path) -> list[Record]:
    flows = batch.column("flow").cast(pa.string()).to_pylist()
    payloads = batch.column("payload").cast(pa.binary()).to_pylist()
    if None in flows or None in payloads:
        raise InputError("has an empty flow or payload", path=str(path), remedy="fill it")
    times = batch.column("ts").to_pylist() if "ts" in batch.schema.names else [None] * len(flows)
    rows = zip(flows, payloads, times, strict=True)
    return [Record(flow, payload, to_seconds(ts)) for flow, payload, ts in rows]


async def feed_chunks(chunks: Iterable[list[T]]) -> AsyncIterator[list[T]]:
    """Read chunks in a thread; it is not joined at the end, as it may hang in a read."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[list[T] | Exception | None] = asyncio.Queue()
    room = threading.Semaphore(
        _QUEUED
    )  # bounds the queue: the reading thread waits when it is full

    def put(item: list[T] | Exception | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(queue.put_nowait, item)

    def feed() -> None:
        with suppress(RuntimeError):  # the loop has ended
            try:
                for chunk in chunks:
                    put(chunk)
                put(None)
            except (DistributaryError, OSError) as error:  # the reader of the chunks raises it
                put(error)

    threading.Thread(target=feed, daemon=True).start()
    while (item := await queue.get()) is not None:
        room.release()
        if isinstance(item, Exception):
            raise item
        yield item


class Pace:
    """When to publish: at a rate, or else as far apart as the times of what is published."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = 0.0
        self._first: float | None = None
        self.done = 0  # how much was published

    async def wait(self, ts: float | None) -> None:
        """Wait until it is time to publish something with that time, if it has one."""
        now = asyncio.get_running_loop().time()
        if not self.done:
            self._began, self._first = now, ts
        due = self._began
        if self._rate is not None:
            due += self.done / self._rate
        elif ts is not None and self._first is not None:
            due += ts - self._first
        if due - now > _AHEAD:
            await asyncio.sleep(due - now)


async def publish_records(
    publisher: Publisher, chunks: AsyncIterator[list[Record]], rate: float | None = None
) -> int:
    """Publish all records, at a rate or else paced by their `ts`; returns how many."""
    pace = Pace(rate)
    async for chunk in chunks:
        for record in chunk:
            if len(record.payload) > publisher.largest_message:
                raise InputError(
                    f"message {pace.done + 1:,} has {len(record.payload):,} bytes, and a packet "
                    f"room for {publisher.largest_message:,}",
                    value=record.flow,
                    remedy="make packets larger, or split the message",
                )
            await pace.wait(record.ts)
            await publisher.publish(record.flow, record.payload)
            pace.done += 1
    return pace.done
