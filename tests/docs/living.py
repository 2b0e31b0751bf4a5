"""Commands that go on until they are ended: begun, seen at work, and ended as with Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.docs.pages import Command
from tests.docs.running import PATIENCE, Ran, Runs, bounded, run_in_process, substitute
from tests.docs.systems import Systems, belongs_to_a_system

# By name: what makes one of these end by itself.
LIVING: dict[str, str | None] = {
    "broker serve": None,
    "broker subscribe": "--count",
    "topics serve": None,
    "topics peer": None,
    "topics subscribe": "--count",
    "topics status": None,  # with --watch only, see below
    "receive": "--count",
    "pipeline stream": "--until-idle",
    "up": None,
    "control serve": None,
    "dashboard": None,
}
ENDED = (0, 130)  # as Ctrl-C ends them
SERVED = ("topics", "broker publish", "broker status")  # need a service that runs


def is_living(command: Command) -> bool:
    """Whether a command goes on until it is ended, or needs one that does."""
    if belongs_to_a_system(command):
        return True
    if command.name == "topics status":
        return "--watch" in command.words
    return command.name in LIVING and LIVING[command.name] not in command.words


class Lives:
    """Tries such commands out; keeps the services that others need, each in its folder."""

    def __init__(self, runs: Runs, commands: Sequence[Command]) -> None:
        self._runs = runs
        self._commands = commands
        self._services: dict[str, tuple[Path, subprocess.Popen[str]]] = {}
        self._brokers: dict[str, subprocess.Popen[str]] = {}
        self._peers: dict[str, subprocess.Popen[str]] = {}
        self._systems = Systems(runs, commands)
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._open:
            self._open.callback(self._systems.close)
            for service in (
                *(each for _, each in self._services.values()),
                *self._brokers.values(),
                *self._peers.values(),
            ):
                end(service)

    def try_out(self, command: Command) -> None:
        """Begin a command, see that it works, and end it."""
        with bounded(PATIENCE):
            self._try_out(command)

    def _try_out(self, command: Command) -> None:
        if belongs_to_a_system(command):
            self._systems.try_out(command)
        elif command.name == "topics serve":
            self._serve(command.value_of("--state"))
        elif command.name == "topics peer":
            self._serve_peer(command)
        elif command.value_of("--peer") is not None:
            self._ask_peer(command)
        elif command.name == "topics subscribe":
            self._subscribe(command)
        elif command.name.startswith("topics"):
            self._ask_service(command)
        elif command.name == "receive":
            self._receive(command)
        elif command.name == "broker serve":
            self._serve_broker(command)
        elif command.name == "broker subscribe":
            self._subscribe_at_broker(command)
        elif command.name.startswith("broker"):
            self._ask_broker(command)
        else:
            self._stream(command)

    # --- topics -----------------------------------------------------------------------------------

    def _serve(self, state: str | None) -> Path:
        """The folder of the service with this state, which is begun if it does not run."""
        assert state is not None, "without --state nobody knows which service is meant"
        if state not in self._services:
            served = (
                each
                for each in self._commands
                if each.name == "topics serve" and each.value_of("--state") == state
            )
            command = substitute(next(served))
            folder = self._runs.prepare(command)
            service = self._open.enter_context(self._runs.begin(command, folder))
            assert service.stderr is not None
            said = service.stderr.readline()
            assert said.startswith("serving topics on nats://127.0.0.1:"), said
            self._services[state] = folder, service
        folder, service = self._services[state]
        assert service.poll() is None
        return folder

    def _ask_service(self, command: Command) -> None:
        folder = self._serve(command.value_of("--state"))
        if not is_living(command):
            ran = run_in_process(substitute(command), folder)
            assert (ran.status, ran.err) == (0, "")
            return
        with self._runs.begin(substitute(command), folder) as process:
            assert process.stdout is not None
            assert process.stdout.readline(), said_at_the_end(process)
            end(process)

    def _subscribe(self, command: Command) -> None:
        state = command.value_of("--state")
        folder = self._serve(state)

        def ask(*words: str) -> Ran:
            asked = ("distributary", "topics", *words, "--state", str(state))
            return run_in_process(Command(shlex.join(asked), command.page, 0, 0), folder)

        topics = [word for word in command.arguments if not word.startswith("--") and word != state]

        def count_wanted() -> int:
            return int(json.loads(ask("status", "--json").out)["wanted"])

        before = count_wanted()
        with self._runs.begin(substitute(command), folder) as process:
            wait_for(process, lambda: count_wanted() == before + len(topics))
            assert process.stdout is not None
            for topic in topics:
                assert ask("publish", topic, "seen").status == 0
                assert topic in process.stdout.readline()
            end(process)

    # --- peers ------------------------------------------------------------------------------------

    def _serve_peer(self, command: Command) -> None:
        """Start a peer, unless one at its address runs, after those that are named before it."""
        served = [each for each in self._commands if each.name == "topics peer"]
        addresses = [str(each.value_of("--listen")) for each in served]
        until = addresses.index(str(command.value_of("--listen"))) + 1
        for each, address in zip(served[:until], addresses[:until], strict=True):
            if address not in self._peers:
                folder = self._runs.prepare(each)
                peer = self._open.enter_context(self._runs.begin(substitute(each), folder))
                assert peer.stderr is not None
                while not (said := peer.stderr.readline()).startswith(("in a ring", "started")):
                    assert said, said_at_the_end(peer)
                self._peers[address] = peer
            assert self._peers[address].poll() is None

    def _ask_peer(self, command: Command) -> None:
        """Run a command at a ring of all peers of the pages, with the topics of the pages."""
        for each in self._commands:
            if each.name == "topics peer":
                self._serve_peer(each)
        folder = self._runs.prepare(command)

        def ask(text: str) -> Ran:
            return run_in_process(substitute(Command(text, command.page, 0, 0)), folder)

        address = command.value_of("--peer")
        for each in self._commands:
            if each.name == "topics create" and each.value_of("--peer") is not None:
                assert ask(each.text).status == 0
        if command.name != "topics subscribe":
            ran = ask(command.text)
            assert (ran.status, ran.err) == (0, "")
            assert ran.out
            return
        with self._runs.begin(substitute(command), folder) as process:
            assert process.stdout is not None
            topic = next(each for each in command.arguments if not each.startswith("--"))
            publish = f"distributary topics publish {topic} seen --peer {address}"
            with ThreadPoolExecutor(1) as pool:
                line = pool.submit(process.stdout.readline)
                while not line.done():  # it gets what is published once it has subscribed
                    assert ask(publish).status == 0
            assert topic in line.result()
            end(process)

    # --- brokers ----------------------------------------------------------------------------------

    def _serve_broker(self, command: Command) -> None:
        """Start a broker, unless one with its name runs."""
        name = str(command.value_of("--name"))
        if name not in self._brokers:
            here = substitute(command)
            broker = self._open.enter_context(self._runs.begin(here, self._runs.prepare(command)))
            assert broker.stderr is not None
            while not (said := broker.stderr.readline()).startswith(f"broker {name} at "):
                assert said, said_at_the_end(broker)
            self._brokers[name] = broker
        assert self._brokers[name].poll() is None

    def serve_network(self) -> None:
        """Start all brokers of the pages, and wait until they know one another."""
        served = [each for each in self._commands if each.name == "broker serve"]
        for each in served:
            self._serve_broker(each)
        addresses = {str(each.value_of("--listen")) for each in served}
        for address in sorted(addresses):
            while len(self._read_status(address)["network"]) < len(addresses) - 1:
                time.sleep(0.05)

    def _read_status(self, address: str) -> dict[str, Any]:
        text = f"distributary broker status --broker {address} --json"
        asked = Command(text, "page.md", 1, 1)
        ran = run_in_process(substitute(asked), self._runs.prepare(asked))
        assert ran.status == 0, ran.err
        found: dict[str, Any] = json.loads(ran.out)
        return found

    def _ask_broker(self, command: Command) -> None:
        self.serve_network()
        ran = run_in_process(substitute(command), self._runs.prepare(command))
        assert (ran.status, ran.err) == (0, "")
        assert ran.out

    def _subscribe_at_broker(self, command: Command) -> None:
        """What is published on the pages reaches the subscriber."""
        self.serve_network()
        with self._runs.begin(substitute(command), self._runs.prepare(command)) as process:
            assert process.stderr is not None
            assert process.stdout is not None
            assert process.stderr.readline().startswith("subscribed as "), said_at_the_end(process)
            self._ask_broker(next(e for e in self._commands if e.name == "broker publish"))
            assert process.stdout.readline()
            end(process)

    # --- delivery and streams ---------------------------------------------------------------------

    def _receive(self, command: Command) -> None:
        """With the publishers of the same block, which must reach it."""
        publishers = [
            each
            for each in self._commands
            if (each.page, each.block) == (command.page, command.block) and each.name == "publish"
        ]
        groups = self._runs.network / "igmp"
        before = groups.read_text()
        with self._runs.begin(substitute(command), self._runs.prepare(command)) as process:
            wait_for(process, lambda: len(groups.read_text()) > len(before))
            for publisher in publishers:
                ran = self._runs.run(publisher, again=True)
                assert ran.status == 0, ran.err
            assert process.stdout is not None
            if publishers:
                assert "flow" in json.loads(process.stdout.readline())
            end(process)

    def _stream(self, command: Command) -> None:
        folder = self._runs.prepare(command)
        with self._runs.begin(substitute(command), folder) as process:
            plan = folder / command.outputs[0] / "plan" / "plan.json"
            wait_for(process, plan.exists)
            end(process)


def wait_for(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """Wait until something has happened, as long as the process lives."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None, said_at_the_end(process)
        assert time.monotonic() < deadline
        time.sleep(0.05)


def end(process: subprocess.Popen[str]) -> None:
    """End a process as Ctrl-C does: it says nothing of a fault."""
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in ENDED, err[-2000:]
    assert "Traceback" not in err, err[-4000:]
    assert "error:" not in err, err[-2000:]


def said_at_the_end(process: subprocess.Popen[str]) -> str:
    """What a process that ended too early had to say."""
    return process.communicate(timeout=PATIENCE)[1][-2000:]
