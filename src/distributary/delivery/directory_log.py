"""The directory as a publisher tells it: records of its changes, and blocks on request."""

from __future__ import annotations

from collections.abc import Callable, Collection

from distributary.delivery.directory import Directory, DirectoryChange
from distributary.delivery.directory_wire import (
    CancelRecord,
    FlowClaim,
    FlowEntry,
    LeaveRecord,
    MarkRecord,
    Place,
    ReadyRecord,
    Record,
    ReleaseRecord,
    RouteRecord,
    SwitchRecord,
    block_of,
    flow_key,
    pack_blocks,
    receiver_key,
    split_entry,
)
from distributary.model import Plan

__all__ = ["DirectoryLog"]

_USUAL_ENTRY = 34  # bytes of an entry with one place
_FULL = 2  # a block that is as full as this part of a packet leaves room for chance
_VERSION_SIZE = 4  # before the entry of a route record


class DirectoryLog:
    """Changes a directory, and tells what changed; `record` is the last record's number."""

    def __init__(self, room: int) -> None:
        """Records and bodies of blocks have at most `room` bytes."""
        self.directory = Directory()
        self.record = 0
        self._room = room
        self.claims: dict[str, FlowClaim] = {}  # of flows that are had not since the start
        self.released: dict[str, FlowClaim] = {}  # of flows that went
        self._keys: list[bytes] = []  # by flow number
        self._members: list[list[int]] = [[]]  # the flows of each block

    # --- changes ----------------------------------------------------------------------------------

    def prepare(self, plan: Plan, flows: Collection[str] | None = None) -> list[Record]:
        """Prepare another plan instead of what was prepared before; returns the records of it.

        Only `flows` of the plan are carried, if they are given.
        """
        records = self._cancel()
        change = self.directory.prepare(plan, flows)
        self._index_flows()
        for number, streams in change.moved.items():
            entry = FlowEntry(
                self._keys[number],
                number,
                (),
                self._places(streams),
                claim=self.claims.get(self.directory.flows[number]),
            )
            records += [
                RouteRecord(change.version, part)
                for part in split_entry(entry, self._room - _VERSION_SIZE)
            ]
        records.append(ReadyRecord(change.version, len(change.moved), change.fingerprint))
        return self._count(records)

    def cancel(self) -> list[Record]:
        """Cancel what was prepared, if anything; returns the records of that."""
        return self._count(self._cancel())

    def _cancel(self) -> list[Record]:
        change = self.directory.following
        self.directory.cancel()
        return [] if change is None else [CancelRecord(change.version)]

    def touched(self) -> tuple[int, ...]:
        """The streams that a flow leaves or enters with the change that is prepared."""
        change = self.directory.following
        assert change is not None
        found: set[int] = set()
        for number, streams in change.moved.items():
            found.update(set(streams) ^ set(self.directory.streams_of(number)))
        return tuple(sorted(found))

    def switch(self, last_packet: Callable[[int], int]) -> tuple[DirectoryChange, list[Record]]:
        """Let the change take effect; `last_packet` is that of a stream until now.

        `released` has the flows that are let go with it.
        """
        marked = self._streams_of_moved()
        change = self.directory.switch()
        records: list[Record] = [
            MarkRecord(change.version, stream, last_packet(stream)) for stream in marked
        ]
        records += self._release(change)
        records.append(SwitchRecord(change.version))
        return change, self._count(records)

    def leave(self, plan: Plan, last_packet: Callable[[int], int]) -> list[Record]:
        """Carry nothing any more, at once; returns the records of that."""
        records = self._cancel()
        change = self.directory.prepare(plan, ())
        marked = list(self.directory.places)
        self.directory.switch()
        records += [MarkRecord(change.version, stream, last_packet(stream)) for stream in marked]
        records += self._release(change)
        records.append(LeaveRecord(change.version))
        return self._count(records)

    def _release(self, change: DirectoryChange) -> list[Record]:
        """Records of the flows that go with a change."""
        return [
            ReleaseRecord(change.version, self._entry(number))
            for number, streams in change.moved.items()
            if not streams and self.directory.flows[number] in self.released
        ]

    def _streams_of_moved(self) -> list[int]:
        """The streams of moved flows, also those that carry such a flow before and after.

        A receiver may take the flow from another one of its streams afterwards.
        """
        change = self.directory.following
        assert change is not None
        found: set[int] = set()
        for number, streams in change.moved.items():
            found.update(streams, self.directory.streams_of(number))
        return sorted(found)

    def _count(self, records: list[Record]) -> list[Record]:
        self.record += len(records)
        return records

    # --- blocks -----------------------------------------------------------------------------------

    @property
    def blocks(self) -> int:
        """How many blocks there are, a power of two."""
        return len(self._members)

    def bodies_of(self, block: int) -> list[tuple[int, bytes]]:
        """A block as bodies of packets, each with the number of its entries."""
        flows, number_of = self.directory.flows, self.directory.number_of
        current = (each for each in self._members[block] if number_of(flows[each]) == each)
        entries = map(self._entry, current)
        carried = (entry for entry in entries if entry.places or entry.upcoming or entry.released)
        return pack_blocks(self.record, block, carried, self._room)

    def _entry(self, number: int) -> FlowEntry:
        directory = self.directory
        change = directory.following
        moves = change is not None and number in change.moved
        name, streams = directory.flows[number], directory.streams_of(number)
        if not streams and not moves and name in self.released:
            claim = self.released[name]
            return FlowEntry(self._keys[number], number, (), claim=claim, released=True)
        return FlowEntry(
            self._keys[number],
            number,
            self._places(streams),
            self._places(directory.following_streams_of(number)) if moves else None,
            claim=self.claims.get(name),
        )

    def _places(self, streams: tuple[int, ...]) -> tuple[Place, ...]:
        found = []
        for stream in streams:
            place = self.directory.places[stream]
            receiver = 0 if place.receiver is None else receiver_key(place.receiver)
            found.append(Place(stream, place.group, receiver))
        return tuple(found)

    def _index_flows(self) -> None:
        """Find the blocks of flows that have none yet; of all flows if there are too few blocks."""
        flows = self.directory.flows
        new = range(len(self._keys), len(flows))
        self._keys += [flow_key(flows[number]) for number in new]
        usual = max(1, self._room // _USUAL_ENTRY // _FULL)
        if len(flows) > usual * self.blocks:
            blocks = 1 << (-(-len(flows) // usual) - 1).bit_length()
            self._members = [[] for _ in range(blocks)]
            new = range(len(flows))
        for number in new:
            self._members[block_of(self._keys[number], self.blocks)].append(number)
