"""The processes of a soak: each can be killed, suspended and started again.

Members are forked from a process that has imported everything; services are commands. All end with
the process that started them.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

__all__ = ["Command", "Member", "Process", "find_child", "make_forks"]

PATIENCE: Final = 60.0  # seconds in which a process ends that was told to
_PR_SET_PDEATHSIG = 1
# Libraries that start threads when they are imported, and how to tell them not to.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


class Process(ABC):
    """A process with a name, in its present run; the first run is 1."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.run = 0
        self._ended = asyncio.Event()
        self._lock = asyncio.Lock()
        self._is_expected = True  # that it is not running

    @property
    @abstractmethod
    def pid(self) -> int:
        """The id of the process."""

    @property
    def is_running(self) -> bool:
        """Whether it was started, and has not ended."""
        return self.run > 0 and not self._ended.is_set()

    @property
    def failed(self) -> bool:
        """Whether it has ended by itself."""
        return self.run > 0 and self._ended.is_set() and not self._is_expected

    def start(self) -> None:
        """Begin the next run."""
        self.run += 1
        self._ended, self._is_expected = asyncio.Event(), False
        self._start()
        self._watching = asyncio.create_task(self._watch(self._ended))

    async def kill(self, pause: float) -> bool:
        """Kill it, and start it again after a pause; whether it was running."""
        async with self._lock:
            if not self.is_running:
                return False
            await self.end(signal.SIGKILL)
            await asyncio.sleep(pause)
            self.start()
            return True

    async def suspend(self, seconds: float) -> bool:
        """Stop it, and let it go on later, unless it was killed meanwhile; whether it ran."""
        if not self.is_running:
            return False
        run, pid = self.run, self.pid
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        if self.run == run:
            self.send(signal.SIGCONT)
        return True

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.is_running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Let it end, and wait for that."""
        self._is_expected = True
        if self.is_running:
            self.send(number)
            self.send(signal.SIGCONT)
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._ended.wait()
            except TimeoutError:
                self.send(signal.SIGKILL)
                await self._ended.wait()
                self._is_expected = False  # it should have ended by itself

    async def _watch(self, ended: asyncio.Event) -> None:
        await self._wait()
        ended.set()

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    async def _wait(self) -> None: ...


def make_forks(module: str) -> multiprocessing.context.ForkServerContext:
    """A server of forks that has imported a module, and has no thread but one."""
    os.environ.update(_ONE_THREAD)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module])
    return context


class Member(Process):
    """A fork that calls a function with the number of its run and other arguments."""

    def __init__(
        self,
        name: str,
        forks: multiprocessing.context.ForkServerContext,
        work: Callable[..., None],
        make_arguments: Callable[[int], tuple[Any, ...]],
    ) -> None:
        super().__init__(name)
        self._forks, self._work, self._make_arguments = forks, work, make_arguments
        self._process: multiprocessing.context.ForkServerProcess

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def _start(self) -> None:
        arguments = self._make_arguments(self.run)
        self._process = self._forks.Process(target=self._work, args=arguments, name=self.name)
        self._process.start()

    async def _wait(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        sentinel = self._process.sentinel
        loop.add_reader(sentinel, ended.set)
        await ended.wait()
        loop.remove_reader(sentinel)
        self._process.join()


class Command(Process):
    """A command, whose output goes to files in a folder."""

    def __init__(self, name: str, words: Sequence[str], folder: Path) -> None:
        super().__init__(name)
        self._words, self._folder = list(words), folder
        self._process: asyncio.subprocess.Process
        self._popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._popen.pid

    def _start(self) -> None:
        with (self._folder / f"{self.name}.{self.run}.log").open("wb") as log:
            self._popen = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    async def _wait(self) -> None:
        descriptor = os.pidfd_open(self._popen.pid)
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
        loop.remove_reader(descriptor)
        os.close(descriptor)
        self._popen.wait()


def find_child(pid: int, *words: str) -> int | None:
    """A child of a process whose command line has these words."""
    with suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in children:
            line = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if {word.encode() for word in words} <= set(line):
                return int(child)
    return None


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
