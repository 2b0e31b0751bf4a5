"""A control plane in the test's own process, whose versions the test decides."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from distributary.delivery.udp import (
    GroupAddresses,
    NetworkOptions,
    PublisherStatistics,
    ReceiverStatistics,
)
from distributary.delivery.udp.control import OnFault, PlanVersion
from distributary.delivery.udp.statistics import SeatStatistics
from distributary.model import Plan

ELSEWHERE = NetworkOptions(GroupAddresses("239.192.88.0", 7_788), interface="lo", ttl=0)


class HeldControl:
    """Gives seats out, remembers what members say, and puts plans in force."""

    def __init__(self, network: NetworkOptions = ELSEWHERE) -> None:
        self.network = network
        self.force: PlanVersion | None = None
        self.interest: dict[str, set[str]] = {}
        self.publishers: dict[str, tuple[str, ...] | None] = {}
        self.counts: Counter[str] = Counter()
        self.reported: list[tuple[str, int]] = []  # publishers, and the version that they go by
        self.receivers_reported: Counter[str] = Counter()
        self.unserved: tuple[str, ...] = ()
        self._changed = asyncio.Condition()

    async def decide(self, plan: Plan) -> None:
        version = 1 if self.force is None else self.force.version + 1
        async with self._changed:
            self.force = PlanVersion(version, plan)
            self._changed.notify_all()

    async def follow(self, first: PlanVersion | None) -> AsyncIterator[PlanVersion]:
        seen = first
        while True:
            async with self._changed:
                while self.force is seen:
                    await self._changed.wait()
                seen = self.force
            assert seen is not None
            yield seen

    @asynccontextmanager
    async def seat_publisher(
        self, name: str, flows: tuple[str, ...] | None, on_fault: OnFault
    ) -> AsyncIterator[HeldPublisherSeat]:
        self.publishers[name] = flows
        yield HeldPublisherSeat(self, name)
        del self.publishers[name]

    @asynccontextmanager
    async def seat_receiver(
        self, name: str, flows: tuple[str, ...], on_fault: OnFault
    ) -> AsyncIterator[HeldReceiverSeat]:
        self.interest[name] = set(flows)
        yield HeldReceiverSeat(self, name)
        del self.interest[name]


class HeldPublisherSeat:
    def __init__(self, control: HeldControl, name: str) -> None:
        self.network = control.network
        self.first = control.force
        self.statistics = SeatStatistics(True, 0.0, 0, 0)
        self._control = control
        self._name = name

    def versions(self) -> AsyncIterator[PlanVersion]:
        return self._control.follow(self.first)

    def count(self, flow: str) -> None:
        self._control.counts[flow] += 1

    def report(self, version: int, statistics: PublisherStatistics) -> None:
        self._control.reported.append((self._name, version))


class HeldReceiverSeat:
    def __init__(self, control: HeldControl, name: str) -> None:
        self.network = control.network
        self.statistics = SeatStatistics(True, 0.0, 0, 0)
        self._control = control
        self._name = name

    def subscribe(self, flows: Iterable[str]) -> None:
        self._control.interest[self._name] |= set(flows)

    def unsubscribe(self, flows: Iterable[str]) -> None:
        self._control.interest[self._name] -= set(flows)

    def want(self, flows: Iterable[str]) -> None:
        self._control.interest[self._name] = set(flows)

    def report(self, statistics: ReceiverStatistics, unserved: tuple[str, ...]) -> None:
        self._control.receivers_reported[self._name] = statistics.machine.messages
        self._control.unserved = unserved
