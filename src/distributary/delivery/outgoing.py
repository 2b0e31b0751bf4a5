"""The sender's state of each session, and the sessions of a plan version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from distributary.delivery.packing import Packer
from distributary.delivery.routes import fingerprint_of, group_name
from distributary.delivery.window import RepairWindow
from distributary.model import Plan

__all__ = ["OutgoingStream", "OutgoingVersion"]


@dataclass(slots=True, eq=False)
class OutgoingStream:
    """One session of a plan version, or the unicast stream of one receiver."""

    version: int
    session: int
    to: str  # a group's name, or a receiver's
    unicast: bool
    packer: Packer
    window: RepairWindow
    last_packed: int = 0  # number of the last packet closed
    last_sent: int = 0
    ended: bool = False  # no packet follows `last_packed`
    heartbeat_at: float = 0.0
    heartbeat_wait: float = 0.0
    check_at: float = float("inf")  # when the sender checks whether a heartbeat is due
    heartbeat_sent_at: float = float("-inf")

    @property
    def finished(self) -> bool:
        """Whether the session has ended and its last packet was sent."""
        return self.ended and self.last_sent == self.last_packed


@dataclass(slots=True, eq=False)
class OutgoingVersion:
    """A plan in use: its sessions, and the route of each flow."""

    number: int
    plan: Plan
    fingerprint: int
    streams: dict[int, OutgoingStream]
    numbers: dict[str, int]
    unicast: frozenset[str]  # receivers that have a unicast stream
    expires_at: float = float("inf")  # when the sender stops repairing this version
    _routes: dict[int, tuple[OutgoingStream, ...]] = field(default_factory=dict)

    @classmethod
    def from_plan(
        cls, number: int, plan: Plan, room: int, most: int, window: tuple[int, int]
    ) -> OutgoingVersion:
        """The sessions of a plan, before anything was sent."""
        streams = {
            session: OutgoingStream(
                number, session, group_name(group), False, Packer(room, most), RepairWindow(*window)
            )
            for session, group in enumerate(plan.session_group.tolist())
        }
        for receiver in np.unique(plan.unicast_receiver).tolist():
            session = plan.n_sessions + receiver
            name = plan.receivers[receiver]
            streams[session] = OutgoingStream(
                number, session, name, True, Packer(room, most), RepairWindow(*window)
            )
        numbers = {name: at for at, name in enumerate(plan.flows)}
        alone = frozenset(stream.to for stream in streams.values() if stream.unicast)
        return cls(number, plan, fingerprint_of(plan), streams, numbers, alone)

    def route(self, flow: int) -> tuple[OutgoingStream, ...]:
        """The streams that carry a flow: its sessions, and the unicast streams of its receivers."""
        known = self._routes.get(flow)
        if known is None:
            known = self._routes[flow] = tuple(self._find_streams(flow))
        return known

    def _find_streams(self, flow: int) -> Iterator[OutgoingStream]:
        begin, end = np.searchsorted(self.plan.placement_flow, [flow, flow + 1])
        for session in self.plan.placement_session[begin:end].tolist():
            yield self.streams[session]
        for receiver in self.plan.unicast_receiver[self.plan.unicast_flow == flow].tolist():
            yield self.streams[self.plan.n_sessions + receiver]
