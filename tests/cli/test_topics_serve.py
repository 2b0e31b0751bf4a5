"""`topics serve` among other processes: Ctrl-C, a second one, a dead server, a full disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.processes import PATIENCE, press_ctrl_c, read_note, started

SERVE = [sys.executable, "-m", "distributary", "topics", "serve"]
IN_MOUNTS = ["unshare", "-rm", "sh", "-ec"]


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in found.split()]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serving") / "state"


@pytest.fixture(scope="module")
def service(state: Path) -> Iterator[subprocess.Popen[bytes]]:
    with started([*SERVE, "--state", state, "--monitor"]) as process:
        assert read_note(process).startswith("serving topics on nats://127.0.0.1:")
        yield process


def test_a_second_service_is_refused_and_leaves_the_first_alone(
    cli: CommandLine, state: Path, service: subprocess.Popen[bytes]
) -> None:
    before = {path.name: path.read_bytes() for path in state.iterdir() if path.is_file()}
    ran = cli("topics", "serve", "--state", state)
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert "another process uses this folder" in ran.err
    assert {path.name: path.read_bytes() for path in state.iterdir() if path.is_file()} == before
    assert cli("topics", "publish", "t", "x", "--create", "--state", state).status == 0


def test_who_asks_for_monitoring_pages_sees_the_server_in_the_status(
    cli: CommandLine, state: Path, service: subprocess.Popen[bytes]
) -> None:
    told = cli("topics", "status", "--json", "--state", state).document
    assert told["server"]["connections"] >= 1
    ran = cli("topics", "status", "--monitor", "http://127.0.0.1:1", "--state", state)
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "no monitoring page" in ran.err


@pytest.mark.skipif(sys.platform != "linux", reason="finds the server by /proc")
def test_a_dead_server_is_started_again_and_the_service_says_so(
    cli: CommandLine, state: Path, service: subprocess.Popen[bytes]
) -> None:
    (server,) = children_of(service.pid)
    os.kill(server, signal.SIGKILL)
    assert read_note(service) == (
        "warning: the embedded NATS server was killed by signal 9 and was restarted\n"
    )
    assert cli("topics", "publish", "u", "x", "--create", "--state", state).status == 0


def check_ctrl_c(state: Path, times: int) -> None:
    for _ in range(times):
        with started([*SERVE, "--state", state]) as process:
            read_note(process)
            assert press_ctrl_c(process) == (0, b"")
        assert not (state / "server").exists()  # no token lies about


def test_ctrl_c_ends_the_service_in_order(tmp_path: Path) -> None:
    check_ctrl_c(tmp_path / "state", 1)


@pytest.mark.slow
def test_ctrl_c_ends_the_service_in_order_every_time(tmp_path: Path) -> None:
    check_ctrl_c(tmp_path / "state", 10)


def test_ctrl_c_ends_a_service_that_still_waits_for_its_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        with started([*SERVE, "--state", tmp_path, "--nats", url]) as process:
            connection, _ = silent.accept()
            with connection:
                assert press_ctrl_c(process) == (0, b"")


def test_a_killed_service_leaves_nothing_in_the_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path / "tmp"))
        with started([*SERVE, "--state", tmp_path / "state"]) as process:
            read_note(process)
            old = json.loads((tmp_path / "state/server.json").read_text())["token"]
            process.kill()
            process.wait(timeout=PATIENCE)
        assert list((tmp_path / "tmp").iterdir()) == []
        with started([*SERVE, "--state", tmp_path / "state"]) as process:
            read_note(process)
            kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
            assert not any(old.encode() in path.read_bytes() for path in kept)
            assert press_ctrl_c(process) == (0, b"")


def test_a_state_that_is_a_file_or_has_an_odd_server_file_is_told(cli: CommandLine) -> None:
    cli.write("file", "")
    for data in ("{}", "[1]", '{"url": 5}', "\0", '{"port": "x"}'):
        cli.write("odd/server.json", data)
        for words in (("publish", "t", "x"), ("subscribe", "t"), ("status",)):
            ran = cli("topics", *words, "--state", "odd")
            assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
            assert "server.json: has no address of a server" in ran.err
    for words in (("serve",), ("publish", "t", "x"), ("status",)):
        ran = cli("topics", *words, "--state", "file")
        assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "defect" not in ran.err


def test_no_command_shows_the_password_of_an_address(cli: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        url = f"nats://alice:s3cret@127.0.0.1:{taken.getsockname()[1]}"
        for words in (
            ("publish", "t", "x", "--timeout", "1s"),
            ("subscribe", "t", "--timeout", "1s"),
        ):
            ran = cli("topics", *words, "--nats", url)
            assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
            assert "no NATS server answers" in ran.err
            assert "alice" not in ran.err
            assert "s3cret" not in ran.err


def why_no_mounts() -> str | None:
    if sys.platform != "linux" or not shutil.which("unshare"):
        return "needs Linux with unshare"
    tried = subprocess.run(
        [*IN_MOUNTS, "mount -t tmpfs none /mnt"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"no mount namespace: {tried.stderr.strip()}"


def run_on(folder: Path, options: str, prepare: str) -> tuple[int, str]:
    """Serve in a small file system of its own; the exit status and what was said on stderr."""
    if (reason := why_no_mounts()) is not None:
        pytest.skip(reason)
    (folder / "disk").mkdir()
    script = f'mount -t tmpfs -o {options} none disk; {prepare}; exec "$@"'
    ran = subprocess.run(
        [*IN_MOUNTS, script, "sh", *SERVE, "--state", "disk/state"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return ran.returncode, ran.stderr


FILL = "head -c 128k /dev/zero > disk/full 2> /dev/null || true"
MAKE_STATE = (
    f"{sys.executable} -c 'from pathlib import Path; "
    'from distributary.machines.real import Store; Store(Path("disk/state")).close()\''
)


@pytest.mark.parametrize(
    ("options", "prepare", "said"),
    [
        ("size=1m", "mount -o remount,ro disk", "read-only file system"),
        ("size=64k", FILL, "no space left on device"),
        ("size=128k", f"{MAKE_STATE}; {FILL}", "no space left on device"),
    ],
    ids=["read-only", "full", "full since the last time"],
)
def test_a_disk_that_cannot_be_written_is_told(
    tmp_path: Path, options: str, prepare: str, said: str
) -> None:
    status, err = run_on(tmp_path, options, prepare)
    assert (status, err.count("\n")) == (1, 1), err
    assert said in err
    assert "defect" not in err
