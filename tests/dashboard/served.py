"""A dashboard that really serves, in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Queue
from typing import Any

from distributary.dashboard import ControlSource, DashboardSettings, run_dashboard
from distributary.dashboard.looks import Look

__all__ = ["TOKEN", "serve"]

TOKEN = "the operator's token"


@contextmanager
def serve(
    source: ControlSource,
    *,
    token: str = TOKEN,
    topics: Sequence[Look] = (),
    brokers: Sequence[Look] = (),
    every: float = 1.0,
    port: int = 0,
    **settings: Any,
) -> Iterator[str]:
    """Serve until the block ends, by default on a free port; yields the address."""
    ready: Queue[str | BaseException] = Queue()
    stops: Queue[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Queue()

    async def run() -> None:
        given = DashboardSettings(port=port, token=token, every=every, look_within=2.0, **settings)
        running = asyncio.create_task(
            run_dashboard(source, given, topics=topics, brokers=brokers, on_ready=ready.put)
        )
        stops.put((asyncio.get_running_loop(), running))
        try:
            await running
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            ready.put(error)
            raise

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    found = ready.get(timeout=30)
    if isinstance(found, BaseException):
        raise found
    try:
        yield found.rstrip("/")
    finally:
        loop, running = stops.get()
        loop.call_soon_threadsafe(running.cancel)
        thread.join(timeout=20)
        assert not thread.is_alive(), "the dashboard did not end"
