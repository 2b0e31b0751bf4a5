"""The store of the topic service against a minimal log of our own."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from zlib import crc32

from benchmarks.measure import Section, shown_seconds
from distributary.machines.real.store import Store
from distributary.topics.nats.policy import LIVE
from distributary.topics.records import HostLog, HostState
from distributary.topics.store import TopicStore
from distributary.topics.topic import TopicState

BATCHES = {1: 20_000, 16: 50_000, 512: 100_000}  # records in a batch, and in all
SYNCED = 200  # batches that each wait for the disk
ROUNDS = 5
TOPICS, EVENTS = 100_000, 900_000

_HEAD = Struct("<III")


class PlainFile:
    """A file of records with lengths and checksums, which the store replaced."""

    def __init__(self, folder: Path, *, sync: bool = False) -> None:
        self.path = folder / "records"
        self._sync = sync
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def append(self, records: Sequence[bytes]) -> None:
        """Write records."""
        os.write(self._file, b"".join(map(_frame, records)))
        if self._sync:
            os.fdatasync(self._file)

    def read(self) -> Iterator[bytes]:
        """Every record."""
        with self.path.open("rb", buffering=1 << 20) as file:
            while head := file.read(_HEAD.size):
                record = file.read(_HEAD.unpack(head)[0])
                assert crc32(record) == _HEAD.unpack(head)[1]
                yield record

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _frame(record: bytes) -> bytes:
    checksum = crc32(record)
    return _HEAD.pack(len(record), checksum, crc32(checksum.to_bytes(4))) + record


LOGS: dict[str, type[PlainFile] | type[Store]] = {"a plain file": PlainFile, "SQLite": Store}


def make_records(topics: int, events: int) -> list[bytes]:
    """The records that a host writes when topics are created and then get events in turn."""
    log = HostLog(HostState(), LIVE)
    log.begin_epoch(1.0)
    for n in range(topics):
        log.record_channel(f"topic/{n}", TopicState(topic=f"{n}"))
    for n in range(events):
        name, number = f"topic/{n % topics}", n // topics + 1
        log.record_event(name, "0123456789abcdef#1", number, b"%019d" % n, 1.0)
    return log.take()


def topics_store() -> Section:
    """Appending in batches, with and without waiting for the disk."""
    records = make_records(40, max(BATCHES.values()))
    rows = []
    for sync in (False, True):
        for batch, count in BATCHES.items():
            part = records[: SYNCED * batch if sync else count]
            found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in LOGS}
            for _ in range(ROUNDS):
                for name in LOGS:  # in turn, so that other load on the machine affects all of them
                    found[name].append(_append(name, part, batch, sync))
            for name, each in found.items():
                seconds, processor, size = map(statistics.median, zip(*each, strict=True))
                speed, cost = len(part) / seconds, processor / len(part)
                facts = [f"{speed:,.0f}", shown_seconds(cost), f"{size / len(part):,.0f}"]
                rows.append(["yes" if sync else "no", f"{batch}", name, *facts])
    return Section(
        "The topic service's store: appending",
        f"Records of events, {len(records[-1])} bytes each; medians of {ROUNDS} rounds, in turn. A "
        "plain file with a length and checksums before each record stands for the journal that the "
        "store replaced. Bytes are those of all files, including the WAL. All records are read "
        "back (asserted).",
        ["sync", "batch", "in", "records/s", "processor time each", "bytes each"],
        rows,
    )


def _append(name: str, records: list[bytes], batch: int, sync: bool) -> tuple[float, float, int]:
    with tempfile.TemporaryDirectory() as folder:
        log = LOGS[name](Path(folder), sync=sync)
        began, worked = time.perf_counter(), time.process_time()
        for at in range(0, len(records), batch):
            log.append(records[at : at + batch])
        took = time.perf_counter() - began, time.process_time() - worked
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        assert sum(1 for _ in log.read()) == len(records)
        log.close()
    return *took, size


def topics_restart() -> Section:
    """How long a service with a long log takes to restore its state."""
    records = make_records(TOPICS, EVENTS)
    rows = []
    for name in LOGS:
        with tempfile.TemporaryDirectory() as folder:
            log = LOGS[name](Path(folder))
            for at in range(0, len(records), 512):
                log.append(records[at : at + 512])
            log.close()
            took = [_restart(name, Path(folder), len(records)) for _ in range(3)]
            rows.append(
                [
                    name,
                    *(shown_seconds(statistics.median(each)) for each in zip(*took, strict=True)),
                ]
            )
            if name == "SQLite":
                store = Store(Path(folder))
                kept = TopicStore(store, LIVE)
                began = time.perf_counter()
                kept.shorten()
                rows[-1].append(shown_seconds(time.perf_counter() - began))
                store.close()
    return Section(
        "The topic service's store: restart",
        f"{TOPICS:,} topics and {EVENTS:,} events in {len(records):,} records; medians of 3.",
        ["in", "read", "read and replayed", "a snapshot in place of the log"],
        [[*row, *["-"] * (4 - len(row))] for row in rows],
    )


def _restart(name: str, folder: Path, count: int) -> tuple[float, float]:
    began = time.perf_counter()
    log = LOGS[name](folder)
    assert sum(1 for _ in log.read()) == count
    read = time.perf_counter() - began
    state = HostState()
    for record in log.read():
        state.replay(record, LIVE)
    assert len(state.states) == TOPICS
    log.close()
    return read, time.perf_counter() - began - read


SECTIONS = {"topics_store": topics_store, "topics_restart": topics_restart}
