"""`control`: serve, look and operate from the command line, against a service that really runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.processes import press_ctrl_c, read_note, started
from tests.warm import find_command


def serve() -> list[str]:
    return [*find_command(), "control", "serve", "--spark", "off", "--ttl", "0"]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("control") / "state"


@pytest.fixture(scope="module")
def metrics(state: Path) -> Iterator[str]:
    """The address of the metrics of the service that runs."""
    with started([*serve(), "--state", state, "--metrics", "0"]) as process:
        assert read_note(process).startswith("embedded server: nats://127.0.0.1:")
        address = read_note(process).removeprefix("metrics at ").strip()
        assert read_note(process).startswith("serving: as process ")
        yield address


def test_a_folder_is_all_that_a_control_plane_needs(
    cli: CommandLine, state: Path, metrics: str
) -> None:
    ran = cli("control", "status", "--control", state)
    assert ran.status == 0
    assert "none yet: nobody wants anything" in ran.out
    told = cli("control", "status", "--control", state, "--json").document
    assert (told["group_limit"], told["session_limit"], told["mode"]) == (32, 128, "auto")
    assert told["stream"]["state"] == "off"
    with urlopen(metrics) as page:
        assert b"distributary_control_serving 1.0" in page.read()


def test_a_second_service_for_the_folder_is_refused(
    cli: CommandLine, state: Path, metrics: str
) -> None:
    ran = cli("control", "serve", "--state", state, "--spark", "off")
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert "another process uses this folder" in ran.err


def test_orders_are_done_and_stand_in_the_log_of_changes(
    cli: CommandLine, state: Path, metrics: str
) -> None:
    where = ("--control", state, "--as", "ann")
    limits = cli.write("limits.toml", "[groups]\nmembers = 9\n")
    for words, said in (
        (("mode", "manual"), "wait for approval"),
        (("pin", "f", "3"), "stays in group 3"),
        (("unpin", "f"), "may move again"),
        (("limits", limits), "the limits hold"),
        (("limits", "linux"), "the limits hold"),
        (("limits", "none"), "no limits any more"),
        (("mode", "auto"), "by themselves"),
    ):
        ran = cli("control", *words, *where)
        assert (ran.status, ran.err) == (0, "")
        assert said in ran.out
    told = cli("control", "mode", "manual", *where, "--json").document
    assert set(told) == {"says", "version"}
    found = cli("control", "changes", *where, "--json", "--count", "3").document["changes"]
    assert [entry["what"] for entry in found] == ["mode", "mode", "limits"]
    assert {entry["who"] for entry in found} == {"ann"}
    assert "ann" in cli("control", "changes", *where).out
    assert cli("control", "status", "--control", state, "--json").document["pins"] == {}


def test_what_cannot_be_done_is_one_line_and_exit_1(
    cli: CommandLine, state: Path, metrics: str
) -> None:
    cli.write("limits.toml", "[groups]\nmembers = -1\n")
    for words, said in (
        (("approve",), "no plan waits for approval"),
        (("approve", "7"), "proposal 7 is gone"),
        (("reject", "7", "--why", "no"), "proposal 7 is gone"),
        (("rollback",), "none to roll back"),
        (("pin", "f", "32"), "groups 0 to 31"),
        (("unpin", "g"), "not pinned"),
        (("limits", "limits.toml"), "members"),
        (("limits", "nowhere.toml"), "no such file"),
    ):
        ran = cli("control", *words, "--control", state)
        assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1), words
        assert said in ran.err.lower(), ran.err
    assert cli("control", "plan", "--control", state).out.startswith("no plan waits for approval")
    told = cli("control", "plan", "--control", state, "--json").document
    assert told["proposal"] is None


def test_a_control_plane_that_is_not_there_is_one_line(cli: CommandLine, tmp_path: Path) -> None:
    for where, said in (
        (tmp_path, "no server was ever started for this folder"),
        ("nats://127.0.0.1:1", "no NATS server answers"),
    ):
        ran = cli("control", "status", "--control", where)
        assert (ran.status, ran.err.count("\n")) == (1, 1)
        assert said in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("status", "Missing option '--control'"),
        ("status --control localhost:4222", "nats://localhost:4222"),
        ("status --control nats://h --prefix a..b", "not a valid prefix"),
        ("status --control nats://h --key k", "--key needs --cert"),
        ("status --control nats://h --token-file token", "give it with --as"),
        ("limits nosuch --control nats://h", "the profiles are"),
        ("mode both --control nats://h", "'both' is not one of"),
        ("serve", "Missing option '--state'"),
        ("serve --state s --listen nowhere", "not HOST:PORT"),
        ("serve --state s --listen 0.0.0.0:0", "--insecure"),
        ("serve --state s --listen 0.0.0.0:0 --insecure", "--users"),
        ("serve --state s --nats nats://h --users u", "embedded server"),
        ("serve --state s --group-base 10.0.0.1", "--group-base"),
        ("serve --state s --limits nosuch", "the profiles are"),
        ("serve --state s --groups 0", "--groups"),
        ("serve --state s --conf nothing", "key=value"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_done(
    cli: CommandLine, words: str, said: str
) -> None:
    ran = cli("control", *words.split())
    assert ran.status == 2
    assert said in " ".join(ran.err.replace("│", " ").split())
    assert not (cli.folder / "s").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("serve --state s --groups 200 --group-base 239.195.255.0", "200 groups"),
        ("serve --state s --limits limits.toml", "members"),
        ("serve --state s --pins pins.csv", "group"),
        ("serve --state s --users users.json", "chmod 600"),
        pytest.param(
            *("serve --state s --nats nats://127.0.0.1:1", "no NATS server answers"),
            marks=pytest.mark.slow,
        ),
        ("permissions users.json", "chmod 600"),
        ("permissions nowhere.json", "no such file"),
        ("status --control nats://h --as ann --token-file users.json", "chmod 600"),
    ],
)
def test_bad_files_are_one_line(cli: CommandLine, words: str, said: str) -> None:
    cli.write("limits.toml", "[groups]\nmembers = -1\n")
    cli.write("pins.csv", "flow,group\nf,many\n")
    cli.write("users.json", "{}").chmod(0o644)
    ran = cli("control", *words.split())
    assert (ran.status, ran.err.count("\n")) == (1, 1), ran.err
    assert said in ran.err


def test_ctrl_c_ends_a_service_in_order_and_its_log_is_json(tmp_path: Path) -> None:
    with started([*serve(), "--state", tmp_path / "s", "--log-json"]) as process:
        lines = [json.loads(read_note(process)) for _ in range(2)]
        assert [line["what"] for line in lines] == ["embedded server", "serving"]
        assert all({"time", "level", "says"} <= line.keys() for line in lines)
        assert press_ctrl_c(process) == (0, b"")
    assert not (tmp_path / "s/server").exists()  # no token lies about


def test_names_with_tokens_act_in_their_roles(cli: CommandLine, tmp_path: Path) -> None:
    names = {"operator": {"ann": "a" * 20}, "viewer": {"vic": "v" * 20}}
    for name, text in (("users", json.dumps(names)), ("ann", "a" * 20), ("vic", "v" * 20 + "\n")):
        cli.write(name, text).chmod(0o600)
    cli.write("wrong", "w" * 20).chmod(0o600)
    with started([*serve(), "--state", tmp_path / "s", "--users", tmp_path / "users"]) as process:
        url = read_note(process).split(": ")[1].strip()
        read_note(process)
        ann = ("--control", url, "--as", "ann", "--token-file", "ann")
        vic = ("--control", url, "--as", "vic", "--token-file", "vic")
        assert cli("control", "mode", "manual", *ann).status == 0
        assert cli("control", "changes", *vic, "--json").document["changes"][0]["who"] == "ann"
        ran = cli("control", "mode", "auto", *vic)
        assert (ran.status, ran.err.count("\n")) == (1, 1)
        assert "does not let these credentials operate the control plane" in ran.err
        for wrong in ((*vic[:4], "--token-file", "wrong"), vic[:2]):
            ran = cli("control", "status", *wrong)
            assert (ran.status, ran.err.count("\n")) == (1, 1)
            assert "check the credentials" in ran.err
        own = ("control", "status", "--control", tmp_path / "s")  # its owner
        while not (alarms := cli(*own, "--json").document["alarms"]):
            time.sleep(0.1)  # the server says it in its log
        assert [alarm["what"] for alarm in alarms] == ["wrong token"]
        assert "2 times in the last minute, the last one without a name" in alarms[0]["says"]
        assert "wrong token" in cli(*own).out


def test_permissions_are_printed_for_the_users_own_server(cli: CommandLine) -> None:
    names = {"operator": {"ann": "a" * 20}, "receiver": {"desk": "d" * 20}}
    cli.write("users", json.dumps(names)).chmod(0o600)
    ran = cli("control", "permissions", "users", "--prefix", "floor")
    assert ran.status == 0
    assert ran.out.startswith("users: [")
    assert "floor.control.operate.ann" in ran.out
    assert "floor.control.report.receiver.desk" in ran.out
