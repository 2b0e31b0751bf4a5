"""The journal of a publisher's directory, as a receiver reads it."""

from __future__ import annotations

from collections.abc import Iterator

from distributary.delivery.directory_wire import Record, decode_record
from distributary.delivery.gaps import Gaps
from distributary.delivery.incoming import IncomingStream, PublisherIdentity
from distributary.delivery.routes import CONTROL_GROUP
from distributary.delivery.wire import JOURNAL_STREAM, MESSAGE_HEADER, WireError

__all__ = ["IncomingJournal", "NumberedRecord", "decode_records"]

NumberedRecord = tuple[int, Record]
_MOST_HELD = 1_024  # packets behind a gap


class IncomingJournal:
    """Puts the journal's packets in order; `stream` has the gaps, for NAKs."""

    def __init__(self, publisher: PublisherIdentity, gaps: Gaps, last: int) -> None:
        """Read what follows packet `last`."""
        self.stream = IncomingStream(publisher, JOURNAL_STREAM, CONTROL_GROUP, -1, gaps, True)
        self._last = last
        self._held: dict[int, list[NumberedRecord]] = {}

    def take_packet(
        self, sequence: int, records: list[NumberedRecord], now: float
    ) -> Iterator[NumberedRecord]:
        """Take a packet; returns the records that are next, of this packet and of held ones."""
        if sequence > self._last:
            self.note_sent(sequence - 1, now)
            self._last = sequence
        elif not self.stream.gaps.remove(sequence):
            return iter(())
        if len(self._held) < _MOST_HELD:
            self._held[sequence] = records
        else:
            self.stream.gaps.insert(sequence, sequence, now)
        return self.take_ready()

    def note_sent(self, last: int, now: float) -> None:
        """Note that the journal has come as far as this packet."""
        if last > self._last:
            self.stream.gaps.add(self._last + 1, last, now)
            self._last = last

    def take_ready(self) -> Iterator[NumberedRecord]:
        """Take out the records that no gap precedes."""
        gaps = self.stream.gaps
        below = gaps.ranges[0].first if gaps else self._last + 1
        for sequence in sorted(self._held):
            if sequence < below:
                yield from self._held.pop(sequence)


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
