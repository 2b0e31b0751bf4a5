"""Who wants what and how much is published, in memory, changed batch by batch.

A stream keeps its state on disk. This is the part of it that a plan follows: the last action of
each pair of receiver and flow, and the messages of each flow in the window of rates. It is loaded
once, when a stream starts, and then takes each batch's rows; the cost of a batch grows with its
rows, not with what is known. 30 million pairs take less than a gigabyte.

Rates are exact: a flow with n messages in a window of s seconds has the rate n / s, and a silent
one 1 / s, so the whole numbers max(n, 1) and the one divisor s say all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distributary.model import Demand, FloatArray, IndexArray, IntArray, Interest
from distributary.pipeline.fingerprints import fingerprint_interest, fingerprint_rates
from distributary.pipeline.pair_order import PairOrder, order_names
from distributary.planning import PairMap, decode_pairs

__all__ = ["DemandChange", "LiveDemand", "Names", "SettleTies"]

Flags = npt.NDArray[np.bool_]
PairArrays = tuple[IndexArray, IndexArray]
"""Pairs: their receivers, and their flows."""
SettleTies = Callable[[pa.Table], Flags]

_FEW = 1 / 16  # new names, as a share of the known ones, are placed one by one
_MUCH = 1 / 16  # changed pairs, as a share of all; to sort all is faster then
_NEVER = np.iinfo(np.int64).min  # the stamp of a pair without an action: before all, and off


@dataclass(frozen=True, slots=True, eq=False)
class DemandChange:
    """What a batch changed, in the numbers of a `LiveDemand`.

    `wanted` and `unwanted` are pairs of receivers and flows, without repeats, that became so.
    `flows` are the flows whose messages in the window changed to `messages` (0: silent).
    """

    wanted_receiver: IndexArray
    wanted_flow: IndexArray
    unwanted_receiver: IndexArray
    unwanted_flow: IndexArray
    flows: IndexArray
    messages: IntArray
    seconds: float


class Names:
    """Names and their numbers, from 0 on in the order in which they came."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._numbers: dict[str, int] = {}
        self._ascending = np.empty(0, np.int32)  # of those that were there at the last call

    def __len__(self) -> int:
        return len(self.listed)

    def number(self, name: str) -> int:
        """The number of a name, new or known."""
        found = self._numbers.setdefault(name, len(self.listed))
        if found == len(self.listed):
            self.listed.append(name)
        return found

    def names_of(self, numbers: IndexArray) -> list[str]:
        """The names with these numbers."""
        return [self.listed[number] for number in numbers.tolist()]

    def numbers_of(self, column: pa.ChunkedArray) -> IndexArray:
        """The number of each name in a column."""
        coded = column.combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        numbers = np.array([self.number(name) for name in coded.dictionary.to_pylist()], np.int32)
        codes = coded.indices.to_numpy(zero_copy_only=False)
        return numbers[codes] if len(numbers) else np.empty(0, np.int32)

    def sort(self) -> IndexArray:
        """All numbers, in the order of their names.

        The order is kept, so a call places only the names that are new.
        """
        known, name_of = len(self._ascending), self.listed.__getitem__
        if known == len(self):
            return self._ascending
        new = sorted(range(known, len(self)), key=name_of)
        if len(new) > _FEW * known:
            merged = sorted([*self._ascending.tolist(), *new], key=name_of)
            self._ascending = np.array(merged, np.int32)
        else:
            at = [bisect_left(self._ascending, name_of(one), key=name_of) for one in new]
            self._ascending = np.insert(self._ascending, at, new)
        return self._ascending


class LiveDemand:
    """The demand as it is now. `load` it once, then `apply` each batch.

    `receivers` and `flows` are all names ever seen, also of flows that are published and not
    wanted: somebody may want them later.
    """

    def __init__(self) -> None:
        self.receivers, self.flows = Names(), Names()
        self.seconds = 1.0
        self._stamps = PairMap(_NEVER)  # twice the time of the last action, plus 1 if it is on
        self._messages = _Column(np.int64)
        self._audience, self._degree = _Column(np.int64), _Column(np.int64)
        self.pairs = 0
        self._order: PairOrder | None = None  # from the first fingerprint on
        self._noted: list[IntArray] = []  # changes that are not in the order yet

    def load(
        self, actions: Iterable[pa.Table], messages: pa.Table | None, seconds: float
    ) -> DemandChange:
        """Take the stored state: each pair's last action once, and each flow's messages.

        The change is from nothing to the whole demand, in numbers only.
        """
        for chunk in actions:
            self._apply_actions(chunk, _refuse_ties)
        self._apply_messages(messages, seconds)
        receiver, flow = self.list_pairs()
        nobody = np.empty(0, np.int32)
        flows = np.arange(len(self.flows), dtype=np.int32)
        counts = self._messages.take(flows)
        return DemandChange(receiver, flow, nobody, nobody, flows, counts, seconds)

    def apply(
        self,
        actions: pa.Table | None,
        messages: pa.Table | None,
        seconds: float,
        settle_ties: SettleTies,
    ) -> DemandChange:
        """Take a batch: last actions, new totals of messages, and the window's seconds.

        `actions` has one row for each pair: `receiver`, `flow`, `ts` (microseconds) and `on`. A row
        with a later time than the known action replaces it, one with an earlier time is ignored.
        For rows with the same time and the other action, `settle_ties` says whether the row wins.
        `messages` has `flow` and `messages`, for each flow whose total changed.
        """
        nobody = np.empty(0, np.int32)
        pairs = (nobody, nobody, nobody, nobody)
        if actions is not None and actions.num_rows:
            pairs = self._apply_actions(actions, settle_ties)
        flows, counts = self._apply_messages(messages, seconds)
        return DemandChange(*pairs, flows, counts, seconds)

    @property
    def ended_pairs(self) -> int:
        """How many pairs are known that are not wanted now."""
        return len(self._stamps) - self.pairs

    @property
    def n_receivers(self) -> int:
        """How many receivers want something."""
        return self._degree.positive

    @property
    def nbytes(self) -> int:
        """The memory that pairs and counts take, without the names."""
        columns = (self._messages, self._audience, self._degree)
        order = 0 if self._order is None else self._order.receivers.nbytes
        return self._stamps.nbytes + order + sum(column.nbytes for column in columns)

    def weights_of(self, flows: IndexArray) -> IntArray:
        """The messages of flows in the window, at least 1."""
        return np.maximum(self._messages.take(flows), 1)

    def wanting(self) -> IndexArray:
        """The receivers that want something, in the order of their names."""
        receivers = self.receivers.sort()
        return receivers[self._degree.take(receivers) > 0]

    def wanted(self) -> IndexArray:
        """The flows that somebody wants, in the order of their names."""
        flows = self.flows.sort()
        return flows[self._audience.take(flows) > 0]

    def demand(self) -> Demand | None:
        """The whole demand, as planners take it; None if nobody wants anything.

        It sorts all pairs.
        """
        if not self.pairs:
            return None
        receiver, flow = self.list_pairs()
        wanting, wanted = self.wanting(), self.wanted()
        interest = Interest.from_codes(
            self.receivers.names_of(wanting),
            self.flows.names_of(wanted),
            _find_places(wanting, len(self.receivers))[receiver],
            _find_places(wanted, len(self.flows))[flow],
        )
        return Demand(interest, self._rates_of(wanted))

    def fingerprints(self) -> dict[str, str]:
        """The fingerprints of the interest and of the rates of `demand`.

        The first call sorts all pairs. Later ones put what changed in its place and hash all pairs,
        a few nanoseconds each.
        """
        wanting, wanted = self.wanting(), self.wanted()
        flows = self.flows.names_of(wanted)
        interest = fingerprint_interest(
            self.receivers.names_of(wanting),
            flows,
            self._audience.take(wanted),
            self._sort_pairs(),
            _find_places(wanting, len(self.receivers)),
        )
        return {"interest": interest, "rates": fingerprint_rates(flows, self._rates_of(wanted))}

    def _rates_of(self, flows: IndexArray) -> FloatArray:
        rate: FloatArray = self.weights_of(flows) / self.seconds
        return rate

    def _sort_pairs(self) -> IndexArray:
        """The receivers of all wanted pairs, in the order of the names of flows and receivers."""
        receivers, flows = order_names(self.receivers.sort()), order_names(self.flows.sort())
        if self._order is None:
            self._order = PairOrder(*self.list_pairs(), receivers, flows)
        elif self._noted:
            self._order.change(*_sum_changes(self._noted), receivers, flows)
        self._noted = []
        return self._order.receivers

    def _note_change(self, gained: PairArrays, lost: PairArrays) -> None:
        """Note what the order of pairs lacks, or forget the order if it lacks much."""
        if self._order is None:
            return
        for pairs, by in ((gained, 1), (lost, -1)):
            if len(pairs[0]):
                self._noted.append(np.stack([*pairs, np.full(len(pairs[0]), by)]).astype(np.int64))
        if sum(change.shape[1] for change in self._noted) > _MUCH * self.pairs:
            self._order, self._noted = None, []

    def _apply_actions(
        self, actions: pa.Table, settle_ties: SettleTies
    ) -> tuple[IndexArray, IndexArray, IndexArray, IndexArray]:
        receiver = self.receivers.numbers_of(actions["receiver"])
        flow = self.flows.numbers_of(actions["flow"])
        on = _to_numpy(actions["on"]).astype(np.bool_)
        time = _to_numpy(actions["ts"]).astype(np.int64)
        slots = self._stamps.slots_of(receiver, flow)
        known = self._stamps.values[slots]
        was_on, known_time = (known & 1).astype(np.bool_), known >> 1
        wins = time > known_time
        ties = np.flatnonzero((time == known_time) & (was_on != on))
        if len(ties):
            wins[ties] = settle_ties(actions.take(pa.array(ties)))
        self._stamps.values[slots[wins]] = 2 * time[wins] + on[wins]
        gained, lost = wins & on & ~was_on, wins & ~on & was_on
        self._count(receiver[gained], flow[gained], 1)
        self._count(receiver[lost], flow[lost], -1)
        became, ended = (receiver[gained], flow[gained]), (receiver[lost], flow[lost])
        self._note_change(became, ended)
        return *became, *ended

    def _apply_messages(
        self, messages: pa.Table | None, seconds: float
    ) -> tuple[IndexArray, IntArray]:
        if not seconds > 0:
            raise ValueError(f"a window of rates has more than 0 seconds, not {seconds}")
        self.seconds = seconds
        if messages is None or not messages.num_rows:
            return np.empty(0, np.int32), np.empty(0, np.int64)
        flows = self.flows.numbers_of(messages["flow"])
        counts = _to_numpy(messages["messages"]).astype(np.int64)
        self._messages.put(flows, counts)
        return flows, counts

    def _count(self, receiver: IndexArray, flow: IndexArray, by: int) -> None:
        self.pairs += by * len(receiver)
        self._degree.add(receiver, by)
        self._audience.add(flow, by)

    def list_pairs(self) -> tuple[IndexArray, IndexArray]:
        """All wanted pairs."""
        keys = self._stamps.keys[(self._stamps.values & 1).astype(np.bool_)]
        receiver, flow = decode_pairs(keys)
        return receiver.astype(np.int32), flow.astype(np.int32)


class _Column:
    """A growing array of whole numbers, 0 where nothing was put."""

    def __init__(self, kind: type[np.int64]) -> None:
        self._values = np.zeros(0, kind)
        self.positive = 0

    @property
    def nbytes(self) -> int:
        return self._values.nbytes

    def take(self, at: IndexArray) -> IntArray:
        self._reach(at)
        return self._values[at]

    def put(self, at: IndexArray, values: IntArray) -> None:
        self._reach(at)
        self._values[at] = values

    def add(self, at: IndexArray, by: int) -> None:
        """Add to each place as often as it is named, and keep count of the positive ones."""
        self._reach(at)
        places = np.unique(at)
        self.positive -= int((self._values[places] > 0).sum())
        np.add.at(self._values, at, by)
        self.positive += int((self._values[places] > 0).sum())

    def _reach(self, at: IndexArray) -> None:
        needed = int(at.max()) + 1 if len(at) else 0
        if needed > len(self._values):
            grown = np.zeros(max(needed, 2 * len(self._values)), self._values.dtype)
            grown[: len(self._values)] = self._values
            self._values = grown


def _sum_changes(noted: list[IntArray]) -> tuple[PairArrays, PairArrays]:
    """The pairs that came and those that went, of changes that may undo each other."""
    receiver, flow, by = np.concatenate(noted, axis=1)
    keys, place = np.unique((receiver << 32) | flow, return_inverse=True)
    change = np.bincount(place, weights=by)
    came, went = (decode_pairs(keys[change == sign]) for sign in (1, -1))
    return _narrow(*came), _narrow(*went)


def _narrow(receiver: IntArray, flow: IntArray) -> PairArrays:
    return receiver.astype(np.int32), flow.astype(np.int32)


def _find_places(numbers: IndexArray, n: int) -> IndexArray:
    """The place of each of n numbers among these; 0 if it is not there."""
    place = np.zeros(n, np.int32)
    place[numbers] = np.arange(len(numbers), dtype=np.int32)
    return place


def _to_numpy(column: Any) -> npt.NDArray[Any]:
    return np.asarray(column.to_numpy())


def _refuse_ties(rows: pa.Table) -> Flags:
    raise ValueError(f"a pair is stored twice: {rows.slice(0, 1).to_pylist()[0]}")
