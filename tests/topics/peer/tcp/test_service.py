"""Peers in this process: who is let in, what is stored, how a ring is found, what is shown."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distributary.errors import LiveError, StateError
from distributary.machines.real import Tokens, parse_address
from distributary.machines.real.trust import Trust
from distributary.topics.codec import Created
from distributary.topics.errors import PayloadTooLargeError, UnknownTopicError
from distributary.topics.live import ClientSettings, TopicClient, WhenFull
from distributary.topics.nats import NatsOptions
from distributary.topics.nats.client import NatsClient
from distributary.topics.overlay.identifiers import make_peer
from distributary.topics.overlay.messages import KeepAlive, LivenessProbe, Route
from distributary.topics.peer.codec import RING
from distributary.topics.peer.messages import ToClient, Vouch
from distributary.topics.peer.tcp import (
    PeerAwayError,
    PeerOptions,
    PeerRefusedError,
    PeerService,
    PeerSettings,
    TopicWaitsError,
    fetch_status,
)
from distributary.topics.peer.tcp.client import RingClient
from distributary.topics.peer.tcp.greeting import (
    Hello,
    Welcome,
    find_fault,
    read_answer,
    read_hello,
    write,
)
from distributary.topics.peer.tcp.metrics import collect_metrics
from distributary.topics.peer.tcp.policy import live_peer_policy
from tests.content.tcp.services import Authority
from tests.topics.peer.tcp.processes import PATIENCE, find_ports

HOST = "127.0.0.1"
SETTINGS = ClientSettings(connect_within=PATIENCE, timeout=PATIENCE, beat_every=1.0)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 2 * PATIENCE))


class Running:
    """A peer in this process, with the lines that it reports."""

    def __init__(self, folder: Path, *join: str, port: int | None = None, **given: Any) -> None:
        listen = parse_address(f"{HOST}:{find_ports(1)[0] if port is None else port}")
        joined = tuple(map(parse_address, join))
        self.lines: list[str] = []
        settings = PeerSettings(listen, folder, joined, **({"copies": 2} | given))
        self.service = PeerService(settings, report=self.lines.append)

    @property
    def name(self) -> str:
        return self.service.name

    async def until(self, words: str) -> None:
        """Wait until it reports something."""
        async with asyncio.timeout(PATIENCE):
            while not any(words in line for line in self.lines):
                await asyncio.sleep(0.02)


@asynccontextmanager
async def serve(
    folder: Path, *join: str, joins: bool = True, **given: Any
) -> AsyncIterator[Running]:
    """Run a peer until the end of the block."""
    peer = Running(folder, *join, **given)
    service = peer.service
    async with asyncio.TaskGroup() as group:
        running = group.create_task(service.run())
        ready = service.joined if joins else service.started
        waiting = asyncio.create_task(ready.wait())
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not running.done():
            yield peer
            service.stop()


async def check_delivery(publisher: PeerOptions, reader: PeerOptions) -> None:
    async with TopicClient(publisher, SETTINGS) as one, TopicClient(reader, SETTINGS) as other:
        await one.create("t")
        subscription = await other.subscribe("t")
        await asyncio.gather(*(one.publish("t", b"%d" % at) for at in range(300)))
        got = [await subscription.get() for _ in range(300)]
        assert [event.payload for event in got if event] == [b"%d" % at for at in range(300)]
        assert one.statistics.published == other.statistics.delivered == 300


# --- clients -------------------------------------------------------------------------------------


def test_the_options_choose_the_class_of_a_client() -> None:
    assert isinstance(TopicClient(PeerOptions("127.0.0.1:1")), RingClient)
    assert isinstance(TopicClient(NatsOptions()), NatsClient)
    assert isinstance(TopicClient(), NatsClient)


def test_topics_are_created_used_and_removed_at_any_peer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(tmp_path / "a") as a, serve(tmp_path / "b", a.name) as b:
            await check_delivery(PeerOptions(a.name), PeerOptions(b.name))
            async with TopicClient(PeerOptions(b.name), SETTINGS) as client:
                assert isinstance(client, RingClient)
                assert not await client.create("t")
                with pytest.raises(UnknownTopicError):
                    await client.subscribe("another")
                with pytest.raises(UnknownTopicError):
                    await client.publish("another", b"x")
                with pytest.raises(PayloadTooLargeError, match="at most 1,048,576 are accepted; s"):
                    await client.publish("t", bytes((1 << 20) + 1))
                await client.publish("t", bytes(1 << 20))
                assert await client.create("another")
                await client.publish("another", b"x")
                subscription = await client.subscribe("another")
                assert await client.remove("another")
                assert not await client.remove("another")
                with pytest.raises(UnknownTopicError):
                    await subscription.get()

    run(scenario())


def test_a_client_that_no_peer_answers_says_so() -> None:
    async def scenario() -> None:
        address = f"{HOST}:{find_ports(1)[0]}"
        with pytest.raises(PeerAwayError, match=rf"{address}: no peer answers \(connection refus"):
            async with TopicClient(PeerOptions(address), ClientSettings(connect_within=0.3)):
                pass
        with pytest.raises(PeerAwayError):
            await fetch_status(PeerOptions(address), within=0.3)

    run(scenario())


def test_a_request_that_nobody_answers_though_the_peer_runs_says_so(tmp_path: Path) -> None:
    """The peer is no part of a ring yet, so nobody can tell whether the topic exists."""

    async def scenario() -> None:
        nobody = f"{HOST}:{find_ports(1)[0]}"
        async with serve(tmp_path / "a", nobody, joins=False) as a:
            settings = replace(SETTINGS, timeout=0.3)
            async with TopicClient(PeerOptions(a.name), settings) as client:
                for ask in (client.create, client.subscribe, client.remove):
                    with pytest.raises(TopicWaitsError, match=f"'t' did not .* {a.name} runs"):
                        await ask("t")

    run(scenario())


def test_a_slow_reader_gets_everything_in_order_or_drops_the_oldest(tmp_path: Path) -> None:
    waiting = replace(SETTINGS, capacity=5)
    dropping = replace(SETTINGS, capacity=5, when_full=WhenFull.DROP_OLDEST)

    async def scenario() -> None:
        async with serve(tmp_path / "a") as a:
            options = PeerOptions(a.name)
            async with (
                TopicClient(options, SETTINGS) as publisher,
                TopicClient(options, waiting) as patient,
                TopicClient(options, dropping) as hasty,
            ):
                await publisher.create("t")
                all_of_it, the_last = [await each.subscribe("t") for each in (patient, hasty)]
                await asyncio.gather(*(publisher.publish("t", b"%d" % at) for at in range(200)))
                while hasty.statistics.delivered < 200:
                    await asyncio.sleep(0.01)
                assert len(all_of_it) == len(the_last) == 5
                got = [await all_of_it.get() for _ in range(200)]
                assert [event.number for event in got if event] == [*range(1, 201)]
                assert (await the_last.get()).number == 196  # type: ignore[union-attr]
                assert the_last.dropped == 195

    run(scenario())


# --- the ring ------------------------------------------------------------------------------------


def test_the_status_and_the_metrics_show_the_ring_as_a_peer_sees_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            serve(tmp_path / "a") as a,
            serve(tmp_path / "b", a.name) as b,
            TopicClient(PeerOptions(a.name), SETTINGS, name="ann") as client,
        ):
            await client.create("t")
            await client.publish("t", b"x")
            await a.until(f"linked with {b.name}")
            found = [await fetch_status(PeerOptions(each.name)) for each in (a, b)]
            assert found[0].active
            assert found[0].neighbours == found[0].links == [b.name]
            assert [each.split("/")[1] for each in found[0].clients] == ["ann"]
            assert [each.kept for each in found] == [1, 1]
            hosted = [topic for each in found for topic in each.topics]
            assert [(one.topic, one.events) for one in hosted] == [("t", 1)]
            assert sum(each.accepted for each in found) == 1
            assert found[0].document()["copies"] == 2
            metrics = {each.name: each for each in collect_metrics(*a.service.statistics())}
            assert metrics["distributary_peer_kept"].samples[0].value == 1
            assert metrics["distributary_peer_clients"].samples[0].value == 1

    run(scenario())


def test_a_new_peer_waits_for_the_one_that_it_is_told_to_join(tmp_path: Path) -> None:
    async def scenario() -> None:
        (port,) = find_ports(1)
        async with serve(tmp_path / "b", f"{HOST}:{port}", joins=False) as b:
            await b.until(f"{HOST}:{port} cannot be reached: connection refused")
            assert not b.service.joined.is_set()
            async with serve(tmp_path / "a", port=port) as a, asyncio.timeout(PATIENCE):
                await b.service.joined.wait()
                assert [*b.service.peer.overlay.pastry.leaves.members] == [a.name]

    run(scenario())


def test_two_processes_cannot_be_the_same_peer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(tmp_path / "a") as a:
            with pytest.raises(ExceptionGroup) as failed:
                async with serve(tmp_path / "b", port=parse_address(a.name).port):
                    pass
            assert "cannot be listened on (address already in use)" in str(failed.value.exceptions)
            own = parse_address(a.name)
            async with serve(tmp_path / "c", a.name, joins=False, advertise=own) as c:
                assert c.name == a.name  # told to join itself, it is a ring of its own
            async with serve(tmp_path / "b", a.name) as b:
                taken = parse_address(b.name)
                async with serve(tmp_path / "d", a.name, joins=False, advertise=taken) as d:
                    await d.until(f"it refuses this peer: there is another peer {b.name}")
                    assert not d.service.joined.is_set()

    run(scenario())


def find_warnings(peer: Running, other: Running) -> list[str]:
    begin = f"warning: {other.name}: "
    return [line.removeprefix(begin) for line in peer.lines if line.startswith(begin)]


def test_peers_with_other_options_are_warned_of_once_by_both_sides(tmp_path: Path) -> None:
    async def scenario() -> None:
        policy = live_peer_policy(history=10)
        async with (
            serve(tmp_path / "a") as a,
            serve(tmp_path / "b", a.name, copies=3, policy=policy) as b,
        ):
            await a.until("warning")
            await check_delivery(PeerOptions(a.name), PeerOptions(b.name))
            for _ in range(2):  # a further connection
                _, writer = await greet(
                    a.name, Hello("peer", b.name, b.service._session, keeps=b.service._keeps)
                )
                writer.close()
            assert find_warnings(a, b) == [
                "--copies is 3 there and 2 here, --history is 10 there and 1,000 here; "
                "give all peers of a ring the same"
            ]
            assert find_warnings(b, a) == [
                "--copies is 2 there and 3 here, --history is 1,000 there and 10 here; "
                "give all peers of a ring the same"
            ]

    run(scenario())


def test_peers_with_the_same_options_and_of_earlier_releases_are_not_warned_of(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with serve(tmp_path / "a") as a, serve(tmp_path / "b", a.name) as b:
            reader, writer = await greet(a.name, Hello("peer", "127.0.0.1:9", "0" * 16))
            del reader
            await a.until("linked with 127.0.0.1:9")
            writer.close()
            assert not [line for line in (*a.lines, *b.lines) if "warning" in line]

    run(scenario())


# --- trust ---------------------------------------------------------------------------------------


def test_certificates_prove_peers_and_clients(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    trust = Trust(certificates=True)
    tls = authority.issue("peer", HOST, unit="peer")
    fake = authority.issue("fake", HOST)
    ann = authority.issue("ann")

    async def scenario() -> None:
        async with (
            serve(tmp_path / "a", tls=tls, trust=trust) as a,
            serve(tmp_path / "b", a.name, tls=tls, trust=trust) as b,
        ):
            options = [PeerOptions(each.name, "ann", tls=ann) for each in (a, b)]
            await check_delivery(*options)
            async with serve(tmp_path / "c", a.name, joins=False, tls=fake, trust=trust) as c:
                await c.until("is not that of a peer: its subject lacks OU=peer")
                with pytest.raises(PeerRefusedError, match="OU=peer"):
                    async with TopicClient(PeerOptions(c.name, "ann", tls=ann)):
                        pass
            with pytest.raises(PeerRefusedError, match="the certificate is of 'ann', not of 'eve'"):
                async with TopicClient(PeerOptions(a.name, "eve", tls=ann)):
                    pass
            with pytest.raises(PeerAwayError, match="may want TLS"):
                async with TopicClient(PeerOptions(a.name), ClientSettings(connect_within=0.5)):
                    pass

    run(scenario())


def test_tokens_prove_peers_and_clients(tmp_path: Path) -> None:
    ports = find_ports(3)
    names = [f"{HOST}:{port}" for port in ports]
    known = {"client": {"ann": "token of client ann"}}
    good = Tokens({"peer": {name: f"token of peer {name}" for name in names[:2]}, **known})
    bad = Tokens({"peer": {names[2]: "token that nobody knows"}, **known})

    async def scenario() -> None:
        trust = Trust(tokens=good)
        async with (
            serve(tmp_path / "a", port=ports[0], trust=trust) as a,
            serve(tmp_path / "b", a.name, port=ports[1], trust=trust) as b,
            serve(tmp_path / "c", a.name, joins=False, port=ports[2], trust=Trust(tokens=bad)) as c,
        ):
            options = [PeerOptions(each.name, "ann", "token of client ann") for each in (a, b)]
            await check_delivery(*options)
            await c.until(f"the token is not that of peer '{names[2]}'")
            for name, token, words in [
                ("ann", "", "client 'ann' must prove its name by a token"),
                ("ann", f"token of peer {a.name}", "the token is not that of client 'ann'"),
            ]:
                with pytest.raises(PeerRefusedError, match=words):
                    async with TopicClient(PeerOptions(a.name, name, token)):
                        pass

    run(scenario())


def test_a_peer_outside_this_machine_proves_names_or_is_insecure(tmp_path: Path) -> None:
    async def scenario() -> None:
        listen = parse_address("192.0.2.1:7000")
        with pytest.raises(LiveError, match="anybody on the network could connect under any name"):
            await PeerService(PeerSettings(listen, tmp_path)).run()

    with pytest.raises(ValueError, match="say with --advertise where they can"):
        PeerSettings(parse_address("0.0.0.0:7000"), tmp_path)
    run(scenario())


@pytest.mark.parametrize(
    ("hello", "fault"),
    [
        (Hello("peer", "127.0.0.1:7000", "0" * 16), ""),
        (Hello("client", "", "0" * 16), ""),
        (Hello("client", "ann", "0" * 16), ""),
        (Hello("broker", "ann", "0" * 16), "the role must be"),
        (Hello("peer", "ann", "0" * 16), "a peer's name is its address"),
        (Hello("client", "ann", "0/../0"), "a session has 16 hexadecimal digits"),
        (Hello("client", "a\nb", "0" * 16), "printable"),
        (Hello("client", "a" * 101, "0" * 16), "at most 100 bytes"),
        (Hello("client", "ann", "0" * 16, versions=(2, 3)), "have none in common"),
    ],
)
def test_greetings_that_cannot_be_are_refused(hello: Hello, fault: str) -> None:
    assert read_hello(write(hello)) == hello
    assert find_fault(hello).startswith(fault) or fault in find_fault(hello)
    assert bool(find_fault(hello)) == bool(fault)


@pytest.mark.parametrize("data", [b"", b"\x00", b"hello", b"\x91" * 5_000])
def test_what_is_no_greeting_is_refused_too(data: bytes) -> None:
    assert read_hello(data) is None
    assert "something else" in str(read_answer(data))


async def greet(peer: str, hello: Hello) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection after its handshake."""
    address = parse_address(peer)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    for body in (write(hello), b""):
        writer.write(len(body).to_bytes(4, "big") + body)
        if body:
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert isinstance(read_answer(await reader.readexactly(size)), Welcome)
    return reader, writer


def test_made_up_messages_end_a_connection_and_not_the_peer(tmp_path: Path) -> None:
    stranger = make_peer("no address")
    strange = [
        KeepAlive(stranger, {}),
        LivenessProbe(make_peer("host:70000"), True),
        Route(7, 1, Vouch({"topic/t": ("client/a",)}, stranger), 0),
        ToClient("topic/t", "client/a", Created(True), stranger),
    ]
    rng = random.Random(1)

    async def scenario() -> None:
        async with serve(tmp_path / "a") as a:
            for role in ("peer", "client"):
                for number in range(20):
                    name = "127.0.0.1:9" if role == "peer" else ""
                    reader, writer = await greet(a.name, Hello(role, name, f"{number:016x}"))
                    body = rng.randbytes(rng.randrange(1, 200))
                    writer.write(len(body).to_bytes(4, "big") + body)
                    async with asyncio.timeout(PATIENCE):  # it is cut
                        while await reader.read(1 << 16):
                            pass
                    writer.close()
            reader, writer = await greet(a.name, Hello("peer", "127.0.0.1:9", "f" * 16))
            for message in strange:
                body = RING.encode(message)
                writer.write(len(body).to_bytes(4, "big") + body)
            await a.until("127.0.0.1:9")
            async with TopicClient(PeerOptions(a.name), SETTINGS) as client:
                await client.create("t")
            writer.close()

    run(scenario())


# --- state ---------------------------------------------------------------------------------------


def test_a_folder_is_that_of_one_peer_and_damage_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            serve(tmp_path / "a") as a,
            TopicClient(PeerOptions(a.name), SETTINGS) as client,
        ):
            await client.create("t")
            await client.publish("t", b"x")
        port = parse_address(a.name).port
        with pytest.raises(StateError, match=f"is the state of the peer {a.name}, not of"):
            await Running(tmp_path / "a").service.run()
        async with (
            serve(tmp_path / "a", port=port) as a,
            TopicClient(PeerOptions(a.name), SETTINGS) as client,
        ):
            assert not await client.create("t")
        with sqlite3.connect(tmp_path / "a" / "state.db") as db:
            db.execute("UPDATE log SET record = x'00' WHERE number = 1")
        db.close()
        with pytest.raises(StateError, match=r"is damaged .*record 1 of the log") as failed:
            await Running(tmp_path / "a", port=port).service.run()
        assert "\n" not in str(failed.value)

    run(scenario())
