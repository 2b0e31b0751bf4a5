"""Traffic of a plan that is packed ahead and replayed, so that one core can send millions a second.

A `SenderMachine` packs the messages in virtual time, as a publisher's would, and its packets are
kept. While they are replayed, an `Attendant` announces the publisher and answers receivers: where
flows travel, and how far streams have come. Nothing here knows the layout of a packet. Sending
packets one by one costs several times what receiving them does, so that a receiver on another core
would never be busy; `joined` packets of a burst, one group and one size go through the system in
pieces (GSO, GRO), as a publisher's do. Nobody repairs: a run that loses packets counts as failed.
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
from distributary.delivery.udp.endpoints import Outlet, format_address
from distributary.delivery.udp.sockets import find_interface
from distributary.machines.actions import Send, SetTimer
from distributary.model import IntArray, Plan

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

__all__ = ["Attendant", "Recording", "record", "replay"]

TICK = 0.001  # seconds from one burst to the next
_MOST_TIMERS = 10_000  # before the plan takes effect
_NEVER = 1e9  # seconds
_LARGEST_REQUEST = 65_536  # bytes
_MOST_JOINED = 64  # packets in a piece
_MOST_WAITS = 30  # seconds for room in the socket's buffer


@dataclass(frozen=True)
class Recording:
    """The packets of a plan, one behind the other in a buffer, in the order of sending."""

    plan: Plan
    params: SenderParams
    incarnation: int
    buffer: Bytes
    lengths: IntArray  # of packets
    groups: Sequence[str]
    group_of: IntArray  # position in `groups`, by packet
    pieces: IntArray  # the first packet of each one that is sent
    bursts: Sequence[tuple[float, int]]  # when each one is sent, and at which piece it ends
    messages: int
    seconds: float

    @property
    def messages_per_packet(self) -> float:
        """h, on average."""
        return self.messages / len(self.lengths)

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
    joined: bool,
) -> Recording:
    """Pack messages of flows, `drawn` by number, at so many a second."""
    recorder = _Recorder(plan, messages_per_packet, packet_size)
    recorder.start()
    names, payload = plan.flows, bytes(message_bytes)
    for begin in range(0, len(drawn), 65_536):
        for at, flow in enumerate(drawn[begin : begin + 65_536].tolist(), begin):
            recorder.offer(names[flow], payload, at / rate)
    recorder.end(len(drawn) / rate)
    burst_of = recorder.find_bursts()
    lengths = np.array(recorder.lengths, np.int64)
    group_of = np.array(recorder.group_of, np.int64)
    order = np.lexsort((group_of, burst_of)) if joined else np.arange(len(lengths))
    buffer = _reorder(np.frombuffer(recorder.buffer, np.uint8), lengths, order)
    lengths, group_of, burst_of = lengths[order], group_of[order], burst_of[order]
    pieces = _find_pieces(lengths, group_of, burst_of, _MOST_JOINED if joined else 1)
    ends = np.searchsorted(burst_of[pieces], np.arange(len(recorder.bursts)), side="right")
    return Recording(
        plan=plan,
        params=recorder.params,
        incarnation=recorder.incarnation,
        buffer=buffer,
        lengths=lengths,
        groups=tuple(recorder.places),
        group_of=group_of,
        pieces=pieces,
        bursts=[(at, int(end)) for (at, _), end in zip(recorder.bursts, ends, strict=True)],
        messages=len(drawn),
        seconds=len(drawn) / rate,
    )


def _reorder(buffer: Bytes, lengths: IntArray, order: IntArray) -> Bytes:
    """Packets that are one behind the other, in another order."""
    begins = (np.cumsum(lengths) - lengths)[order].tolist()
    found = bytearray()
    view = memoryview(buffer)
    for begin, length in zip(begins, lengths[order].tolist(), strict=True):
        found += view[begin : begin + length]
    return np.frombuffer(found, np.uint8)


def _find_pieces(lengths: IntArray, group_of: IntArray, burst_of: IntArray, most: int) -> IntArray:
    """Where pieces begin: consecutive packets of a burst, a group and a length, so many at most."""
    keys = np.stack((burst_of, group_of, lengths))
    begins = np.flatnonzero(np.r_[True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)])
    sizes = np.diff(np.r_[begins, len(lengths)])
    within = np.concatenate([np.arange(0, size, most) for size in sizes.tolist()])
    return np.repeat(begins, -(-sizes // most)) + within


class _Recorder:
    """Drives a sender in virtual time and keeps what it sends."""

    def __init__(self, plan: Plan, messages_per_packet: int, packet_size: int) -> None:
        self.params = SenderParams(
            packet_size=packet_size,
            messages_per_packet=messages_per_packet,
            max_age=0.05,
            # Heartbeats are handled one by one, which no cost model knows of: none of them.
            heartbeat_min=_NEVER,
            heartbeat_max=_NEVER,
            rate=1e12,
            burst=1e12,
            window_packets=1,
        )
        self.incarnation = time.time_ns()
        self._machine = SenderMachine(plan, self.incarnation, params=self.params)
        self._timer = ""
        self._wake_at = float("inf")
        self._opened = 0.0  # when the plan took effect
        self._tick = 0
        self.buffer = bytearray()
        self.lengths: list[int] = []
        self.places: dict[str, int] = {}  # of groups
        self.group_of: list[int] = []
        self.bursts: list[tuple[float, int]] = []

    def start(self) -> None:
        """Let the plan take effect."""
        actions = self._machine.start(0.0)
        for _ in range(_MOST_TIMERS):
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

    def find_bursts(self) -> IntArray:
        """The burst of each packet."""
        ends = [end for _, end in self.bursts]
        return np.searchsorted(ends, np.arange(len(self.lengths)), side="right")

    def _perform(self, actions: Iterable[Send | SetTimer]) -> None:
        for action in actions:
            if isinstance(action, Send) and action.to != CONTROL_GROUP:  # an attendant announces
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


class Attendant:
    """The publisher of a recording before its first packet, for one receiver's run.

    It never learns of the replay, so the answers to a receiver are right only before that.
    """

    def __init__(self, recording: Recording, own: socket.socket) -> None:
        self._machine = SenderMachine(
            recording.plan, recording.incarnation, params=recording.params
        )
        self._own = own
        self._outlet = Outlet(NETWORK, [find_interface(NETWORK)], own)
        self._timer = ""
        self._wake_at = float("inf")
        self.asked_at = time.monotonic()
        self._drop_old_requests()
        self._perform(self._machine.start(self.asked_at))

    @property
    def started(self) -> bool:
        """Whether the plan is in effect."""
        return not self._machine.changing

    def attend(self) -> None:
        """Answer what has arrived, and do what is due."""
        while (found := self._read()) is not None:
            packet, address = found
            self.asked_at = time.monotonic()
            source = format_address(address)
            self._perform(self._machine.on_message(source, packet, self.asked_at))
        if self._wake_at <= time.monotonic():
            self._wake_at = float("inf")
            self._perform(self._machine.on_timer(self._timer, time.monotonic()))

    def _drop_old_requests(self) -> None:
        while self._read() is not None:
            pass

    def _read(self) -> tuple[bytes, tuple[str, int]] | None:
        try:
            packet, address = self._own.recvfrom(_LARGEST_REQUEST, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        return packet, address

    def _perform(self, actions: Sequence[Send | SetTimer]) -> None:
        self._outlet.send([each for each in actions if isinstance(each, Send)])
        for action in actions:
            if isinstance(action, SetTimer):
                self._timer = action.name
                self._wake_at = float("inf") if action.at is None else action.at


def replay(recording: Recording, own: socket.socket, attendant: Attendant, speed: float) -> float:
    """Send all bursts, so many times as fast as recorded; returns the seconds that it took."""
    vector = _Vector(recording)
    began, sent = time.monotonic(), 0
    for at, end in recording.bursts:
        wait = began + at / speed - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        vector.send(own, sent, end)
        attendant.attend()
        sent = end
    rest = began + recording.seconds / speed - time.monotonic()
    time.sleep(max(rest, 0.0))
    return time.monotonic() - began


_libc = ctypes.CDLL(None, use_errno=True)
# struct iovec, mmsghdr and cmsghdr (with the size of segments) of Linux on 64 bits
_IOVEC = np.dtype([("base", "u8"), ("length", "u8")])
_MMSGHDR = np.dtype(
    [
        *(("name", "u8"), ("name_length", "u8"), ("pieces", "u8"), ("n_pieces", "u8")),
        *(("control", "u8"), ("control_length", "u8"), ("flags", "u8"), ("sent", "u8")),
    ]
)
_CMSG = np.dtype(
    [("length", "u8"), ("level", "i4"), ("kind", "i4"), ("size", "u2"), ("rest", "V6")]
)
_UDP_SEGMENT = 103


class _Vector:
    """The headers of all pieces, for sendmmsg, so that nothing is left to do while sending."""

    def __init__(self, recording: Recording) -> None:
        firsts, lengths = recording.pieces, recording.lengths
        n = len(firsts)
        counts = np.diff(np.r_[firsts, len(lengths)])
        self._recording = recording  # keeps the buffer alive
        self._names = np.frombuffer(
            b"".join(_encode_address(NETWORK.groups.of(group)) for group in recording.groups),
            np.uint8,
        )
        self._pieces = np.zeros(n, _IOVEC)
        begins = np.cumsum(lengths) - lengths
        self._pieces["base"] = recording.buffer.ctypes.data + begins[firsts]
        self._pieces["length"] = counts * lengths[firsts]
        self._segments = np.zeros(n, _CMSG)
        self._segments["length"], self._segments["level"] = 18, socket.IPPROTO_UDP
        self._segments["kind"], self._segments["size"] = _UDP_SEGMENT, lengths[firsts]
        self._headers = np.zeros(n, _MMSGHDR)
        self._headers["name"] = self._names.ctypes.data + 16 * recording.group_of[firsts]
        self._headers["name_length"] = 16
        self._headers["pieces"] = self._pieces.ctypes.data + _IOVEC.itemsize * np.arange(n)
        self._headers["n_pieces"] = 1
        self._headers["control"] = self._segments.ctypes.data + _CMSG.itemsize * np.arange(n)
        self._headers["control_length"] = np.where(counts > 1, _CMSG.itemsize, 0)
        self._at = self._headers.ctypes.data

    def send(self, own: socket.socket, begin: int, end: int) -> None:
        """Send pieces, waiting while the socket's buffer is full."""
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
