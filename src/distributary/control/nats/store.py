"""What a control service keeps on the server, written by one service at a time.

Every write says which one it follows. The server refuses it if another service has written
meanwhile, so a service that was suspended, or cut off from the server, changes nothing any more
once its successor has begun. Writes are repeated while the server is away.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, KeyValueConfig, RetentionPolicy, StorageType, StreamConfig
from nats.js.kv import KeyValue

from distributary.control.errors import (
    ControlReplacedError,
    PlanGoneError,
    SettingsTooLargeError,
)
from distributary.control.messages import Decision, Proposal, Restored
from distributary.control.nats.layout import FORCE, PROPOSAL, SETTINGS, Layout, MemberRole
from distributary.control.nats.plan_store import PlanStore
from distributary.control.reports import InterestRecord, PublisherRecord
from distributary.control.settings import ControlSettings
from distributary.control.status import AuditEntry
from distributary.errors import StateError
from distributary.machines.nats.jetstream import (
    AWAY,
    MORE_ROOM,
    RESTART,
    WRONG_SEQUENCE,
    create_replicated,
)
from distributary.machines.nats.tail import follow_stream
from distributary.model import Plan

__all__ = ["MORE_ROOM", "REFUSED", "RESTART", "ControlStore", "StoppedError", "Trouble"]

T = TypeVar("T")
Told = TypeVar("Told", Decision, AuditEntry)
# A trouble with what it is about, or its end (None).
Trouble = Callable[[str, str, str | None], None]

_ATTEMPT = 2.0  # seconds for an answer of the server
_PAUSE = 0.1  # seconds before another attempt
_PATIENCE = 3.0  # seconds that a server may be busy, before that is an alarm
_EXPECTED = "Nats-Expected-Last-Sequence"
_AUDIT_READ, _AUDIT_KEPT = 8_000, 100_000  # entries: at two a second, an hour is read
_REPORTS_FOR = 3600.0  # seconds
# Bytes of reports that are kept, and as many for everything else: as much of it as there is.
_REPORT_BYTES: Final = (1 << 30, 1 << 28, 1 << 26, 1 << 24, 1 << 22, 1 << 20)
# What a server says for lack of room, by its limits or an account's.
_NO_ROOM = ("insufficient", "maximum bytes", "no space", "limits exceeded", "exceeds account limit")
_HEADERS = 512  # bytes of a message for all but its data
_LONG_TEXT = 200  # characters, of what is too long for a message
_KEPT_DECISIONS = 10  # earlier values of a key, should the last one be damaged

DAMAGED, REFUSED = "damaged key", "server refuses to store"


class StoppedError(Exception):
    """The service was told to stop while the server was away: the write may not be stored."""


class _NoRoomError(Exception):
    """The server has no room for what is to be created."""


class ControlStore:
    """Reads what a service begins with, and writes what it decides.

    `may_write` returns once this service may write, and raises if it never may again; it is called
    with the number of attempts that failed. `trouble` is called with what an operator should know.
    """

    def __init__(
        self,
        nc: Client,
        layout: Layout,
        *,
        may_write: Callable[[int], Awaitable[None]],
        trouble: Trouble,
    ) -> None:
        self.plans = PlanStore(nc, layout)
        self._nc, self._layout = nc, layout
        self._js = nc.jetstream(timeout=_ATTEMPT)
        self._may_write, self._trouble = may_write, trouble
        self._plan: KeyValue
        self._settings: KeyValue
        self._members: KeyValue
        self._revisions: dict[str, int] = {}  # of the keys that this service writes
        self._last_entry = 0  # sequence number of the log of changes
        self._refusals: dict[str, str] = {}  # what is not stored now, and why
        self._failed_probes = 0  # in a row

    # --- buckets and streams ----------------------------------------------------------------------

    async def create(self) -> None:
        """Find the buckets and streams, or create them."""
        layout = self._layout
        await self._retry(self.plans.create)
        self._plan = await self._find_bucket(layout.plan, "Versions of a plan.", _KEPT_DECISIONS)
        self._settings = await self._find_bucket(layout.settings, "Settings of control.", 5)
        self._members = await self._find_bucket(layout.members, "Publishers and receivers.")
        await self._find_stream(
            StreamConfig(
                layout.audit,
                "Changes of a control plane of distributary.",
                [layout.audit_subject],
                max_msgs=_AUDIT_KEPT,
            )
        )
        reports = StreamConfig(
            layout.reports,
            "Reports of publishers and receivers.",
            [layout.all_reports],
            max_age=_REPORTS_FOR,
        )
        await self._find_stream(reports, _REPORT_BYTES)

    async def _find_bucket(self, name: str, says: str, history: int = 1) -> KeyValue:
        try:
            return await self._retry(lambda: self._js.key_value(name))
        except nats.js.errors.NotFoundError:
            config = KeyValueConfig(name, f"distributary: {says}", history=history)
            make = partial(create_replicated, self._js.create_key_value, config, "replicas")
            return await self._create(name, make)

    async def _find_stream(self, config: StreamConfig, sizes: Sequence[int] = ()) -> None:
        """Find a stream, or create it with the largest of some sizes that leaves as much again."""
        name = config.name or ""
        with suppress(nats.js.errors.NotFoundError):
            await self._retry(lambda: self._js.stream_info(name))
            return
        config.retention, config.storage = RetentionPolicy.LIMITS, StorageType.FILE
        config.discard = DiscardPolicy.OLD
        make = partial(create_replicated, self._js.add_stream, config)
        for size in sizes:
            config.max_bytes = 2 * size
            with suppress(_NoRoomError):
                made = await self._retry(make, is_new=True)
                made.config.max_bytes = size
                await self._retry(partial(self._js.update_stream, made.config))
                return
        await self._create(name, make)

    async def _create(self, name: str, make: Callable[[], Awaitable[T]]) -> T:
        """Create a bucket or stream; raises `StateError` if the server has no room for it."""
        try:
            return await self._retry(make, is_new=True)
        except _NoRoomError as error:
            raise StateError(
                f"JetStream, {name}",
                f"it cannot be created ({error})",
                "give the server's disk, and its limits, more room",
            ) from error

    # --- reading ----------------------------------------------------------------------------------

    async def read_settings(self) -> ControlSettings | None:
        """The settings that were kept; None if there are none, or they are damaged."""
        return await self._read(self._settings, SETTINGS, ControlSettings)

    async def restore(self, where: str) -> Restored:
        """Read what a service begins with, and take over from the one before."""
        decision = await self._read(self._plan, FORCE, Decision)
        proposal = await self._read(self._plan, PROPOSAL, Proposal)
        plans = {}
        for name in {found.plan for found in (decision, proposal) if found is not None}:
            try:
                plans[name] = await self._retry(partial(self.plans.get, name))
            except PlanGoneError as error:
                self._trouble("plan gone", name, str(error))
        if proposal is not None and proposal.plan not in plans:
            proposal = None
        audit = await self._read_audit()
        if decision is not None:
            await self._write(self._plan, FORCE, decision)  # whoever served before fails from here
        await self._write(self._plan, PROPOSAL, proposal)
        return Restored(decision, proposal, plans, audit, where, self._most_bytes)

    @property
    def _most_bytes(self) -> int:
        """How long a value may be."""
        return self._nc.max_payload - _HEADERS

    async def _read(self, bucket: KeyValue, key: str, kind: type[T]) -> T | None:
        """Read a key: the last value that is not damaged."""
        try:
            last = await self._retry(lambda: bucket.get(key))
        except nats.js.errors.KeyNotFoundError as error:
            self._revisions[key] = (error.entry.revision or 0) if error.entry else 0
            return None
        self._revisions[key] = last.revision or 0
        values = [last.value]
        found = _decode(last.value, kind)
        if found is None:
            history = await self._retry(lambda: bucket.history(key))
            values = [entry.value for entry in reversed(history) if not entry.operation]
            found = next(filter(None, (_decode(value, kind) for value in values)), None)
            instead = "there is none" if found is None else "its value before counts"
            self._trouble(DAMAGED, key, f"the value of {key!r} cannot be read; {instead}")
        return found

    async def _read_audit(self) -> tuple[AuditEntry, ...]:
        """The last entries of the log of changes."""
        name = self._layout.audit
        state = (await self._retry(lambda: self._js.stream_info(name))).state
        self._last_entry = state.last_seq
        if not state.messages:
            return ()
        first = max(state.first_seq, state.last_seq - _AUDIT_READ + 1)
        entries: list[AuditEntry] = []
        async with aclosing(follow_stream(self._nc, name, first=first)) as batches:
            async for batch in batches:
                entries += filter(None, (_decode(m.data, AuditEntry) for m in batch.messages))
                self._last_entry = max(
                    self._last_entry, *(message.sequence for message in batch.messages), 0
                )
                if batch.caught_up:
                    break
        return tuple(entries)

    # --- writing ----------------------------------------------------------------------------------

    async def decide(self, decision: Decision, plan: Plan | None) -> None:
        """Put a plan in force; raises `ControlReplacedError` if another service has decided."""
        if plan is not None:
            await self._retry(lambda: self.plans.put(decision.plan, plan))
        await self._write(self._plan, FORCE, self._shorten(decision))

    async def keep_proposal(self, proposal: Proposal | None, plan: Plan | None) -> None:
        """Keep a proposal for whoever serves next, or none."""
        if proposal is not None and plan is not None:
            await self._retry(lambda: self.plans.put(proposal.plan, plan))
        await self._write(self._plan, PROPOSAL, proposal)

    async def write_settings(self, settings: ControlSettings) -> None:
        """Keep the settings; raises `SettingsTooLargeError` if the server has no room for them."""
        size = len(msgspec.json.encode(settings))
        if size > self._most_bytes:
            raise SettingsTooLargeError(self._layout.prefix, size, self._most_bytes)
        await self._write(self._settings, SETTINGS, settings)

    async def append(self, entry: AuditEntry) -> None:
        """Append to the log of changes, once."""
        value = msgspec.json.encode(self._shorten(entry))
        headers = {_EXPECTED: str(self._last_entry)}
        subject = self._layout.audit_subject
        try:
            await self._retry(lambda: self._js.publish(subject, value, headers=headers))
        except nats.js.errors.APIError as error:
            if _get_code(error) not in WRONG_SEQUENCE or not await self._has_appended(value):
                raise ControlReplacedError(self._layout.prefix) from error
        self._last_entry += 1

    def _shorten(self, value: Told) -> Told:
        """A decision or an entry as it can be stored: names of flows may be as long as messages."""
        if len(msgspec.json.encode(value)) <= self._most_bytes:
            return value
        changes: dict[str, Any] = {
            name: text[:_LONG_TEXT] + " …"
            for name, text in msgspec.structs.asdict(value).items()
            if isinstance(text, str) and len(text) > _LONG_TEXT
        }
        if isinstance(value, AuditEntry):
            changes["moved"] = []
        return msgspec.structs.replace(value, **changes)

    async def _has_appended(self, value: bytes) -> bool:
        """Whether an attempt whose answer was lost has succeeded."""
        try:
            following = self._last_entry + 1
            found = await self._retry(lambda: self._js.get_msg(self._layout.audit, following))
        except nats.js.errors.NotFoundError:
            return False
        return found.data == value

    async def _write(self, bucket: KeyValue, key: str, value: Any) -> None:
        """Write a key after the revision that is known, or delete it (None)."""
        last = self._revisions[key]
        data = b"" if value is None else msgspec.json.encode(value)
        if value is None and not last:
            return
        try:
            if value is None:
                await self._retry(lambda: bucket.delete(key, last=last))
            else:
                revision = await self._retry(lambda: bucket.update(key, data, last=last))
                self._revisions[key] = revision
                return
        except nats.js.errors.APIError as error:
            if _get_code(error) not in WRONG_SEQUENCE:
                raise
        # Deleted, or refused: an attempt whose answer was lost may have succeeded.
        revision, found = await self._look(bucket, key)
        if found != data or revision <= last:
            raise ControlReplacedError(self._layout.prefix)
        self._revisions[key] = revision

    async def _look(self, bucket: KeyValue, key: str) -> tuple[int, bytes]:
        """The revision and value of a key; the value of a deleted one is empty."""
        try:
            entry = await self._retry(lambda: bucket.get(key))
        except nats.js.errors.KeyNotFoundError as error:
            return ((error.entry.revision or 0) if error.entry else 0), b""
        return entry.revision or 0, entry.value or b""

    async def forget(self, role: MemberRole, name: str, incarnation: str) -> None:
        """Delete a member's key, unless it has written it anew."""
        key = self._layout.member_key(role, name)
        kind: type[InterestRecord | PublisherRecord] = InterestRecord
        if role == "publisher":
            kind = PublisherRecord
        try:
            entry = await self._retry(lambda: self._members.get(key))
            if msgspec.msgpack.decode(entry.value or b"", type=kind).incarnation == incarnation:
                await self._retry(lambda: self._members.delete(key, last=entry.revision))
        except (nats.js.errors.APIError, msgspec.DecodeError):
            return  # it is gone, or is written by somebody who lives

    async def drop_plan(self, name: str) -> None:
        """Delete a plan; raises `ControlReplacedError` if another service has taken over.

        A successor may decide the same plan anew. It then touches the plan, so that what was seen
        of the plan before the fence was found to be ours cannot be deleted any more.
        """
        sequence = await self._retry(lambda: self.plans.find(name))
        if sequence is not None:
            await self._check_fence()
            await self._retry(lambda: self.plans.drop(name, sequence))

    async def _check_fence(self) -> None:
        """Raise `ControlReplacedError` if another service has written the decision in force."""
        stream, subject = f"KV_{self._layout.plan}", f"$KV.{self._layout.plan}.{FORCE}"
        try:
            last = await self._retry(lambda: self._js.get_last_msg(stream, subject))
            sequence = last.seq
        except nats.js.errors.NotFoundError:
            sequence = 0
        if sequence != self._revisions[FORCE]:
            raise ControlReplacedError(self._layout.prefix)

    async def fetch_plan(self, name: str) -> Plan | None:
        """Read a plan; None if there is none."""
        try:
            return await self._retry(lambda: self.plans.get(name))
        except PlanGoneError:
            return None

    async def _retry(self, work: Callable[[], Awaitable[T]], *, is_new: bool = False) -> T:
        """Do something on the server, again and again while it is away or has no room.

        What is new need not be there: then `_NoRoomError` says that there is no room.
        """
        began = time.monotonic()
        for attempt in itertools.count():
            await self._may_write(attempt)
            try:
                found = await work()
            except (*AWAY, nats.js.errors.APIError) as error:
                if _is_for_lack_of_room(error):
                    if is_new:
                        raise _NoRoomError(_show(error)) from error
                    self._note_refusal("write", f"JetStream has no room ({_show(error)})")
                elif not isinstance(error, AWAY):
                    raise
                elif time.monotonic() - began > _PATIENCE and self._nc.is_connected:
                    says = f"JetStream does not store ({_show(error)})"
                    self._note_refusal("write", says, RESTART)
            else:
                self._note_refusal("write", None)
                return found
            await asyncio.sleep(_PAUSE)
        raise AssertionError("attempts have no end")

    def note_lease(self, *, is_stored: bool) -> None:
        """Note whether the server stores that this service serves."""
        says = "JetStream does not store the lease of this service, which can change nothing now"
        self._note_refusal("lease", None if is_stored else says, RESTART)

    async def stores_reports(self) -> bool:
        """Whether the server stores reports; an alarm says if it is there and does not."""
        try:
            await self._js.publish(self._layout.probe, b"")
        except (*AWAY, nats.js.errors.APIError) as error:
            self._failed_probes += 1
            if self._failed_probes > 1 and self._nc.is_connected:
                says = f"JetStream stores no reports ({_show(error)}), so nobody counts as gone"
                self._note_refusal("reports", says, RESTART)
        else:
            self._failed_probes = 0
            self._note_refusal("reports", None)
        return "reports" not in self._refusals

    @property
    def has_no_lease(self) -> bool:
        """Whether the server, which is there, does not store that this service serves."""
        return "lease" in self._refusals

    def _note_refusal(self, what: str, says: str | None, more: str = "") -> None:
        if (what in self._refusals) == (says is not None):
            return
        if says is None:
            del self._refusals[what]
        else:
            self._refusals[what] = f"{says}{MORE_ROOM}{more}"
        worst = self._refusals.get("lease") or next(iter(self._refusals.values()), None)
        self._trouble(REFUSED, "", worst)


def _decode(value: bytes | None, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(value or b"", type=kind)
    except (ValueError, RecursionError):
        return None


def _get_code(error: nats.js.errors.APIError) -> int:
    """The server's code; nats-py drops that of keys."""
    if isinstance(error, nats.js.errors.KeyWrongLastSequenceError):
        return WRONG_SEQUENCE[0]
    return getattr(error, "err_code", 0) or 0


def _is_for_lack_of_room(error: Exception) -> bool:
    """Whether the server refused for limits of its account, stream or disk."""
    says = _show(error).lower()
    return any(words in says for words in _NO_ROOM)


def _show(error: Exception) -> str:
    return getattr(error, "description", None) or str(error) or type(error).__name__
