"""The compiled filters and the arrays that they work in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery._wire_kernels import ByteArray, FoundMessages
from distributary.delivery.authentication import Authenticator
from distributary.delivery.incoming import Entry
from distributary.delivery.subscriptions import Subscriptions
from distributary.delivery.wire import HEADER_SIZE, MESSAGE_HEADER_SIZE
from distributary.model import IntArray

__all__ = ["Filters", "KeptPackets"]

_UNAUTHENTIC = 255  # a packet's fate


class KeptPackets(NamedTuple):
    """What passed the first filter: packets, rows and streams; and the fate of every packet."""

    kept: IntArray
    rows: IntArray
    streams: IntArray
    fate: ByteArray


class Filters:
    """Filters batches of packets by session, then by flow; wanted messages are in `found`."""

    def __init__(self, subs: Subscriptions, authenticator: Authenticator, counts: IntArray) -> None:
        self._subs = subs
        self._authenticator = authenticator
        self._counts = counts
        self._sieve = _make_kept_arrays(0)
        self.found = _make_found_arrays(0)
        self.unauthenticated = 0

    def prepare(self) -> None:
        """Compile the filters, or load them compiled, before the first packets arrive."""
        buffer, nothing = np.zeros(HEADER_SIZE, np.uint8), np.empty(0, np.int64)
        sieved = self.keep(buffer, nothing, nothing, 0)
        self.take(buffer, nothing, nothing, sieved, 0, 0, 0)

    def renew(self) -> None:
        """Use new arrays from now on: the caller has yet to read those in use."""
        self.found = _make_found_arrays(0)

    def accepts(self, packet: bytes | memoryview) -> bool:
        """Whether a packet is authentic; counts those that are not."""
        accepted = self._authenticator.accepts(packet)
        self.unauthenticated += not accepted
        return accepted

    def keep(
        self, buffer: ByteArray, offsets: IntArray, lengths: IntArray, begin: int
    ) -> KeptPackets:
        """Run the first filter and, if there is a key, drop what is not authentic.

        Afterwards `found` is large enough for all messages of the packets that pass.
        """
        if len(offsets) > len(self._sieve.kept):
            self._sieve = _make_kept_arrays(2 * len(offsets))
        kept, rows, streams, fate = self._sieve
        tables = self._subs.tables
        passed, size = kernels.keep_sessions(
            buffer, offsets, lengths, begin, tables.versions, tables.stream_of, kept, rows, streams,
            fate, self._counts,
        )  # fmt: skip
        if size // MESSAGE_HEADER_SIZE >= len(self.found.packet):
            self.found = _make_found_arrays(2 * size)
        kept, rows, streams = kept[:passed], rows[:passed], streams[:passed]
        fate = fate[: len(offsets)]
        if self._authenticator.size:
            view = buffer.data
            good = np.ones(passed, np.bool_)
            places = zip(offsets[kept].tolist(), lengths[kept].tolist(), strict=True)
            for at, (offset, length) in enumerate(places):
                good[at] = self.accepts(view[offset : offset + length])
            fate[kept[~good]] = _UNAUTHENTIC
            kept, rows, streams = kept[good], rows[good], streams[good]
        return KeptPackets(kept, rows, streams, fate)

    def take(
        self,
        buffer: ByteArray,
        offsets: IntArray,
        lengths: IntArray,
        sieved: KeptPackets,
        at: int,
        used: int,
        incarnation: int,
    ) -> tuple[int, int, int, int]:
        """Run the second filter; see `take_packets`."""
        kept, rows, streams, _ = sieved
        tables, tag = self._subs.tables, self._authenticator.size
        return kernels.take_packets(
            buffer, offsets, lengths, kept, rows, streams, (at, len(kept)), tag, incarnation,
            tables.flow_of, tables.flow_stream, self._subs.state, self.found, used, self._counts,
        )  # fmt: skip

    def uncount(self, sieved: KeptPackets, begin: int) -> None:
        """Take packets from `begin` on out of the counts, since they will be filtered again."""
        fate = sieved.fate[begin:]
        for what in (kernels.MALFORMED, kernels.UNWANTED_PACKETS):
            self._counts[what] -= int((fate == what + 1).sum())
        self.unauthenticated -= int((fate == _UNAUTHENTIC).sum())

    def entries(self, begin: int, end: int, offset: int) -> list[Entry]:
        """The messages found in a packet that begins at `offset`, as places in that packet."""
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
    """Arrays for so many packets."""
    kept, rows, streams = np.empty((3, packets), np.int64)
    return KeptPackets(kept, rows, streams, np.empty(packets, np.uint8))


def _make_found_arrays(size: int) -> FoundMessages:
    """Arrays for all the messages that so many bytes can hold."""
    most = size // MESSAGE_HEADER_SIZE + 1
    return FoundMessages(
        np.empty(most, np.int64),
        np.empty(most, np.int32),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty((most, 3), np.int64),
    )
