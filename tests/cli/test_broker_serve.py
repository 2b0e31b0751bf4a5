"""`broker serve`: wrong usage in one line, a second broker, signals, metrics."""

from __future__ import annotations

import os
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.processes import PATIENCE, read_note, started

SERVE = [sys.executable, "-m", "distributary", "broker", "serve"]
SCHEMA = '{"symbol": "string", "price": "double"}'


def words(cli: CommandLine, **changed: str) -> list[str]:
    """The words of a broker that would start, with some changed."""
    cli.write("schema.json", SCHEMA)
    given = {"name": "A", "listen": "127.0.0.1:0", "state": "state", "schema": "schema.json"}
    return [word for name, value in (given | changed).items() for word in (f"--{name}", value)]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"listen": "nowhere"}, "'nowhere' is not HOST:PORT"),
        ({"listen": "::1:7000"}, "write an IPv6 address as [ADDRESS]:PORT"),
        ({"policy": "best"}, "'best' is not one of none, active, lazy, packing, pruning, merging"),
        ({"link": "B"}, "'B' is not NAME=HOST:PORT"),
        ({"link": "B=nowhere"}, "'nowhere' is not HOST:PORT"),
        ({"link": "=127.0.0.1:1"}, "'=127.0.0.1:1' is not NAME=HOST:PORT"),
        ({"link": "A=127.0.0.1:1"}, "a broker does not link with itself"),
        ({"name": " A"}, "a name has 1 to 200 printable characters"),
        ({"name": ""}, "a name has 1 to 200 printable characters"),
        ({"tls-key": "key.pem"}, "a broker with TLS needs its certificate"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_written(
    cli: CommandLine, changed: dict[str, str], said: str
) -> None:
    ran = cli("broker", "serve", *words(cli, **changed))
    assert ran.status == 2
    assert said in " ".join(ran.err.replace("│", " ").split())
    assert not Path("state").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schema": "none.json"}, "none.json: cannot be read: no such file or directory"),
        ({"schema": "bad.json"}, "bad.json: attribute 'a' is 'text', not one of string, int"),
        ({"tokens": "none.json"}, "none.json: cannot be read (no such file or directory)"),
        ({"tokens": "bad.json"}, "bad.json: other users have access to it (mode 644)"),
        ({"tls-cert": "bad.json"}, "bad.json: cannot be used with its key"),
        ({"listen": "0.0.0.0:0"}, "0.0.0.0:0: is not on this machine"),
        ({"listen": "nowhere.invalid:0"}, "nowhere.invalid:0: the host is unknown"),
        ({"state": "schema.json"}, "schema.json: cannot be written"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    cli: CommandLine, changed: dict[str, str], said: str
) -> None:
    bad = cli.write("bad.json", '{"a": "text"}')
    bad.chmod(0o644)
    ran = cli("broker", "serve", *words(cli, **changed))
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert ran.err.startswith(f"error: {said}")


def test_a_state_folder_belongs_to_one_running_broker_of_one_name(cli: CommandLine) -> None:
    with started([*SERVE, *words(cli)]) as process:
        assert read_note(process).startswith("broker A at 127.0.0.1:")
        ran = cli("broker", "serve", *words(cli))
        assert (ran.status, ran.err.count("\n")) == (1, 1)
        assert "another process uses this folder" in ran.err
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    ran = cli("broker", "serve", *words(cli, name="B"))
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert "is the state of the broker 'A', not of 'B'" in ran.err
    cli.write("other.json", '{"symbol": "string"}')
    ran = cli("broker", "serve", *words(cli, schema="other.json"))
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert "was written under another schema" in ran.err


def test_metrics_are_served_and_ctrl_c_ends_it_cleanly(cli: CommandLine) -> None:
    with started([*SERVE, *words(cli), "--metrics", "0", "--fsync"]) as process:
        note = read_note(process)
        assert note.startswith("metrics at http://127.0.0.1:")
        assert read_note(process).startswith("broker A at 127.0.0.1:")
        with urllib.request.urlopen(note.split()[2], timeout=PATIENCE) as page:
            lines = page.read().decode().splitlines()
        assert "distributary_broker_incarnation 1.0" in lines
        assert "distributary_broker_connections_open 0.0" in lines
        assert "distributary_broker_accepted_total 0.0" in lines
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out, err) == (0, b"", b"")
