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
    started: list[asyncio.Task[None]] = []
    try:
        async with asyncio.TaskGroup() as group:
            try:
                yield lambda work: started.append(group.create_task(work))
            finally:
                for task in started:
                    task.cancel()
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
