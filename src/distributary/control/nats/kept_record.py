"""A member's record in the control plane: claimed with its name, kept while the member lives.

A record that somebody deletes is written again, such as one that the service forgot while the
member was cut off, or that went with the server's disk. One of another incarnation means that
somebody else has taken the name, while this member did not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.kv import KeyValue

from distributary.control.errors import MemberNameTakenError, RecordTooLargeError
from distributary.control.nats.layout import Layout, MemberRole
from distributary.control.reports import InterestRecord, PublisherRecord
from distributary.errors import DistributaryError
from distributary.machines.nats.jetstream import AWAY
from distributary.machines.nats.options import pause_before

__all__ = ["KeptRecord"]

MemberRecord = InterestRecord | PublisherRecord
_LOOK_EVERY = 5.0  # seconds between two looks at the key, without anything to tell of a change
_ASK_FOR = 1.0  # seconds that a holder of the name has to answer
_ASK_TIMES = 5  # then the holder counts as dead, although its connection is open
_AGAIN = 0.3  # seconds until another attempt to claim, after somebody else wrote the key
_GATHER = 0.02  # seconds in which changes of the record come together
_LONGEST_PLACE = 200  # characters of where somebody runs who asks for the name
_TROUBLE = (*AWAY, nats.js.errors.APIError, nats.errors.Error)


class _Holder(msgspec.Struct, frozen=True, array_like=True):
    """What a member answers who is asked for its name."""

    incarnation: str
    where: str


class _Found(NamedTuple):
    """What the key has: a record, if it is not deleted or damaged."""

    revision: int
    record: MemberRecord | None
    value: bytes = b""


class KeptRecord:
    """One member's name, and the key with its record."""

    def __init__(
        self,
        nc: Client,
        layout: Layout,
        role: MemberRole,
        name: str,
        make: Callable[[], MemberRecord],
        on_fault: Callable[[DistributaryError], None],
    ) -> None:
        """`make` returns the record as it is to be; all have the same incarnation."""
        self.claims = 0  # how often others asked for the name since it is ours
        self.claimed_by = ""  # where the last of them runs
        self._nc = nc
        self._role = role
        self._name = name
        self._make = make
        self._on_fault = on_fault
        self._subject = layout.member(role, name)
        self._key = layout.member_key(role, name)
        bucket = layout.members
        js = nc.jetstream(timeout=2.0)
        self._changes = f"$KV.{bucket}.{self._key}"
        self._kv = KeyValue(bucket, f"KV_{bucket}", f"$KV.{bucket}.", js, direct=False)
        self._kind: type[MemberRecord] = InterestRecord
        if role == "publisher":
            self._kind = PublisherRecord
        self._revision = 0  # of our last write
        self._reported = ""  # the last fault
        self._dirty = asyncio.Event()

    def wake(self) -> None:
        """Look at the key soon: the record has changed, or may have been deleted."""
        self._dirty.set()

    async def claim(self) -> None:
        """Take the name and write the record; raises `MemberNameTakenError` if another has it."""
        while True:
            found = await self._look()
            await self._check_holder()
            if await self._write(found.revision):
                break
            await asyncio.sleep(_AGAIN)

    async def listen(self) -> None:
        """Answer to the name that was claimed, and hear of changes of the key."""
        await self._nc.subscribe(self._subject, cb=self._answer)
        await self._nc.subscribe(self._changes, cb=self._on_change)
        with suppress(*_TROUBLE):  # a connection that is lost subscribes again when it is back
            await self._nc.flush()

    async def keep(self) -> None:
        """Keep the record as it is to be, until cancelled."""
        attempt = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._dirty.wait()
            await asyncio.sleep(_GATHER)
            self._dirty.clear()
            try:
                await self._restore()
                attempt = 0
            except RecordTooLargeError as error:
                if str(error) != self._reported:
                    self._reported = str(error)
                    self._on_fault(error)
            except _TROUBLE:
                self._dirty.set()
                await asyncio.sleep(pause_before(attempt))
                attempt += 1

    async def remove(self) -> None:
        """Delete the key, unless somebody else has written it since."""
        with suppress(*_TROUBLE):
            await self._kv.delete(self._key, last=self._revision)

    # --- inside -----------------------------------------------------------------------------------

    async def _restore(self) -> None:
        """Write the record, unless the key has it."""
        found = await self._look()
        if found.record is not None and found.record.incarnation != self._make().incarnation:
            raise MemberNameTakenError(self._role, self._name, found.record.where)
        if found.value == msgspec.msgpack.encode(self._make()):
            self._revision = found.revision
        elif not await self._write(found.revision):
            self._dirty.set()

    async def _check_holder(self) -> None:
        """Raise an error if another member answers to the name, or lives without an answer."""
        where = self._make().where.encode()
        for _ in range(_ASK_TIMES):
            try:
                answer = await self._nc.request(self._subject, where, timeout=_ASK_FOR)
                holder = msgspec.msgpack.decode(answer.data, type=_Holder)
            except nats.errors.NoRespondersError:
                return
            except nats.errors.TimeoutError:
                continue  # such as a process that is stopped
            except msgspec.DecodeError:
                holder = _Holder("", "an unknown process")
            raise MemberNameTakenError(self._role, self._name, holder.where)

    async def _look(self) -> _Found:
        try:
            found = await self._kv.get(self._key)
        except nats.js.errors.KeyNotFoundError as error:
            return _Found((error.entry.revision or 0) if error.entry else 0, None)
        value = found.value or b""
        try:
            record: MemberRecord | None = msgspec.msgpack.decode(value, type=self._kind)
        except msgspec.DecodeError:
            record = None
        return _Found(found.revision or 0, record, value)

    async def _write(self, last: int) -> bool:
        """Write the record after a revision; returns False if somebody else has written."""
        record = self._make()
        value = msgspec.msgpack.encode(record)
        try:
            self._revision = await self._kv.update(self._key, value, last=last)
        except nats.js.errors.KeyWrongLastSequenceError:
            return False
        except nats.errors.MaxPayloadError:
            flows = len(record.flows or ())
            raise RecordTooLargeError(self._name, flows, len(value), self._nc.max_payload) from None
        return True

    async def _answer(self, message: Msg) -> None:
        self.claims += 1
        self.claimed_by = message.data.decode(errors="replace")[:_LONGEST_PLACE]
        record = self._make()
        with suppress(nats.errors.Error):
            await message.respond(msgspec.msgpack.encode(_Holder(record.incarnation, record.where)))

    async def _on_change(self, message: Msg) -> None:
        """Somebody else has written the key, as the connection does not hear itself."""
        self.wake()
