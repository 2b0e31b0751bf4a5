"""The publisher's directory: which streams carry which flow, through all changes of the plan.

The publisher numbers flows and streams itself. A number keeps its meaning for as long as the
publisher runs. When the plan changes, a session that shares flows with a stream of the same group
goes on as that stream; a flow *moves* only if the set of streams that carry it changes. So streams
outlive plan versions, and a change touches only what it changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from distributary.delivery.directory_wire import MOST_FLOWS, MOST_STREAMS
from distributary.delivery.errors import DirectoryFullError
from distributary.delivery.routes import fingerprint_of, keep_flows
from distributary.delivery.wire import JOURNAL_STREAM
from distributary.model import IndexArray, IntArray, Plan

__all__ = ["Directory", "DirectoryChange", "StreamPlace"]


class StreamPlace(NamedTuple):
    """Where a stream travels: to a group, or to one receiver alone."""

    group: int | None
    receiver: str | None = None


class DirectoryChange(NamedTuple):
    """What another plan changes: `moved` flows with their streams afterwards (none: dropped)."""

    version: int
    fingerprint: int
    moved: dict[int, tuple[int, ...]]
    begun: tuple[int, ...]  # streams
    ended: tuple[int, ...]


class _Pairs(NamedTuple):
    """Which streams carry which flow, ascending by flow, then by stream."""

    flow: IntArray
    stream: IntArray

    @classmethod
    def sort(cls, flow: IntArray, stream: IntArray) -> _Pairs:
        order = np.lexsort((stream, flow))
        return cls(flow[order], stream[order])

    def streams_of(self, flow: int) -> tuple[int, ...]:
        begin, end = np.searchsorted(self.flow, [flow, flow + 1])
        return tuple(self.stream[begin:end].tolist())


_NO_PAIRS = _Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Directory:
    """Flows and streams of one publisher; `prepare` a plan, then `switch` to it or `cancel` it."""

    def __init__(self) -> None:
        self.version = 0  # the plan version in effect; 0 before the first
        self.fingerprint = 0
        self.following: DirectoryChange | None = None
        self.flows: list[str] = []  # by number
        self.places: dict[int, StreamPlace] = {}  # of streams that carry a flow, now or next
        self._versions = 0
        self._number_of: dict[str, int] = {}
        self._streams = JOURNAL_STREAM  # the last number given
        self._pairs = self._next_pairs = _NO_PAIRS
        self._routes: dict[int, tuple[int, ...]] = {}

    def number_of(self, flow: str) -> int | None:
        """The number of a flow, if any plan so far carried it."""
        return self._number_of.get(flow)

    def renumber(self, flow: str) -> None:
        """Give a flow that no plan carries now another number, for when one carries it again."""
        if flow in self._number_of:
            self._number_of[flow] = len(self.flows)
            self.flows.append(flow)

    def streams_of(self, number: int) -> tuple[int, ...]:
        """The streams that carry a flow by the plan in effect; none if it has no place for it."""
        streams = self._routes.get(number)
        if streams is None:
            streams = self._routes[number] = self._pairs.streams_of(number)
        return streams

    def following_streams_of(self, number: int) -> tuple[int, ...]:
        """The streams that will carry a flow once the change that is prepared takes effect."""
        if self.following is None or number not in self.following.moved:
            return self.streams_of(number)
        return self.following.moved[number]

    def carried(self) -> Iterator[int]:
        """The flows that the plan in effect or the one that is prepared carries, ascending."""
        both = self._pairs.flow, self._next_pairs.flow if self.following else self._pairs.flow
        yield from np.union1d(*both).tolist()

    def check_room(self, plan: Plan) -> None:
        """Raise `DirectoryFullError` if the numbers may be too few for a plan."""
        flows = len(self.flows) + sum(flow not in self._number_of for flow in plan.flows)
        alone = len(np.unique(plan.unicast_receiver))
        streams = self._streams + plan.n_sessions + alone
        for what, needed, most in (
            ("flows", flows, MOST_FLOWS),
            ("streams", streams, MOST_STREAMS - 1),
        ):
            if needed > most:
                raise DirectoryFullError(what, needed, most)

    def prepare(self, plan: Plan, flows: Collection[str] | None = None) -> DirectoryChange:
        """Work out what a plan changes; replaces a change that was prepared before.

        Only `flows` of it are carried, if they are given.
        """
        self.cancel()
        first = self._streams
        pairs, places = self._lay_out(plan if flows is None else keep_flows(plan, flows))
        moved = np.unique(
            np.setxor1d(_keys(self._pairs), _keys(pairs), assume_unique=True) >> np.int64(32)
        )
        used = set(np.unique(pairs.stream).tolist())
        self._versions += 1
        self.following = DirectoryChange(
            self._versions,
            fingerprint_of(plan),
            dict(zip(moved.tolist(), _lists(pairs, moved), strict=True)),
            tuple(range(first + 1, self._streams + 1)),
            tuple(sorted(stream for stream in self.places if stream not in used)),
        )
        self._next_pairs = pairs
        self.places |= places
        return self.following

    def cancel(self) -> None:
        """Forget the change that is prepared; the numbers that it gave are not given again."""
        if self.following is not None:
            for stream in self.following.begun:
                self.places.pop(stream, None)
            self.following = None

    def switch(self) -> DirectoryChange:
        """Let the prepared change take effect."""
        change = self.following
        if change is None:
            raise ValueError("no change is prepared")
        self.version, self.fingerprint = change.version, change.fingerprint
        self._pairs, self.following = self._next_pairs, None
        for number in change.moved:
            self._routes.pop(number, None)
        for stream in change.ended:
            del self.places[stream]
        return change

    # --- laying out a plan ------------------------------------------------------------------------

    def _lay_out(self, plan: Plan) -> tuple[_Pairs, dict[int, StreamPlace]]:
        """Number the flows of a plan, and give its sessions old or new streams."""
        numbers = np.array([self._give_number(flow) for flow in plan.flows], np.int64)
        flow = numbers[plan.placement_flow]
        stream_of = self._match_sessions(plan, flow)
        places: dict[int, StreamPlace] = {}
        for session in np.unique(plan.placement_session).tolist():
            if stream_of[session] < 0:
                stream_of[session] = self._next_stream()
            places[int(stream_of[session])] = StreamPlace(int(plan.session_group[session]))
        alone_of = {
            place.receiver: stream for stream, place in self.places.items() if place.group is None
        }
        alone = np.full(len(plan.receivers), -1, np.int64)
        for receiver in np.unique(plan.unicast_receiver).tolist():
            name = plan.receivers[receiver]
            stream = alone_of.get(name)
            alone[receiver] = self._next_stream() if stream is None else stream
            places[int(alone[receiver])] = StreamPlace(None, name)
        return (
            _Pairs.sort(
                np.concatenate((flow, numbers[plan.unicast_flow])),
                np.concatenate((stream_of[plan.placement_session], alone[plan.unicast_receiver])),
            ),
            places,
        )

    def _match_sessions(self, plan: Plan, flow: IntArray) -> IntArray:
        """The stream that each session goes on as, or -1: by the most flows in common.

        A stream goes on as one session at most, of its own group. Of pairs with as many flows in
        common the one with fewer others comes first, so that what both plans have stays as it is.
        """
        stream_of = np.full(plan.n_sessions, -1, np.int64)
        old_stream, old_flow = self._pairs.stream, self._pairs.flow
        new = _Pairs.sort(flow, plan.placement_session.astype(np.int64))
        begin, end = np.searchsorted(new.flow, old_flow), np.searchsorted(new.flow, old_flow + 1)
        n_new = end - begin
        stream = np.repeat(old_stream, n_new)
        within = np.arange(n_new.sum()) - np.repeat(np.cumsum(n_new) - n_new, n_new)
        session = new.stream[np.repeat(begin, n_new) + within]
        groups = np.full(self._streams + 1, -1, np.int64)
        for number, place in self.places.items():
            groups[number] = -1 if place.group is None else place.group
        fits = groups[stream] == plan.session_group[session]
        both, common = np.unique(stream[fits] << np.int64(32) | session[fits], return_counts=True)
        old, found = both >> np.int64(32), both & np.int64(0xFFFF_FFFF)
        size = np.bincount(old_stream, minlength=self._streams + 1)[old]
        size += np.bincount(new.stream, minlength=plan.n_sessions)[found]
        taken: set[int] = set()
        for at in np.lexsort((size, -common)).tolist():
            if stream_of[found[at]] < 0 and old[at] not in taken:
                stream_of[found[at]] = old[at]
                taken.add(old[at])
        return stream_of

    def _give_number(self, flow: str) -> int:
        number = self._number_of.setdefault(flow, len(self.flows))
        if number == len(self.flows):
            self.flows.append(flow)
        return number

    def _next_stream(self) -> int:
        self._streams += 1
        return self._streams


def _keys(pairs: _Pairs) -> IntArray:
    keys: IntArray = pairs.flow << np.int64(32) | pairs.stream
    return keys


def _lists(pairs: _Pairs, flows: IntArray | IndexArray) -> Iterator[tuple[int, ...]]:
    """The streams of each of these flows."""
    begin, end = np.searchsorted(pairs.flow, flows), np.searchsorted(pairs.flow, flows + 1)
    for first, last in zip(begin.tolist(), end.tolist(), strict=True):
        yield tuple(pairs.stream[first:last].tolist())
