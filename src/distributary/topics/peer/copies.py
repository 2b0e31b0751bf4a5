"""A peer's copies of channels: logs that are replayed as they come, and the records to store them.

Each copy is a `HostState`. That of a root is changed by its host, which returns the records; that
of a replica by replaying them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import msgspec

from distributary.topics.numbers import Count
from distributary.topics.overlay.identifiers import Peer
from distributary.topics.overlay.messages import NO_MEMBERS, NOBODY, Ballot, Members
from distributary.topics.policy import Policy
from distributary.topics.records import UNUSABLE, HostState

__all__ = ["ChannelLog", "PeerState"]

_Version = tuple[tuple[Count, int], Count]
_Peers = tuple[tuple[int, str], ...]
Journal = Callable[["_Record"], None]


class _Begin(msgspec.Struct, array_like=True, tag="begin"):
    """A full copy follows, which replaces what is known of the group."""

    group: int


class _Part(msgspec.Struct, array_like=True, tag="part"):
    """Records of a full copy."""

    group: int
    records: tuple[bytes, ...]


class _Extend(msgspec.Struct, array_like=True, tag="extend"):
    """The next entries of the log."""

    group: int
    records: tuple[bytes, ...]


class _Mark(msgspec.Struct, array_like=True, tag="mark"):
    """The version of the copy."""

    group: int
    written: tuple[Count, int]
    promised: tuple[Count, int]
    end: Count
    members: tuple[_Version, _Peers]
    proposed: tuple[_Version, _Peers]


class _Gone(msgspec.Struct, array_like=True, tag="gone"):
    """The copy is no longer needed."""

    group: int


_Record = _Begin | _Part | _Extend | _Mark | _Gone
_decoder = msgspec.msgpack.Decoder(_Record)
_encoder = msgspec.msgpack.Encoder()


class ChannelLog:
    """A `GroupLog` of a channel: entries are the records of its host.

    While `hosted`, a host changes the state, and `extend` only keeps its records for the replicas.
    """

    def __init__(self, group: int, policy: Policy, journal: Journal) -> None:
        self.group = group
        self.state = HostState()
        self.hosted = False
        self.written: Ballot = NOBODY
        self.promised: Ballot = NOBODY
        self.members: Members = NO_MEMBERS
        self.proposed: Members = NO_MEMBERS
        self._policy = policy
        self._journal = journal
        self._first = 0  # number of the first of the recent entries
        self._recent: deque[bytes] = deque()

    @property
    def end(self) -> int:
        """The number of the next entry."""
        return self._first + len(self._recent)

    def part(self, start: int) -> tuple[bytes, ...] | None:
        """The entries from number `start` on; None if they are gone."""
        if not self._first <= start <= self.end:
            return None
        return tuple(islice(self._recent, start - self._first, None))

    def extend(self, entries: tuple[bytes, ...]) -> None:
        """Append the next entries; those that cannot be replayed make the copy unusable."""
        if not entries:
            return
        self._recent.extend(entries)
        self._journal(_Extend(self.group, entries))
        if not self.hosted:
            self._replay(entries)
            self.trim(self.end)

    def trim(self, number: int) -> None:
        """Forget the entries before a number: all replicas have them."""
        while self._recent and self._first < number:
            self._recent.popleft()
            self._first += 1

    def copy(self) -> tuple[bytes, ...]:
        """A snapshot of the state."""
        return tuple(self.state.snapshot())

    def restore(self, content: tuple[bytes, ...], end: int) -> None:
        """Replace the state by a snapshot."""
        self._journal(_Begin(self.group))
        self.load(content, end)
        for record in content:
            self._journal(_Part(self.group, (record,)))
        self.note()

    def load(self, content: Iterable[bytes], end: int) -> None:
        """Replace the state, without storing that."""
        self.state, self._first = HostState(), end
        self._recent.clear()
        self._replay(content)

    def note(self) -> None:
        """Store the version."""
        self._journal(self._mark())

    def _mark(self) -> _Mark:
        members, proposed = _encode_members(self.members), _encode_members(self.proposed)
        return _Mark(self.group, self.written, self.promised, self.end, members, proposed)

    def _replay(self, records: Iterable[bytes]) -> None:
        try:
            for record in records:
                self.state.replay(record, self._policy)
        except UNUSABLE:  # a root of another version: never become root with this
            self.state, self.written = HostState(), NOBODY

    def snapshot(self) -> Iterator[_Record]:
        """Records that recreate the copy."""
        yield _Begin(self.group)
        for record in self.state.snapshot():
            yield _Part(self.group, (record,))
        yield self._mark()

    def apply(self, record: _Record) -> None:
        """Replay a record of this copy."""
        match record:
            case _Begin():
                self.load((), 0)
            case _Part(_, records):
                self._replay(records)
            case _Extend(_, records):
                self._first += len(records)
                self._replay(records)
            case _Mark(_, written, promised, end, members, proposed):
                self.written, self.promised, self._first = written, promised, end
                self.members, self.proposed = _decode_members(members), _decode_members(proposed)


class PeerState:
    """The durable state of a peer: its copies. Changes become records, which `take` returns."""

    def __init__(self, policy: Policy) -> None:
        self.logs: dict[int, ChannelLog] = {}
        self._policy = policy
        self._records: list[_Record] = []

    def new_log(self, group: int) -> ChannelLog:
        """An empty copy."""
        log = self.logs[group] = ChannelLog(group, self._policy, self._records.append)
        return log

    def drop_log(self, group: int) -> None:
        """Forget a copy."""
        if self.logs.pop(group, None) is not None:
            self._records.append(_Gone(group))

    def take(self) -> list[bytes]:
        """The records since the last call."""
        if not self._records:
            return []
        records, self._records[:] = list(map(_encoder.encode, self._records)), []
        return records

    def replay(self, data: bytes) -> None:
        """Apply a record; raises `UNUSABLE` if that fails."""
        record = _decoder.decode(data)
        if isinstance(record, _Gone):
            self.logs.pop(record.group, None)
            return
        log = self.logs.get(record.group) or self.new_log(record.group)
        log.apply(record)

    def snapshot(self) -> Iterator[bytes]:
        """Encode the state as records of bounded size that recreate it from an empty one."""
        for log in self.logs.values():
            yield from map(_encoder.encode, log.snapshot())


def _encode_members(members: Members) -> tuple[_Version, _Peers]:
    return members.version, tuple((peer.identifier, peer.name) for peer in members.peers)


def _decode_members(found: tuple[_Version, _Peers]) -> Members:
    version, peers = found
    return Members(version, tuple(Peer(*each) for each in peers))
