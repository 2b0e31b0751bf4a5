"""recvmmsg and sendmmsg of Linux, through ctypes: one system call for many datagrams.

The kernel's work on a datagram hardly depends on its size. So consecutive datagrams of one size to
the same address pass through the kernel as one piece where it supports that (UDP_SEGMENT for
sending, UDP_GRO for receiving); on the network they are separate datagrams.

The structures are laid out once and filled through NumPy views, so the number of Python steps does
not depend on the number of datagrams.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from distributary.delivery._wire_kernels import ByteArray
from distributary.delivery.udp._piece_kernels import (
    SO_TIMESTAMPNS,
    SOL_SOCKET,
    UDP,
    UDP_GRO,
    split_pieces,
)
from distributary.delivery.udp.datagrams import _FULL, Address, Batch, PlainWriter, slot_size
from distributary.model import IntArray

__all__ = ["MmsgReader", "MmsgWriter", "enable_control"]

_NAME = 28  # bytes of the longest address, IPv6's
_CONTROL = 64  # bytes for the control messages beside a piece: a stamp (32), and a size (24)
_UDP_SEGMENT = 103
_PIECE = 65_535  # bytes that can come at once
_READ_AT_ONCE = 1 << 19  # bytes, about: what was just copied is then still in the cache
_LEAST_PIECES = 8
_SEGMENTS, _SENT_PIECE = 64, 65_000  # the most that go as one
_CANNOT = (errno.EINVAL, errno.EIO, errno.EOPNOTSUPP, errno.EMSGSIZE)
_MOST_DESTINATIONS = 4_096  # whose addresses are kept ready


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Msghdr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("pieces", ctypes.c_void_p),
        ("n_pieces", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Mmsghdr(ctypes.Structure):
    _fields_ = (("header", _Msghdr), ("length", ctypes.c_uint32))


_libc = ctypes.CDLL(None, use_errno=True)
_recvmmsg, _sendmmsg = _libc.recvmmsg, _libc.sendmmsg
_recvmmsg.argtypes = (
    ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p,
)  # fmt: skip
_sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)


def enable_control(source: socket.socket) -> None:
    """Enable what `MmsgReader` can read beside datagrams: UDP_GRO and stamps, where there are."""
    for level, kind in ((UDP, UDP_GRO), (SOL_SOCKET, SO_TIMESTAMPNS)):
        with suppress(OSError):
            source.setsockopt(level, kind, 1)


class _Vector:
    """Message headers for `n` datagrams, with views of the fields that change."""

    def __init__(self, n: int) -> None:
        self.headers = (_Mmsghdr * n)()
        self._pieces = (_Iovec * n)()
        self.names = np.zeros((n, _NAME), np.uint8)
        self.at = ctypes.addressof(self.headers)
        pieces = _field(self.headers, _Msghdr.pieces.offset, np.uint64)
        pieces[:] = ctypes.addressof(self._pieces) + 16 * np.arange(n, dtype=np.uint64)
        _field(self.headers, _Msghdr.n_pieces.offset, np.uint64)[:] = 1
        self.name_at = _field(self.headers, _Msghdr.name.offset, np.uint64)
        self.name_length = _field(self.headers, _Msghdr.name_length.offset, np.uint32)
        self.length = _field(self.headers, _Mmsghdr.length.offset, np.uint32)
        self.base = _field(self._pieces, _Iovec.base.offset, np.uint64)
        self.size = _field(self._pieces, _Iovec.length.offset, np.uint64)
        self._control = np.zeros((n, _CONTROL), np.uint8)
        self.control_at = _field(self.headers, _Msghdr.control.offset, np.uint64)
        self.control_length = _field(self.headers, _Msghdr.control_length.offset, np.uint64)
        self.control = self._control.view(np.int32)  # length (2), level, kind, number
        self.control_head = self._control.view(np.uint64)[:, 0]
        self.segment = self._control.view(np.uint16)[:, 8]  # the number, in two bytes
        self.control_at[:] = self._control.ctypes.data + _CONTROL * np.arange(n, dtype=np.uint64)


def _field(array: Any, offset: int, dtype: Any) -> Any:
    """A view of one field of all structures in an array."""
    stride = ctypes.sizeof(array._type_)
    return np.ndarray((len(array),), dtype, array, offset, (stride,))


class MmsgReader:
    """Up to a batch of datagrams with one system call."""

    def __init__(self, packets: int, largest: int) -> None:
        self._n = self._ask = packets
        self._largest = largest
        slot = slot_size(max(largest, _PIECE))
        self._buffer = np.zeros(packets * slot, np.uint8)
        self._places = np.arange(packets, dtype=np.int64) * slot
        self._vector = vector = _Vector(packets)
        vector.base[:] = self._buffer.ctypes.data + self._places.astype(np.uint64)
        vector.size[:] = slot
        names = vector.names
        vector.name_at[:] = names.ctypes.data + _NAME * np.arange(packets, dtype=np.uint64)
        vector.name_length[:] = _NAME
        vector.control_length[:] = _CONTROL
        self._make_room(packets * _SEGMENTS)
        self._split(0, 0)  # compiles or loads the kernel before the first packets arrive

    def read(self, source: socket.socket) -> Batch | None:
        """Up to a batch of datagrams, or None if there is none."""
        asked = self._ask
        n = _recvmmsg(source.fileno(), self._vector.at, asked, socket.MSG_DONTWAIT, None)
        if n <= 0:
            return (
                None  # an error that an earlier datagram caused, such as an ICMP reply, is ignored
            )
        found, too_long, total, stamped = self._split(n, time.time_ns())
        self._ask = min(self._n, max(_READ_AT_ONCE * n // (total + 1), _LEAST_PIECES))
        names = self._vector.names[:n]
        return Batch(
            self._buffer,
            self._offsets[:found],
            self._lengths[:found],
            self._source,
            too_long,
            n == asked,
            total,
            lambda: bool((names == names[0]).all()),
            self._stamps[:found],
            stamped,
        )

    def _split(self, n: int, read_at: int) -> tuple[int, int, int, int]:
        """Split the pieces into datagrams, and reset the headers for the next read."""
        vector = self._vector
        while True:
            counts: tuple[int, int, int, int] = split_pieces(
                n, vector.length, self._places, vector.control_length, vector.control, read_at,
                self._largest, self._datagrams,
            )  # fmt: skip
            if counts[0] >= 0:
                break
            self._make_room(-counts[0])
        vector.name_length[:n] = _NAME
        vector.control_length[:n] = _CONTROL
        return counts

    def _make_room(self, datagrams: int) -> None:
        self._datagrams = np.empty((4, datagrams), np.int64)
        self._offsets, self._lengths, self._pieces, self._stamps = self._datagrams

    def _source(self, at: int) -> Address:
        return _decode_address(self._vector.names[self._pieces[at]].tobytes())


class MmsgWriter:
    """Datagrams to several addresses with one system call."""

    def __init__(self, packets: int, *, joins: bool = True) -> None:
        self._n = packets
        self._one = PlainWriter()  # cheaper for a single datagram
        self._vector = _Vector(packets)
        self._vector.control_head[:] = 18  # bytes, the number's two included
        self._vector.control[:, 2:4] = UDP, _UDP_SEGMENT
        self._names: dict[Address, tuple[Any, int, int]] = {}
        self._joins = joins  # until the kernel refuses UDP_SEGMENT

    def write(self, through: socket.socket, packets: Sequence[tuple[Address, bytes]]) -> int:
        """Send all; returns how many found the buffer full. Raises OSError for other failures."""
        if len(packets) == 1:
            return self._one.write(through, packets)
        joined = np.frombuffer(b"".join(packet for _, packet in packets), np.uint8)
        sizes = [len(packet) for _, packet in packets]
        runs = _group_runs([address for address, _ in packets], sizes, self._joins)
        unsent = at = 0
        for begin in range(0, len(runs), self._n):
            some = runs[begin : begin + self._n]
            unsent += self._write_runs(through, packets, joined[at:], some)
            at += sum(run.total for run in some)
        return unsent

    def write_rows(self, through: socket.socket, to: Address, rows: ByteArray) -> int:
        """Send each row of an array as a datagram; returns how many fitted into the buffer."""
        n, size = rows.shape
        each = min(_SEGMENTS, max(1, _SENT_PIECE // size)) if self._joins else 1
        begins = np.arange(0, n, each)[: self._n]
        vector, some = self._vector, len(begins)
        vector.base[:some] = (rows.ctypes.data + size * begins).astype(np.uint64)
        counts = np.minimum(each, n - begins)
        vector.size[:some] = size * counts
        _, at, length = self._name(to)
        vector.name_at[:some], vector.name_length[:some] = at, length
        vector.segment[:some] = size
        vector.control_length[:some] = np.where(counts > 1, 24, 0)
        try:
            done = self._send(through, 0, some)
        except OSError as error:
            if not self._cannot_join(error):
                raise
            return self.write_rows(through, to, rows)
        return int(counts[:done].sum())

    def _write_runs(
        self,
        through: socket.socket,
        packets: Sequence[tuple[Address, bytes]],
        joined: ByteArray,
        runs: Sequence[_Run],
    ) -> int:
        n, vector = len(runs), self._vector
        totals: IntArray = np.array([run.total for run in runs], np.int64)
        vector.base[:n] = joined.ctypes.data + (np.cumsum(totals) - totals)
        vector.size[:n] = totals
        names = [self._name(packets[run.first][0]) for run in runs]
        vector.name_at[:n] = [at for _, at, _ in names]
        vector.name_length[:n] = [length for _, _, length in names]
        vector.segment[:n] = [run.size if run.datagrams > 1 else 0 for run in runs]
        vector.control_length[:n] = [24 if run.datagrams > 1 else 0 for run in runs]
        sent = unsent = 0
        while sent < n:
            try:
                done = self._send(through, sent, n - sent)
            except OSError as error:
                if not (runs[sent].datagrams > 1 and self._cannot_join(error)):
                    raise
                return unsent + self.write(through, packets[runs[sent].first : runs[-1].end])
            if not done:
                unsent += runs[sent].datagrams  # the buffer is full: these are dropped
            sent += max(done, 1)
        return unsent

    def _cannot_join(self, error: OSError) -> bool:
        """Whether the kernel may have refused UDP_SEGMENT; if so, stop using it."""
        joins, self._joins = self._joins, False
        return joins and error.errno in _CANNOT

    def _send(self, through: socket.socket, begin: int, n: int) -> int:
        """Send; returns how many were sent, 0 if the buffer is full."""
        at = self._vector.at + begin * ctypes.sizeof(_Mmsghdr)
        done: int = _sendmmsg(through.fileno(), at, n, socket.MSG_DONTWAIT)
        if done < 0:
            number = ctypes.get_errno()
            if number not in _FULL:
                raise OSError(number, os.strerror(number))
            return 0
        return done

    def _name(self, address: Address) -> tuple[Any, int, int]:
        """An address as a sockaddr: the buffer, its memory address, and its size."""
        known = self._names.get(address)
        if known is None:
            if len(self._names) >= _MOST_DESTINATIONS:
                self._names.clear()
            packed = ctypes.create_string_buffer(_encode_address(address))
            known = packed, ctypes.addressof(packed), len(packed) - 1
            self._names[address] = known
        return known


class _Run(NamedTuple):
    """Datagrams that can be sent as one piece: all of `size` bytes, the last may be shorter."""

    first: int
    end: int
    size: int
    total: int

    @property
    def datagrams(self) -> int:
        return self.end - self.first


def _group_runs(addresses: Sequence[Address], sizes: Sequence[int], join: bool) -> list[_Run]:
    """Group consecutive datagrams into as few runs as possible."""
    runs: list[_Run] = []
    first, total, last = 0, 0, 0
    for at, size in enumerate(sizes):
        goes_on = (
            join
            and at > first
            and addresses[at] == addresses[first]
            and 0 < size <= sizes[first] == last
            and at - first < _SEGMENTS
            and total + size <= _SENT_PIECE
        )
        if at > first and not goes_on:
            runs.append(_Run(first, at, sizes[first], total))
            first, total = at, 0
        total += size
        last = size
    runs.append(_Run(first, len(sizes), sizes[first], total))
    return runs


def _encode_address(address: Address) -> bytes:
    """A sockaddr_in or a sockaddr_in6."""
    port = address[1].to_bytes(2, "big")
    if len(address) == 2:
        family = int(socket.AF_INET).to_bytes(2, sys.byteorder)
        return family + port + socket.inet_pton(socket.AF_INET, address[0]) + bytes(8)
    family = int(socket.AF_INET6).to_bytes(2, sys.byteorder)
    host = socket.inet_pton(socket.AF_INET6, address[0].partition("%")[0])
    return family + port + bytes(4) + host + address[3].to_bytes(4, sys.byteorder)


def _decode_address(name: bytes) -> Address:
    """The address as `socket.recvfrom` returns it."""
    family, port = int.from_bytes(name[:2], sys.byteorder), int.from_bytes(name[2:4], "big")
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, name[4:8]), port
    host = socket.inet_ntop(socket.AF_INET6, name[8:24])
    flow, scope = int.from_bytes(name[4:8], "big"), int.from_bytes(name[24:28], sys.byteorder)
    return host, port, flow, scope
