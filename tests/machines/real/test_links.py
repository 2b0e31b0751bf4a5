"""Links over real sockets on 127.0.0.1: order, floods, garbage, slow and silent peers, TLS."""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trustme

from distributary.machines.real import (
    AddressError,
    ConnectionLimits,
    FullQueue,
    Links,
    NetworkAddress,
    Proof,
    Rejection,
    TlsError,
    TlsFiles,
)
from distributary.machines.real.connection import Ending
from distributary.machines.real.frames import KEEP_ALIVE, join_frames
from tests.machines.real.link_owner import LOCAL, LONG, Owner, RawPeer


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(4 * LONG):
            await scenario()

    asyncio.run(bounded())


@asynccontextmanager
async def serve(
    owner: Owner, limits: ConnectionLimits | None = None, **settings: Any
) -> AsyncIterator[tuple[Links, NetworkAddress]]:
    async with Links(owner, limits) as links:
        yield links, await links.listen(LOCAL, owner.judge, **settings)


@asynccontextmanager
async def connect(
    owner: Owner,
    address: NetworkAddress,
    name: str = "ann",
    limits: ConnectionLimits | None = None,
    **settings: Any,
) -> AsyncIterator[Links]:
    async with Links(owner, limits, rng=Random(1)) as links:
        links.dial(owner.dialer(address, name, **settings))
        yield links


# --- messages ------------------------------------------------------------------------------------


def test_messages_go_both_ways_in_order() -> None:
    async def scenario() -> None:
        server, client = Owner(), Owner()
        async with serve(server) as (links, address), connect(client, address) as dialing:
            await server.until(lambda: server.opened)
            await client.until(lambda: client.opened)
            texts = [f"{n}" + "x" * (n % 7 * 3_000) for n in range(2_000)]
            for text in texts:
                await dialing.send([(client.opened[0].number, text)])
            await links.send((server.opened[0].number, text) for text in texts)
            await server.until(lambda: len(server.messages) == 2_000)
            await client.until(lambda: len(client.messages) == 2_000)
            assert server.messages == [("ann", text) for text in texts]
            assert client.messages == [("server", text) for text in texts]
            found = links.statistics()
            assert (found.open, found.opened, found.received_frames) == (1, 1, 2_000)
            assert found.sent_bytes == sum(len(text) + 4 for text in texts)
        assert [each.reason for each in server.closed] != [""]
        assert len(server.closed) == len(client.closed) == 1

    run(scenario)


def test_what_is_queued_is_sent_before_a_connection_closes() -> None:
    async def scenario() -> None:
        server, client = Owner(), Owner()
        async with serve(server) as (links, address), connect(client, address):
            await server.until(lambda: server.opened)
            number = server.opened[0].number
            await links.send([(number, "x" * 500_000) for _ in range(20)])
            links.close(number, "enough")
            await links.send([(number, "too late")])
            await client.until(lambda: client.closed)
            assert len(client.messages) == 20
            await server.until(lambda: server.closed)
            assert server.closed[0].reason == "enough"
            assert links.statistics().unsent == 1
            assert links.find(number) is None

    run(scenario)


def test_who_waits_to_deliver_does_not_take_its_peer_for_dead() -> None:
    async def scenario() -> None:
        room = asyncio.Event()
        server = Owner(room=room)
        async with serve(server, ConnectionLimits(keep_alive=0.02, dead_after=0.1)) as (
            links,
            address,
        ):
            with closing(RawPeer(address)) as peer:
                assert await peer.greet("ann") == b"yes"
                await peer.send(join_frames([b"one", b"two"]))
                heard = b""
                while len(heard) < 40 * len(KEEP_ALIVE):  # several times the time to be dead
                    heard += await peer.read_bytes()
                assert links.statistics().open == 1
                assert server.messages == [("ann", "one")]
                room.set()
                await server.until(lambda: len(server.messages) == 2)

    run(scenario)


def test_with_the_policy_wait_a_sender_waits_for_a_slow_reader_and_loses_nothing() -> None:
    async def scenario() -> None:
        room = asyncio.Event()
        server, client = Owner(room=room), Owner()
        limits = ConnectionLimits(queue=1 << 16, when_full=FullQueue.WAIT, patience=LONG)
        async with serve(server) as (_, address), connect(client, address, limits=limits) as links:
            await client.until(lambda: client.opened)
            number = client.opened[0].number

            async def send_all() -> None:
                for at in range(300):
                    await links.send([(number, f"{at:03}" + "x" * 100_000)])

            sending = asyncio.create_task(send_all())
            await client.until(lambda: client.opened[0].queued > 1 << 16)
            await asyncio.sleep(0.05)
            assert not sending.done()
            assert client.opened[0].queued < 1 << 18
            room.set()
            await sending
            await server.until(lambda: len(server.messages) == 300)
            assert [text[:3] for _, text in server.messages] == [f"{at:03}" for at in range(300)]

    run(scenario)


@pytest.mark.parametrize("policy", FullQueue)
def test_a_peer_that_does_not_read_is_cut_and_counted(policy: FullQueue) -> None:
    async def scenario() -> None:
        server = Owner()
        limits = ConnectionLimits(queue=1 << 16, when_full=policy, patience=0.05)
        async with serve(server, limits) as (links, address):
            with closing(RawPeer(address)) as peer:
                assert await peer.greet("ann") == b"yes"
                await server.until(lambda: server.opened)
                number, sent = server.opened[0].number, 0
                while links.find(number) is not None:
                    await links.send([(number, "x" * 100_000)])
                    await asyncio.sleep(0)
                    sent += 1
                    assert sent < 10_000
                await server.until(lambda: server.closed)
                assert "does not read" in server.closed[0].reason
                assert links.statistics().full == 1

    run(scenario)


def test_a_message_that_is_too_long_to_send_closes_the_connection_with_words() -> None:
    async def scenario() -> None:
        server, client = Owner(), Owner()
        async with serve(server) as (links, address), connect(client, address):
            await server.until(lambda: server.opened)
            await links.send([(server.opened[0].number, "x" * 1_000_001)])
            await server.until(lambda: server.closed)
            assert "1,000,001 bytes is longer" in server.closed[0].reason

    run(scenario)


# --- peers that break rules ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ((1_000_001).to_bytes(4, "big"), "1,000,001 bytes is longer"),
        (b"\xff" * 100, "4,294,967,295 bytes is longer"),
        (join_frames([b"bad"]), "no valid message (RecursionError)"),
        (join_frames([b"\xff\xfe"]), "no valid message ('utf-8'"),
    ],
)
def test_garbage_after_the_handshake_ends_that_connection_alone(sent: bytes, words: str) -> None:
    async def scenario() -> None:
        server, client = Owner(), Owner()
        async with serve(server) as (links, address), connect(client, address) as dialing:
            await client.until(lambda: client.opened)
            with closing(RawPeer(address)) as peer:
                assert await peer.greet("eve") == b"yes"
                await peer.send(join_frames([b"one"]) + sent + join_frames([b"two"]))
                assert await peer.read() is None
            await server.until(lambda: server.closed)
            assert words in server.closed[0].reason
            assert server.closed[0].ending is Ending.BROKEN_RULE
            assert server.messages == [("eve", "one")]
            await dialing.send([(client.opened[0].number, "still here")])
            await server.until(lambda: ("ann", "still here") in server.messages)
            assert links.statistics().broken_rules == 1

    run(scenario)


def test_random_bytes_instead_of_a_greeting_change_nothing() -> None:
    async def scenario() -> None:
        server, rng = Owner(), Random(3)
        limits = ConnectionLimits(handshake_within=0.5, longest_hello=1_000)
        async with serve(server, limits) as (links, address):
            for _ in range(50):
                with closing(RawPeer(address)) as peer:
                    # The first bytes announce a frame that is too long, unless there are few.
                    await peer.send(b"\xee" + rng.randbytes(rng.choice([1, 3, 10, 3_000])))
            with closing(RawPeer(address)) as peer:
                assert await peer.greet("ann") == b"yes"
                await server.until(lambda: server.opened)
            await server.until(lambda: links.statistics().failed_handshakes == 50)
            assert [each.peer for each in server.opened] == ["ann"]

    run(scenario)


def test_who_is_rejected_gets_the_words_and_reports_them_once() -> None:
    async def scenario() -> None:
        server, client = Owner(), Owner()
        async with serve(server) as (links, address), connect(client, address, "mallory"):
            await server.until(lambda: links.statistics().rejected >= 3)
            assert client.reports == ["no: mallory may not come"]
            assert server.opened == client.opened == []

    run(scenario)


def test_who_is_refused_by_the_one_that_connects_is_not_open_either() -> None:
    async def scenario() -> None:
        server, client = Owner(), Owner()

        def judge(answer: bytes, proof: Proof) -> Rejection:
            return Rejection("I wanted another", b"goodbye")

        async with serve(server) as (links, address), Links(client) as dialing:
            greeting = client.dialer(address, "ann")
            dialing.dial(replace(greeting, judge=judge))
            await server.until(lambda: links.statistics().rejected)
            assert client.reports == ["I wanted another"]
            assert server.opened == client.opened == []

    run(scenario)


def test_a_dialer_may_reject_before_it_greets() -> None:
    async def scenario() -> None:
        server, client = Owner(), Owner()

        def greet(proof: Proof) -> bytes | Rejection:
            return Rejection(f"{proof.address} proves nothing")

        async with serve(server) as (_, address), Links(client) as links:
            dialer = client.dialer(address, "ann")
            links.dial(replace(dialer, greet=greet))
            await client.until(lambda: client.reports)
            assert client.reports[0] == f"{address} proves nothing"
            assert server.proofs == []

    run(scenario)


# --- silence and floods --------------------------------------------------------------------------


def test_a_peer_that_falls_silent_is_cut() -> None:
    async def scenario() -> None:
        server = Owner()
        limits = ConnectionLimits(keep_alive=0.05, dead_after=0.3)
        async with serve(server, limits) as (links, address):
            with closing(RawPeer(address)) as peer:  # half-open: it neither sends nor closes
                assert await peer.greet("ann") == b"yes"
                await server.until(lambda: server.closed)
                assert server.closed[0].reason == "the peer has been silent for 0.3 s"
                assert links.statistics().silent == 1
                heard = b""
                while data := await peer.read_bytes():
                    heard += data
                assert heard
                assert heard == KEEP_ALIVE * (len(heard) // 4)

    run(scenario)


def test_who_greets_too_slowly_is_cut() -> None:
    async def scenario() -> None:
        server = Owner()
        async with serve(server, ConnectionLimits(handshake_within=0.1)) as (links, address):
            with closing(RawPeer(address)) as peer:
                await peer.send(join_frames([b"ann"])[:-1])
                assert await peer.read() is None
            assert links.statistics().failed_handshakes == 1
            assert server.opened == []

    run(scenario)


def test_a_flood_of_unproven_connections_is_bounded_and_keeps_nobody_out() -> None:
    async def scenario() -> None:
        server, client = Owner(), Owner()
        limits = ConnectionLimits(handshakes=10, handshake_within=LONG)
        async with serve(server, limits) as (links, address):
            flood = [RawPeer(address) for _ in range(100)]
            await server.until(lambda: links.statistics().failed_handshakes == 90)
            assert links.statistics().handshakes == 10
            async with connect(client, address):
                await server.until(lambda: server.opened)
                assert links.statistics().open == 1
            for peer in flood:
                peer.close()

    run(scenario)


def test_proven_connections_are_bounded_too() -> None:
    async def scenario() -> None:
        server = Owner()
        async with serve(server, ConnectionLimits(connections=5)) as (links, address):
            peers = [RawPeer(address) for _ in range(5)]
            for at, peer in enumerate(peers):
                assert await peer.greet(f"client {at}") == b"yes"
            await server.until(lambda: links.statistics().open == 5)
            with closing(RawPeer(address)) as late:
                assert await late.read() is None
            assert links.statistics().turned_away == 1
            peers.pop().close()
            await server.until(lambda: links.statistics().open == 4)
            with closing(RawPeer(address)) as late:
                assert await late.greet("late") == b"yes"
            for peer in peers:
                peer.close()

    run(scenario)


def test_connections_leave_descriptors_for_everything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (66, 66))

    async def scenario() -> None:
        server = Owner()
        async with serve(server) as (links, address):
            peers = [RawPeer(address) for _ in range(2)]
            for peer in peers:
                assert await peer.greet("ann") == b"yes"
            await server.until(lambda: links.statistics().open == 2)
            with closing(RawPeer(address)) as late:
                assert await late.read() is None
            for peer in peers:
                peer.close()

    run(scenario)


# --- reconnecting --------------------------------------------------------------------------------


def test_a_dialer_comes_back_whenever_its_peer_does() -> None:
    async def scenario() -> None:
        server, client = Owner(), Owner()
        async with Links(client, rng=Random(1)) as dialing:
            address = LOCAL
            for turn in range(3):
                async with Links(server) as links:
                    address = await links.listen(address, server.judge)
                    if turn == 0:
                        dialing.dial(client.dialer(address, "ann"))
                    await client.until(lambda turn=turn: len(client.opened) == turn + 1)
                await client.until(lambda turn=turn: len(client.closed) == turn + 1)
            await client.until(lambda: client.reports)
            assert set(client.reports) <= {"connection refused", "connection reset by peer"}
            assert len(client.reports) <= 3

    run(scenario)


def test_a_dialer_waits_while_it_is_not_wanted() -> None:
    async def scenario() -> None:
        server, client = Owner(), Owner()
        asked: list[bool] = []

        def wanted() -> bool:
            asked.append(len(asked) >= 2)
            return asked[-1]

        async with serve(server) as (_, address), connect(client, address, wanted=wanted):
            await client.until(lambda: client.opened)
            assert asked == [False, False, True]
            assert len(server.proofs) == 1

    run(scenario)


# --- addresses -----------------------------------------------------------------------------------


def test_an_address_outside_this_machine_needs_tls_or_the_user_s_word() -> None:
    async def scenario() -> None:
        owner = Owner()
        async with Links(owner) as links:
            everywhere = NetworkAddress("0.0.0.0", 0)
            with pytest.raises(AddressError, match="--insecure"):
                await links.listen(everywhere, owner.judge)
            links.dial(owner.dialer(NetworkAddress("192.0.2.1", 7_000), "ann"))
            await owner.until(lambda: owner.reports)
            assert "without TLS" in owner.reports[0]

    run(scenario)


def test_an_address_in_use_is_one_clear_line() -> None:
    async def scenario() -> None:
        owner = Owner()
        async with serve(owner) as (links, address):
            with pytest.raises(AddressError, match=r"cannot be listened on .*already in use"):
                await links.listen(address, owner.judge)

    run(scenario)


# --- TLS -----------------------------------------------------------------------------------------


class Authority:
    """An authority and the files of those that it vouches for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir()
        self._ca = trustme.CA()
        self.ca = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca))

    def issue(self, name: str, *hosts: str, unit: str = "") -> TlsFiles:
        made = self._ca.issue_cert(
            *hosts, common_name=name, organization_unit_name=unit or "somebody"
        )
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(key))
        return TlsFiles(certificate, key, self.ca)


def test_certificates_prove_names_and_units_to_both_sides(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ours")
    broker = authority.issue("Ärger B", "localhost", "127.0.0.1", unit="broker")
    ann = authority.issue("ann", "ann.example.org")

    async def scenario() -> None:
        server, client = Owner(), Owner()
        tls = broker.server_context(require_certificates=True)
        async with (
            serve(server, tls=tls) as (links, address),
            connect(client, address, tls=ann.client_context(check_host=True)) as dialing,
        ):
            await client.until(lambda: client.opened)
            await dialing.send([(client.opened[0].number, "x" * 900_000) for _ in range(20)])
            await server.until(lambda: len(server.messages) == 20)
            assert server.proofs[0].encrypted
            assert server.proofs[0].names == {"ann", "ann.example.org"}
            assert client.proofs[0].names == {"Ärger B", "localhost", "127.0.0.1"}
            assert client.proofs[0].units == {"broker"}
            links.close(server.opened[0].number, "enough")
            await client.until(lambda: client.closed)

    run(scenario)


@pytest.mark.parametrize("whose", ["nobody's", "another authority's"])
def test_clients_without_a_certificate_of_our_authority_are_refused(
    tmp_path: Path, whose: str
) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    broker = ours.issue("B", "127.0.0.1")
    mine = theirs.issue("ann")
    files = TlsFiles(ca=ours.ca)
    if whose != "nobody's":
        files = TlsFiles(mine.certificate, mine.key, ours.ca)

    async def scenario() -> None:
        server, client = Owner(), Owner()
        tls = broker.server_context(require_certificates=True)
        async with (
            serve(server, tls=tls) as (links, address),
            connect(client, address, tls=files.client_context(check_host=True)),
        ):
            await client.until(lambda: client.reports)
            await server.until(lambda: links.statistics().failed_handshakes >= 1)
            assert server.opened == client.opened == []
            assert server.proofs == []
            assert "certificate" in client.reports[0]

    run(scenario)


def test_a_certificate_may_be_optional_and_then_nothing_is_proven(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ours")
    broker = authority.issue("B", "127.0.0.1")

    async def scenario() -> None:
        server, client = Owner(), Owner()
        tls = broker.server_context(require_certificates=False)
        files = TlsFiles(ca=authority.ca)
        async with (
            serve(server, tls=tls) as (_, address),
            connect(client, address, tls=files.client_context(check_host=True)),
        ):
            await client.until(lambda: client.opened)
            assert server.proofs[0].encrypted
            assert not server.proofs[0].has_certificate

    run(scenario)


@pytest.mark.parametrize("fault", ["authority", "host"])
def test_a_dialer_does_not_greet_a_server_that_it_cannot_verify(tmp_path: Path, fault: str) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    broker = ours.issue("B", "elsewhere.example.org" if fault == "host" else "127.0.0.1")
    trusted = theirs.ca if fault == "authority" else ours.ca

    async def scenario() -> None:
        server, client = Owner(), Owner()
        tls = broker.server_context(require_certificates=False)
        context = TlsFiles(ca=trusted).client_context(check_host=True)
        async with (
            serve(server, tls=tls) as (_, address),
            connect(client, address, tls=context),
        ):
            await client.until(lambda: client.reports)
            assert "its certificate is not trusted" in client.reports[0]
            assert server.proofs == []

    run(scenario)


def test_plain_bytes_on_a_tls_port_are_refused(tmp_path: Path) -> None:
    broker = Authority(tmp_path / "ours").issue("B", "127.0.0.1")

    async def scenario() -> None:
        server, client = Owner(), Owner()
        limits = ConnectionLimits(handshake_within=1.0)
        tls = broker.server_context(require_certificates=False)
        async with serve(server, limits, tls=tls) as (links, address), connect(client, address):
            await client.until(lambda: client.reports)
            await server.until(lambda: links.statistics().failed_handshakes >= 1)
            assert server.opened == client.opened == []
            assert "may want TLS" in client.reports[0]

    run(scenario)


def test_a_dialer_with_tls_says_that_the_other_side_may_have_none(tmp_path: Path) -> None:
    context = TlsFiles(ca=Authority(tmp_path / "ours").ca).client_context(check_host=True)

    async def scenario() -> None:
        server, client = Owner(), Owner()
        async with serve(server) as (_, address), connect(client, address, tls=context):
            await client.until(lambda: client.reports)
            assert "may be without TLS" in client.reports[0]
            assert server.opened == client.opened == []

    run(scenario)


def test_a_slow_tls_handshake_is_pushed_out_like_any_other(tmp_path: Path) -> None:
    broker = Authority(tmp_path / "ours").issue("B", "127.0.0.1")

    async def scenario() -> None:
        server = Owner()
        limits = ConnectionLimits(handshakes=3, handshake_within=LONG)
        tls = broker.server_context(require_certificates=False)
        async with serve(server, limits, tls=tls) as (links, address):
            flood = [RawPeer(address) for _ in range(20)]
            await server.until(lambda: links.statistics().failed_handshakes == 17)
            assert links.statistics().handshakes == 3
            for peer in flood:
                peer.close()

    run(scenario)


def test_tls_files_that_cannot_be_used_are_one_clear_line(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ours")
    good, other = authority.issue("A"), authority.issue("B")
    junk = tmp_path / "junk.pem"
    junk.write_text("not PEM")
    for files, path in [
        (TlsFiles(tmp_path / "none.pem", good.key), "none.pem"),
        (TlsFiles(good.certificate, tmp_path / "none.key"), "none.key"),
        (TlsFiles(good.certificate, other.key), "A.pem"),
        (TlsFiles(junk, junk), "junk.pem"),
        (TlsFiles(good.certificate, good.key, junk), "junk.pem"),
    ]:
        with pytest.raises(TlsError, match=path) as refused:
            files.server_context(require_certificates=True)
        assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="needs a certificate"):
        TlsFiles().server_context(require_certificates=False)
    assert isinstance(TlsFiles().client_context(check_host=True), ssl.SSLContext)
