"""What the supervisor of the stream tells of a batch, with a shell script for a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from distributary.control.nats import stream_process
from distributary.control.nats.stream_files import StreamFiles
from distributary.control.nats.stream_process import SparkChoice, StreamProcess
from distributary.control.settings import ControlSettings
from distributary.control.status import StreamStatus

HISTORY = json.dumps({"batch": 4, "files": 0, "version": 0})


@pytest.mark.parametrize("planning", [0.75, None])
def test_a_batch_is_told_with_the_seconds_that_it_and_planning_took(
    tmp_path: Path, planning: float | None
) -> None:
    times = {"batch": 4, "seconds": 2.5}
    if planning is not None:  # a stream of an earlier version does not say it
        times["planning_seconds"] = planning

    async def work() -> StreamStatus:
        files = StreamFiles(tmp_path / "stream", counts_every=1.0, trouble=print)

        def make(files: StreamFiles, settings: ControlSettings, more: Sequence[str]) -> list[str]:
            files.out.mkdir(parents=True, exist_ok=True)
            script = 'echo "$2"; echo "$1" >"$0/drift.jsonl"; exec sleep 3600'
            return ["sh", "-c", script, str(files.out), HISTORY, json.dumps(times)]

        found: asyncio.Future[StreamStatus] = asyncio.get_running_loop().create_future()

        def take(status: StreamStatus) -> None:
            if status.batch == 4 and not found.done():
                found.set_result(status)

        process = StreamProcess(
            files,
            SparkChoice(command=make),
            ControlSettings(groups=2, sessions=2),
            on_status=take,
            on_plan=print,
            log=print,
        )
        running = asyncio.create_task(process.run())
        try:
            async with asyncio.timeout(60):
                return await found
        finally:
            running.cancel()
            await asyncio.wait((running,))

    status = asyncio.run(work())
    assert (status.batch_seconds, status.planning_seconds) == (2.5, planning)


def test_a_stream_that_hangs_while_rows_wait_is_started_again_each_time_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lives, and reads nothing: the first time in 1 s, the next in 2 s."""
    monkeypatch.setattr(stream_process, "_LOOK_EVERY", 0.05)
    monkeypatch.setattr(stream_process, "_SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(stream_process, "_HUNG", 1.0)
    began: list[float] = []

    async def work() -> list[StreamStatus]:
        files = StreamFiles(tmp_path / "stream", counts_every=0.05, trouble=print)

        def make(files: StreamFiles, settings: ControlSettings, more: Sequence[str]) -> list[str]:
            began.append(asyncio.get_running_loop().time())
            return ["sh", "-c", "exec sleep 3600"]

        found: list[StreamStatus] = []
        process = StreamProcess(
            files,
            SparkChoice(command=make),
            ControlSettings(groups=2, sessions=2, trigger=0.01),
            on_status=found.append,
            on_plan=print,
            log=print,
        )
        running = asyncio.create_task(process.run())
        try:
            async with asyncio.timeout(60):
                while len(began) < 1:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(1.5)  # nothing waits: it may be as quiet as it likes
                assert len(began) == 1
                files.write_interest(1.0, [("r", "a", True), ("r", "b", True)])
                while len(began) < 3:
                    await asyncio.sleep(0.01)
                return found
        finally:
            running.cancel()
            await asyncio.wait((running,))

    last = asyncio.run(work())[-1]
    assert (last.state, last.restarts) == ("restarting", 2)
    assert last.last_error.startswith("finished no batch for ")
    assert last.last_error.endswith(" seconds, while 2 rows waited")
    assert began[2] - began[1] >= 2.0
