"""Who moves flows among the faults: an operator that pins some to groups, and releases them.

Plans of Spark move flows too, but its process is killed so often that few come in time.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Final

from distributary.control.errors import ControlRefusedError
from distributary.control.nats.client import ControlClient
from distributary.errors import LiveError
from distributary.machines.nats import NatsOptions

__all__ = ["Operator"]

NAME: Final = "operator"
_PAUSE: Final = 2.0, 8.0  # seconds between two orders
_MOST: Final = 3  # flows that are pinned at a time
_WITHIN: Final = 10.0  # seconds for an order to be answered


class Operator:
    """Gives orders, of which some fail while control or NATS is away."""

    def __init__(self, seed: int, flows: list[str], groups: int, url: str) -> None:
        self._rng = random.Random(f"operator {seed}")
        self._flows, self._groups, self._url = flows, groups, url
        self._pinned: list[str] = []  # perhaps: an order without an answer may have been done

    async def run(self) -> None:
        """Move flows until cancelled."""
        while True:
            await asyncio.sleep(self._rng.uniform(*_PAUSE))
            with suppress(LiveError):
                if len(self._pinned) >= _MOST:
                    await self._release(self._pinned[0])
                await self._move(
                    self._rng.choice(self._flows), self._rng.randrange(1, self._groups)
                )

    async def release_all(self) -> None:
        """Let all flows move again, however long control is away."""
        while self._pinned:
            with suppress(LiveError):
                await self._release(self._pinned[0])

    async def _move(self, flow: str, further: int) -> None:
        async with ControlClient(NatsOptions(self._url), within=_WITHIN) as client:
            group = (await client.flow(flow)).group
        if group is not None:
            self._pinned.append(flow)
            await self._pin(flow, (group + further) % self._groups)

    async def _release(self, flow: str) -> None:
        with suppress(ControlRefusedError):  # it is not pinned
            await self._pin(flow, None)
        self._pinned.remove(flow)

    async def _pin(self, flow: str, group: int | None) -> None:
        async with ControlClient(NatsOptions(self._url), within=_WITHIN) as client:
            await client.pin(flow, group, NAME)
