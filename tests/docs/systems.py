"""Systems that documented commands start, and those that look at them or join them.

`up` runs without Spark, which has tests of its own, and with one desk. The three hosts of a page
are this machine, with one NATS server that has TLS and the users that the page's commands made.
Everything is in the namespace of the tests.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import pytest
import trustme

from tests.docs.pages import Command
from tests.docs.running import PATIENCE, Runs, substitute

__all__ = ["Systems", "belongs_to_a_system"]

# What an operator may be told where nothing waits: without Spark nothing does.
NOTHING_WAITS = "no plan waits for approval"
FILES = ("users.conf", "olga.token", "pages.token", "exchange.token", "desk.token")
USER, PASSWORD = "control", "the password of the control plane itself"
CONFIGURATION = """
port: 4222
jetstream { store_dir: store }
tls { cert_file: server.pem, key_file: server.pem }
authorization { include users.conf }
"""


def belongs_to_a_system(command: Command) -> bool:
    """Whether a command starts a system, or needs one that runs."""
    return command.name in ("up", "control serve") or command.value_of("--control") is not None


class Systems:
    """Keeps the systems that commands name by their folders, until they are closed."""

    def __init__(self, runs: Runs, commands: Sequence[Command]) -> None:
        self._runs = runs
        self._commands = commands
        self._hosts: Path | None = None
        self._folders: dict[str, Path] = {}  # by the folder that the commands name
        self._open = contextlib.ExitStack()

    def close(self) -> None:
        """End all systems, as with Ctrl-C."""
        self._open.close()

    def try_out(self, command: Command) -> None:
        """Start a system, or do what a command does with one that runs."""
        if command.name == "up":
            self._run(command)
        elif command.name == "control serve":
            self._serve_hosts(command)
        elif "://" in str(command.value_of("--control")):
            serve = next(each for each in self._commands if each.name == "control serve")
            self._use(command, self._serve_hosts(serve))
        else:
            address = str(command.value_of("--control"))
            self._use(command, self._start(PurePosixPath(address).parts[0]))

    # --- up ---------------------------------------------------------------------------------------

    def _run(self, command: Command) -> None:
        """Start it, see that it works, and end it unless other commands name its folder."""
        out = command.value_of("--out")
        if out is not None:
            self._start(out)
            return
        with self._running(command, self._runs.prepare(command)):
            pass

    def _start(self, out: str) -> Path:
        """The folder in which the `up` with this --out runs."""
        if out not in self._folders:
            made = (c for c in self._commands if c.name == "up" and c.value_of("--out") == out)
            command = next(made)
            folder = self._runs.prepare(command)
            self._open.enter_context(self._running(command, folder))
            self._folders[out] = folder
        return self._folders[out]

    @contextlib.contextmanager
    def _running(self, command: Command, folder: Path) -> Iterator[None]:
        with self._runs.begin(substitute(command), folder) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            page = process.stdout.readline()
            assert page.startswith("page      http://127.0.0.1:"), say_end(process)
            while "version 1 (first)" not in (said := process.stderr.readline()):
                assert said, say_end(process)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(process.stderr.read)  # so that it never waits for us
                yield
                process.terminate()
                assert process.wait(PATIENCE) == 0

    # --- three hosts ------------------------------------------------------------------------------

    def _serve_hosts(self, command: Command) -> Path:
        """The folder with the hosts' files; a control plane serves, and another stands by."""
        if self._hosts is None:
            folder = self._runs.prepare(Command(f"cat {' '.join(FILES)}", command.page, 0, 0))
            self._open.enter_context(self._run_server(folder))
            other = folder / "beta"
            other.mkdir()
            (other / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
            for where, says in ((folder, "serving: "), (other, "standing by: ")):
                self._open.enter_context(self._serve(command, where, says))
            self._hosts = folder
        return self._hosts

    @contextlib.contextmanager
    def _serve(self, command: Command, folder: Path, says: str) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NATS_USER", USER)
            patch.setenv("NATS_PASSWORD", PASSWORD)
            service = self._open.enter_context(self._runs.begin(substitute(command), folder))
        assert service.stderr is not None
        while not (said := service.stderr.readline()).startswith(says):
            assert said, say_end(service)
        yield
        service.terminate()
        _, err = service.communicate(timeout=PATIENCE)
        assert service.returncode == 0, err

    @contextlib.contextmanager
    def _run_server(self, folder: Path) -> Iterator[None]:
        """A NATS server in the namespace, configured as the page says."""
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        certificate = authority.issue_cert("localhost")
        certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
        users = (folder / "users.conf").read_text()
        own = f'users: [ {{user: {USER}, password: "{PASSWORD}"}},'
        (folder / "users.conf").write_text(users.replace("users: [", own, 1))
        (folder / "nats.conf").write_text(CONFIGURATION)
        program = str(Path(sys.executable).with_name("nats-server"))
        with subprocess.Popen(
            [*self._runs.enter_namespace(), program, "-c", "nats.conf"],
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
        ) as server:
            assert server.stderr is not None
            while "Server is ready" not in (said := server.stderr.readline()):
                assert said
            with ThreadPoolExecutor(1) as pool:
                pool.submit(server.stderr.read)
                yield
                server.terminate()

    # --- those that use it ------------------------------------------------------------------------

    def _use(self, command: Command, folder: Path) -> None:
        for name in self._runs.prepare(command).iterdir():
            if not (folder / name.name).exists():
                name.rename(folder / name.name)
        with self._runs.begin(substitute(command), folder) as process:
            assert process.stdout is not None
            if command.name == "receive":
                with ThreadPoolExecutor(1) as pool:
                    heard = pool.submit(self._hear, process, str(command.value_of("--flow")))
                    self._publish_until(heard.done, command, folder)
                    heard.result()
                process.terminate()
            elif command.name == "dashboard":
                assert process.stdout.readline().startswith("pages at http://"), say_end(process)
                process.terminate()
            _, err = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in err
        assert process.returncode == 0 or NOTHING_WAITS in err, err

    def _hear(self, process: subprocess.Popen[str], flow: str) -> None:
        assert process.stdout is not None
        while f'"flow":"{flow}"' not in (said := process.stdout.readline()):
            assert said, say_end(process)

    def _publish_until(self, is_done: Callable[[], bool], command: Command, folder: Path) -> None:
        """Publish as the page does, if it does what the receiver wants, until it is received."""
        wanted = command.value_of("--control"), command.value_of("--flow")
        publishers = [
            each
            for each in self._commands
            if each.name == "publish"
            and (each.value_of("--control"), each.value_of("--flow")) == wanted
        ]
        while publishers and not is_done():
            self._use(publishers[0], folder)


def say_end(process: subprocess.Popen[str]) -> str:
    """What a process that ended too early had to say."""
    process.terminate()
    return process.communicate(timeout=PATIENCE)[1][-2000:]
