"""Traffic of a plan that is packed ahead and replayed, so that one core can send millions a second.

A `SenderMachine` packs the messages in virtual time, as a publisher's would, and its packets are
kept. Nothing here knows the layout of a packet. Packets are sent one by one, as `calibrate` does by
default: pieces of many packets (GSO) would cost a receiver much less than a network card's packets.
Nobody answers NAKs: a run in which packets were lost counts as failed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.delivery_receivers import NETWORK
from distributary.delivery import CONTROL_GROUP, SenderMachine, SenderParams
from distributary.machines.actions import Send, SetTimer
from distributary.model import IntArray, Plan

__all__ = ["Recording", "announce", "record", "replay"]

TICK = 0.002  # seconds from one burst to the next
_GRACE = 5.0  # seconds of virtual time, in which the plan is announced again and again
_MOST_TIMERS = 10_000  # before the plan takes effect
_MOST_WAITS = 30  # seconds for room in the socket's buffer


@dataclass(frozen=True)
class Recording:
    """The packets of a plan, one behind the other in a buffer, in the order of sending."""

    announcements: Sequence[bytes]  # before the plan takes effect, and the one when it does
    buffer: np.ndarray[tuple[int], np.dtype[np.uint8]]
    lengths: IntArray  # of packets
    groups: Sequence[str]
    group_of: IntArray  # position in `groups`, by packet
    bursts: Sequence[tuple[float, int]]  # when each one is sent, and at which packet it ends
    messages: int
    seconds: float

    @property
    def messages_per_packet(self) -> float:
        """h, on average."""
        return self.messages / (len(self.lengths) - self.count_packets({CONTROL_GROUP}))

    def count_packets(self, groups: set[str]) -> int:
        """How many packets go to these groups."""
        wanted = [at for at, group in enumerate(self.groups) if group in groups]
        return int(np.isin(self.group_of, wanted).sum())


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
        announcements=recorder.announcements,
        buffer=np.frombuffer(recorder.buffer, np.uint8),
        lengths=np.array(recorder.lengths, np.int64),
        groups=tuple(recorder.places),
        group_of=np.array(recorder.group_of, np.int64),
        bursts=recorder.bursts,
        messages=len(drawn),
        seconds=len(drawn) / rate,
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
        self._timer = ""
        self._wake_at = float("inf")
        self._opened = 0.0  # when the plan took effect
        self._tick = 0
        self.announcements: list[bytes] = []
        self.buffer = bytearray()
        self.lengths: list[int] = []
        self.places: dict[str, int] = {}  # of groups
        self.group_of: list[int] = []
        self.bursts: list[tuple[float, int]] = []

    def start(self) -> None:
        """Announce the plan until it takes effect."""
        actions = self._machine.start(0.0)
        for _ in range(_MOST_TIMERS):
            self.announcements += [each.message for each in actions if isinstance(each, Send)]
            self._set_timer(actions)
            if not self._machine.changing:
                return
            self._opened = self._wake_at
            actions = self._machine.on_timer(self._timer, self._wake_at)
        raise RuntimeError("the plan does not take effect")

    def offer(self, flow: str, payload: bytes, at: float) -> None:
        """Publish a message, so many seconds after the plan took effect."""
        now = self._opened + at
        if at >= TICK * (self._tick + 1):
            self._close_tick(int(at / TICK))
        while self._wake_at <= now:
            due, self._wake_at = self._wake_at, float("inf")
            self._perform(self._machine.on_timer(self._timer, due))
        actions = self._machine.offer(flow, payload, now)
        if actions:
            self._perform(actions)

    def end(self, at: float) -> None:
        """Send the packets that are not full."""
        self._perform(self._machine.flush(self._opened + at))
        assert not self._machine.waiting
        self._close_tick(self._tick + 1)

    def _perform(self, actions: Iterable[Send | SetTimer]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self.buffer += action.message
                self.lengths.append(len(action.message))
                self.group_of.append(self.places.setdefault(action.to, len(self.places)))
        self._set_timer(actions)

    def _set_timer(self, actions: Iterable[Send | SetTimer]) -> None:
        for action in actions:
            if isinstance(action, SetTimer):
                self._timer = action.name
                self._wake_at = float("inf") if action.at is None else action.at

    def _close_tick(self, following: int) -> None:
        self.bursts.append((TICK * self._tick, len(self.lengths)))
        self._tick = following


# --- sending -------------------------------------------------------------------------------------


def announce(recording: Recording, own: socket.socket, at: int) -> None:
    """Send an announcement, by its number."""
    own.sendto(recording.announcements[at], (NETWORK.groups.control, NETWORK.groups.port))


def replay(recording: Recording, own: socket.socket, speed: float) -> float:
    """Send all bursts, so many times as fast as recorded; returns the seconds that it took."""
    vector = _Vector(recording)
    began, sent = time.monotonic(), 0
    for at, end in recording.bursts:
        wait = began + at / speed - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        vector.send(own, sent, end)
        sent = end
    rest = began + recording.seconds / speed - time.monotonic()
    time.sleep(max(rest, 0.0))
    return time.monotonic() - began


_libc = ctypes.CDLL(None, use_errno=True)
# struct iovec and struct mmsghdr of Linux on 64 bits
_IOVEC = np.dtype([("base", "u8"), ("length", "u8")])
_MMSGHDR = np.dtype(
    [
        *(("name", "u8"), ("name_length", "u8"), ("pieces", "u8"), ("n_pieces", "u8")),
        *(("control", "u8"), ("control_length", "u8"), ("flags", "u8"), ("sent", "u8")),
    ]
)


class _Vector:
    """The headers of all packets, for sendmmsg, so that nothing is left to do while sending."""

    def __init__(self, recording: Recording) -> None:
        n = len(recording.lengths)
        self._recording = recording  # keeps the buffer alive
        self._names = np.frombuffer(
            b"".join(_encode_address(NETWORK.groups.of(group)) for group in recording.groups),
            np.uint8,
        )
        self._pieces = np.zeros(n, _IOVEC)
        begins = np.cumsum(recording.lengths) - recording.lengths
        self._pieces["base"] = recording.buffer.ctypes.data + begins
        self._pieces["length"] = recording.lengths
        self._headers = np.zeros(n, _MMSGHDR)
        self._headers["name"] = self._names.ctypes.data + 16 * recording.group_of
        self._headers["name_length"] = 16
        self._headers["pieces"] = self._pieces.ctypes.data + _IOVEC.itemsize * np.arange(n)
        self._headers["n_pieces"] = 1
        self._at = self._headers.ctypes.data

    def send(self, own: socket.socket, begin: int, end: int) -> None:
        """Send packets, waiting while the socket's buffer is full."""
        waits = 0
        while begin < end:
            at = ctypes.c_void_p(self._at + _MMSGHDR.itemsize * begin)
            done = _libc.sendmmsg(own.fileno(), at, end - begin, socket.MSG_DONTWAIT)
            if done > 0:
                begin += done
                continue
            number = ctypes.get_errno()
            if number not in (errno.EAGAIN, errno.ENOBUFS) or waits == _MOST_WAITS:
                raise OSError(number, os.strerror(number))
            select.select([], [own], [], 1.0)
            waits += 1


def _encode_address(host: str) -> bytes:
    """A sockaddr_in."""
    family = int(socket.AF_INET).to_bytes(2, sys.byteorder)
    return family + NETWORK.groups.port.to_bytes(2, "big") + socket.inet_aton(host) + bytes(8)
