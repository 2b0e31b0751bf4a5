"""`dashboard` among other processes: a real control plane, Ctrl-C, and bad input."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import CommandLine

PATIENCE = 240.0
PROGRAM = [sys.executable, "-m", "distributary"]
TOKEN = "the token of the operators"


@contextmanager
def begin(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own, as a shell starts it."""
    with subprocess.Popen(
        [*PROGRAM, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a control plane that serves."""
    folder = tmp_path_factory.mktemp("control") / "state"
    with begin("control", "serve", "--state", folder, "--spark", "off", "--ttl", "0") as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "serving" in line)
        yield folder
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    return file


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def find_address(line: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+/", line)
    assert found, line
    return found[0]


def fetch(address: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=PATIENCE)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_it_prints_the_address_and_ctrl_c_ends_it(state: Path) -> None:
    with begin("dashboard", "--control", state, "--port", "0") as process:
        line = read_line(process)
        assert "read-only: give --token-file" in line
        address = find_address(line)
        assert fetch(address, "/")[0] == 200
        status, session = fetch(address, "/api/session")
        assert (status, json.loads(session)["can_sign_in"]) == (200, False)
        assert json.loads(fetch(address, "/api/receivers")[1])["known"] == 0
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (130, "")
        assert err == "interrupted: nothing is left half-written\n"


def test_sigterm_ends_it_while_browsers_watch(state: Path, token_file: Path) -> None:
    words = ("dashboard", "--control", state, "--port", "0", "--token-file", token_file, "--json")
    with begin(*words) as process:
        assert process.stdout is not None
        document = ""
        while not document.endswith("}\n"):
            document += process.stdout.readline()
        found = json.loads(document)
        assert found == {"page": find_address(found["page"]), "operators": True}
        assert TOKEN not in document
        connection = http.client.HTTPConnection(urlsplit(found["page"]).netloc, timeout=PATIENCE)
        connection.request("GET", "/events")
        response = connection.getresponse()
        events = iter(response.readline, b"")
        document = next(each for each in events if each.startswith(b"data: ")).decode()
        assert json.loads(document.removeprefix("data: "))["control"]["prefix"] == "distributary"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out, err) == (0, "", "")
        connection.close()


def test_a_port_that_is_taken_is_said(cli: CommandLine, state: Path) -> None:
    with begin("dashboard", "--control", state, "--port", "0") as process:
        port = str(urlsplit(find_address(read_line(process))).port)
        ran = cli("dashboard", "--control", state, "--port", port)
    assert ran.status == 1
    assert ran.err == (
        f"error: 127.0.0.1 port {port}: the pages cannot be served there (Address already in use); "
        "choose another address or port\n"
    )


def test_beyond_this_machine_it_warns(cli: CommandLine, state: Path) -> None:
    ran = cli("dashboard", "--control", state, "--host", "192.0.2.1", "--port", "0")
    assert ran.status == 1
    assert ran.err.startswith("warning: whoever reaches 192.0.2.1 can read the pages")
    assert "error: 192.0.2.1 port 0: the pages cannot be served there" in ran.err


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--control", "nothing"], 1, "nothing: no NATS server answers (no server was ever"),
        (["--control", "127.0.0.1:4222"], 2, "write the address of a server as nats://127.0.0.1"),
        (["--control", "{state}", "--port", "70000"], 2, "Invalid value for '--port'"),
        (["--control", "{state}", "--token-file", "none"], 1, "none: cannot be read"),
        (["--control", "{state}", "--token-file", "short"], 1, "short: is not a text of 16"),
        (["--control", "{state}", "--token-file", "open"], 1, "other users have access to it"),
        (["--control", "{state}", "--brokers", "nowhere"], 2, "Invalid value for '--brokers'"),
        (["--control", "{state}", "--topics", "nothing"], 1, "nothing: no NATS server answers"),
        (["--control", "{state}", "--control-token-file", "good"], 2, "give it with --as"),
        ([], 2, "Missing option '--control'"),
    ],
)
def test_bad_input_gets_one_clear_answer(
    cli: CommandLine, state: Path, words: list[str], status: int, says: str
) -> None:
    for name, text, mode in (
        ("short", "short", 0o600),
        ("open", TOKEN, 0o644),
        ("good", TOKEN, 0o600),
    ):
        cli.write(name, text).chmod(mode)
    ran = cli("dashboard", *(word.format(state=state) for word in words))
    assert ran.status == status
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""
