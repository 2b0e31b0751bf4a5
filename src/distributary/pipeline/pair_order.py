"""All wanted pairs, kept in the order of their flows' names, and then of their receivers'.

The fingerprint of an interest, which every version of a plan has, is over all pairs in this order.
To sort them anew for each version would cost far more than to hash them. A change finds its places
by bisection and copies the pairs once, 4 bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from distributary.model import IndexArray, IntArray
from distributary.planning import decode_pairs

__all__ = ["NameOrder", "PairOrder", "order_names"]


@dataclass(frozen=True, slots=True, eq=False)
class NameOrder:
    """Numbers in the order of their names, and the place of each number in it."""

    ascending: IndexArray
    place: IndexArray


def order_names(ascending: IndexArray) -> NameOrder:
    """The order with its places; `ascending` has each number from 0 on once."""
    place = np.empty(len(ascending), np.int32)
    place[ascending] = np.arange(len(ascending), dtype=np.int32)
    return NameOrder(ascending, place)


class PairOrder:
    """The receivers of all wanted pairs by number: those of the first flow, of the next, and so on.

    Numbers may have been added between two calls, as long as the names before keep their order.
    """

    def __init__(
        self, receiver: IndexArray, flow: IndexArray, receivers: NameOrder, flows: NameOrder
    ) -> None:
        keys = np.sort(_encode(flows.place[flow], receivers.place[receiver]))
        self.receivers: IndexArray = receivers.ascending[decode_pairs(keys)[1]]
        self._audience = np.bincount(flow, minlength=len(flows.place)).astype(np.int64)

    def change(
        self,
        wanted: tuple[IndexArray, IndexArray],
        unwanted: tuple[IndexArray, IndexArray],
        receivers: NameOrder,
        flows: NameOrder,
    ) -> None:
        """Take in (receiver, flow) pairs and take out others; no pair is in both or repeated."""
        more = len(flows.place) - len(self._audience)
        self._audience = np.concatenate([self._audience, np.zeros(more, np.int64)])
        last = np.zeros(len(flows.place), np.int64)  # of each flow: where its pairs end
        last[flows.ascending] = np.cumsum(self._audience[flows.ascending])
        gone = np.sort(self._find(*unwanted, receivers, last))
        receiver, flow = wanted
        order = np.argsort(_encode(flows.place[flow], receivers.place[receiver]))
        receiver, flow = receiver[order], flow[order]
        at = self._find(receiver, flow, receivers, last)
        self.receivers = _splice(self.receivers, gone, at, receiver)
        np.add.at(self._audience, flow, 1)
        np.add.at(self._audience, unwanted[1], -1)

    def _find(
        self, receiver: IndexArray, flow: IndexArray, receivers: NameOrder, last: IntArray
    ) -> IntArray:
        """Where each pair is, or belongs."""
        low, high = last[flow] - self._audience[flow], last[flow]
        wanted = receivers.place[receiver]
        while (open_ := low < high).any():
            middle = (low + high) // 2
            # A search that has ended may be at the end of all pairs.
            place = receivers.place[self.receivers[np.minimum(middle, len(self.receivers) - 1)]]
            after = open_ & (place < wanted)
            high = np.where(open_ & ~after, middle, high)
            low = np.where(after, middle + 1, low)
        return low


def _encode(flow: IndexArray, receiver: IndexArray) -> IntArray:
    """One number for each pair, in the order of the flows and then of the receivers."""
    return (flow.astype(np.int64) << 32) | receiver


def _splice(values: IndexArray, gone: IntArray, at: IntArray, new: IndexArray) -> IndexArray:
    """The values without those at `gone`, and with new ones before those at `at`; both ascend.

    It copies what is between them piece by piece, which is faster than any mask over all values.
    """
    first, last = [0, *(gone + 1).tolist()], [*gone.tolist(), len(values)]
    kept = np.concatenate([values[a:b] for a, b in zip(first, last, strict=True)])
    at = at - np.searchsorted(gone, at)
    pieces = []
    for number, (a, b) in enumerate(pairwise([0, *at.tolist()])):
        pieces += [kept[a:b], new[number : number + 1]]
    return np.concatenate([*pieces, kept[at[-1] if len(at) else 0 :]])
