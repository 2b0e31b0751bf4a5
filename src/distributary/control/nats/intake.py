"""What members write and report, as messages for the machine."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TypeVar

import msgspec
from nats.aio.client import Client

from distributary.control.messages import (
    ControlMessage,
    InterestChanged,
    PublisherChanged,
    PublisherReported,
    ReceiverReported,
)
from distributary.control.nats.layout import Layout, MemberRole
from distributary.control.nats.store import Trouble
from distributary.control.reports import (
    InterestRecord,
    PublisherRecord,
    PublisherReport,
    ReceiverReport,
)
from distributary.machines.nats.tail import KeyChange, StoredMessage, follow_stream, watch_keys
from distributary.machines.real import Driver

__all__ = ["Intake"]

T = TypeVar("T")

_DAMAGED = "damaged value"


class Intake:
    """Hands over keys and reports in their order; what cannot be read is ignored, and an alarm."""

    def __init__(
        self,
        nc: Client,
        layout: Layout,
        driver: Driver[tuple[str, ControlMessage]],
        trouble: Trouble,
    ) -> None:
        self._nc, self._layout, self._driver, self._trouble = nc, layout, driver, trouble
        self._members, self._reports = asyncio.Event(), asyncio.Event()
        self._damaged: set[str] = set()

    @property
    def is_complete(self) -> bool:
        """Whether all that there was at the beginning has been handed over."""
        return self._members.is_set() and self._reports.is_set()

    async def watch_members(self) -> None:
        """Hand over the keys of all members, and then their changes, until cancelled."""
        async with aclosing(watch_keys(self._nc, self._layout.members)) as batches:
            async for batch in batches:
                for change in batch.changes:
                    await self._take_change(change)
                if batch.complete:
                    self._finish(self._members)

    async def follow_reports(self, since: float) -> None:
        """Hand over the reports stored since a time, until cancelled."""
        async with aclosing(follow_stream(self._nc, self._layout.reports, since=since)) as batches:
            async for batch in batches:
                for stored in batch.messages:
                    await self._take_report(stored)
                if batch.caught_up:
                    self._finish(self._reports)

    def _finish(self, event: asyncio.Event) -> None:
        if not event.is_set():
            event.set()
            self._driver.call(lambda now: ())  # whoever waits for a turn looks again

    async def _take_change(self, change: KeyChange) -> None:
        try:
            role, name = self._layout.read_member_key(change.key)
            message = _read_record(role, name, change.value)
        except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors, too
            self._note_damage(change.key, f"the key {change.key!r} of members", error)
        else:
            self._note_damage(change.key)
            await self._driver.put((name, message))

    async def _take_report(self, stored: StoredMessage) -> None:
        if stored.subject == self._layout.probe:
            return
        try:
            role, name = self._layout.read_report(stored.subject)
            message = _read_report(role, name, stored.data)
        except (ValueError, RecursionError) as error:
            self._note_damage(stored.subject, f"a report on {stored.subject!r}", error)
        else:
            self._note_damage(stored.subject)
            await self._driver.put((name, message))

    def _note_damage(self, where: str, what: str = "", error: Exception | None = None) -> None:
        """Raise an alarm about something damaged, or end it."""
        if error is not None:
            self._damaged.add(where)
            says = f"{what} cannot be read ({error}) and is ignored; start its member again"
            self._trouble(_DAMAGED, where, says)
        elif where in self._damaged:
            self._damaged.discard(where)
            self._trouble(_DAMAGED, where, None)


def _read_record(role: MemberRole, name: str, value: bytes | None) -> ControlMessage:
    if role == "receiver":
        return InterestChanged(name, None if value is None else _decode(value, InterestRecord))
    return PublisherChanged(name, None if value is None else _decode(value, PublisherRecord))


def _read_report(role: MemberRole, name: str, data: bytes) -> ControlMessage:
    if role == "receiver":
        return ReceiverReported(name, _decode(data, ReceiverReport))
    return PublisherReported(name, _decode(data, PublisherReport))


def _decode(data: bytes, kind: type[T]) -> T:
    return msgspec.msgpack.decode(data, type=kind)
