"""A broker service with real clients and neighbours on 127.0.0.1: who gets in, and who does not."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from distributary.content.errors import BrokerRefusedError
from distributary.content.protocol import WIRE_VERSIONS, Hello
from distributary.content.tcp import ContentClient, ContentClientSettings
from distributary.content.tcp.service import BrokerLink, BrokerSettings
from distributary.content.tcp.trust import Trust
from distributary.errors import LiveError
from distributary.machines.real import (
    AddressError,
    ConnectionLimits,
    NetworkAddress,
    TlsFiles,
    Tokens,
)
from distributary.machines.real.frames import KEEP_ALIVE, join_frames
from distributary.model import Attribute, AttributeKind, Schema
from tests.content.tcp.processes import find_ports
from tests.content.tcp.services import LOCAL, LONG, SCHEMA, Authority, Running, serve
from tests.content.test_fuzz import CODEC, FRAMES, damage
from tests.content.test_fuzz import SCHEMA as FUZZED

TOKENS = Tokens(
    {
        "broker": {"A": "token of broker A", "B": "token of broker B"},
        "client": {"ann": "token of client ann"},
    }
)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(4 * LONG):
            await scenario()

    asyncio.run(bounded())


async def check_delivery(at: Running, to: Running, **credentials: Any) -> None:
    """What is published at one broker reaches a client of another."""
    async with (
        ContentClient(str(at.address), name="ann", **credentials) as publisher,
        ContentClient(str(to.address), name="ann", **credentials) as subscriber,
    ):
        subscription = await subscriber.subscribe("price > 120")
        await publisher.publish({"symbol": "IBM", "price": 121.5}, b"payload")
        async with asyncio.timeout(LONG):
            async for event in subscription:
                assert event.attributes == {"symbol": "IBM", "price": 121.5}
                assert event.payload == b"payload"
                break


# --- links ---------------------------------------------------------------------------------------


def test_links_configured_at_both_ends_are_one_link(tmp_path: Path) -> None:
    first, second = (NetworkAddress("127.0.0.1", port) for port in find_ports(2))
    to_a, to_b = (BrokerLink("A", first),), (BrokerLink("B", second),)

    async def scenario() -> None:
        async with (
            serve(tmp_path, "A", listen=first, links=to_b) as a,
            serve(tmp_path, "B", listen=second, links=to_a) as b,
        ):
            await a.until("linked with B")
            await b.until("linked with A")
            await check_delivery(a, b)
            await check_delivery(b, a)
            host, connections = a.statistics()
            assert [link.neighbour for link in host.links] == ["B"]
            assert host.network == (("A", "B"),)
            assert connections.open <= 2

    run(scenario)


def test_a_link_that_would_close_a_cycle_is_refused_by_both_with_the_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            serve(tmp_path, "A") as a,
            serve(tmp_path, "B", a) as b,
            serve(tmp_path, "C", b) as c,
        ):
            await b.until("linked with A")
            await c.until("linked with B")
            async with asyncio.timeout(LONG):  # until A has heard of C
                while len(a.statistics()[0].network) < 2:
                    await asyncio.sleep(0.01)
            async with serve(tmp_path, "D", a, c) as d:
                await d.until("cycle")
                words = next(line for line in d.lines if "cycle" in line)
                assert "would close a cycle" in words
                await check_delivery(d, b)

    run(scenario)


def test_brokers_with_other_schemas_and_names_are_refused_in_words(tmp_path: Path) -> None:
    other = Schema((Attribute("symbol", AttributeKind.TEXT),))

    async def scenario() -> None:
        async with serve(tmp_path, "A") as a, serve(tmp_path, "B", a, schema=other) as b:
            await b.until("give all brokers the same schema file")
            wrong = (BrokerLink("Z", a.address),)
            async with serve(tmp_path, "C", links=wrong) as c:
                await c.until("the broker at this address is 'A', not 'Z'")
            twin = (BrokerLink("B", a.address),)
            async with serve(tmp_path / "twin", "A", links=twin) as third:
                await third.until("'A' is the name of this broker too")
            assert not any("linked" in line for line in a.lines)

    run(scenario)


def test_what_does_not_make_sense_is_refused_before_anything_starts(tmp_path: Path) -> None:
    link = BrokerLink("B", LOCAL)
    for name, links, words in [
        ("", (), "a name has 1 to 200"),
        ("a\nb", (), "a name has 1 to 200"),
        ("A", (BrokerLink(" B", LOCAL),), "a name has 1 to 200"),
        ("B", (link,), "does not link with itself"),
        ("A", (link, link), "not two with 'B'"),
    ]:
        with pytest.raises(ValueError, match=words):
            BrokerSettings(name, LOCAL, tmp_path, SCHEMA, links=links)


def test_who_subscribes_again_need_not_wait_for_what_all_brokers_know(tmp_path: Path) -> None:
    async def scenario() -> None:
        patient = ContentClientSettings(settle_within=LONG)
        async with serve(tmp_path, "A") as a, serve(tmp_path, "B", a) as b:
            await b.until("linked with A")
            for _ in range(2):
                async with ContentClient(str(a.address), name="ann", settings=patient) as ann:
                    subscription = await ann.subscribe("price > 120")
                    assert subscription.is_settled

    run(scenario)


@pytest.mark.slow
def test_many_large_events_pass_though_the_reader_begins_late(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(tmp_path, "A") as a, serve(tmp_path, "B", a) as b:
            await b.until("linked with A")
            async with (
                ContentClient(str(a.address), name="pam") as pam,
                ContentClient(str(b.address), name="ann") as ann,
            ):
                subscription = await ann.subscribe("price >= 0")
                payloads = [bytes([number]) * 1_000_000 for number in range(100)]
                events = [pam.publish({"price": float(n)}, p) for n, p in enumerate(payloads)]
                publishing = asyncio.gather(*events)
                await asyncio.sleep(0.5)
                arrived: list[bytes] = []
                async for event in subscription:
                    arrived.append(event.payload)
                    if len(arrived) == len(payloads):
                        break
                await publishing
                assert arrived == payloads
            for each in (a, b):
                _, connections = each.statistics()
                assert connections.full == connections.broken_rules == 0

    run(scenario)


# --- trust ---------------------------------------------------------------------------------------


def test_certificates_prove_brokers_to_each_other_and_to_clients(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    trust = Trust(certificates=True)
    brokers = {name: authority.issue(name, unit="broker") for name in "AB"}

    async def scenario() -> None:
        async with (
            serve(tmp_path, "A", tls=brokers["A"], trust=trust) as a,
            serve(tmp_path, "B", a, tls=brokers["B"], trust=trust) as b,
        ):
            await b.until("linked with A")
            await check_delivery(a, b, tls=authority.issue("ann"))

    run(scenario)


def test_the_certificates_of_the_documentation_work(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/content-routing.md").read_text()
    commands = [line for line in page.splitlines() if line.startswith("openssl ")]
    assert len(commands) == 3
    for command in commands:
        subprocess.run(shlex.split(command), cwd=tmp_path, check=True, capture_output=True)
    broker, ann = (
        TlsFiles(tmp_path / f"{name}.pem", tmp_path / f"{name}.key", tmp_path / "ca.pem")
        for name in ("A", "ann")
    )

    async def scenario() -> None:
        trust = Trust(certificates=True)
        async with (
            serve(tmp_path / "state", "A", tls=broker, trust=trust) as a,
            serve(tmp_path / "state", "ann", a, tls=ann, trust=trust) as client_as_broker,
        ):
            async with ContentClient(str(a.address), name="ann", tls=ann) as client:
                await client.publish({"price": 1.0})
            await client_as_broker.until("is not that of a broker")

    run(scenario)


def test_a_client_s_certificate_does_not_make_a_broker(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    trust = Trust(certificates=True)
    real, fake = authority.issue("A", unit="broker"), authority.issue("M")

    async def scenario() -> None:
        async with (
            serve(tmp_path, "A", tls=real, trust=trust) as a,
            serve(tmp_path, "M", a, tls=fake, trust=trust) as m,
        ):
            await m.until("the certificate of 'M' is not that of a broker")
            assert a.lines == []
            with pytest.raises(LiveError, match="OU=broker"):
                async with ContentClient(str(m.address), name="ann", tls=authority.issue("ann")):
                    pass
            async with serve(
                tmp_path, "B", m, tls=authority.issue("B", unit="broker"), trust=trust
            ) as b:
                await b.until("the certificate of 'M' is not that of a broker")

    run(scenario)


def test_nobody_takes_the_name_of_another(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    trust = Trust(certificates=True, tokens=TOKENS)
    broker, eve = authority.issue("A", unit="broker"), authority.issue("eve")

    async def scenario() -> None:
        async with serve(tmp_path, "A", tls=broker, trust=trust) as a:
            address = str(a.address)
            for name, token, tls, words in [
                ("ann", "", eve, "the certificate is of 'eve', not of 'ann'"),
                ("eve", "token of client ann", eve, "the token is not that of client 'eve'"),
                ("ann", "token of broker A", eve, "the token is not that of client 'ann'"),
                ("ann", "", TlsFiles(ca=authority.ca), "must prove its name"),
            ]:
                with pytest.raises(BrokerRefusedError, match=words):
                    async with ContentClient(address, name=name, token=token, tls=tls):
                        pass
            open_to = TlsFiles(ca=authority.ca)
            for name, token, tls in [("ann", "token of client ann", open_to), ("eve", "", eve)]:
                async with ContentClient(address, name=name, token=token, tls=tls):
                    pass

    run(scenario)


def test_tokens_prove_brokers_and_clients_on_one_machine(tmp_path: Path) -> None:
    async def scenario() -> None:
        trust = Trust(tokens=TOKENS)
        async with (
            serve(tmp_path, "A", trust=trust) as a,
            serve(tmp_path, "B", a, trust=trust) as b,
            serve(tmp_path, "C", a) as c,
        ):
            await b.until("linked with A")
            await check_delivery(a, b, token="token of client ann")
            await c.until("broker 'C' must prove its name by a token")

    run(scenario)


@pytest.mark.parametrize(
    ("tls", "words"), [(False, "is not on this machine"), (True, "under any name")]
)
def test_an_address_outside_this_machine_needs_tls_and_proof_of_names(
    tmp_path: Path, tls: bool, words: str
) -> None:
    files = Authority(tmp_path / "authority").issue("A", unit="broker") if tls else None
    everywhere = NetworkAddress("0.0.0.0", 0)

    async def start(**changed: Any) -> None:
        async with serve(tmp_path, "A", listen=everywhere, tls=files, **changed):
            pass

    with pytest.raises(ExceptionGroup) as failed:
        asyncio.run(start())
    (error,) = failed.value.exceptions
    assert isinstance(error, AddressError)
    assert words in str(error)
    assert "--insecure" in str(error)
    asyncio.run(start(insecure=True))


# --- strangers -----------------------------------------------------------------------------------


async def attack(address: NetworkAddress, rng: Random) -> None:
    """Greet, most of the time, and send whatever comes to mind."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    if rng.random() < 0.8:
        hello = Hello("client", f"stranger {rng.randrange(10)}", WIRE_VERSIONS)
        writer.write(join_frames([CODEC.encode(hello)]) + KEEP_ALIVE)
    for _ in range(rng.randrange(20)):
        frame = damage(rng) if rng.random() < 0.5 else rng.choice(FRAMES)
        writer.write(join_frames([frame]))
    writer.write(rng.randbytes(rng.randrange(9)))
    with suppress(ConnectionError):
        await writer.drain()
        if rng.random() < 0.5:
            await reader.read(100)
    writer.close()


def test_garbage_never_stops_a_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        rng = Random(5)
        limits = ConnectionLimits(handshake_within=5.0)
        async with serve(tmp_path, "A", schema=FUZZED, limits=limits) as a:
            for _ in range(20):
                await asyncio.gather(*(attack(a.address, rng) for _ in range(10)))
            async with ContentClient(str(a.address), name="ann") as client:
                subscription = await client.subscribe("size = 3")
                await client.publish({"size": 3})
                async for event in subscription:
                    assert event.attributes["size"] == 3
                    break
            host, connections = a.statistics()
            assert host.violations + connections.broken_rules > 20

    run(scenario)
