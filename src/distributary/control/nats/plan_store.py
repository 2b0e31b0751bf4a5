"""The plans of a control plane: one object each, named by the plan's content."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import ObjectStoreConfig
from nats.js.object_store import ObjectStore

from distributary.control.errors import PlanGoneError
from distributary.control.nats.layout import Layout
from distributary.control.plan_codec import PlanCodecError, decode_plan, encode_plan
from distributary.machines.nats.jetstream import create_replicated
from distributary.model import Plan

__all__ = ["PlanStore"]

T = TypeVar("T")

_ATTEMPT = 2.0  # seconds for an answer of the server
_WHOLE = 10.0  # seconds for a whole plan


class PlanStore:
    """Writes and reads plans.

    What a call raises while the server is away is in `machines.nats.jetstream.AWAY`; call again.
    """

    def __init__(self, nc: Client, layout: Layout) -> None:
        self._js = nc.jetstream(timeout=_ATTEMPT)
        self._bucket = layout.plans
        self._store: ObjectStore | None = None

    async def create(self) -> None:
        """Find the store, or create it; members need not."""
        try:
            self._store = await self._js.object_store(self._bucket)
        except nats.js.errors.NotFoundError:
            config = ObjectStoreConfig(self._bucket, "Plans of a control plane of distributary.")
            self._store = await create_replicated(self._make, config, "replicas")

    async def put(self, name: str, plan: Plan) -> None:
        """Store a plan, unless one of this name is there."""
        store = await self._find()
        try:
            await store.get_info(name)
        except nats.js.errors.NotFoundError:
            data = await asyncio.to_thread(encode_plan, plan)
            await _finish(store.put(name, data))

    async def get(self, name: str) -> Plan:
        """Read a plan; raises `PlanGoneError` if there is none of this name, or a damaged one."""
        try:
            store = await self._find()
            found = await _finish(store.get(name))
            return await asyncio.to_thread(decode_plan, found.data or b"")
        except nats.js.errors.NotFoundError:
            raise PlanGoneError(name) from None
        except (
            PlanCodecError,
            nats.js.errors.DigestMismatchError,
            nats.js.errors.BadObjectMetaError,
        ) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise PlanGoneError(name, f"it is damaged ({reason})") from None

    async def drop(self, names: Collection[str]) -> None:
        """Delete plans that are there."""
        store = await self._find()
        for name in names:
            try:
                await store.delete(name)
            except nats.js.errors.NotFoundError:
                continue

    async def _find(self) -> ObjectStore:
        if self._store is None:
            self._store = await self._js.object_store(self._bucket)
        return self._store

    async def _make(self, config: ObjectStoreConfig) -> ObjectStore:
        return await self._js.create_object_store(self._bucket, config)


async def _finish(work: Awaitable[T]) -> T:
    """Bound a transfer in time, and raise nats-py's own error as its other calls do."""
    try:
        async with asyncio.timeout(_WHOLE):
            return await work
    except TimeoutError:
        raise nats.errors.TimeoutError from None
