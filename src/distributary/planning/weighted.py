"""Receivers that count more than others, for algorithms that count each receiver once.

Such an algorithm gets each receiver as often as its weight says, as so many receivers that want the
same. The costs of its plans are then the weighted ones, in whole numbers and therefore exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from distributary.model import Demand, FloatArray, IntArray, Interest, Plan

__all__ = ["WholeWeights", "gather_receivers", "repeat_receivers"]

_MOST_PARTS = 60  # into which the smallest weight is divided, to make all weights whole
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class WholeWeights:
    """Weights of receivers, and of the sender, in whole numbers of `unit`.

    They are `exact` if the weights have a common measure that is not too small.
    """

    receivers: IntArray
    sent: int
    unit: float
    exact: bool

    @classmethod
    def of(cls, weights: FloatArray, sent: float = 0.0, most: float = 1e6) -> Self:
        """Make weights whole; their sum is at most about `most`, unless each of them is 1."""
        given = np.append(weights, sent)
        smallest = float(given[given > 0].min()) if given.any() else 1.0
        values = given / smallest
        for parts in range(1, _MOST_PARTS + 1):
            whole = np.rint(values * parts)
            if whole.sum() > most:
                break
            if np.all(np.abs(whole - values * parts) <= _CLOSE * values * parts):
                return cls._from_whole(whole, smallest / parts, exact=True)
        parts_of_all = min(_MOST_PARTS, most / float(values.sum()))
        whole = np.rint(values * parts_of_all)
        whole[given > 0] = np.maximum(whole[given > 0], 1)
        return cls._from_whole(whole, smallest / parts_of_all, exact=False)

    @classmethod
    def _from_whole(cls, whole: FloatArray, unit: float, *, exact: bool) -> Self:
        counted = whole.astype(np.int64)
        return cls(counted[:-1], int(counted[-1]), unit, exact)


def repeat_receivers(demand: Demand, copies: IntArray) -> Demand:
    """The demand with each receiver there as often as `copies` says, one after another."""
    interest = demand.interest
    first = np.cumsum(copies) - copies
    times = copies[interest.flow_receivers]
    pairs = int(times.sum())
    nth = np.arange(pairs) - np.repeat(np.cumsum(times) - times, times)
    receiver = np.repeat(first[interest.flow_receivers], times) + nth
    digits = len(str(int(copies.sum())))
    repeated = Interest.from_codes(
        (f"{number:0{digits}d}" for number in range(int(copies.sum()))),
        interest.flows,
        receiver.astype(np.int32),
        np.repeat(interest.pair_flows(), times),
    )
    return replace(demand, interest=repeated)


def gather_receivers(plan: Plan, demand: Demand, copies: IntArray) -> Plan:
    """The plan for the receivers of `demand`, from one in which each is there several times.

    Copies of a receiver want the same and subscribe to the same, so the first one stands for all.
    """
    first = np.cumsum(copies) - copies
    is_first = np.zeros(int(copies.sum()), bool)
    is_first[first] = True
    origin = np.cumsum(is_first) - 1
    kept = is_first[plan.subscription_receiver]
    return replace(
        plan,
        receivers=demand.interest.receivers,
        subscription_receiver=origin[plan.subscription_receiver[kept]].astype(np.int32),
        subscription_session=plan.subscription_session[kept],
    )
