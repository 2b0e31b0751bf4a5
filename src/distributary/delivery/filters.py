"""The compiled filters and the arrays that they work in."""

from __future__ import annotations

import numpy as np

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery._wire_kernels import Expected, FoundMessages, KeptPackets, PacketBatch
from distributary.delivery.authentication import Authenticator
from distributary.delivery.incoming import Entry
from distributary.delivery.latency import Latencies
from distributary.delivery.subscriptions import Subscriptions
from distributary.delivery.wire import HEADER_SIZE, MESSAGE_HEADER_SIZE
from distributary.model import IntArray

__all__ = ["Filters"]

_UNAUTHENTIC = 255  # in `KeptPackets.fate`


class Filters:
    """Filters batches of packets by stream, then by flow; wanted messages are in `found`."""

    def __init__(
        self,
        subs: Subscriptions,
        authenticator: Authenticator,
        counts: IntArray,
        latencies: Latencies,
    ) -> None:
        self._subs = subs
        self._latencies = latencies
        self._authenticator = authenticator
        self._counts = counts
        self._kept = _make_kept_arrays(0)
        self.found = _make_found_arrays(0)
        self.unauthenticated = 0

    def prepare(self) -> None:
        """Compile the filters, or load them compiled, before the first packets arrive."""
        nothing = np.empty(0, np.int64)
        batch = PacketBatch(np.zeros(HEADER_SIZE, np.uint8), nothing, nothing)
        self.take(batch, self.keep(batch, 0), (0, 0), (*Expected(0),))

    def renew(self) -> None:
        """Allocate new arrays for found messages: the caller has not read the present ones yet."""
        self.found = _make_found_arrays(0)

    def accepts(self, packet: bytes | memoryview) -> bool:
        """Whether a packet is authentic; counts those that are not."""
        accepted = self._authenticator.accepts(packet)
        self.unauthenticated += not accepted
        return accepted

    def keep(self, batch: PacketBatch, begin: int) -> KeptPackets:
        """Run the first filter from `begin` on and, if there is a key, drop what is not authentic.

        Afterwards `found` is large enough for all messages of the packets that pass.
        """
        n = len(batch.offsets)
        if n > len(self._kept.packets):
            self._kept = _make_kept_arrays(2 * n)
        passed, size = kernels.keep_streams(
            (*batch,), begin, (*self._subs.tables,), (*self._kept,), self._counts
        )
        if size // MESSAGE_HEADER_SIZE >= len(self.found.flow):
            self.found = _make_found_arrays(2 * size)
        packets, rows, streams = (column[:passed] for column in self._kept[:3])
        fate = self._kept.fate[:n]
        if self._authenticator.size:
            view = batch.buffer.data
            good = np.ones(passed, np.bool_)
            offsets, lengths = batch.offsets[packets].tolist(), batch.lengths[packets].tolist()
            for at, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
                good[at] = self.accepts(view[offset : offset + length])
            fate[packets[~good]] = _UNAUTHENTIC
            packets, rows, streams = packets[good], rows[good], streams[good]
        return KeptPackets(packets, rows, streams, fate)

    def take(
        self,
        batch: PacketBatch,
        kept: KeptPackets,
        cursor: tuple[int, int],
        expected: tuple[int, int, int],
    ) -> tuple[int, int, int, int]:
        """Run the second filter; see `take_packets`."""
        subs = self._subs
        return kernels.take_packets(
            (*batch,), (*kept,), cursor, expected, (*subs.tables,), (*subs.state,), self.found,
            self._counts, self._latencies.arrivals,
        )  # fmt: skip

    def uncount(self, kept: KeptPackets, begin: int) -> None:
        """Take packets from `begin` on out of the counts, since they will be filtered again."""
        fate = kept.fate[begin:]
        for what in (kernels.MALFORMED, kernels.UNWANTED_PACKETS):
            self._counts[what] -= int((fate == what + 1).sum())
        self.unauthenticated -= int((fate == _UNAUTHENTIC).sum())

    def entries(self, begin: int, end: int, offset: int) -> list[Entry]:
        """The messages found in a packet that begins at `offset`, located in that packet."""
        found = self.found
        return list(
            zip(
                found.flow[begin:end].tolist(),
                found.sequence[begin:end].tolist(),
                (found.start[begin:end] - offset).tolist(),
                (found.end[begin:end] - offset).tolist(),
                strict=True,
            )
        )


def _make_kept_arrays(packets: int) -> KeptPackets:
    """Make the arrays for a batch of that many packets."""
    kept, rows, streams = np.empty((3, packets), np.int64)
    return KeptPackets(kept, rows, streams, np.empty(packets, np.uint8))


def _make_found_arrays(size: int) -> FoundMessages:
    """Make the arrays for all messages that this many bytes can hold."""
    most = size // MESSAGE_HEADER_SIZE + 1
    return FoundMessages(
        np.empty(most, np.int32),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty((most, 3), np.int64),
    )
