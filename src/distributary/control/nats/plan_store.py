"""The plans of a control plane: one object each, named by the plan's content."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable
from dataclasses import replace
from typing import NamedTuple, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import ObjectInfo, ObjectStoreConfig
from nats.js.object_store import ObjectStore

from distributary.control.errors import PlanGoneError
from distributary.control.nats.layout import Layout
from distributary.control.plan_codec import PlanCodecError, decode_plan, encode_plan
from distributary.machines.nats.jetstream import WRONG_SEQUENCE, create_replicated
from distributary.model import Plan

__all__ = ["PlanStore"]

T = TypeVar("T")

_ATTEMPT = 2.0  # seconds for an answer of the server
_WHOLE = 10.0  # seconds for a whole plan


class _Meta(NamedTuple):
    """What describes an object, and the number of the message that does."""

    info: ObjectInfo
    sequence: int


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
        """Store a plan. One of this name that is there is touched: whoever drops it then, fails."""
        store = await self._find()
        while (meta := await self._read_meta(name)) is not None:
            if await self._write_meta(name, meta.info, meta.sequence):
                return
        data = await asyncio.to_thread(encode_plan, plan)
        await _finish(store.put(name, data))

    async def find(self, name: str) -> int | None:
        """The number of the last write of a plan; None if there is none of this name."""
        meta = await self._read_meta(name)
        return None if meta is None else meta.sequence

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

    async def drop(self, name: str, sequence: int) -> None:
        """Delete a plan, unless it was written or touched after the write of this number."""
        meta = await self._read_meta(name, also_deleted=True)
        if meta is None:
            return
        if not meta.info.deleted:
            gone = replace(meta.info, deleted=True, size=0, chunks=0, digest="", mtime="")
            if meta.sequence != sequence or not await self._write_meta(name, gone, sequence):
                return
        chunks = f"$O.{self._bucket}.C.{meta.info.nuid}"
        await self._js.purge_stream(f"OBJ_{self._bucket}", subject=chunks)

    # --- what describes an object: the last message of a subject ----------------------------------

    async def _read_meta(self, name: str, *, also_deleted: bool = False) -> _Meta | None:
        try:
            found = await self._js.get_last_msg(f"OBJ_{self._bucket}", self._name_meta(name))
        except nats.js.errors.NotFoundError:
            return None
        try:
            info = ObjectInfo.from_response(json.loads(found.data or b""))
        except (ValueError, TypeError, KeyError):
            return None  # it is damaged, and is written anew
        is_there = also_deleted or not info.deleted
        return _Meta(info, found.seq or 0) if is_there and info.nuid else None

    async def _write_meta(self, name: str, info: ObjectInfo, last: int) -> bool:
        """Write it after the message of this number; returns False if there is a later one."""
        headers = {"Nats-Rollup": "sub", "Nats-Expected-Last-Subject-Sequence": str(last)}
        data = json.dumps(info.as_dict()).encode()
        try:
            await self._js.publish(self._name_meta(name), data, headers=headers)
        except nats.js.errors.APIError as error:
            if error.err_code not in WRONG_SEQUENCE:
                raise
            return False
        return True

    def _name_meta(self, name: str) -> str:
        return f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

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
