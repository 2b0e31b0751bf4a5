"""The compiled filters with the room that they work in."""

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

__all__ = ["Filters", "Sieved"]

_UNAUTHENTIC = 255  # a packet's fate


class Sieved(NamedTuple):
    """What passed the first filter: packets, rows, streams; and the fate of all, by packet."""

    kept: IntArray
    rows: IntArray
    streams: IntArray
    fate: ByteArray


class Filters:
    """By session, then by flow, over a batch of packets; what is found lies in `found`."""

    def __init__(self, subs: Subscriptions, authenticator: Authenticator, counts: IntArray) -> None:
        self._subs = subs
        self._authenticator = authenticator
        self._counts = counts
        self._sieve = _sieve_for(0)
        self.found = _room_for(0)
        self.unauthenticated = 0

    def prepare(self) -> None:
        """Have the filters compiled, or loaded, before packets come that would wait for it."""
        buffer, nothing = np.zeros(HEADER_SIZE, np.uint8), np.empty(0, np.int64)
        sieved = self.keep(buffer, nothing, nothing, 0)
        self.take(buffer, nothing, nothing, sieved, 0, 0, 0)

    def renew(self) -> None:
        """Find into other room: what was found so far is still to be read."""
        self.found = _room_for(0)

    def accepts(self, packet: bytes | memoryview) -> bool:
        """Whether a packet is authentic; those that are not are counted."""
        accepted = self._authenticator.accepts(packet)
        self.unauthenticated += not accepted
        return accepted

    def keep(self, buffer: ByteArray, offsets: IntArray, lengths: IntArray, begin: int) -> Sieved:
        """What passes the first filter, and if there is a key, is authentic.

        There is room then for all messages of it.
        """
        if len(offsets) > len(self._sieve.kept):
            self._sieve = _sieve_for(2 * len(offsets))
        kept, rows, streams, fate = self._sieve
        tables = self._subs.tables
        passed, size = kernels.keep_sessions(
            buffer, offsets, lengths, begin, tables.versions, tables.stream_of, kept, rows, streams,
            fate, self._counts,
        )  # fmt: skip
        if size // MESSAGE_HEADER_SIZE >= len(self.found.packet):
            self.found = _room_for(2 * size)
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
        return Sieved(kept, rows, streams, fate)

    def take(
        self,
        buffer: ByteArray,
        offsets: IntArray,
        lengths: IntArray,
        sieved: Sieved,
        at: int,
        used: int,
        incarnation: int,
    ) -> tuple[int, int, int, int]:
        """Take in what comes in order, as `take_packets` says."""
        kept, rows, streams, _ = sieved
        tables, tag = self._subs.tables, self._authenticator.size
        return kernels.take_packets(
            buffer, offsets, lengths, kept, rows, streams, (at, len(kept)), tag, incarnation,
            tables.flow_of, tables.flow_stream, self._subs.state, self.found, used, self._counts,
        )  # fmt: skip

    def uncount(self, sieved: Sieved, begin: int) -> None:
        """Packets from `begin` on are to be filtered again: count them then."""
        fate = sieved.fate[begin:]
        for what in (kernels.MALFORMED, kernels.UNWANTED_PACKETS):
            self._counts[what] -= int((fate == what + 1).sum())
        self.unauthenticated -= int((fate == _UNAUTHENTIC).sum())

    def entries(self, begin: int, end: int, offset: int) -> list[Entry]:
        """What was found, as places in its own packet, which begins at `offset`."""
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


def _sieve_for(packets: int) -> Sieved:
    """Room for so many packets."""
    kept, rows, streams = np.empty((3, packets), np.int64)
    return Sieved(kept, rows, streams, np.empty(packets, np.uint8))


def _room_for(size: int) -> FoundMessages:
    """Room for all the messages that so many bytes can hold."""
    most = size // MESSAGE_HEADER_SIZE + 1
    return FoundMessages(
        np.empty(most, np.int64),
        np.empty(most, np.int32),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty((most, 3), np.int64),
    )
