"""The quick start of topics: create, subscribe, then publish."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time

from distributary.machines.real import Store
from distributary.topics.codec import Create
from tests.cli.conftest import CommandLine
from tests.cli.test_topics import PATIENCE, begin, service
from tests.topics.hosting import StoredHost

__all__ = ["service"]

STATE = ("--state", "state")


def wait_for_subscriptions(cli: CommandLine, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while cli("topics", "status", "--json", *STATE).document["subscriptions"] < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_topics_are_created_subscribed_to_and_then_published_to(
    cli: CommandLine, service: subprocess.Popen[bytes]
) -> None:
    ran = cli("topics", "create", "weather", "news", "weather", *STATE)
    assert (ran.status, ran.out) == (0, "weather: created\nnews: created\n")
    reading = begin(cli.folder, "subscribe", "weather", "news", "--count", "1", "--json", *STATE)
    wait_for_subscriptions(cli, 2)
    assert cli("topics", "publish", "weather", "it rains", *STATE).status == 0
    out, _ = reading.communicate(timeout=PATIENCE)
    assert json.loads(out) == {"topic": "weather", "number": 1, "payload": "it rains"}
    ran = cli("topics", "create", "news", "sport", "--json", *STATE)
    assert ran.document == {"topics": ["news", "sport"], "created": ["sport"]}
    ran = cli("topics", "create", "x" * 257, *STATE)
    assert (ran.status, ran.out) == (1, "")
    assert "not a valid topic name" in ran.err


def test_subscribing_creates_topics_if_asked_to(
    cli: CommandLine, service: subprocess.Popen[bytes]
) -> None:
    ran = cli("topics", "subscribe", "new", *STATE)
    assert ran.status == 1
    assert "there is no topic 'new'; create it first: `distributary topics create`" in ran.err
    reading = begin(cli.folder, "subscribe", "new", "--create", "--count", "1", *STATE)
    wait_for_subscriptions(cli, 1)
    assert cli("topics", "publish", "new", "one", *STATE).status == 0
    out, _ = reading.communicate(timeout=PATIENCE)
    assert out == b"new 1: one\n"


def test_removed_topics_are_gone_and_their_subscribers_are_told(
    cli: CommandLine, service: subprocess.Popen[bytes]
) -> None:
    assert cli("topics", "create", "weather", "news", *STATE).status == 0
    reading = begin(cli.folder, "subscribe", "weather", *STATE)
    wait_for_subscriptions(cli, 1)
    ran = cli("topics", "remove", "weather", "sport", "weather", *STATE)
    assert (ran.status, ran.out) == (0, "weather: removed\nsport: does not exist\n")
    out, err = reading.communicate(timeout=PATIENCE)
    assert (reading.returncode, out) == (1, b"")
    assert b"there is no topic 'weather'" in err
    ran = cli("topics", "remove", "news", "weather", "--json", *STATE)
    assert ran.document == {"topics": ["news", "weather"], "removed": ["news"]}
    assert cli("topics", "status", "--json", *STATE).document["topics"] == 0


def test_a_service_says_what_of_its_state_it_could_not_bring_back(cli: CommandLine) -> None:
    with Store(cli.folder / "state") as store:  # as a former version left it
        host = StoredHost(store)
        host.perform(host.start(1.0))
        host.take("s", "topic/t", Create(1.0), 1.0)
    db = sqlite3.connect(cli.folder / "state/state.db")
    with db:
        db.execute("UPDATE log SET checksum = 0 WHERE number = (SELECT max(number) FROM log)")
    db.close()
    again = begin(cli.folder, "serve", *STATE)
    try:
        assert again.stderr is not None
        moved = again.stderr.readline().decode()
        assert moved == "moved the state in state/state.db into JetStream\n"
        said = again.stderr.readline().decode()
        assert said.startswith("warning: state/state.db: the last record")
        assert "is damaged" in said
        assert again.stderr.readline().startswith(b"serving topics")
    finally:
        again.terminate()
        again.communicate(timeout=PATIENCE)
