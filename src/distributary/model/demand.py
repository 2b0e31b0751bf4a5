"""Interest and rates side by side: what every solver and every cost reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from distributary.errors import MissingRateError
from distributary.model.interest import FloatArray, Interest
from distributary.model.rates import Rates

__all__ = ["Demand"]


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Who wants what, and how fast each wanted flow runs.

    `rate[k]` is the rate of `interest.flows[k]`, in messages per second.
    """

    interest: Interest
    rate: FloatArray

    def __post_init__(self) -> None:
        if len(self.rate) != len(self.interest.flows):
            raise ValueError(f"{len(self.rate)} rates for {len(self.interest.flows)} flows")
        if not np.all(np.isfinite(self.rate) & (self.rate > 0)):
            raise ValueError("every rate must be a finite number above 0")
        with np.errstate(over="ignore"):
            if not np.isfinite(self.rate.sum() * len(self.interest.receivers)):
                raise ValueError("the rates add up to more than a number can hold")

    @classmethod
    def of(cls, interest: Interest, rates: Rates) -> Self:
        """Pick each wanted flow's rate; flows nobody wants are left out."""
        known = {flow: index for index, flow in enumerate(rates.flows)}
        missing = tuple(flow for flow in interest.flows if flow not in known)
        if missing:
            raise MissingRateError(missing)
        return cls(interest, rates.rate[[known[flow] for flow in interest.flows]])

    @property
    def wanted_rate(self) -> FloatArray:
        """Messages per second that each receiver asked for."""
        return np.add.reduceat(
            self.rate[self.interest.receiver_flows], self.interest.receiver_offsets[:-1]
        )
