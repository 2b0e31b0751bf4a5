"""`topics serve`, `publish`, `subscribe` and `status`, typed as a user types them."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributary.topics import Policy
from distributary.topics.nats import ServiceSettings
from tests.cli.conftest import CommandLine
from tests.warm import find_command

PATIENCE = 240.0


COLD = [sys.executable, "-m", "distributary"]


def begin(folder: Path, *words: str, cold: bool = False) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*(COLD if cold else find_command()), "topics", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=PATIENCE)


def serve(folder: Path, *, cold: bool = False) -> subprocess.Popen[bytes]:
    process = begin(folder, "serve", "--state", "state", "--plan-every", "1s", cold=cold)
    assert process.stderr is not None
    said = process.stderr.readline()
    assert said.startswith(b"serving topics on nats://127.0.0.1:"), said
    return process


@pytest.fixture
def service(cli: CommandLine) -> Iterator[subprocess.Popen[bytes]]:
    yield from serving(cli.folder)


@pytest.fixture
def cold_service(cli: CommandLine) -> Iterator[subprocess.Popen[bytes]]:
    """Started as a user does, so that who kills it kills all of it."""
    yield from serving(cli.folder, cold=True)


def serving(folder: Path, *, cold: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    process = serve(folder, cold=cold)
    yield process
    if process.poll() is None:
        end(process)
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


def test_what_is_published_is_printed_where_it_is_wanted(
    cli: CommandLine, service: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = ("--state", "state")
    ran = cli("topics", "publish", "a topic", "zero", "--create", "--json", *state)
    assert (ran.status, ran.document) == (0, {"topic": "a topic", "published": 1})
    reading = begin(cli.folder, "subscribe", "a topic", "--count", "3", "--json", *state)
    deadline = time.monotonic() + PATIENCE
    while not (told := cli("topics", "status", "--json", *state).document)["subscriptions"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stdin = io.TextIOWrapper(io.BytesIO("öne\n\nthree\r\n".encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert cli("topics", "publish", "a topic", *state).out == "3 events published\n"
    out, _ = reading.communicate(timeout=PATIENCE)
    assert reading.returncode == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"topic": "a topic", "number": number, "payload": payload}
        for number, payload in ((2, "öne"), (3, ""), (4, "three"))
    ]
    assert (told["topics"], told["subscribers"], told["accepted"]) == (1, 1, 1)
    assert told["server"] is None  # its monitoring pages are for who asks for them
    assert {"cost", "unclustered", "saving", "clusters", "overhead"} <= told.keys()
    assert "operating cost" in cli("topics", "status", *state).out
    for words, said in (
        (("publish", "unknown", "x", *state), "there is no topic 'unknown'"),
        (("subscribe", "unknown", *state), "there is no topic 'unknown'"),
        (("publish", "x" * 300, "x", "--create", *state), "not a valid topic name"),
        (("status", "--state", "elsewhere"), "no NATS server answers"),
    ):
        ran = cli("topics", *words)
        assert (ran.status, ran.out) == (1, "")
        assert said in ran.err
        assert ran.err.count("\n") == 1
    assert end(service)[1] == b""
    assert service.returncode == 0


def test_a_killed_service_goes_on_where_it_was(
    cli: CommandLine, cold_service: subprocess.Popen[bytes]
) -> None:
    state = ("--state", "state")
    where = json.loads((cli.folder / "state/server.json").read_text())
    assert cli("topics", "publish", "t", "one", "--create", *state).status == 0
    os.kill(cold_service.pid, signal.SIGKILL)
    cold_service.wait(timeout=PATIENCE)
    again = serve(cli.folder, cold=True)
    try:
        now = json.loads((cli.folder / "state/server.json").read_text())
        assert now["port"] == where["port"]
        assert now["token"] != where["token"]
        assert cli("topics", "publish", "t", "two", *state).status == 0
        assert cli("topics", "status", "--json", *state).document["topics"] == 1
        other = cli("topics", "serve", *state, "--nats", now["url"], "--token", now["token"])
        assert other.status == 1
        assert "another process uses this folder" in other.err
    finally:
        out, err = end(again)
        assert (again.returncode, out, err) == (0, b"", b"")


def test_wrong_usage_is_told(cli: CommandLine) -> None:
    for words in (
        ("status",),
        ("serve",),
        ("publish", "t", "x"),
        ("serve", "--state", "s", "--interval", "never"),
        ("status", "--state", "s", "--prefix", "a b"),
    ):
        assert cli("topics", *words).status == 2


@pytest.mark.parametrize("given", [("--phi", "0.9"), ("--sample", "9"), ("--survey-every", "9s")])
def test_settings_of_surveys_are_refused_without_surveys(
    cli: CommandLine, given: tuple[str, str]
) -> None:
    ran = cli("topics", "serve", "--state", "state", *given)
    assert ran.status == 2
    assert given[0] in ran.err
    assert "only --policy tamara surveys" in ran.err


def choose_policy(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, *given: str) -> Policy:
    """The policy of the service that a command would run."""
    found: list[ServiceSettings] = []

    async def serve(server: object, settings: ServiceSettings, monitor: bool) -> None:
        found.append(settings)

    monkeypatch.setattr("distributary.cli.topics._serve", serve)
    assert cli("topics", "serve", "--state", "state", *given).status == 0
    return found[0].policy


def test_settings_of_surveys_reach_the_policy_of_the_service(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("--phi", "0.75", "--sample", "55", "--survey-every", "9s")
    policy = choose_policy(cli, monkeypatch, "--policy", "tamara", *given)
    assert (policy.phi, policy.sample, policy.survey_every) == (0.75, 55.0, 9.0)
    assert not policy.tells


def test_surveys_have_the_defaults_that_the_help_shows(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = choose_policy(cli, monkeypatch, "--policy", "tamara", "--interval", "7s")
    assert (policy.phi, policy.sample, policy.survey_every) == (0.99, 384.0, 7.0)
    policy = choose_policy(cli, monkeypatch)
    assert policy.tells
    assert policy.survey_every == float("inf")
