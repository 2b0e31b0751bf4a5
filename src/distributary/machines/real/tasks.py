"""Tasks that are cancelled when the block that started them ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

__all__ = ["own_tasks"]

Start = Callable[[Coroutine[Any, Any, None]], None]


@asynccontextmanager
async def own_tasks() -> AsyncIterator[Start]:
    """Start tasks that are cancelled when the block ends; one that fails ends the block.

    The failure is raised itself, not inside an exception group.
    """
    running: set[asyncio.Task[None]] = set()
    try:
        async with asyncio.TaskGroup() as group:

            def start(work: Coroutine[Any, Any, None]) -> None:
                task = group.create_task(work)
                running.add(task)
                task.add_done_callback(running.discard)

            try:
                yield start
            finally:
                for task in [*running]:
                    task.cancel()
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
