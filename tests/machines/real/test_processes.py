from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE

import pytest

from distributary.machines.real.processes import describe_end, end_process, start_process

PATIENCE = 240.0  # seconds that nothing here takes, on however slow a machine
STUBBORN = "trap '' TERM; echo ready; while :; do read -r _ < /dev/zero; done"
# A process with a child of its own, both of which hold stdout open.
PARENT = """
import asyncio, sys
from distributary.machines.real.processes import start_process
async def main():
    await start_process(["sh", "-c", "echo ready; exec sleep 600"], stdout=1)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_a_process_that_is_asked_ends_in_order() -> None:
    async def run() -> int | None:
        polite = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"
        process = await start_process(["sh", "-c", polite], stdout=PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        await end_process(process, PATIENCE)
        return process.returncode

    assert asyncio.run(run()) == 7


def test_one_that_does_not_end_is_killed_with_all_that_it_started() -> None:
    async def run() -> tuple[int | None, bytes]:
        command = ["sh", "-c", f"sleep 600 & {STUBBORN}"]
        process = await start_process(command, stdout=PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        await end_process(process, 0.01)
        return process.returncode, await process.stdout.read()  # ends once nobody holds it

    status, said = asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert (status, said) == (-signal.SIGKILL, b"")


def test_who_does_not_want_to_wait_kills_it() -> None:
    async def run() -> int | None:
        process = await start_process(["sh", "-c", STUBBORN], stdout=PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await end_process(process, PATIENCE)
        return await process.wait()

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE)) == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends it")
def test_it_ends_with_the_process_that_started_it() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        parent.kill()
        assert parent.stdout.read() == b""  # nobody holds it any more


def test_it_has_a_session_of_its_own() -> None:
    async def run() -> bytes:
        code = "import os; print(os.getsid(0))"
        process = await start_process([sys.executable, "-c", code], stdout=PIPE)
        said, _ = await process.communicate()
        assert int(said) == process.pid
        return said

    assert int(asyncio.run(run())) != os.getsid(0)


def test_what_is_not_there_cannot_be_started() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(start_process(["/no/such/program"]))


@pytest.mark.parametrize(
    ("status", "says"), [(0, "exited with 0"), (3, "exited with 3"), (-9, "was killed by signal 9")]
)
def test_an_end_is_described(status: int, says: str) -> None:
    assert describe_end(status) == says
