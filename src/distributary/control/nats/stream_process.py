"""Runs the stream that plans for a control plane, and follows what it writes.

The stream is a process of its own, `distributary pipeline stream`. It is started again when it
ends, after pauses that grow, and when it finishes no batch for long although rows wait, each time
after twice as long. If it fails again and again before its first batch, its folder may be damaged:
then it begins with an empty one. It ends with this process. A folder that cannot be written, such
as on a full disk, is tried again and again: only the stream waits for it.
"""

from __future__ import annotations

import asyncio
import json
import time
from asyncio.subprocess import PIPE
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from distributary.control.messages import Proposed
from distributary.control.nats.stream_command import make_command, show_command
from distributary.control.nats.stream_files import StreamFiles
from distributary.control.nats.stream_history import StreamHistory, read_version
from distributary.control.settings import ControlSettings
from distributary.control.status import StreamState, StreamStatus
from distributary.errors import OutputError, StateError
from distributary.machines.real.log_lines import Log, LogLine
from distributary.machines.real.processes import describe_end, end_process, start_process
from distributary.machines.real.tasks import own_tasks

__all__ = ["SparkChoice", "StreamProcess"]

_LOOK_EVERY = 1.0  # seconds between two looks at the history, and reports
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds before another start
_ROOM_EVERY = 1.0  # seconds between two attempts to write to a folder
# Without a batch while rows wait, before another start: seconds and triggers at least, and at most.
_HUNG, _HUNG_TRIGGERS, _LONGEST_HUNG = 180.0, 20, 3600.0
_FRESH_AFTER = 3  # failures in a row without a batch
_LAST_WORDS_WITHIN = 1.0  # seconds after its end
_LINES = 20  # of its errors, to find the last words in


@dataclass(frozen=True, slots=True)
class SparkChoice:
    """Who runs Spark: we (`embedded`), the user (`external`), or nobody (`off`).

    `options` are more words of the command line, such as `--master`. `command` makes the command
    that runs the stream.
    """

    mode: Literal["embedded", "external", "off"] = "embedded"
    options: Sequence[str] = ()
    command: Callable[[StreamFiles, ControlSettings, Sequence[str]], list[str]] = make_command


class StreamProcess:
    """Keeps the stream running, and tells its status and its plans."""

    def __init__(
        self,
        files: StreamFiles,
        choice: SparkChoice,
        settings: ControlSettings,
        *,
        on_status: Callable[[StreamStatus], None],
        on_plan: Callable[[Proposed], None],
        log: Log,
    ) -> None:
        self._files, self._choice, self._settings = files, choice, settings
        self._on_status, self._on_plan, self._log = on_status, on_plan, log
        state: StreamState = "external" if choice.mode == "external" else "off"
        self._status = StreamStatus(state)
        self._history = StreamHistory(files.out)
        self._files_read, self._version = 0, 0
        self._seconds: dict[int, tuple[float, float | None]] = {}  # of a batch, and planning
        self._looked = asyncio.Event()
        self._again = asyncio.Event()
        self._errors: deque[str] = deque(maxlen=_LINES)
        self._failures = 0  # in a row without a batch
        self._batch_at = 0.0  # by the monotonic clock
        self._hung = ""  # for how long the process was, if it was ended for that

    def restart(self, settings: ControlSettings) -> None:
        """Start again with other settings."""
        self._settings = settings
        self._again.set()

    async def run(self) -> None:
        """Run the stream until cancelled."""
        if self._choice.mode == "off":
            self._tell()
            return
        if self._choice.mode == "embedded":
            self._note(state="starting")
        await self._begin()
        async with own_tasks() as start:
            start(self._files.run())
            start(self._follow())
            if self._choice.mode == "embedded":
                await self._keep_running()
            else:
                await self._show_commands()

    async def _show_commands(self) -> None:
        """Print the command for the user to run, anew when the settings change."""
        while True:
            try:
                command = self._choice.command(self._files, self._settings, self._choice.options)
            except OutputError as error:
                self._files.note_trouble(error)
                await asyncio.sleep(_ROOM_EVERY)
                continue
            self._log(LogLine("info", "run the stream yourself", show_command(command)))
            await self._again.wait()
            self._again.clear()

    # --- the process ------------------------------------------------------------------------------

    async def _keep_running(self) -> None:
        while True:
            batch = self._status.batch
            reason = await self._run_once()
            if self._again.is_set():
                self._again.clear()
                self._note(state="starting")
                continue
            self._failures = 1 if self._status.batch != batch else self._failures + 1
            self._note(state="restarting", restarts=self._status.restarts + 1, last_error=reason)
            self._log(LogLine("warning", "stream", f"it {reason} and is started again"))
            await asyncio.sleep(min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2 ** (self._failures - 1)))
            if self._failures % _FRESH_AFTER == 0:
                self._log(LogLine("warning", "stream", "it begins with an empty folder"))
                await self._begin()

    async def _begin(self) -> None:
        """Begin with an empty folder, as soon as it can be written."""
        while True:
            try:
                self._files.begin()
            except StateError as error:
                self._files.note_trouble(error)
                await asyncio.sleep(_ROOM_EVERY)
            else:
                break
        self._history = StreamHistory(self._files.out)
        self._files_read, self._version = 0, 0
        self._status = msgspec.structs.replace(self._status, batch=-1)

    async def _run_once(self) -> str:
        """Run the process until it ends, or is to start again; returns how it ended."""
        self._errors.clear()
        self._hung = ""
        try:
            command = self._choice.command(self._files, self._settings, self._choice.options)
            process = await start_process(command, stdout=PIPE, stderr=PIPE)
        except OutputError as error:
            return f"cannot be started: {error}"
        except OSError as error:
            return f"cannot be started: {(error.strerror or str(error)).lower()}"
        try:
            async with own_tasks() as start:
                start(self._end_for_restart(process))
                start(self._end_if_hung(process))
                async with own_tasks() as start_reading:
                    told = asyncio.Event()
                    start_reading(self._read_errors(process, told))
                    await self._read_lines(process)
                    status = await process.wait()
                    with suppress(TimeoutError):  # a child of its own may hold the other end
                        async with asyncio.timeout(_LAST_WORDS_WITHIN):
                            await told.wait()
        finally:
            await end_process(process)
        return self._hung or self._describe_end(status)

    async def _end_for_restart(self, process: asyncio.subprocess.Process) -> None:
        await self._again.wait()
        await end_process(process)

    async def _end_if_hung(self, process: asyncio.subprocess.Process) -> None:
        """End a process that lives, and finishes no batch although rows wait."""
        began = time.monotonic()
        least = max(_HUNG, _HUNG_TRIGGERS * self._settings.trigger)
        patience = min(max(least, _LONGEST_HUNG), least * 2.0 ** min(self._failures, 30))
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            quiet = time.monotonic() - max(began, self._batch_at)
            if min(quiet, self._files.behind_s) > patience:
                rows = f"{self._files.behind_rows:,} rows waited"
                self._hung = f"finished no batch for {quiet:,.0f} seconds, while {rows}"
                await end_process(process)
                return

    async def _read_lines(self, process: asyncio.subprocess.Process) -> None:
        """Take the lines of batches, which come after what they tell of is in place."""
        assert process.stdout is not None
        async for line in _read_lines(process.stdout):
            with suppress(ValueError, KeyError, TypeError):
                found = json.loads(line)
                times = float(found["seconds"]), found.get("planning_seconds")
                self._seconds = {int(found["batch"]): times}
                self._looked.set()

    async def _read_errors(self, process: asyncio.subprocess.Process, told: asyncio.Event) -> None:
        """Keep the last lines of its errors; `told` is set at their end."""
        assert process.stderr is not None
        async for line in _read_lines(process.stderr):
            text = line.decode(errors="replace").strip()
            if text:
                self._errors.append(text)
        told.set()

    def _describe_end(self, status: int) -> str:
        how = describe_end(status)
        said = [line for line in self._errors if "error:" in line.lower()] or [*self._errors]
        return f"{how} ({said[-1][:500]})" if said else how

    # --- what it writes ---------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Read the history as it grows, and tell the status."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._looked.wait()
            self._looked.clear()
            history = self._history
            entries = await asyncio.to_thread(history.read)
            if entries and history is self._history:
                await self._take(entries)
            self._tell()

    async def _take(self, entries: Sequence[Any]) -> None:
        last = entries[-1]
        self._batch_at = time.monotonic()
        self._files_read += sum(int(entry["files"]) for entry in entries)
        self._files.note_read(self._files_read)
        rows, reasons = await asyncio.to_thread(self._history.read_counts)
        seconds, planning = self._seconds.get(last["batch"], (None, None))
        state: StreamState = "external" if self._choice.mode == "external" else "running"
        self._note(
            state=state,
            batch=last["batch"],
            batch_at=time.time(),
            batch_seconds=seconds,
            planning_seconds=planning,
            rows=rows or self._status.rows,
            quarantined=reasons,
            drift=last.get("drift"),
            excess=last.get("excess"),
            refused=last.get("refused", ""),
        )
        if last["version"] != self._version:
            plan = await asyncio.to_thread(read_version, self._files.out, last["version"])
            if plan is not None:
                self._version = last["version"]
                self._on_plan(Proposed(last["version"], plan, last))

    def _note(self, **changes: Any) -> None:
        self._status = msgspec.structs.replace(self._status, **changes)
        self._tell()

    def _tell(self) -> None:
        files = self._files
        self._on_status(
            msgspec.structs.replace(
                self._status, behind_rows=files.behind_rows, behind_s=files.behind_s
            )
        )


async def _read_lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines; those that are too long are left out."""
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            continue
        if not line:
            return
        yield line
