"""Reads and writes many datagrams at a time: by recvmmsg and sendmmsg, or one by one.

Both ways do the same. A reader puts all datagrams into one buffer, as the receiver's filters need
them, and uses it again with the next read.
"""

from __future__ import annotations

import errno
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from distributary.delivery._wire_kernels import ByteArray
from distributary.model import IntArray

__all__ = [
    "Address",
    "Batch",
    "PlainReader",
    "PlainWriter",
    "Reader",
    "Writer",
    "has_mmsg",
    "keep_datagrams",
    "make_reader",
    "make_writer",
    "prepare_for_reader",
    "slot_size",
]

# A full send buffer is no failure: what is not sent is lost like anything else, and repaired.
_FULL = (errno.EAGAIN, errno.ENOBUFS)
Address = tuple[str, int] | tuple[str, int, int, int]


class Batch(NamedTuple):
    """Datagrams in a buffer: place, length and source address of each."""

    buffer: ByteArray
    offsets: IntArray
    lengths: IntArray
    source_of: Callable[[int], Address]
    truncated: int  # that were too long, and are not here
    more: bool  # whether others may wait: all that was asked for came
    size: int  # bytes of all that came
    one_source: Callable[[], bool] = lambda: False  # whether all surely came from one address
    stamps: IntArray | None = None  # when each arrived, in ns since 1970
    stamped: int = 0  # how many of those the kernel says; the others are the time of the read


class Reader(Protocol):
    """Reads datagrams from a socket."""

    def read(self, source: socket.socket) -> Batch | None:
        """Up to a batch of datagrams, or None if there is none."""


class Writer(Protocol):
    """Sends many datagrams."""

    def write(self, through: socket.socket, packets: Sequence[tuple[Address, bytes]]) -> int:
        """Send all; returns how many found the buffer full. Raises OSError for other failures."""


def keep_datagrams(batch: Batch, kept: IntArray) -> Batch:
    """The datagrams at these places of a batch."""
    source_of = batch.source_of
    return batch._replace(
        offsets=batch.offsets[kept],
        lengths=batch.lengths[kept],
        source_of=lambda at: source_of(int(kept[at])),
        stamps=None if batch.stamps is None else batch.stamps[kept],
    )


def has_mmsg() -> bool:
    """Whether this system can read and send many datagrams at a time."""
    return sys.platform == "linux"


def make_reader(packets: int, largest: int, *, plain: bool = False) -> Reader:
    """The fastest reader of this system, or the plain one."""
    if plain or not has_mmsg():
        return PlainReader(packets, largest)
    from distributary.delivery.udp.mmsg import MmsgReader

    return MmsgReader(packets, largest)


def prepare_for_reader(source: socket.socket, *, plain: bool = False) -> None:
    """Set a socket up for the reader that `make_reader` returns."""
    if not plain and has_mmsg():
        from distributary.delivery.udp.mmsg import enable_control

        enable_control(source)


def make_writer(packets: int, *, plain: bool = False) -> Writer:
    """The fastest writer of this system, or the plain one."""
    if plain or not has_mmsg():
        return PlainWriter()
    from distributary.delivery.udp.mmsg import MmsgWriter

    return MmsgWriter(packets)


def slot_size(largest: int) -> int:
    """The bytes reserved for a packet: one more than the largest, to detect longer ones.

    It is an odd number of cache lines, so that packet headers spread over the processor's cache.
    """
    lines = -(-(largest + 1) // 64)
    return 64 * (lines | 1)


class PlainReader:
    """One system call for each datagram."""

    def __init__(self, packets: int, largest: int) -> None:
        self._largest = largest
        self._slot = slot_size(largest)
        self._buffer = np.zeros(packets * self._slot, np.uint8)
        view = self._buffer.data
        self._slots = [view[at * self._slot :][: self._slot] for at in range(packets)]
        self._sources: list[Address] = []

    def read(self, source: socket.socket) -> Batch | None:
        """Up to a batch of datagrams, or None if there is none."""
        lengths: list[int] = []
        offsets: list[int] = []
        stamps: list[int] = []
        self._sources = sources = []
        truncated = 0
        for at, slot in enumerate(self._slots):
            try:
                length, address = source.recvfrom_into(slot)
            except (BlockingIOError, InterruptedError):
                break
            if length > self._largest:
                truncated += 1
                continue
            offsets.append(at * self._slot)
            lengths.append(length)
            stamps.append(time.time_ns())
            sources.append(address)
        if not lengths and not truncated:
            return None
        return Batch(
            self._buffer,
            np.array(offsets, np.int64),
            np.array(lengths, np.int64),
            sources.__getitem__,
            truncated,
            len(lengths) + truncated == len(self._slots),
            sum(lengths),
            stamps=np.array(stamps, np.int64),
        )


class PlainWriter:
    """One system call for each datagram."""

    def write(self, through: socket.socket, packets: Iterable[tuple[Address, bytes]]) -> int:
        """Send all; returns how many found the buffer full. Raises OSError for other failures."""
        unsent = 0
        for address, packet in packets:
            try:
                through.sendto(packet, address)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                unsent += 1
        return unsent
