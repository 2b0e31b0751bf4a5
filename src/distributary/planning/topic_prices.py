"""The costs of topic channels as tables by size, to price whole arrays of channels at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from distributary.cost import OperatingPrices
from distributary.model import FloatArray, IntArray
from distributary.model.topics import BoolArray

__all__ = ["Tariff"]


@dataclass(frozen=True, slots=True, eq=False)
class Tariff:
    """Prices by size, for channels of up to `most` subscribers.

    Sizes and flows (events per interval) may be arrays of matching shapes.
    """

    prices: OperatingPrices
    most: int
    keep: FloatArray = field(init=False)
    send: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        sizes = range(self.most + 2)
        object.__setattr__(self, "keep", np.array([self.prices.maintain(n) for n in sizes]))
        object.__setattr__(self, "send", np.array([self.prices.disseminate(n) for n in sizes]))

    def topics(self, sizes: IntArray, flows: FloatArray) -> FloatArray:
        """The cost of topics' own channels."""
        return self.keep[sizes] + flows * (self.prices.notify + self.send[sizes])

    def clusters(self, sizes: IntArray, flows: FloatArray, carries: BoolArray) -> FloatArray:
        """The cost of clusters, including the events that their topics' channels pass to them."""
        return self.topics(sizes, flows) + [self.prices.associate(n) for n in _counts(carries)]

    def joining(self, sizes: IntArray, flows: FloatArray) -> FloatArray:
        """The cost of one more subscriber on each channel."""
        after = np.minimum(sizes, self.most) + 1
        return self._between(after - 1, after, flows)

    def leaving(self, sizes: IntArray, flows: FloatArray) -> FloatArray:
        """The saving on each channel if one subscriber leaves."""
        before = np.clip(sizes, 1, self.most)
        return self._between(before - 1, before, flows)

    def _between(self, few: IntArray, many: IntArray, flows: FloatArray) -> FloatArray:
        return self.keep[many] - self.keep[few] + flows * (self.send[many] - self.send[few])


def _counts(carries: BoolArray) -> list[int]:
    return [int(n) for n in carries.sum(axis=1)]
