"""What happens between two namespaces with a pair of virtual links: processes that are killed."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from distributary.files import write_plan
from tests.delivery.machines import simple_plan
from tests.delivery.udp.command_scenarios import start_command, start_elsewhere, until_joined
from tests.delivery.udp.scenarios import SkipError

NEAR, FAR = "near0", "far0"


@contextmanager
def far_namespace() -> Iterator[tuple[str, ...]]:
    """Another namespace, joined to this one by a pair of links; yields how to run something there.

    The near end is 10.78.0.1 on `near0`, the far one 10.78.0.2 on `far0`.
    """
    if not shutil.which("nsenter"):
        raise SkipError("no nsenter, which runs commands in another namespace")
    with subprocess.Popen(
        ["unshare", "-n", "sh", "-c", "echo there; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as keeper:
        assert keeper.stdout is not None
        inside = ("nsenter", "-t", str(keeper.pid), "-n")
        try:
            if keeper.stdout.readline() != b"there\n":
                raise SkipError("no second network namespace")
            _run("ip", "link", "add", NEAR, "type", "veth", "peer", "name", FAR)
            _run("ip", "link", "set", FAR, "netns", str(keeper.pid))
            _run("ip", "addr", "add", "10.78.0.1/24", "dev", NEAR)
            _run("ip", "link", "set", NEAR, "up")
            _run(*inside, "ip", "addr", "add", "10.78.0.2/24", "dev", FAR)
            _run(*inside, "ip", "link", "set", FAR, "up")
            _run(*inside, "ip", "link", "set", "lo", "up")
            yield inside
        finally:
            keeper.kill()
            subprocess.run(["ip", "link", "del", NEAR], capture_output=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SkipError(f"{' '.join(command)}: {done.stderr.strip()}")


class Listening:
    """A `receive` command; each message that it prints has to be the next of its flow."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.reports: list[dict[str, Any]] = []
        self.got: dict[str, list[tuple[int, str]]] = defaultdict(list)

    async def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, await self.process.communicate()
        found: dict[str, Any] = json.loads(line)
        if "report" in found:
            self.reports.append(found)
            if found["report"] == "restarted":
                self.got.clear()
            assert found["report"] not in ("gap", "missing"), found
            return found
        known = self.got[found["flow"]]
        assert not known or found["sequence"] == known[-1][0] + 1, (found, known[-1])
        known.append((found["sequence"], found["payload"]))
        return found

    async def until_report(self, kind: str) -> None:
        while not any(report["report"] == kind for report in self.reports):
            await self.read()
        self.reports.clear()

    async def until_last(self, flows: dict[str, str]) -> None:
        """Read until the last message of each of these flows has that payload."""
        while {flow: self.got[flow][-1][1] for flow in flows if self.got[flow]} != flows:
            await self.read()


async def processes_that_are_killed(folder: str) -> None:
    """Publisher and receivers are killed, the plan and the interest change: nothing is missed."""
    where = Path(folder)
    write_plan(simple_plan([0, 1, 1], [0, 1]), {}, where / "plan")
    sent = 0

    with far_namespace() as inside:

        async def start_publisher() -> Process:
            words = ("publish", "--plan", str(where / "plan"), "--interface", FAR)
            return await start_elsewhere(inside, *words, stdin=PIPE)

        async def start_receiver(*wanted: str) -> Listening:
            command = await start_command("receive", *wanted, "--interface", NEAR, stdin=PIPE)
            return Listening(command)

        async def publish(sending: Process, flows: list[str]) -> dict[str, str]:
            """Some messages of each flow; returns the last payloads."""
            nonlocal sent
            assert sending.stdin is not None
            for _ in range(50):
                sent += 1
                lines = "".join(f"{flow}\tmessage {sent}\n" for flow in flows)
                sending.stdin.write(lines.encode())
            await sending.stdin.drain()
            return dict.fromkeys(flows, f"message {sent}")

        async def exchange(flows: list[str], *parties: tuple[Listening, list[str]]) -> None:
            """Publish, and wait until everybody has the last message of what it wants."""
            last = await publish(sending, flows)
            for listening, wanted in parties:
                await listening.until_last({flow: last[flow] for flow in wanted})

        every = ["f0", "f1", "f2"]
        named = await start_receiver("--flow", "f0", "--flow", "f2")
        planned = await start_receiver("--as", "r")
        await until_joined("239.192.77.0", 2)
        sending = await start_publisher()
        await exchange(every, (named, ["f0", "f2"]), (planned, every))

        # Two flows change places. Messages of the new flow come once the plan is in effect.
        write_plan(simple_plan([1, 0, 1, 0], [0, 1]), {}, where / "plan")
        while not planned.got["f3"]:
            await exchange([*every, "f3"], (named, ["f0", "f2"]), (planned, every))
        every.append("f3")

        assert named.process.stdin is not None
        named.process.stdin.write(b"+f1\n-f2\n")
        await named.until_report("subscribed")
        await exchange(every, (named, ["f0", "f1"]), (planned, every))

        planned.process.send_signal(signal.SIGKILL)
        await planned.process.wait()
        await exchange(every, (named, ["f0", "f1"]))
        again = await start_receiver("--as", "r")
        await again.until_report("brought")
        while not all(again.got[flow] for flow in every):  # it has joined late
            await exchange(every, (named, ["f0", "f1"]))
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    while True:
                        await again.read()
        await exchange(every, (named, ["f0", "f1"]), (again, every))

        sending.send_signal(signal.SIGKILL)
        await sending.wait()
        sending = await start_publisher()
        for listening in (named, again):
            await listening.until_report("restarted")
        await exchange(every, (named, ["f0", "f1"]), (again, every))
        for listening in (named, again):
            first = {flow: got[0][0] for flow, got in listening.got.items()}
            assert set(first.values()) == {1}, first  # all of the new incarnation
        for process in (named.process, again.process, sending):
            process.send_signal(signal.SIGINT)
            _, said = await process.communicate()
            assert process.returncode in (0, 130), said
            assert b"Traceback" not in said
