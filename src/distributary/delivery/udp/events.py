"""Reads events with attributes from files or a stream, and publishes them by their content.

The extension decides: Parquet, CSV with a header, or JSON lines, which a stream has too. A column
`payload` (text or binary) is the payload; without one the whole event as JSON is. A column `ts`
paces the events, as it paces messages.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from distributary.delivery.content import Event, EventSorter, MatchedEvent
from distributary.delivery.udp.publisher import Publisher
from distributary.delivery.udp.records import Pace, to_seconds
from distributary.errors import InputError

__all__ = ["publish_events", "read_event_lines", "read_events"]

_CHUNK = 1 << 16
_ROWS = 4_096
_BATCH = 1_024  # events that are matched at once
_PAYLOAD = "payload"


async def publish_events(
    publisher: Publisher,
    chunks: AsyncIterator[list[Event | InputError]],
    find_sorter: Callable[[int], EventSorter],
    on_bad: Callable[[InputError], None],
    path: str,
    rate: float | None = None,
) -> int:
    """Publish all events, at a rate or else paced by their `ts`; returns how many went out.

    `find_sorter` returns the sorter of the plan with a fingerprint. Events are matched in batches,
    and again where another plan takes effect meanwhile. `on_bad` hears of each event that cannot be
    used, in a thread.
    """
    pace = Pace(rate)
    async for chunk in chunks:
        for begin in range(0, len(chunk), _BATCH):
            rest: Sequence[Event | InputError] = chunk[begin : begin + _BATCH]
            while rest:
                fingerprint = publisher.fingerprint
                sorter = find_sorter(fingerprint)
                matched = await asyncio.to_thread(sorter.match, rest, on_bad, path=path)
                done = await _publish_matched(publisher, sorter, fingerprint, matched, pace)
                rest = sorter.take_back(matched[done:])
    return pace.done


async def _publish_matched(
    publisher: Publisher,
    sorter: EventSorter,
    fingerprint: int,
    matched: Sequence[MatchedEvent],
    pace: Pace,
) -> int:
    """Publish events while the plan stays in effect; returns how many were handled."""

    def make() -> list[tuple[str, bytes]]:
        messages = [(found.flow, found.payload) for found in sorter.make_messages(each)]
        for flow, payload in messages:
            if len(payload) > publisher.largest_message:
                raise InputError(
                    f"event {pace.done + 1:,} makes a message of {len(payload):,} bytes, and a "
                    f"packet has room for {publisher.largest_message:,}",
                    value=flow,
                    remedy="make packets larger, or payloads smaller",
                )
        return messages

    for at, each in enumerate(matched):
        if not each.filters:
            sorter.make_messages(each)  # counts it
            continue
        await pace.wait(each.event.ts)
        if not await publisher.publish_together(make, fingerprint):
            return at
        pace.done += 1
    return len(matched)


def read_events(path: str | os.PathLike[str]) -> Iterator[list[Event | InputError]]:
    """Read the events of a file in chunks, with an `InputError` for each that does not parse."""
    path = Path(path)
    try:
        if path.suffix in (".parquet", ".pq"):
            yield from _read_parquet(path)
        elif path.suffix == ".csv":
            yield from _read_csv(path)
        else:
            with path.open("rb", buffering=0) as file:
                yield from read_event_lines(file, str(path))
    except (pa.ArrowException, ValueError, OverflowError) as error:
        reason = f"cannot be read as a table of events ({str(error).splitlines()[0]})"
        raise InputError(reason, path=str(path), remedy="check the file") from None
    except OSError as error:
        raise InputError(
            error.strerror or str(error), path=str(path), remedy="check the path"
        ) from None


def read_event_lines(
    file: io.RawIOBase, name: str = "the input"
) -> Iterator[list[Event | InputError]]:
    """Read the events of JSON lines, as many at a time as are available without waiting."""
    row, rest = 0, b""
    while chunk := file.read(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        yield [
            _parse_line(line, name, row + at) for at, line in enumerate(lines, 1) if line.strip()
        ]
        row += len(lines)
    if rest.strip():
        yield [_parse_line(rest, name, row + 1)]


def _parse_line(line: bytes, name: str, row: int) -> Event | InputError:
    try:
        values = msgspec.json.decode(line, type=dict[str, Any])
        return _make_event(row, values, line.strip())
    except (ValueError, RecursionError) as error:
        return InputError(
            f"is not an event ({error})",
            path=name,
            row=row,
            remedy="write one JSON object with the event's attributes on each line",
        )


def _make_event(
    row: int, values: Mapping[str, Any], whole: bytes | None = None, *, is_text: bool = False
) -> Event:
    given = values.get(_PAYLOAD)
    if given is None:
        payload = msgspec.json.encode(dict(values)) if whole is None else whole
    else:
        payload = given if isinstance(given, bytes) else str(given).encode()
    return Event(row, values, payload, to_seconds(values.get("ts") or None), is_text)


def _read_row(
    path: Path, row: int, values: Mapping[str, Any], *, is_text: bool = False
) -> Event | InputError:
    try:
        return _make_event(row, values, is_text=is_text)
    except (ValueError, TypeError) as error:
        return InputError(
            f"is not an event ({error})", path=str(path), row=row, remedy="mend the row"
        )


def _read_parquet(path: Path) -> Iterator[list[Event | InputError]]:
    row = 0
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS):
            rows = _cut_nanoseconds(pa.Table.from_batches([batch])).to_pylist()
            yield [_read_row(path, row + at, values) for at, values in enumerate(rows, 1)]
            row += len(rows)


def _cut_nanoseconds(table: pa.Table) -> pa.Table:
    """Times in whole microseconds, rounded down, as Python has them."""
    for at, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            cut = pc.floor_temporal(table.column(at), unit="microsecond")
            table = table.set_column(
                at, column.name, cut.cast(pa.timestamp("us", column.type.tz), safe=False)
            )
    return table


def _read_csv(path: Path) -> Iterator[list[Event | InputError]]:
    with path.open("rb") as file:
        head = file.readline()
    names = pyarrow.csv.read_csv(
        io.BytesIO(head if head.endswith(b"\n") else head + b"\n"),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
    ).column_names
    table = pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )
    row = 0
    for batch in table.to_batches(_ROWS):
        rows = batch.to_pylist()
        yield [_read_row(path, row + at, values, is_text=True) for at, values in enumerate(rows, 1)]
        row += len(rows)
