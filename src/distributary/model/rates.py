"""The rate of each flow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from distributary.model.interest import FloatArray
from distributary.model.tables import ArrowTable, RatesByFlow, amounts, has_column, names

__all__ = ["Rates"]


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """The rate of each flow in messages per second and, where known, message size and peak rate.

    Names are sorted. Flows that nobody wants may be listed; a plan leaves them out.
    """

    flows: tuple[str, ...]
    rate: FloatArray
    size: FloatArray | None = None
    peak: FloatArray | None = None

    def __post_init__(self) -> None:
        if any(a >= b for a, b in pairwise(self.flows)):
            raise ValueError("flow names must be sorted and unique")
        for word, values in (("rate", self.rate), ("size", self.size), ("peak", self.peak)):
            if values is None:
                continue
            if len(values) != len(self.flows):
                raise ValueError(f"{len(values)} {word}s for {len(self.flows)} flows")
            if not np.all(np.isfinite(values) & (values > 0)):
                raise ValueError(f"every {word} must be a finite number above 0")

    @classmethod
    def of(cls, rates: Rates | RatesByFlow) -> Rates:
        """Build from rates by flow, or from a table in memory.

        The table has the columns flow and rate, and may have size and peak.
        """
        if isinstance(rates, Rates):
            return rates
        if not isinstance(rates, ArrowTable):
            return cls.from_mapping(rates)
        flows, codes = names(rates, "flow")
        _, first = np.unique(codes, return_index=True)
        columns = {}
        for word in ("rate", *(word for word in ("size", "peak") if has_column(rates, word))):
            values = amounts(rates, word)
            differs = np.flatnonzero(values != values[first[codes]])
            if len(differs):
                flow = flows[codes[differs[0]]]
                raise ValueError(f"flow {flow!r} has more than one {word}: keep one row per flow")
            columns[word] = values[first]
        return cls(flows, **columns)

    @classmethod
    def from_mapping(cls, rates: Mapping[str, float] | Iterable[tuple[str, float]]) -> Self:
        """Build from flow names and their rates."""
        listed = sorted(dict(rates).items())
        return cls(
            tuple(flow for flow, _ in listed), np.array([rate for _, rate in listed], np.float64)
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rates):
            return NotImplemented
        return (
            self.flows == other.flows
            and np.array_equal(self.rate, other.rate)
            and _equal_arrays(self.size, other.size)
            and _equal_arrays(self.peak, other.peak)
        )

    def __repr__(self) -> str:
        return f"Rates({len(self.flows):,} flows, {self.rate.sum():,.6g} messages/s)"


def _equal_arrays(one: FloatArray | None, other: FloatArray | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)
