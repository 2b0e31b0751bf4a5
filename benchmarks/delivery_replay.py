"""Traffic of a plan that is packed ahead and replayed, so that one core can send millions a second.

A `SenderMachine` packs the messages in virtual time, as a publisher's would, and its packets are
kept. Nothing here knows the layout of a packet. Packets are sent one by one, as `calibrate` does by
default: pieces of many packets (GSO) would cost a receiver much less than a network card's packets.
Nobody answers NAKs: a run in which packets were lost counts as failed, and is repeated.
"""

from __future__ import annotations

import select
import socket
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from benchmarks.delivery_receivers import NETWORK
from distributary.delivery import CONTROL_GROUP, SenderMachine, SenderParams
from distributary.delivery.udp.datagrams import Address
from distributary.delivery.udp.mmsg import MmsgWriter
from distributary.machines.actions import Send, SetTimer
from distributary.model import IntArray, Plan

__all__ = ["Recording", "announce", "record", "replay"]

TICK = 0.002  # seconds from one burst to the next
_GRACE = 5.0  # seconds of virtual time, in which the plan is announced again and again
_MOST_TIMERS = 10_000  # before the plan takes effect
_MOST_WAITS = 30  # seconds for room in the socket's buffer
_AT_ONCE = 512  # packets in one system call

Rows = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


@dataclass(frozen=True)
class Recording:
    """The packets of a plan, in bursts: what goes to each address in each tick, in its order."""

    announcements: Sequence[bytes]  # before the plan takes effect, and the one when it does
    bursts: Sequence[tuple[float, Sequence[tuple[Address, Rows]]]]
    packets_to: Counter[str]  # by group
    messages: int
    seconds: float

    @property
    def messages_per_packet(self) -> float:
        """h, on average."""
        packets = sum(n for group, n in self.packets_to.items() if group != CONTROL_GROUP)
        return self.messages / packets


def record(
    plan: Plan,
    drawn: IntArray,
    rate: float,
    *,
    messages_per_packet: int,
    message_bytes: int,
    packet_size: int,
) -> Recording:
    """Pack messages of flows, `drawn` by number, at so many a second."""
    recorder = _Recorder(plan, messages_per_packet, packet_size)
    recorder.start()
    names, payload = plan.flows, bytes(message_bytes)
    for begin in range(0, len(drawn), 65_536):
        for at, flow in enumerate(drawn[begin : begin + 65_536].tolist(), begin):
            recorder.offer(names[flow], payload, at / rate)
    recorder.end(len(drawn) / rate)
    return Recording(
        recorder.announcements,
        recorder.bursts,
        recorder.packets_to,
        len(drawn),
        len(drawn) / rate,
    )


class _Recorder:
    """Drives a sender in virtual time and keeps what it sends."""

    def __init__(self, plan: Plan, messages_per_packet: int, packet_size: int) -> None:
        params = SenderParams(
            packet_size=packet_size,
            messages_per_packet=messages_per_packet,
            # Heartbeats are handled one by one, which no cost model knows of: few of them.
            max_age=0.05,
            heartbeat_min=0.5,
            rate=1e12,
            burst=1e12,
            grace=_GRACE,
            window_packets=1,
        )
        self._machine = SenderMachine(plan, time.time_ns(), params=params)
        self._timer: SetTimer | None = None
        self._wake_at = float("inf")
        self._opened = 0.0  # when the plan took effect
        self._tick = 0
        self._sends: list[Send] = []  # of this tick
        self.announcements: list[bytes] = []
        self.bursts: list[tuple[float, list[tuple[Address, Rows]]]] = []
        self.packets_to: Counter[str] = Counter()

    def start(self) -> None:
        """Announce the plan until it takes effect."""
        self._perform(self._machine.start(0.0))
        for _ in range(_MOST_TIMERS):
            if not self._machine.changing:
                break
            self._opened = self._wake_at
            self._run_timer()
        assert not self._machine.changing, "the plan does not take effect"
        self.announcements = [send.message for send in self._sends if send.to == CONTROL_GROUP]
        self._sends = [send for send in self._sends if send.to != CONTROL_GROUP]

    def offer(self, flow: str, payload: bytes, at: float) -> None:
        """Publish a message, so many seconds after the plan took effect."""
        now = self._opened + at
        if at >= TICK * (self._tick + 1):
            self._close_tick(int(at / TICK))
        while self._wake_at <= now:
            self._run_timer()
        actions = self._machine.offer(flow, payload, now)
        if actions:
            self._perform(actions)

    def end(self, at: float) -> None:
        """Send the packets that are not full."""
        self._perform(self._machine.flush(self._opened + at))
        assert not self._machine.waiting
        self._close_tick(self._tick + 1)

    def _run_timer(self) -> None:
        timer, now = self._timer, self._wake_at
        assert timer is not None
        self._wake_at = float("inf")
        self._perform(self._machine.on_timer(timer.name, now))

    def _perform(self, actions: Iterable[Send | SetTimer]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._sends.append(action)
            else:
                self._timer = action
                self._wake_at = float("inf") if action.at is None else action.at

    def _close_tick(self, following: int) -> None:
        """Lay out the packets of this tick, group by group, as rows of one size."""
        by_group: dict[str, list[bytes]] = {}
        for send in self._sends:
            by_group.setdefault(send.to, []).append(send.message)
        burst: list[tuple[Address, Rows]] = []
        for group, packets in by_group.items():
            self.packets_to[group] += len(packets)
            address = NETWORK.groups.of(group), NETWORK.groups.port
            for size, same in groupby(packets, len):
                rows = np.frombuffer(b"".join(same), np.uint8).reshape(-1, size)
                burst.append((address, rows))
        if burst:
            self.bursts.append((TICK * self._tick, burst))
        self._sends, self._tick = [], following


def announce(recording: Recording, own: socket.socket, at: int) -> None:
    """Send an announcement, by its number."""
    own.sendto(recording.announcements[at], (NETWORK.groups.control, NETWORK.groups.port))


def replay(recording: Recording, own: socket.socket, speed: float) -> float:
    """Send all bursts, so many times as fast as recorded; returns the seconds that it took."""
    writer = MmsgWriter(_AT_ONCE, joins=False)
    began = time.monotonic()
    for at, burst in recording.bursts:
        wait = began + at / speed - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        for address, rows in burst:
            _send_rows(writer, own, address, rows)
    rest = began + recording.seconds / speed - time.monotonic()
    time.sleep(max(rest, 0.0))
    return time.monotonic() - began


def _send_rows(writer: MmsgWriter, own: socket.socket, to: Address, rows: Rows) -> None:
    sent = 0
    for _ in range(len(rows) + _MOST_WAITS):
        sent += writer.write_rows(own, to, rows[sent:])
        if sent == len(rows):
            return
        select.select([], [own], [], 1.0)
    raise RuntimeError(f"the socket's buffer stays full; {len(rows) - sent} packets are left")
