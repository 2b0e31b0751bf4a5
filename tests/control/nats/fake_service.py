"""A service that decides what the test says, and reads what members wrote and reported."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import msgspec
import nats.js.errors
from nats.aio.client import Client

from distributary.control.messages import Decision
from distributary.control.nats.layout import FORCE, Layout, MemberRole
from distributary.control.nats.store import ControlStore
from distributary.control.plan_codec import name_plan
from distributary.control.reports import (
    InterestRecord,
    PublisherRecord,
    PublisherReport,
    ReceiverReport,
)
from distributary.control.settings import ControlSettings, NetworkSettings
from distributary.delivery import ReceiverMachineStatistics, SenderMachineStatistics
from distributary.delivery.udp import PublisherStatistics, ReceiverStatistics
from distributary.machines.nats import NatsOptions, connect_to_server
from distributary.machines.nats.tail import follow_stream
from distributary.model import Plan

NETWORK = NetworkSettings("239.192.99.0", 7_799, ttl=0)


class FakeService:
    """Writes what a service writes."""

    def __init__(self, nc: Client, prefix: str) -> None:
        async def may_write(attempt: int) -> None:
            """It always may."""

        self.layout = Layout(prefix)
        self._nc = nc
        self._js = nc.jetstream()
        self._store = ControlStore(
            nc, self.layout, may_write=may_write, trouble=lambda what, who, says: None
        )
        self._version = 0

    async def begin(self) -> None:
        await self._store.create()
        restored = await self._store.restore("here")
        self._version = restored.decision.version if restored.decision else 0
        await self._store.read_settings()
        await self._store.write_settings(ControlSettings(groups=2, sessions=2, network=NETWORK))

    async def decide(self, plan: Plan, *, stored: bool = True) -> int:
        """Put a plan in force; one that is not stored is a plan that nobody can fetch."""
        self._version += 1
        decision = Decision(
            self._version, name_plan(plan), "planned", "test", "", time.time(), moves=0
        )
        if not stored:
            decision = msgspec.structs.replace(decision, plan="gone")
        await self._store.decide(decision, plan if stored else None)
        return self._version

    async def hint(self) -> None:
        """What members hear of a decision that the server refuses."""
        refused = {"Nats-Expected-Last-Subject-Sequence": "999999"}
        await self._nc.publish(f"$KV.{self.layout.plan}.{FORCE}", b"refused", headers=refused)

    async def read_record(
        self, role: MemberRole, name: str
    ) -> InterestRecord | PublisherRecord | None:
        kv = await self._js.key_value(self.layout.members)
        try:
            found = await kv.get(self.layout.member_key(role, name))
        except nats.js.errors.KeyNotFoundError:
            return None
        kind: type[InterestRecord | PublisherRecord] = InterestRecord
        if role == "publisher":
            kind = PublisherRecord
        return msgspec.msgpack.decode(found.value or b"", type=kind)

    async def delete_record(self, role: MemberRole, name: str) -> None:
        kv = await self._js.key_value(self.layout.members)
        await kv.delete(self.layout.member_key(role, name))

    async def read_publisher_reports(self, name: str) -> list[PublisherReport]:
        data = await self._read_reports("publisher", name)
        return [msgspec.msgpack.decode(each, type=PublisherReport) for each in data]

    async def read_receiver_reports(self, name: str) -> list[ReceiverReport]:
        data = await self._read_reports("receiver", name)
        return [msgspec.msgpack.decode(each, type=ReceiverReport) for each in data]

    async def _read_reports(self, role: MemberRole, name: str) -> list[bytes]:
        state = (await self._js.stream_info(self.layout.reports)).state
        if not state.messages:
            return []
        found = []
        subject = self.layout.report(role, name)
        stream = follow_stream(self._nc, self.layout.reports, first=state.first_seq)
        async with aclosing(stream) as batches:
            async for batch in batches:
                found += [each.data for each in batch.messages if each.subject == subject]
                if batch.caught_up:
                    break
        return found


@asynccontextmanager
async def serving(options: NatsOptions, prefix: str = "distributary") -> AsyncIterator[FakeService]:
    async with connect_to_server(options, name="service") as nc:
        service = FakeService(nc, prefix)
        await service.begin()
        yield service


def add_up(reports: list[PublisherReport]) -> Counter[str]:
    """The messages by flow in reports from the first one on, copies left out."""
    names: dict[int, str] = {}
    found: Counter[str] = Counter()
    following = 0
    for report in reports:
        if report.number < following:
            continue
        assert report.number == following
        following += 1
        names |= dict(enumerate(report.names, report.first_name))
        for _, number, messages in report.counts:
            found[names[number]] += messages
    return found


def publisher_statistics(messages: int = 0, unplanned: int = 0) -> PublisherStatistics:
    machine = SenderMachineStatistics(messages=messages, unplanned_messages=unplanned)
    return PublisherStatistics(machine, 1, 0, 0, 0.0)


_MACHINE = ReceiverMachineStatistics(*(0 for _ in ReceiverMachineStatistics.__slots__))


def receiver_statistics(messages: int = 0) -> ReceiverStatistics:
    machine = replace(_MACHINE, messages=messages)
    return ReceiverStatistics(machine, *(0 for _ in range(10)), cpu_seconds=0.0)
