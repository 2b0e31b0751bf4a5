"""The files that a stream plans from: logs of subscriptions and counts, and the plan in force.

Each file appears whole, under its final name. What cannot be written, such as to a full disk, is
kept in memory and written later; an alarm says so. Of many changes that wait, the last one of each
receiver and flow counts, and messages of the same flow and second are added up. The same holds
while a stream that does not read has left so many files that no more are written. Counts for which
there is no room in memory either are dropped, the older half first, and so are those that a stream
has not read when its folder is emptied; an alarm says how many, for a minute.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from distributary.control.nats.store import Trouble
from distributary.errors import OutputError, StateError
from distributary.files import write_plan
from distributary.model import Plan

__all__ = ["StreamFiles"]

_TIME = pa.timestamp("us", "UTC")
_SUBSCRIPTIONS = pa.schema(
    [("ts", _TIME), ("receiver", pa.string()), ("flow", pa.string()), ("action", pa.string())]
)
_PUBLICATIONS = pa.schema([("ts", _TIME), ("flow", pa.string()), ("count", pa.int64())])
_SOON = 0.05  # seconds in which changes of interest come together
_AGAIN = 1.0  # seconds before another attempt, if the disk is full
_MOST_COUNTS = 500_000  # rows that may wait; then the older half is dropped
_MOST_FILES = 1_000  # that may wait for the stream
_KEPT_FILES = 100  # that were read already
_SHOWN = 60.0  # seconds after counts were dropped
_CANNOT_WRITE, _DROPPED, _UNREAD = "stream folder", "counts dropped", "stream not reading"


class _Written(NamedTuple):
    """A file that the stream reads."""

    path: Path
    rows: int
    at: float


class StreamFiles:
    """Writes what a stream reads, in a folder of its own.

    `counts_every` is how many seconds of counts share a file, `most_counts` how many rows of them
    may wait in memory, and `most_files` how many files for the stream. `trouble` is called when
    the folder cannot be written, and when it can again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        counts_every: float,
        trouble: Trouble,
        most_counts: int = _MOST_COUNTS,
        most_files: int = _MOST_FILES,
    ) -> None:
        self.folder = folder
        self.subscriptions = folder / "subscriptions"
        self.publications = folder / "publications"
        self.base = folder / "base"
        self.out = folder / "out"
        self._counts_every, self._trouble = counts_every, trouble
        self._most_counts, self._most_files = most_counts, most_files
        self._dropped, self._dropped_at = 0, 0.0  # rows of counts for which there was no room
        self._wanted: dict[str, set[str]] = {}  # all that the rows so far come to
        self._plan: Plan | None = None
        self._actions: dict[tuple[str, str], tuple[float, bool]] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self._has_base = True  # whether the folder has the plan
        self._number = 0
        self._unread: deque[_Written] = deque()
        self._read: deque[Path] = deque()
        self._files_read = 0
        self._changed = asyncio.Event()
        self._counts_at = 0.0
        self._in_trouble = self._is_unread = False

    # --- what there is to write -------------------------------------------------------------------

    def begin(self) -> None:
        """Empty the folder, and write all interest into it again."""
        try:
            if self.folder.exists():
                shutil.rmtree(self.folder)
            for each in (self.subscriptions, self.publications):
                each.mkdir(parents=True)
        except OSError as error:
            raise StateError.from_os(self.folder, error) from error
        lost = sum(file.rows for file in self._unread if file.path.parent == self.publications)
        if lost:
            why = "which the stream had not read before it began with an empty folder"
            self._note_dropped(lost, why, "look at its last words")
        self._unread.clear()
        self._read.clear()
        self._files_read = 0
        self._actions = {
            (receiver, flow): (time.time(), True)
            for receiver, flows in self._wanted.items()
            for flow in flows
        }
        self._has_base = self._plan is None
        self._changed.set()

    def write_interest(self, at: float, rows: Iterable[tuple[str, str, bool]]) -> None:
        """Write that receivers want flows, or do not any more."""
        for receiver, flow, is_wanted in rows:
            flows = self._wanted.setdefault(receiver, set())
            if is_wanted:
                flows.add(flow)
            else:
                flows.discard(flow)
            if not flows:
                del self._wanted[receiver]
            self._actions.pop((receiver, flow), None)
            self._actions[receiver, flow] = at, is_wanted
        self._changed.set()

    def write_counts(self, rows: Iterable[tuple[int, str, int]]) -> None:
        """Write how many messages of flows were published in a second."""
        for second, flow, messages in rows:
            self._counts[second, flow] = self._counts.get((second, flow), 0) + messages
        if len(self._counts) > self._most_counts:
            self._drop_oldest()
        elif self._dropped and time.monotonic() - self._dropped_at > _SHOWN:
            self._dropped = 0
            self._trouble(_DROPPED, "", None)
        self._changed.set()

    def _drop_oldest(self) -> None:
        oldest = sorted(self._counts)[: len(self._counts) // 2]
        for key in oldest:
            del self._counts[key]
        why = f"since more than {self._most_counts:,} waited"
        self._note_dropped(len(oldest), why, "free some space, or publish fewer flows")

    def _note_dropped(self, counts: int, why: str, remedy: str) -> None:
        self._dropped += counts
        self._dropped_at = time.monotonic()
        says = (
            f"{self._dropped:,} counts of flows by second were dropped, {why}: rates of that time "
            f"are too low for the stream; {remedy}"
        )
        self._trouble(_DROPPED, "", says)

    def set_base(self, plan: Plan) -> None:
        """Write the plan in force."""
        self._plan, self._has_base = plan, False
        self._changed.set()

    # --- what the stream has read -----------------------------------------------------------------

    def note_read(self, files: int) -> None:
        """Note how many files the stream has read in all, since `begin`."""
        while self._unread and self._files_read < files:
            self._read.append(self._unread.popleft().path)
            self._files_read += 1
        if self._is_unread:
            self._changed.set()

    @property
    def behind_rows(self) -> int:
        """Rows that the stream has not read, or that are not written yet."""
        return sum(file.rows for file in self._unread) + len(self._actions) + len(self._counts)

    @property
    def behind_s(self) -> float:
        """For how long the oldest file has waited."""
        return time.time() - self._unread[0].at if self._unread else 0.0

    # --- writing ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what there is to write, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._counts_every if self._counts else None):
                    await self._changed.wait()
            await asyncio.sleep(_SOON)
            self._changed.clear()
            try:
                await self._write_all()
            except (OSError, OutputError) as error:
                self.note_trouble(error)
                await asyncio.sleep(_AGAIN)
                self._changed.set()
            else:
                self.note_trouble(None)

    async def _write_all(self) -> None:
        if not self._has_base and self._plan is not None:
            plan = self._plan
            await asyncio.to_thread(_write_base, plan, self.base)
            self._has_base = plan is self._plan
        while len(self._read) > _KEPT_FILES:
            self._read.popleft().unlink(missing_ok=True)
        self._note_unread()
        if self._is_unread:
            return
        if self._actions:
            await self._write_actions()
        now = time.monotonic()
        if self._counts and now - self._counts_at >= self._counts_every:
            await self._write_counts()
            self._counts_at = now

    def _note_unread(self) -> None:
        """Raise the alarm that the stream has left too many files, or end it."""
        is_unread = len(self._unread) >= self._most_files
        if is_unread == self._is_unread:
            return
        self._is_unread, says = is_unread, None
        if is_unread:
            since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self._unread[0].at))
            says = (
                f"{self.folder}: {len(self._unread):,} files wait for the stream, the oldest since "
                f"{since}, so what is new waits in memory; start the stream again where it reads "
                "this folder"
            )
        self._trouble(_UNREAD, "", says)

    async def _write_actions(self) -> None:
        taken, self._actions = self._actions, {}
        columns: list[list[Any]] = [
            [_micros(at) for at, _ in taken.values()],
            [receiver for receiver, _ in taken],
            [flow for _, flow in taken],
            ["subscribe" if is_wanted else "unsubscribe" for _, is_wanted in taken.values()],
        ]
        try:
            await self._write(self.subscriptions, columns, _SUBSCRIPTIONS)
        except BaseException:
            self._actions = {**taken, **self._actions}
            raise

    async def _write_counts(self) -> None:
        taken, self._counts = self._counts, {}
        columns: list[list[Any]] = [
            [second * 1_000_000 for second, _ in taken],
            [flow for _, flow in taken],
            list(taken.values()),
        ]
        try:
            await self._write(self.publications, columns, _PUBLICATIONS)
        except BaseException:
            for key, messages in self._counts.items():
                taken[key] = taken.get(key, 0) + messages
            self._counts = taken
            raise

    async def _write(self, folder: Path, columns: list[list[Any]], schema: pa.Schema) -> None:
        """Write rows as a file that appears whole."""
        path = folder / f"{self._number:08d}.parquet"
        self._number += 1
        at, rows = time.time(), len(columns[0])
        await asyncio.to_thread(_write_table, path, columns, schema)
        self._unread.append(_Written(path, rows, at))

    def note_trouble(self, error: Exception | None) -> None:
        """Raise the alarm that the folder cannot be written, or end it."""
        if error is None and not self._in_trouble:
            return
        self._in_trouble = error is not None
        says = None
        if error is not None:
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            reason = str(getattr(cause, "strerror", None) or cause).lower()
            says = (
                f"{self.folder}: cannot be written ({reason}); {self.behind_rows:,} rows wait in "
                "memory; free some space"
            )
        self._trouble(_CANNOT_WRITE, "", says)


def _write_table(path: Path, columns: list[list[Any]], schema: pa.Schema) -> None:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=schema)
    temporary = path.with_suffix(".parquet.tmp")
    try:
        pq.write_table(table, temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_base(plan: Plan, folder: Path) -> None:
    write_plan(plan, {"algorithm": "control"}, folder)


def _micros(seconds: float) -> int:
    return int(seconds * 1e6)
