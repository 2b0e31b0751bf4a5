"""What the supervisor of the stream tells of a batch, with a shell script for a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

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
