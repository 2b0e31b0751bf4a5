"""What reading a socket of a receiver gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from distributary.delivery.udp.datagrams import Address, Batch, keep_datagrams
from distributary.delivery.udp.endpoints import format_address

__all__ = ["PacketSources", "SocketRead", "split_strangers"]


class SocketRead(NamedTuple):
    """How much one read of a socket returned."""

    packets: int
    bytes: int


class PacketSources(Sequence[str]):
    """The source addresses of packets, formatted only when needed."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch.offsets)

    def __getitem__(self, at: int) -> str:  # type: ignore[override]
        return format_address(self._batch.source_of(at))


def split_strangers(
    batch: Batch, is_known: Callable[[Address], bool]
) -> tuple[list[tuple[bytes, str]], Batch]:
    """Packets whose sender is not known, each with its source, and the rest of the batch."""
    n = len(batch.offsets)
    if not n or (batch.one_source() and is_known(batch.source_of(0))):
        return [], batch
    known = np.array([is_known(batch.source_of(at)) for at in range(n)], np.bool_)
    strangers = []
    for at in np.flatnonzero(~known).tolist():
        offset, length = int(batch.offsets[at]), int(batch.lengths[at])
        packet = batch.buffer[offset : offset + length].tobytes()
        strangers.append((packet, format_address(batch.source_of(at))))
    return strangers, keep_datagrams(batch, np.flatnonzero(known))
