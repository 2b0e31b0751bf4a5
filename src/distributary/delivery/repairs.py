"""The queue of retransmissions: limited for each requester, and paced."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from distributary.delivery.authentication import Authenticator
from distributary.delivery.outgoing import OutgoingStream
from distributary.delivery.pacing import TokenBucket
from distributary.delivery.repair_allowances import RepairAllowances
from distributary.delivery.sender_params import SenderParams
from distributary.delivery.wire import KIND_AT, MOST_RANGES, PacketKind

__all__ = ["Repairs"]


class Repairs:
    """Packets to retransmit, each once; they may use only a share of the sender's rate."""

    def __init__(self, params: SenderParams, authenticator: Authenticator) -> None:
        self._params = params
        self._authenticator = authenticator
        self._allowances = RepairAllowances(params.asker_rate)
        self._queue: dict[tuple[OutgoingStream, int], None] = {}
        share = params.repair_share
        self._pace = TokenBucket(params.rate * share, params.burst * share)
        self.curbed = 0  # NAKs that were cut short
        self.over_limit = 0  # of these, since too many packets wait

    @property
    def forgotten(self) -> int:
        """How many requesters were forgotten, since there are too many."""
        return self._allowances.forgotten

    def __bool__(self) -> bool:
        return bool(self._queue)

    def queue(
        self,
        requester: str,
        stream: OutgoingStream,
        ranges: list[tuple[int, int]],
        *,
        sent: int,
        kept: int,
        now: float,
    ) -> list[int]:
        """Queue the packets of these ranges, within the requester's allowance; returns them.

        `sent` and `kept` are as in `RepairAllowances.allow`.
        """
        left = allowed = self._allowances.allow(requester, sent, kept, now)
        room = self._params.queue_repairs - len(self._queue)
        if room < left:
            left = allowed = max(0, room)
            self.over_limit += 1
        asked: list[int] = []
        curbed = False
        for first, last in ranges:
            begin, end = max(first, stream.window.first), min(last, stream.last_sent) + 1
            looked_up = range(begin, min(end, begin + left))
            for sequence in looked_up:
                if not stream.window.is_held_off(sequence, now, self._params.hold_off):
                    self._queue[stream, sequence] = None
                    asked.append(sequence)
            left -= len(looked_up)
            curbed |= end - begin > len(looked_up)
        self._allowances.spend(requester, allowed - left)
        self.curbed += curbed
        return asked

    def find_waiting(self, stream: OutgoingStream, asked: list[int]) -> list[tuple[int, int]]:
        """The ranges of these packets that still wait; no more than fit into one packet."""
        return _to_ranges(found for found in asked if (stream, found) in self._queue)[:MOST_RANGES]

    def ready_at(self, now: float) -> float:
        """When the next repair may be sent, by the repairs' share of the rate."""
        return self._pace.ready_at(now)

    def spend(self, size: int, now: float) -> None:
        """Take so many bytes off the repairs' share of the rate."""
        self._pace.take(size, now)

    def take(self, now: float) -> tuple[OutgoingStream, bytes] | None:
        """The next repair, to be sent now; None if its packet has left the window."""
        stream, sequence = next(iter(self._queue))
        del self._queue[stream, sequence]
        packet = stream.window.get(sequence)
        if packet is None:
            return None
        repair = bytearray(packet[: len(packet) - self._authenticator.size])
        repair[KIND_AT] = PacketKind.REPAIR
        repair += self._authenticator.tag(repair)
        stream.window.note_repair(sequence, now)
        self.spend(len(repair), now)
        return stream, bytes(repair)

    def drop(self, streams: set[OutgoingStream]) -> None:
        """Drop the queued repairs of these streams."""
        self._queue = {found: None for found in self._queue if found[0] not in streams}


def _to_ranges(sequences: Iterable[int]) -> list[tuple[int, int]]:
    """Sequence numbers as ranges of first and last."""
    ordered = sorted(set(sequences))
    runs = []
    for _, run in groupby(enumerate(ordered), lambda found: found[1] - found[0]):
        numbers = [number for _, number in run]
        runs.append((numbers[0], numbers[-1]))
    return runs
