"""The parts of a system as processes: kept running, heard, and ended."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Sequence

from distributary.machines.real.log_lines import Log, LogLine
from distributary.machines.real.processes import describe_end, end_process, start_process
from distributary.system.errors import PartFailedError
from distributary.system.part_log import PartLog

__all__ = ["Part"]

_QUICK = 10.0  # seconds; an end so soon counts as a failed start
_QUICK_ENDS = 5  # failed starts in a row, before the part counts as broken
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds before another start


class Part:
    """A process with a name that is started again when it ends.

    It ends everything (`PartFailedError`) if it fails before it has ever been ready, or again and
    again as soon as it is started. `make_command` is called before each start. `is_ready` gets each
    line that it says, on stderr and, unless `drops_results`, on stdout; it returns whether the line
    shows that the part works now. With `takes_lines` it reads those that are sent.
    """

    def __init__(
        self,
        name: str,
        make_command: Callable[[], Sequence[str]],
        log: PartLog,
        tell: Log,
        *,
        is_ready: Callable[[str], bool],
        drops_results: bool = False,
        takes_lines: bool = False,
        end_within: float = 10.0,
    ) -> None:
        self.name = name
        self.ready = asyncio.Event()  # while it works
        self._has_been_ready = False
        self._make_command, self._log, self._tell = make_command, log, tell
        self._is_ready, self._drops_results = is_ready, drops_results
        self._takes_lines, self._end_within = takes_lines, end_within
        self._process: Process | None = None

    async def run(self) -> None:
        """Keep it running until cancelled; then it has ended, with all that it started."""
        quick_ends, loop = 0, asyncio.get_running_loop()
        while True:
            began = loop.time()
            status = await self._run_once()
            quick_ends = quick_ends + 1 if loop.time() - began < _QUICK else 0
            if (status > 0 and not self._has_been_ready) or quick_ends >= _QUICK_ENDS:
                raise PartFailedError(self.name, describe_end(status), self._log.last_words)
            said = self._log.last_words if status > 0 else ""
            because = f" ({said})" if said else ""
            says = f"{describe_end(status)}{because} and is started again"
            self._tell(LogLine("warning", self.name, says))
            await asyncio.sleep(min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2**quick_ends))

    async def send(self, lines: bytes) -> bool:
        """Write lines to its stdin once it is ready, and wait while it has more than enough.

        Returns False if it ends meanwhile.
        """
        await self.ready.wait()
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            return False
        process.stdin.write(lines)
        try:
            await process.stdin.drain()
        except ConnectionError:
            return False
        return True

    # --- the process ------------------------------------------------------------------------------

    async def _run_once(self) -> int:
        """Run the process until it ends; returns its exit status."""
        self._log.begin()
        try:
            process = await start_process(
                self._make_command(),
                stdin=PIPE if self._takes_lines else DEVNULL,
                stdout=DEVNULL if self._drops_results else PIPE,
                stderr=PIPE if self._drops_results else STDOUT,
            )
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise PartFailedError(self.name, "cannot be started", reason) from error
        self._process = process
        try:
            await self._listen(process)
            return await process.wait()
        finally:
            self._process = None
            self.ready.clear()
            await end_process(process, self._end_within)

    async def _listen(self, process: Process) -> None:
        """Hear it until it ends."""
        said = process.stderr or process.stdout
        assert said is not None
        async for line in _read_lines(said):
            self._log.write(line)
            if self._is_ready(line):
                self._has_been_ready = True
                self.ready.set()


async def _read_lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield lines; those that are too long are left out."""
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            continue
        if not line:
            return
        yield line.decode(errors="replace").rstrip()
