"""The journal of a publisher's directory, as a receiver reads it."""

from __future__ import annotations

from collections.abc import Iterator

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery.directory_wire import Record, decode_record
from distributary.delivery.gaps import Gaps
from distributary.delivery.incoming import IncomingStream, PublisherIdentity
from distributary.delivery.routes import CONTROL_GROUP
from distributary.delivery.wire import JOURNAL_STREAM, MESSAGE_HEADER, WireError
from distributary.model import IntArray

__all__ = ["IncomingJournal", "NumberedRecord", "decode_records"]

NumberedRecord = tuple[int, Record]
_MOST_HELD = 1_024  # packets behind a gap
_MOST_RECORDS = 65_536  # in these packets


class IncomingJournal:
    """Puts the journal's packets in order; `stream` has the gaps, for NAKs."""

    def __init__(
        self,
        publisher: PublisherIdentity,
        gaps: Gaps,
        last: int,
        most_ranges: int,
        counts: IntArray,
    ) -> None:
        """Read what follows packet `last`; at most `most_ranges` of packets are missing."""
        self._most_ranges = most_ranges
        self._counts = counts
        self.stream = IncomingStream(publisher, JOURNAL_STREAM, CONTROL_GROUP, -1, gaps, True)
        self.last = last
        self._held: dict[int, list[NumberedRecord]] = {}
        self._held_records = 0

    def take_packet(
        self, sequence: int, records: list[NumberedRecord], now: float
    ) -> Iterator[NumberedRecord]:
        """Take a packet; returns the records that are next, of this packet and of held ones."""
        gaps = self.stream.gaps
        next_one = gaps.ranges[0].first if gaps else self.last + 1
        full = (
            len(self._held) >= _MOST_HELD
            or self._held_records + len(records) > _MOST_RECORDS
            or len(gaps.ranges) >= self._most_ranges
        )
        if full and sequence > next_one:  # as if it were lost
            self._counts[kernels.OVER_LIMIT] += 1
            return iter(())
        if sequence > self.last:
            self.note_sent(sequence - 1, now)
            self.last = sequence
        elif not gaps.remove(sequence):
            return iter(())
        self._held[sequence] = records
        self._held_records += len(records)
        return self.take_ready()

    def note_sent(self, last: int, now: float) -> None:
        """Note that the journal has come as far as this packet."""
        if last <= self.last:
            return
        ranges = self.stream.gaps.ranges
        if len(ranges) >= self._most_ranges and ranges[-1].last == self.last:
            ranges[-1].last = last
        else:
            self.stream.gaps.add(self.last + 1, last, now)
        self.last = last

    def take_ready(self) -> Iterator[NumberedRecord]:
        """Take out the records that no gap precedes."""
        gaps = self.stream.gaps
        below = gaps.ranges[0].first if gaps else self.last + 1
        for sequence in sorted(found for found in self._held if found < below):
            records = self._held.pop(sequence)
            self._held_records -= len(records)
            yield from records


def decode_records(body: bytes, count: int) -> list[NumberedRecord]:
    """Read the records of a journal's packet, each with its number."""
    at, records = 0, []
    for _ in range(count):
        if len(body) - at < MESSAGE_HEADER.size:
            raise WireError("a record beyond the packet's end")
        kind, size, number = MESSAGE_HEADER.unpack_from(body, at)
        at += MESSAGE_HEADER.size
        if size > len(body) - at or not 0 < number < 1 << 63:
            raise WireError("a record beyond the packet's end, or out of range")
        records.append((number, decode_record(kind, body[at : at + size])))
        at += size
    if at != len(body) or not count:
        raise WireError("records do not fill the packet")
    return records
