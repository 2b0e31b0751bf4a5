"""Interest and rates together: the input of every solver and every cost function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from distributary.errors import MissingRateError
from distributary.model.interest import FloatArray, Interest
from distributary.model.rates import Rates
from distributary.model.tables import Pairs, RatesByFlow

__all__ = ["Demand"]

MOST_RECEIVED = 1e290  # messages/s of flooding; leaves room for prices and sums of costs


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Who wants what, and the rate of each wanted flow.

    `rate[k]` is the rate of `interest.flows[k]` in messages per second; costs use it. `peak[k]`,
    where known, is the flow's rate in its busiest window; caps are checked against it.
    """

    interest: Interest
    rate: FloatArray
    peak: FloatArray | None = None

    def __post_init__(self) -> None:
        for rate in (self.rate, self.load):
            if len(rate) != len(self.interest.flows):
                raise ValueError(f"{len(rate)} rates for {len(self.interest.flows)} flows")
            if not np.all(np.isfinite(rate) & (rate > 0)):
                raise ValueError("every rate must be a finite number above 0")
            with np.errstate(over="ignore"):
                if not rate.sum() * len(self.interest.receivers) <= MOST_RECEIVED:
                    raise ValueError("the rates add up to more than a number can hold")

    @classmethod
    def of(
        cls, interest: Interest | Pairs, rates: Rates | RatesByFlow, *, on_peak: bool = False
    ) -> Self:
        """Look up each wanted flow's rate; flows that nobody wants are left out.

        Interest may be given as (receiver, flow) pairs and rates as a mapping, or both as tables
        in memory: see `Interest.of` and `Rates.of`. With `on_peak`, costs use the peak rates too,
        not only the caps.
        """
        interest, rates = Interest.of(interest), Rates.of(rates)
        if on_peak and rates.peak is None:
            raise ValueError("the rates have no peak to plan on")
        known = {flow: index for index, flow in enumerate(rates.flows)}
        missing = tuple(flow for flow in interest.flows if flow not in known)
        if missing:
            raise MissingRateError(missing)
        wanted = [known[flow] for flow in interest.flows]
        peak = None if rates.peak is None else rates.peak[wanted]
        return cls(interest, peak if on_peak and peak is not None else rates.rate[wanted], peak)

    @property
    def load(self) -> FloatArray:
        """The rate that lines must be able to carry: the peak rate where known, else the rate."""
        return self.rate if self.peak is None else self.peak

    @property
    def message_load(self) -> FloatArray:
        """The load in messages per second, whatever unit the demand counts in."""
        return self.load

    @property
    def wanted_rate(self) -> FloatArray:
        """Messages per second that each receiver asked for."""
        return np.add.reduceat(
            self.rate[self.interest.receiver_flows], self.interest.receiver_offsets[:-1]
        )
