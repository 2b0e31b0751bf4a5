"""Looks at the control plane of a system every second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from distributary.control.nats.client import ControlClient
from distributary.control.status import ControlStatus
from distributary.errors import LiveError
from distributary.machines.nats import find_server

__all__ = ["OnStatus", "watch_status"]

_EVERY = 1.0  # seconds
_WITHIN = 3.0  # seconds to wait for an answer

OnStatus = Callable[[ControlStatus | None], None]


async def watch_status(state: Path, on_status: OnStatus) -> None:
    """Hand over each status until cancelled; None while the control plane does not answer."""
    while True:
        try:
            async with ControlClient(find_server(state)[0], within=_WITHIN) as client:
                while True:
                    on_status(await client.status())
                    await asyncio.sleep(_EVERY)
        except LiveError:
            on_status(None)
            await asyncio.sleep(_EVERY)
