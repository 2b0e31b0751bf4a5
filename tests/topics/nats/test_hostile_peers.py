"""Whatever a peer or a stranger sends: it is dropped, and the service and its clients go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.nats.options import connect_to_server
from distributary.machines.nats.subjects import token_of
from distributary.topics import codec as codec_of_live
from distributary.topics.codec import decode
from distributary.topics.nats import NatsOptions, run_embedded_server
from tests.topics.nats.running import client, run, serving

KINDS = sorted(codec_of_live._KINDS)
HEADERS = (
    b"NATS/1.0",
    b"NATS/1.0 \xff\xff\xff\r\n\r\n",
    b"NATS/1.0 503\xff\r\n\r\n",
    b"NATS/1.0 200 \xc3\x28\r\n\r\n",
    b"NATS/1.0\r\n\xff: \xfe\r\n\r\n",
    b"NATS/1.0\r\n: \r\n",
    b"\x00",
)


def nest(kind: str, opening: bytes, depth: int) -> bytes:
    """A message of a kind whose content is `depth` arrays or maps within each other."""
    name = kind.encode()
    return b"\x93" + bytes([0xA0 + len(name)]) + name + b"\xa8client/x" + opening * depth + b"\xc0"


@given(
    kind=st.sampled_from([*KINDS, "Event"]),
    opening=st.sampled_from([b"\x91", b"\x81\xa1k", b"\xdc\x00\x01", b"\x93\x01\xa1a"]),
    depth=st.sampled_from([2, 100, 1_000, 1_500, 10_000, 200_000]),
)
def test_a_deeply_nested_message_is_refused_like_any_other(
    kind: str, opening: bytes, depth: int
) -> None:
    with suppress(ValueError):  # nothing else may come; what a kind does not know is passed over
        decode(nest(kind, opening, depth))


class Raw:
    """A peer that speaks the wire protocol, and says there what no client library would."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, subject: bytes, data: bytes, reply: bytes = b"") -> None:
        self.writer.write(b"PUB %s %s %d\r\n%s\r\n" % (subject, reply, len(data), data))

    def say_with_headers(self, subject: bytes, headers: bytes, data: bytes) -> None:
        sizes = (len(headers), len(headers) + len(data))
        self.writer.write(b"HPUB %s %d %d\r\n%s%s\r\n" % (subject, *sizes, headers, data))

    async def settle(self) -> None:
        """Return once the server has taken all that was said."""
        self.writer.write(b"PING\r\n")
        while (line := await self.reader.readline()) != b"PONG\r\n":
            assert line, "the server has closed the connection"
            assert not line.startswith(b"-ERR"), line


@asynccontextmanager
async def raw(options: NatsOptions) -> AsyncIterator[Raw]:
    host, _, port = options.url.removeprefix("nats://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    await reader.readline()
    told = {"auth_token": options.token, "verbose": False, "headers": True}
    writer.write(b"CONNECT %s\r\n" % json.dumps(told).encode())
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()


async def say_all_that_is_odd(peer: Raw, subjects: list[bytes]) -> None:
    for subject in subjects:
        wild = subject.rpartition(b".")[0]
        for odd in (b"\xff\xfe", b"\xc3\x28", b"%FF", b"%", "ü".encode()):
            peer.say(wild + b"." + odd, b"x")
        for reply in (b"\xff\xfe", b"a..b", b"*", b">", b"$SYS.REQ.SERVER.PING"):
            peer.say(subject, b"x", reply)
            peer.say(subject, nest("Create", b"\x91", 0)[:-1] + b"\x91\xcb" + bytes(8), reply)
        for headers in HEADERS:
            peer.say_with_headers(subject, headers, b"x")
        for kind in ("Join", "Event", "Pulse", "Create"):
            peer.say(subject, nest(kind, b"\x91", 1_500))
        peer.say(subject, b"")
    await peer.settle()


def test_the_service_outlives_whatever_it_is_sent(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path) as service,
            client(server.options) as other,
            raw(server.options) as peer,
        ):
            topic = f"distributary.to.{token_of('topic/t')}".encode()
            await other.create("t")
            await say_all_that_is_odd(
                peer, [topic, b"distributary.status", b"distributary.claim", b"distributary.to.x"]
            )
            assert await other.create("u")  # on the same connection, after all that
            await other.publish("u", b"heard")
            assert service.status().accepted == 1
            assert service.status().refused > len(HEADERS)

    run(work())


def test_a_client_outlives_whatever_it_is_sent(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path),
            client(server.options) as reader,
            client(server.options) as writer,
            raw(server.options) as peer,
        ):
            await writer.create("t")
            subscription = await reader.subscribe("t")
            inbox = f"distributary.client.{token_of(reader.name)}".encode()
            channel = f"distributary.on.{token_of('topic/t')}".encode()
            await say_all_that_is_odd(peer, [inbox, channel])
            for number in range(1, 4):
                await writer.publish("t", b"%d" % number)
                event = await subscription.get()
                assert event is not None
                assert (event.number, event.payload) == (number, b"%d" % number)

    run(work())


def test_a_connection_that_went_deaf_comes_back() -> None:
    async def work() -> None:
        async with run_embedded_server() as server:
            for task in ("_reading_task", "_flusher_task"):
                back, heard = asyncio.Event(), asyncio.Event()

                async def come_back(back: asyncio.Event = back) -> None:
                    back.set()

                async def hear(message: object, heard: asyncio.Event = heard) -> None:
                    heard.set()

                async with connect_to_server(
                    server.options, name="t", on_reconnect=come_back
                ) as nc:
                    await nc.subscribe("t", cb=hear)
                    await nc.flush()
                    getattr(nc, task).cancel()  # as an error in it would end it
                    await back.wait()
                    await nc.publish("t", b"")
                    await heard.wait()

    run(work())


def test_a_stranger_that_does_not_speak_nats_is_outwaited() -> None:
    """A server goes, others answer in its place for a while, and then it is back."""
    info = b'INFO {"server_id": "x", "max_payload": 1000, "headers": true}\r\n'
    greetings = [info, b"\xff" * 200_000, b"INFO 5\r\n", b"INFO []\r\n", b"", b"HTTP/1.0\r\n", info]
    calls = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        greeting = greetings[min(calls, len(greetings) - 1)]
        calls += 1
        first = calls == 1
        writer.write(greeting)
        while greeting == info and (line := await reader.readline()):
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
                await writer.drain()
                if first:
                    break
        writer.close()

    async def work() -> None:
        back = asyncio.Event()

        async def come_back() -> None:
            back.set()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as strangers:
            port = strangers.sockets[0].getsockname()[1]
            options = NatsOptions(f"nats://127.0.0.1:{port}")
            async with connect_to_server(options, name="t", on_reconnect=come_back):
                await back.wait()
            assert calls >= len(greetings)

    run(work())
