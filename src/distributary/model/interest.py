"""Which receiver wants which flow: a sparse binary matrix, indexed from both sides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

from distributary.model.tables import ArrowTable, Pairs, names

__all__ = ["FloatArray", "IndexArray", "IntArray", "Interest", "distinct"]

IndexArray = npt.NDArray[np.int32]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Interest:
    """Which receiver wants which flow, indexed in both directions, with names.

    Names are sorted, so the same pairs in any order give the same object and the same plan. Every
    receiver wants at least one flow and every flow is wanted.

    `flow_receivers[flow_offsets[k]:flow_offsets[k + 1]]` are the receivers of flow `k` (ascending),
    and `receiver_flows` is the same from the receiver's side.
    """

    receivers: tuple[str, ...]
    flows: tuple[str, ...]
    flow_offsets: IntArray
    flow_receivers: IndexArray
    receiver_offsets: IntArray
    receiver_flows: IndexArray

    def __post_init__(self) -> None:
        for kind, listed in (("receiver", self.receivers), ("flow", self.flows)):
            if any(a >= b for a, b in pairwise(listed)):
                raise ValueError(f"{kind} names must be sorted and unique")
        if not self.pairs:
            raise ValueError("an interest needs at least one receiver that wants one flow")
        if (np.diff(self.flow_offsets) == 0).any() or (np.diff(self.receiver_offsets) == 0).any():
            raise ValueError("every receiver must want a flow and every flow must be wanted")

    @classmethod
    def of(cls, wanted: Interest | Pairs) -> Interest:
        """Build from pairs, or from a table in memory with the columns receiver and flow."""
        if isinstance(wanted, Interest):
            return wanted
        if not isinstance(wanted, ArrowTable):
            return cls.from_pairs(wanted)
        receivers, receiver_codes = names(wanted, "receiver")
        flows, flow_codes = names(wanted, "flow")
        return cls.from_codes(receivers, flows, receiver_codes, flow_codes)

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """Build from (receiver, flow) pairs in any order; repeated pairs collapse."""
        listed = list(pairs)
        receivers = sorted({receiver for receiver, _ in listed})
        flows = sorted({flow for _, flow in listed})
        receiver_index = {name: index for index, name in enumerate(receivers)}
        flow_index = {name: index for index, name in enumerate(flows)}
        return cls.from_codes(
            receivers,
            flows,
            np.array([receiver_index[receiver] for receiver, _ in listed], np.int32),
            np.array([flow_index[flow] for _, flow in listed], np.int32),
        )

    @classmethod
    def from_codes(
        cls,
        receivers: Iterable[str],
        flows: Iterable[str],
        receiver_codes: IndexArray,
        flow_codes: IndexArray,
    ) -> Self:
        """Build from sorted names and, pair by pair, indices into them; repeated pairs collapse."""
        receivers, flows = tuple(receivers), tuple(flows)
        n_receivers, n_flows = len(receivers), len(flows)
        by_flow = distinct(flow_codes.astype(np.int64) * n_receivers + receiver_codes)
        flow_of_pair = by_flow // max(n_receivers, 1)
        receiver_of_pair = (by_flow % max(n_receivers, 1)).astype(np.int32)
        by_receiver = np.argsort(receiver_of_pair, kind="stable")
        return cls(
            receivers=receivers,
            flows=flows,
            flow_offsets=_offsets(flow_of_pair, n_flows),
            flow_receivers=receiver_of_pair,
            receiver_offsets=_offsets(receiver_of_pair, n_receivers),
            receiver_flows=flow_of_pair[by_receiver].astype(np.int32),
        )

    @property
    def pairs(self) -> int:
        """How many (receiver, flow) pairs there are."""
        return len(self.flow_receivers)

    @property
    def density(self) -> float:
        """The share of all possible pairs that are wanted."""
        return self.pairs / (len(self.receivers) * len(self.flows))

    @property
    def audience(self) -> IntArray:
        """The number of receivers of each flow."""
        return np.diff(self.flow_offsets)

    def receivers_of(self, flow: int) -> IndexArray:
        """The receivers of one flow, ascending."""
        return self.flow_receivers[self.flow_offsets[flow] : self.flow_offsets[flow + 1]]

    def flows_of(self, receiver: int) -> IndexArray:
        """The flows one receiver wants, ascending."""
        return self.receiver_flows[
            self.receiver_offsets[receiver] : self.receiver_offsets[receiver + 1]
        ]

    def pair_flows(self) -> IndexArray:
        """The flow of each entry of `flow_receivers`."""
        return np.repeat(np.arange(len(self.flows), dtype=np.int32), self.audience)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Interest):
            return NotImplemented
        return (
            self.receivers == other.receivers
            and self.flows == other.flows
            and np.array_equal(self.flow_offsets, other.flow_offsets)
            and np.array_equal(self.flow_receivers, other.flow_receivers)
        )

    def __repr__(self) -> str:
        return (
            f"Interest({len(self.receivers):,} receivers, {len(self.flows):,} flows, "
            f"{self.pairs:,} pairs)"
        )


def distinct(keys: IntArray) -> IntArray:
    """The distinct keys (none negative), ascending; `np.unique` hashes and is far slower."""
    keys = np.sort(keys)
    return keys[np.diff(keys, prepend=-1) > 0]


def _offsets(codes: npt.NDArray[np.integer], n: int) -> IntArray:
    return np.concatenate(([0], np.cumsum(np.bincount(codes, minlength=n)))).astype(np.int64)
