"""Filters and events of the link-matching paper: few values per attribute, regional preferences.

Values follow Zipf's law in an order that differs by region and is shared by the subscribers and
publishers of a region. The probability that a filter tests an attribute falls from one attribute to
the next. The paper gives no numbers for that; the law used here reproduces its counts of matching
steps.

Reference: Banavar et al. (1999).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from distributary.model import (
    Attribute,
    AttributeKind,
    Box,
    Filter,
    FloatArray,
    IntArray,
    Schema,
    Values,
)

__all__ = ["ContentParams", "ContentWorld", "content_world", "poisson_times"]

_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class ContentParams:
    """The parameters; by default those of the paper's chart of matching steps.

    A filter tests attribute i with the probability `first_test` * `next_test` ** i.
    """

    attributes: int = 10
    values: int = 3
    regions: int = 3
    exponent: float = 1.0
    first_test: float = 0.98
    next_test: float = 0.82

    def __post_init__(self) -> None:
        if min(self.attributes, self.values, self.regions) < 1:
            raise ValueError("there must be at least 1 attribute, 1 value and 1 region")
        if not (0 <= self.first_test <= 1 and 0 <= self.next_test <= 1):
            raise ValueError("first_test and next_test are probabilities")

    def test_odds(self) -> FloatArray:
        """The probability that a filter tests each attribute."""
        return np.asarray(self.first_test * self.next_test ** np.arange(self.attributes))


@dataclass(frozen=True, slots=True, eq=False)
class ContentWorld:
    """The regions' preferences, drawn once: `odds[region, attribute, value]`."""

    params: ContentParams
    odds: FloatArray

    @property
    def schema(self) -> Schema:
        """Integer attributes a0, a1, ... with values from 0 and a known domain."""
        domain = frozenset(range(self.params.values))
        return Schema(
            tuple(
                Attribute(f"a{at}", AttributeKind.INTEGER, domain)
                for at in range(self.params.attributes)
            )
        )

    def filters(self, n: int, region: int, rng: np.random.Generator) -> list[Filter]:
        """Filters of a region's subscribers, each a conjunction of equalities."""
        schema = self.schema
        tested = rng.random((n, self.params.attributes)) < self.params.test_odds()
        values = self._values(n, region, rng)
        point = [Values(((value, value + 1),)) for value in range(self.params.values)]
        found = []
        for row in range(n):
            tests = [(at, point[values[row, at]]) for at in np.flatnonzero(tested[row]).tolist()]
            box = Box.of(tests, schema)
            assert box is not None
            found.append(Filter(schema, (box,)))
        return found

    def events(self, n: int, region: int, rng: np.random.Generator) -> pa.Table:
        """Events of a region's publishers, one column per attribute."""
        values = self._values(n, region, rng)
        return pa.table({f"a{at}": values[:, at] for at in range(self.params.attributes)})

    def matching_share(self) -> float:
        """The expected share of all filters that an event matches, with regions of equal size."""
        alike = np.einsum("rav,qav->rqa", self.odds, self.odds)
        odds = self.params.test_odds()
        return float(np.prod(1 - odds + odds * alike, axis=2).mean())

    def with_matching_share(self, share: float) -> ContentWorld:
        """The same preferences, with the number of tests set so that events match this share."""
        low, high = 0.0, 1.0
        if (
            not self._with_next_test(high).matching_share()
            <= share
            <= self._with_next_test(low).matching_share()
        ):
            raise ValueError(f"filters on these attributes cannot match a share of {share}")
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self._with_next_test(middle).matching_share() > share:
                low = middle
            else:
                high = middle
        return self._with_next_test(high)

    def _with_next_test(self, next_test: float) -> ContentWorld:
        return ContentWorld(replace(self.params, next_test=next_test), self.odds)

    def _values(self, n: int, region: int, rng: np.random.Generator) -> IntArray:
        below = np.cumsum(self.odds[region], axis=1)[:, :-1]
        return np.asarray((rng.random((n, self.params.attributes, 1)) >= below).sum(axis=2))


def content_world(params: ContentParams, rng: np.random.Generator) -> ContentWorld:
    """Draw the preferred values of each region and attribute."""
    zipf = 1.0 / np.arange(1, params.values + 1) ** params.exponent
    shape = (params.regions, params.attributes, params.values)
    ordered = np.broadcast_to(zipf / zipf.sum(), shape)
    return ContentWorld(params, rng.permuted(ordered, axis=2))


def poisson_times(rate: float, n: int, rng: np.random.Generator) -> FloatArray:
    """The first n times of a Poisson process with that many events per second."""
    if not 0 < rate < float("inf"):
        raise ValueError(f"a rate is a finite number above 0, not {rate}")
    return np.cumsum(rng.exponential(1 / rate, n))
