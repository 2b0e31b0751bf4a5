"""What is used instead of content brokers: NATS JetStream, and RabbitMQ's headers exchange."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import venv
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

from benchmarks.brokers_load import Driven, Load, Readings, Trade, drive

_START_WITHIN = 60.0


# --- NATS JetStream -------------------------------------------------------------------------------


async def measure_jetstream(load: Load, *, fsync: bool) -> Driven:
    """A subject per symbol, a durable consumer per client, the rest of the filter at the client."""
    async with _jetstream_server(fsync=fsync) as (address, pid), AsyncExitStack() as stack:
        readings = Readings()
        publisher = await nats.connect(address)
        stack.push_async_callback(publisher.close)
        stream = publisher.jetstream()
        await stream.add_stream(
            StreamConfig(name="trades", subjects=["trades.*"], storage=StorageType.FILE)
        )
        for client in range(len(load.wanted)):
            connection = await nats.connect(address)
            stack.push_async_callback(connection.close)
            await _consume(connection, client, load, readings)

        async def publish(trade: Trade, payload: bytes) -> None:
            body = f"{trade.venue} {trade.price} ".encode() + payload
            await stream.publish(f"trades.{trade.symbol}", body, timeout=60)

        return await drive(publish, readings, load, [pid])


async def _consume(
    connection: Client,
    client: int,
    load: Load,
    readings: Readings,
) -> None:
    wanted = load.by_symbol(client)

    async def take(message: Msg) -> None:
        readings.messages += 1
        venue, price, at, sent = message.data.split()
        trade = Trade(message.subject.partition(".")[2], venue.decode(), int(price))
        if any(each.accepts(trade) for each in wanted.get(trade.symbol, ())):
            readings.read(client, b"%s %s" % (at, sent))
        await message.ack()

    await connection.jetstream().subscribe(
        "",
        durable=f"client-{client}",
        stream="trades",
        cb=take,
        manual_ack=True,
        config=ConsumerConfig(
            filter_subjects=[f"trades.{symbol}" for symbol in sorted(wanted)],
            ack_policy=AckPolicy.EXPLICIT,
            max_ack_pending=10_000,
        ),
        pending_msgs_limit=-1,
    )


@asynccontextmanager
async def _jetstream_server(*, fsync: bool) -> AsyncIterator[tuple[str, int]]:
    """A server on a free loopback port, ended by its id; its address and id."""
    with TemporaryDirectory(prefix="brokers-nats-") as folder:
        config = Path(folder) / "nats.conf"
        sync = "always" if fsync else "2m"  # 2m is the default
        config.write_text(
            'host: "127.0.0.1"\nport: -1\n'
            f'jetstream {{ store_dir: "{folder}/store", sync_interval: {sync} }}\n'
        )
        server = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("nats-server"),
            *("-c", str(config)),
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield await asyncio.wait_for(_listening(server), _START_WITHIN), server.pid
        finally:
            server.terminate()
            await asyncio.wait_for(server.communicate(), _START_WITHIN)


async def _listening(server: asyncio.subprocess.Process) -> str:
    assert server.stderr is not None
    found = ""
    async for line in server.stderr:
        if match := re.search(rb"client connections on (127\.0\.0\.1:\d+)", line):
            found = f"nats://{match[1].decode()}"
        if b"Server is ready" in line:
            return found
    raise RuntimeError("nats-server ended before it listened")


# --- RabbitMQ -------------------------------------------------------------------------------------


class RabbitMissingError(Exception):
    """RabbitMQ, or a Python client for it, is not on this machine; the text says which."""


@contextmanager
def prepare_rabbit_python() -> Iterator[Path]:
    """The Python of a virtual environment with a client of RabbitMQ, which is removed afterwards.

    Our own environment never has that client.
    """
    if _rabbit_program() is None:
        raise RabbitMissingError("no rabbitmq-server is installed")
    with TemporaryDirectory(prefix="brokers-rabbit-venv-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        install = [str(python), "-m", "pip", "install", "--quiet", "aio-pika"]
        if subprocess.run(install, capture_output=True).returncode:
            raise RabbitMissingError("its Python client aio-pika cannot be installed")
        yield python


def measure_rabbit(python: Path, load: Load) -> Driven:
    """A headers exchange with a binding per client, symbol and venue; prices at the client."""
    with _rabbit_server() as (url, pid), TemporaryDirectory() as scratch:
        given, found = Path(scratch) / "load", Path(scratch) / "driven"
        given.write_bytes(pickle.dumps(load))
        words = [url, str(pid), str(given), str(found)]
        subprocess.run(
            [python, "-m", "benchmarks.peers.rabbit_clients", *words],
            cwd=Path(__file__).parents[1],
            check=True,
            timeout=900,
        )
        driven: Driven = pickle.loads(found.read_bytes())
        return driven


def _rabbit_program() -> Path | None:
    """The start script itself: Debian's command around it insists on its own user and folders."""
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    other = shutil.which("rabbitmq-server")
    return found[-1] if found else Path(other) if other else None


@contextmanager
def _rabbit_server() -> Iterator[tuple[str, int]]:
    """A node of its own on loopback, with its own port mapper; its URL and id."""
    program, mapper = _rabbit_program(), shutil.which("epmd")
    if program is None or mapper is None:
        raise RabbitMissingError("no rabbitmq-server is installed")
    with TemporaryDirectory(prefix="brokers-rabbit-") as folder:
        port, far, near = _free_ports(3)
        environment = _rabbit_environment(Path(folder), port, far, near)
        mapping = subprocess.Popen([mapper, "-address", "127.0.0.1", "-port", str(near)])
        with (Path(folder) / "out").open("wb") as out:
            server = subprocess.Popen([program], env=environment, stdout=out, stderr=out)
        try:
            _await_port(port, server)
            yield f"amqp://guest:guest@127.0.0.1:{port}/", server.pid
        finally:
            for each in (server, mapping):
                each.terminate()
                try:
                    each.wait(_START_WITHIN)
                except subprocess.TimeoutExpired:
                    each.kill()
                    each.wait()


def _rabbit_environment(folder: Path, port: int, far: int, near: int) -> dict[str, str]:
    (folder / "env.conf").touch()
    (folder / "plugins").write_text("[].\n")
    (folder / "rabbit.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(near),
        "RABBITMQ_BASE": str(folder),
        "RABBITMQ_NODENAME": f"bench-{secrets.token_hex(4)}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(far),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "env.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbit.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }


def _await_port(port: int, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_WITHIN
    while time.monotonic() < until and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RabbitMissingError("the installed RabbitMQ does not start here")


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports
