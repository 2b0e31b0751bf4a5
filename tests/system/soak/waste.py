"""What receivers throw away, by their own counters, and what they would by a fresh plan.

Both are messages per second, of the same seconds: the rates are what publishers wrote down that
they published, and the interest is what applications wanted all that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import distributary
from tests.system.soak.diary import Line

__all__ = ["Waste", "compare_waste"]

_SEEDS = range(3)
_BUDGET_S = 1.0
_RECEIVED = distributary.FilteringPrices(1.0, 0.0)  # counts what groups bring to a receiver


@dataclass(frozen=True, slots=True)
class Waste:
    """Messages per second that receivers threw away, and would by a fresh plan."""

    measured: float
    fresh: float
    wanted: float
    seconds: float

    @property
    def ratio(self) -> float:
        """What was measured, by what a fresh plan would give."""
        return self.measured / self.fresh if self.fresh else float(self.measured > 0) + 1.0

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "ratio": self.ratio}


def compare_waste(
    receivers: Mapping[str, Iterable[Line]],
    publishers: Iterable[Iterable[Line]],
    interest: Mapping[str, Iterable[str]],
    size: tuple[int, int],
    span: tuple[float, float],
) -> Waste:
    """Compare what receivers threw away in a span of time with a fresh plan of that size.

    `size` is groups and sessions.
    """
    begin, end = span
    measured = wanted = 0.0
    for lines in receivers.values():
        states = [line for line in lines if line[0] == "state" and begin <= line[1] <= end]
        first, last = states[0], states[-1]
        seconds = last[1] - first[1]
        wanted += (last[2] - first[2]) / seconds
        measured += (last[3] + last[4] - first[3] - first[4]) / seconds
    rates = _count_rates(publishers, begin, end)
    fresh = min(_price_fresh(rates, interest, size, seed) for seed in _SEEDS)
    return Waste(measured, fresh, wanted, end - begin)


def _count_rates(
    publishers: Iterable[Iterable[Line]], begin: float, end: float
) -> dict[str, float]:
    rates: dict[str, float] = {}
    for lines in publishers:
        for what, at, *facts in lines:
            if what == "sent" and begin <= at < end:
                rates[facts[0]] = rates.get(facts[0], 0.0) + 1.0 / (end - begin)
    return rates


def _price_fresh(
    rates: Mapping[str, float],
    interest: Mapping[str, Iterable[str]],
    size: tuple[int, int],
    seed: int,
) -> float:
    """What receivers throw away by a plan that is made now."""
    pairs = [
        (receiver, flow) for receiver, flows in interest.items() for flow in flows if flow in rates
    ]
    demand = distributary.Demand.of(pairs, rates)
    groups, sessions = size
    request = distributary.Request(groups, sessions, seed=seed, budget_s=_BUDGET_S)
    found = distributary.plan(demand, request)
    return distributary.evaluate(found.plan, demand, _RECEIVED).filtering.excess
