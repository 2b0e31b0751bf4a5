"""Publishers and receivers in virtual time, whose traffic follows the plan in force exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distributary.control.messages import PublisherReported, ReceiverReported
from distributary.control.reports import (
    NAMES_EVERY,
    InterestRecord,
    PublisherRecord,
    PublisherReport,
    ReceiverReport,
)
from distributary.model import Plan
from tests.control.store import FORCE, Store


@dataclass
class Member:
    """A process: it may be gone, asleep or cut off from the store."""

    name: str
    starts: int = 0
    number: int = 0  # of its next report
    is_alive: bool = True
    is_connected: bool = True
    unsent: list[object] = field(default_factory=list)

    @property
    def incarnation(self) -> str:
        return f"{self.name}-{self.starts}"

    def restart(self) -> None:
        self.starts += 1
        self.number = 0
        self.is_alive = True
        self.unsent.clear()


@dataclass
class FloorPublisher(Member):
    flows: tuple[str, ...] = ()
    version: int = 0


@dataclass
class FloorReceiver(Member):
    wants: frozenset[str] = frozenset()
    missing: int = 0
    besides: float = 0.0  # messages per second that it drops besides, such as of other traffic


class Floor:
    """Every second each publisher and receiver reports what it did in the last one.

    `rates` are messages per second; with `rng` they are means.
    """

    def __init__(
        self, store: Store, rates: Mapping[str, float], rng: np.random.Generator | None = None
    ) -> None:
        self.store, self.rates, self.rng = store, dict(rates), rng
        self.publishers: dict[str, FloorPublisher] = {}
        self.receivers: dict[str, FloorReceiver] = {}
        # What becomes of reports, by the name of their member, before they are sent.
        self.edits: dict[str, Callable[[Any], Any]] = {}
        self.published: dict[int, dict[str, int]] = {}  # by second and flow

    # --- members ----------------------------------------------------------------------------------

    def publish(self, name: str, flows: tuple[str, ...], now: float) -> None:
        """Start a publisher."""
        publisher = self.publishers.setdefault(name, FloorPublisher(name))
        publisher.restart()
        publisher.flows = flows
        self._announce(publisher, now)

    def _announce(self, publisher: FloorPublisher, now: float) -> None:
        where = f"{publisher.name} on feed-1"
        record = PublisherRecord(publisher.incarnation, where, now, publisher.flows)
        self.store.write_member("publisher", publisher.name, record)

    def want(self, name: str, flows: frozenset[str], now: float) -> None:
        """Start a receiver, or let it want something else."""
        receiver = self.receivers.get(name)
        if receiver is None:
            receiver = self.receivers[name] = FloorReceiver(name)
        elif not receiver.is_alive:
            receiver.restart()
        receiver.wants = flows
        self.write(receiver, now)

    def write(self, receiver: FloorReceiver, now: float) -> None:
        flows = tuple(sorted(receiver.wants))
        record = InterestRecord(receiver.incarnation, f"{receiver.name} on floor-1", now, flows)
        self.store.write_member("receiver", receiver.name, record)

    def kill(self, name: str) -> None:
        self._find(name).is_alive = False

    def leave(self, name: str) -> None:
        """End a member properly: its key goes with it."""
        role = "receiver" if name in self.receivers else "publisher"
        self.store.write_member(role, name, None)
        self.receivers.pop(name, None)
        self.publishers.pop(name, None)

    def cut(self, name: str) -> None:
        self._find(name).is_connected = False

    def heal(self, name: str, now: float) -> None:
        """Connect a member again: if its key is gone, it writes it anew."""
        member = self._find(name)
        member.is_connected = True
        role = "receiver" if name in self.receivers else "publisher"
        if not member.is_alive or (role, name) in self.store.members:
            return
        if isinstance(member, FloorReceiver):
            self.write(member, now)
        elif isinstance(member, FloorPublisher):
            self._announce(member, now)

    def _find(self, name: str) -> Member:
        return self.receivers.get(name) or self.publishers[name]

    # --- traffic ----------------------------------------------------------------------------------

    def pass_second(self, second: int, now: float) -> None:
        """What happened in a second, and its reports, which come at its end."""
        counts = {flow: self._draw(rate) for flow, rate in sorted(self.rates.items())}
        carried = {
            flow
            for publisher in self.publishers.values()
            if publisher.is_alive
            for flow in publisher.flows
        }
        self.published[second] = {flow: n for flow, n in counts.items() if flow in carried}
        for publisher in self.publishers.values():
            if publisher.is_alive:
                self._send(publisher, self._report(publisher, second, counts), now)
        for receiver in self.receivers.values():
            if receiver.is_alive:
                self._send(receiver, self._measure(receiver, self.published[second]), now)

    def _draw(self, rate: float) -> int:
        return round(rate) if self.rng is None else int(self.rng.poisson(rate))

    def _send(self, member: Member, report: object, now: float) -> None:
        member.unsent.append(report)
        member.number += 1
        if member.is_connected:
            for each in member.unsent:
                self.store.add_report(now, each)
            member.unsent.clear()

    def _report(
        self, publisher: FloorPublisher, second: int, counts: Mapping[str, int]
    ) -> PublisherReported:
        decision = self.store.read(FORCE)
        if publisher.is_connected and decision is not None:
            publisher.version = decision.version
        names = publisher.flows if publisher.number % NAMES_EVERY == 0 else ()
        report = PublisherReport(
            publisher.incarnation,
            publisher.number,
            names,
            second,
            tuple(
                (0, at, counts[flow]) for at, flow in enumerate(publisher.flows) if counts.get(flow)
            ),
            publisher.version,
            0,
            1.0,
            0.01,
        )
        return PublisherReported(publisher.name, self._edit(publisher, report))

    def _edit(self, member: Member, report: Any) -> Any:
        edit = self.edits.get(member.name)
        return report if edit is None else edit(report)

    def _measure(self, receiver: FloorReceiver, counts: Mapping[str, int]) -> ReceiverReported:
        wanted, first, second, groups, unserved = 0, receiver.besides, 0, 0, list[str]()
        plan = self.store.plan
        if plan is not None:
            wanted, more, second, groups = measure(plan, receiver.wants, counts)
            first += more
            unserved = sorted(receiver.wants - set(plan.flows))[:10]
        report = ReceiverReport(
            receiver.incarnation,
            receiver.number,
            1.0,
            wanted,
            int(first),
            second,
            groups,
            0,
            receiver.missing,
            0,
            tuple(unserved),
            0.02,
        )
        return ReceiverReported(receiver.name, self._edit(receiver, report))


def measure(
    plan: Plan, wants: frozenset[str], counts: Mapping[str, int]
) -> tuple[int, int, int, int]:
    """What a receiver gets by a plan: wanted, dropped by each filter, and its groups."""
    session = {
        plan.flows[flow]: at
        for flow, at in zip(
            plan.placement_flow.tolist(), plan.placement_session.tolist(), strict=True
        )
    }
    group = plan.session_group.tolist()
    mine = {session[flow] for flow in wants if flow in session}
    joined = {group[at] for at in mine}
    wanted = first = second = 0
    for flow, at in session.items():
        messages = counts.get(flow, 0)
        if flow in wants:
            wanted += messages
        elif at in mine:
            second += messages
        elif group[at] in joined:
            first += messages
    return wanted, first, second, len(joined)
