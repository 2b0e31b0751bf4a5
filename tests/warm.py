"""Runs commands of ours in processes that need not import anything.

A process that starts Python, NumPy, Numba and Arrow works for more than a second before it does
anything. `Warm` is one that has imported all of it, and forks for each command. To who starts a
command it looks like any other process, see `launch.py`. Tests of how a process starts or is killed
have no use for it.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

LAUNCHER = str(Path(__file__).with_name("launch.py"))


class Warm:
    """A process that has imported the product; it ends with the process that began it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        self._socket = f"{self._folder.name}/socket"
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests import warm; warm.main()", self._socket],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        atexit.register(self.stop)

    def stop(self) -> None:
        """End it by the end of its input."""
        self._process.communicate()
        self._folder.cleanup()

    @property
    def command(self) -> list[str]:
        """What runs our command line with the words that follow."""
        return [sys.executable, "-I", "-S", LAUNCHER, self._socket]


@cache
def find_warm() -> Warm:
    """The one of this process."""
    return Warm()


def serve(path: str) -> None:
    """Fork for everybody who connects, until stdin ends."""
    commands: dict[int, tuple[int, socket.socket]] = {}  # processes and who asked, by pidfd
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            asking = {client.fileno(): (pid, client) for pid, client in commands.values()}
            ready, _, _ = select.select([0, listener.fileno(), *asking, *commands], [], [])
            for at in ready:
                if at == 0:
                    return
                if at == listener.fileno():
                    client, _ = listener.accept()
                    pid = start(client, listener)
                    commands[os.pidfd_open(pid)] = pid, client
                elif at in asking:
                    hand_on(*asking[at])
                elif at in commands:
                    report(at, *commands.pop(at))


def start(client: socket.socket, listener: socket.socket) -> int:
    said, descriptors, _, _ = socket.recv_fds(client, 1 << 20, 3)
    pid = os.fork()
    if pid == 0:
        listener.close()
        client.close()
        run(json.loads(said), descriptors)
    for each in descriptors:
        os.close(each)
    return pid


def run(asked: dict[str, object], descriptors: list[int]) -> NoReturn:
    """Be the command."""
    status = 1
    try:
        for at, descriptor in enumerate(descriptors):
            os.dup2(descriptor, at)
            os.close(descriptor)
        os.chdir(str(asked["folder"]))
        os.environ.clear()
        os.environ.update(asked["environment"])  # type: ignore[call-overload]
        sys.argv = ["distributary", *asked["words"]]  # type: ignore[misc]
        from distributary.cli import main

        main()
    except SystemExit as stop:
        status = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def report(pidfd: int, pid: int, client: socket.socket) -> None:
    os.close(pidfd)
    _, status = os.waitpid(pid, 0)
    with client, suppress(OSError):  # who asked may have been killed
        client.send(str(os.waitstatus_to_exitcode(status)).encode())


def hand_on(pid: int, client: socket.socket) -> None:
    number = client.recv(1)
    os.kill(pid, number[0] if number else signal.SIGKILL)


def main() -> None:
    from distributary.cli import app
    from distributary.delivery.udp.datagrams import make_reader

    import_module("pandas")  # as Arrow does with the first value that it takes
    for name in ("export", "publish", "receive", "topics"):
        import_module(app.COMMANDS[name].module)
    make_reader(1, 1)  # the first compiled loop takes the longest to load
    serve(sys.argv[1])
