"""`broker publish`, `subscribe` and `status`, typed as a user types them, at a plain broker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distributary.cli.broker_status import render_status
from distributary.cli.console import results
from distributary.content import COVERING_POLICIES
from distributary.content.host import BrokerHost
from distributary.content.protocol import Dropped, Goodbye, LinkFact, OpenSession, Peer, Publish
from distributary.machines.real import LinkConnection
from distributary.model import Schema
from tests.cli.conftest import CommandLine
from tests.content.tcp.plain_service import PlainService, serve_plainly

PATIENCE = 240.0


class Background:
    """A plain broker on a loop of its own, in a thread."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._started.wait(PATIENCE)

    async def _serve(self) -> None:
        async with serve_plainly("A") as (self.service,):
            self.loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            self._started.set()
            await self._stop.wait()

    def do(self, call: object, *arguments: object) -> None:
        """Call something on the broker's loop, and wait for it."""

        async def work() -> None:
            call(*arguments)  # type: ignore[operator]

        asyncio.run_coroutine_threadsafe(work(), self.loop).result(PATIENCE)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)


@pytest.fixture
def broker() -> Iterator[Background]:
    found = Background()
    yield found
    found.stop()


def log_of(broker: Background) -> list[tuple[int, bytes]]:
    return [(value, payload) for *_, value, payload in broker.service.network.log]


def address(broker: Background) -> tuple[str, str]:
    return "--broker", broker.service.address


PUBLISH = ("broker", "publish", "--as", "pub")
SUBSCRIBE = ("broker", "subscribe", "--as", "ann")


def test_events_of_a_file_are_published_in_order(cli: CommandLine, broker: Background) -> None:
    lines = [
        {"x": 1, "payload": "öne"},
        {"X": 2, "payload_base64": "/w=="},
        {"x": 3, "at": "2025-01-02T03:04:05Z"},
    ]
    cli.write("events.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    ran = cli(*PUBLISH, *address(broker), "--from", "events.jsonl")
    assert (ran.status, ran.out) == (0, "3 events published\n")
    cli.write("events.csv", "x,payload\n4,four\n5,\n")
    ran = cli(*PUBLISH, *address(broker), "--from", "events.csv", "--json")
    assert ran.document == {"published": 2, "bad": 0, "interrupted": False}
    table = pa.table({"x": [0], "at": [datetime(2025, 1, 2)], "payload": [b"\xfe"]})
    pq.write_table(table, cli.folder / "events.parquet")
    advertise = ("--advertise", "x < 3")
    ran = cli(*PUBLISH, *address(broker), "--from", "events.parquet", *advertise)
    assert (ran.status, ran.out) == (0, "1 event published\n")
    assert log_of(broker) == [
        (1, "öne".encode()),
        (2, b"\xff"),
        (3, b""),
        (4, b"four"),
        (5, b""),
        (0, b"\xfe"),
    ]
    assert broker.service.broker.session is not None
    assert list(broker.service.broker.session.advertisements.values()) == ["x < 3"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"y": 1}', "row 2: there is no attribute 'y', only x, at"),
        ('{"x": "one"}', "row 2: attribute 'x' is 'one', not a whole number"),
        ('{"x": 1', "row 2: is not an event"),
        ('{"x": 1, "payload_base64": "?"}', "row 2: payload_base64 is not in base64"),
        ('{"x": -1}', "row 2: the event is refused: below 0"),
        (
            json.dumps({"x": 1, "payload": "x" * (1 << 20) + "x"}),
            "row 2: its payload has 1,048,577",
        ),
    ],
)
def test_a_bad_event_is_named_or_left_out(
    cli: CommandLine, broker: Background, line: str, said: str
) -> None:
    cli.write("events.jsonl", f'{{"x": 1}}\n{line}\n')
    words = (*PUBLISH, *address(broker), "--from", "events.jsonl")
    ran = cli(*words)
    assert ran.status == 1
    assert said in ran.err
    assert ran.err.count("\n") == 1
    ran = cli(*words, "--max-bad", "10%")
    assert ran.status == 1
    assert "1 of 2 events cannot be used, more than 10.00%" in ran.err
    ran = cli(*words, "--max-bad", "50%")
    assert (ran.status, ran.out) == (0, "1 event published\n")
    assert "left out:" in ran.err
    assert log_of(broker) == [(1, b"")] * 3


def test_a_publisher_that_fails_half_way_says_how_much_is_stored(
    cli: CommandLine, broker: Background
) -> None:
    rest = broker.service.on_message

    async def dismiss(connection: LinkConnection, message: Any) -> None:
        if isinstance(message, Publish) and len(log_of(broker)) == 2:
            broker.service.say([Goodbye("enough")], connection)
        else:
            await rest(connection, message)

    broker.service.on_message = dismiss  # type: ignore[method-assign]
    cli.write("events.jsonl", '{"x": 1}\n' * 5)
    ran = cli(*PUBLISH, *address(broker), "--from", "events.jsonl")
    assert (ran.status, ran.out) == (1, "2 events published\n")
    assert "enough" in ran.err


def test_events_are_printed_once_and_the_next_command_goes_on(
    cli: CommandLine, broker: Background
) -> None:
    words = (*SUBSCRIBE, "x < 6", *address(broker), "--count")
    with typing_later(broker, [(1, b"one"), (2, b"\xff"), (3, b"")]):
        ran = cli(*words, "2", "--json")
    assert ran.status == 0
    assert ran.err == f"subscribed as 'ann' at {broker.service.address}, in a new session\n"
    told = [json.loads(line) for line in ran.out.splitlines()]
    assert told == [
        {"event": {"x": 1}, "payload": "one", "broker": "A", "number": 1, "publisher": "pub"},
        {
            "event": {"x": 2},
            "payload_base64": "/w==",
            "broker": "A",
            "number": 2,
            "publisher": "pub",
        },
    ]
    ran = cli(*words, "1")
    assert ran.out == 'A 3: {"x":3}\n'
    found = "in the session from before, with 1 event waiting"
    assert ran.err == f"subscribed as 'ann' at {broker.service.address}, {found}\n"
    with typing_later(broker, [(4, b"four")]):
        ran = cli(*SUBSCRIBE, "x < 5", *address(broker), "--count", "1")
    assert ran.out == 'A 4: {"x":4} four\n'
    assert "ended 1 other filters of earlier commands" in ran.err


@contextmanager
def typing_later(broker: Background, events: list[tuple[int, bytes]]) -> Iterator[None]:
    """Publish once somebody has subscribed anew, while the block runs."""
    known = set(getattr(broker.service.broker.session, "settled", ()))

    def publish() -> None:
        deadline = time.monotonic() + PATIENCE
        while not set(getattr(broker.service.broker.session, "settled", ())) - known:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for value, payload in events:
            broker.do(broker.service.publish, value, payload)

    thread = threading.Thread(target=publish)
    thread.start()
    yield
    thread.join()


def test_missing_events_are_reported(cli: CommandLine, broker: Background) -> None:
    def lose(service: PlainService) -> None:
        assert service.broker.session is not None
        service.broker.session.deliveries += 2
        service.say([Dropped(1, 2, "the outbox is full")])
        service.publish(1)

    def later() -> None:
        while not getattr(broker.service.broker.session, "settled", ()):
            time.sleep(0.01)
        broker.do(lose, broker.service)

    thread = threading.Thread(target=later)
    thread.start()
    ran = cli(*SUBSCRIBE, "x < 6", *address(broker), "--count", "1", "--json")
    thread.join()
    first, second = map(json.loads, ran.out.splitlines())
    assert first == {"report": "missed", "events": 2, "reason": "the outbox is full"}
    assert second["event"] == {"x": 1}
    assert "2 events are missing here" in ran.err


@contextmanager
def changing_later(broker: Background, **changed: str) -> Iterator[None]:
    """Change what the broker refuses once somebody has subscribed, and cut his connection."""

    def change() -> None:
        wait_until(lambda: bool(getattr(broker.service.broker.session, "settled", ())))
        for name, value in changed.items():
            setattr(broker.service, name, value)
        judged = broker.service.judged
        broker.do(broker.service.cut_all)
        if "refuses" in changed:
            wait_until(lambda: broker.service.judged >= judged + 3)
            broker.service.refuses = ""
            broker.do(broker.service.publish, 1, b"")

    thread = threading.Thread(target=change)
    thread.start()
    yield
    thread.join()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_broker_that_refuses_the_client_for_now_is_named_once(
    cli: CommandLine, broker: Background
) -> None:
    with changing_later(broker, refuses="it speaks version 2"):
        ran = cli(*SUBSCRIBE, "x < 6", *address(broker), "--count", "1")
    assert ran.status == 0
    words = "the broker refuses the client: it speaks version 2; trying again"
    assert ran.err.splitlines()[1:] == [f"warning: {broker.service.address}: {words}"]
    assert ran.out == 'A 1: {"x":1}\n'


def test_a_broker_that_no_longer_takes_the_token_ends_the_command(
    cli: CommandLine, broker: Background
) -> None:
    with changing_later(broker, token="new"):
        ran = cli(*SUBSCRIBE, "x < 6", *address(broker))
    assert ran.status == 1
    (line,) = ran.err.splitlines()[1:]
    assert "the broker refused the connection: wrong token" in line


def test_ctrl_c_ends_a_subscription_and_nothing_is_lost(
    cli: CommandLine, broker: Background
) -> None:
    def later() -> None:
        while not getattr(broker.service.broker.session, "settled", ()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=later)
    thread.start()
    ran = cli(*SUBSCRIBE, "x < 6", *address(broker))
    thread.join()
    assert ran.status == 130
    assert "Traceback" not in ran.err
    broker.do(broker.service.publish, 1, b"kept")
    ran = cli(*SUBSCRIBE, "x < 6", *address(broker), "--count", "1")
    assert ran.out == 'A 1: {"x":1} kept\n'


def test_an_ephemeral_subscription_leaves_nothing(cli: CommandLine, broker: Background) -> None:
    with typing_later(broker, [(1, b"")]):
        ran = cli(*SUBSCRIBE, "x < 6", *address(broker), "--count", "1", "--ephemeral")
    assert ran.status == 0
    deadline = time.monotonic() + PATIENCE
    while broker.service.broker.session is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_status_is_one_document_or_tables(cli: CommandLine, broker: Background) -> None:
    ran = cli("broker", "status", *address(broker), "--json")
    assert (ran.status, ran.document) == (0, {"name": "A"})
    ran = cli("broker", "status", *address(broker))
    assert ran.out.startswith("A: start number")


def test_the_status_of_a_broker_is_shown_with_the_network_as_a_tree() -> None:
    host = BrokerHost("A", Schema(()), COVERING_POLICIES["merging"])
    host.start(0.0)
    links = (LinkFact("B", "C", 1, True), LinkFact("B", "[D]", 1, True))
    host.on_open(Peer(1, "broker", "B", 1, links=links), 0.0)
    for number in range(60):
        host.on_open(Peer(2 + number, "client", f"[client {number}]"), 0.0)
        host.on_message(2 + number, OpenSession(), 0.0)
    with results.capture() as captured:
        results.print(render_status(host.statistics().as_mapping()))
    lines = captured.get().splitlines()
    assert lines[0].strip() == "A: start number 1, policy merging"
    assert [line.strip("│├└─ ") for line in lines[1:4]] == ["B", "C", "[D]"]
    assert ["sessions", "60"] in [line.split() for line in lines]
    assert any("[client 3]" in line and "yes" in line for line in lines)
    assert any("and 10 more" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((*PUBLISH, "--broker", "nowhere"), 2, "is not HOST:PORT"),
        ((*PUBLISH, "--broker", "127.0.0.1:1", "--timeout", "200ms"), 1, "no broker answers"),
        (
            (*SUBSCRIBE, "x", "--broker", "127.0.0.1:1", "--timeout", "200ms"),
            1,
            "no broker answers",
        ),
        (("broker", "status", "--broker", "127.0.0.1:1", "--timeout", "200ms"), 1, "no broker"),
        ((*PUBLISH, "--broker", "127.0.0.1:1", "--tls-key", "key.pem"), 2, "--tls-cert"),
        ((*PUBLISH, "--broker", "127.0.0.1:1", "--tls-ca", "no.pem"), 1, "no.pem: cannot be read"),
        ((*SUBSCRIBE, "x", "--broker", "192.0.2.1:1", "--timeout", "200ms"), 1, "--insecure"),
    ],
)
def test_mistakes_get_one_line(
    cli: CommandLine, words: tuple[str, ...], status: int, said: str
) -> None:
    ran = cli(*words)
    assert ran.status == status
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_a_bad_filter_gets_one_line(cli: CommandLine, broker: Background) -> None:
    ran = cli(*SUBSCRIBE, "nonsense", *address(broker))
    assert ran.status == 1
    assert "refused the filter 'nonsense': not a filter" in ran.err
    ran = cli(*PUBLISH, *address(broker), "--advertise", "nonsense")
    assert ran.status == 1
    assert "refused the filter 'nonsense'" in ran.err
