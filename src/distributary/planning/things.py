"""What is being clustered: flows, or whole sessions treated as one flow each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from distributary.model import Demand, FloatArray, IndexArray, IntArray, distinct
from distributary.planning._kernels import audience_sizes

__all__ = ["Things", "in_messages", "whole_rates"]


@dataclass(frozen=True, slots=True, eq=False)
class Things:
    """The receivers and whole-number rate of each thing, in the layout that the kernels use."""

    n_receivers: int
    offsets: IntArray
    members: IndexArray
    weight: IntArray

    @classmethod
    def flows_of(cls, demand: Demand, bits: int = 60) -> Self:
        """Every wanted flow as a thing, its rate a whole number (see `whole_rates`)."""
        interest = demand.interest
        n_receivers = len(interest.receivers)
        return cls(
            n_receivers,
            interest.flow_offsets,
            interest.flow_receivers,
            whole_rates(demand.rate, n_receivers, bits),
        )

    def __len__(self) -> int:
        return len(self.weight)

    def subset(self, chosen: IntArray) -> Things:
        """Only the chosen things, in the order given."""
        sizes = np.diff(self.offsets)[chosen]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        at = np.repeat(self.offsets[chosen] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return Things(self.n_receivers, offsets, self.members[at], self.weight[chosen])

    def narrow(self) -> Things:
        """The same things with only those receivers that want any of them, in the same order."""
        is_heard = np.zeros(self.n_receivers, bool)
        is_heard[self.members] = True
        number = (np.cumsum(is_heard) - 1).astype(np.int32)
        members = number[self.members]
        return Things(int(is_heard.sum()), self.offsets, members, self.weight)

    def kinds(self) -> tuple[Things, IndexArray]:
        """Combine things with the same receivers; also return the kind of each thing.

        Sets of receivers are compared by sums of two random numbers for each receiver: 126 bits, so
        that different sets do not collide by chance.
        """
        numbers = np.random.default_rng(0).integers(2**63, size=(2, self.n_receivers))
        marks = [np.add.reduceat(row[self.members], self.offsets[:-1]) for row in numbers]
        order = np.lexsort(marks)
        is_new = np.ones(len(self), bool)
        is_new[1:] = np.diff(marks[0][order]) != 0
        is_new[1:] |= np.diff(marks[1][order]) != 0
        first = np.sort(order[is_new])
        rank = np.searchsorted(first, order[is_new])
        kind = np.empty(len(self), np.int32)
        kind[order] = rank[np.cumsum(is_new) - 1]
        weight = np.zeros(len(first), np.int64)
        np.add.at(weight, kind, self.weight)
        one_each = self.subset(first)
        return Things(self.n_receivers, one_each.offsets, one_each.members, weight), kind

    def weigh(self, importance: IntArray) -> Things:
        """Repeat each receiver as often as its importance says; each copy is another receiver."""
        copies = importance[self.members]
        first = np.cumsum(importance) - importance
        owner = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        sizes = np.bincount(owner, weights=copies, minlength=len(self)).astype(np.int64)
        at = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
        members = (np.repeat(first[self.members], copies) + at).astype(np.int32)
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        return Things(int(importance.sum()), offsets, members, self.weight)

    def merge(self, cluster: IndexArray, n_clusters: int) -> Things:
        """Combine each cluster into one thing, with all its receivers and the sum of its rates."""
        owner = np.repeat(cluster.astype(np.int64), np.diff(self.offsets))
        keys = distinct(owner * self.n_receivers + self.members)
        weight = np.zeros(n_clusters, np.int64)
        np.add.at(weight, cluster, self.weight)
        sizes = np.bincount(keys // self.n_receivers, minlength=n_clusters)
        return Things(
            self.n_receivers,
            np.concatenate(([0], np.cumsum(sizes))),
            (keys % self.n_receivers).astype(np.int32),
            weight,
        )

    def intake(self, cluster: IndexArray, n_clusters: int) -> int:
        """The intake of all receivers if each cluster is received whole: receivers times rate."""
        order = np.argsort(cluster, kind="stable")
        audience = audience_sizes(
            self.offsets, self.members, cluster, order, self.n_receivers, n_clusters
        )
        weight = np.zeros(n_clusters, np.int64)
        np.add.at(weight, cluster, self.weight)
        return int(audience @ weight)


def whole_rates(rate: FloatArray, n_receivers: int, bits: int = 60) -> IntArray:
    """Scale rates by a power of two to whole numbers, such that any cost fits into `bits` bits.

    Sums of whole numbers are exact in any order, so a solver sees neither false improvements nor
    broken ties. Rates that are whole numbers keep their exact proportions; others keep the digits
    that could matter in a sum over all receivers.
    """
    scaled = np.ldexp(rate, _exponent(rate, n_receivers, bits))
    return np.maximum(np.rint(scaled), 1).astype(np.int64)


def in_messages(cost: float, rate: FloatArray, n_receivers: int, bits: int = 60) -> float:
    """Convert a cost in whole-number rates to messages per second."""
    return math.ldexp(cost, -_exponent(rate, n_receivers, bits))


def _exponent(rate: FloatArray, n_receivers: int, bits: int) -> int:
    return math.floor(bits - math.log2(n_receivers) - math.log2(float(rate.sum())))
