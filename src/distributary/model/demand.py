"""Interest and rates together: the input of every solver and every cost function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import numpy as np

from distributary.errors import MissingRateError
from distributary.model.interest import FloatArray, Interest
from distributary.model.rates import Rates
from distributary.model.tables import Pairs, RatesByFlow

__all__ = ["UNITS", "Demand", "Unit", "weigh_receivers"]

Unit = Literal["messages", "bytes"]
UNITS: tuple[Unit, ...] = get_args(Unit)

MOST_RECEIVED = 1e290  # messages/s of flooding; leaves room for prices and sums of costs


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Who wants what, and the rate of each wanted flow.

    `rate[k]` is the rate of `interest.flows[k]` per second, in messages or in bytes as `unit` says;
    costs use it. `peak[k]`, where known, is the flow's rate in its busiest window; caps are checked
    against it. `size[k]`, where known, is the bytes of one of its messages.
    """

    interest: Interest
    rate: FloatArray
    peak: FloatArray | None = None
    size: FloatArray | None = None
    unit: Unit = "messages"

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"the unit must be one of {', '.join(UNITS)}, not {self.unit!r}")
        if self.unit == "bytes" and self.size is None:
            raise ValueError("rates in bytes need the size of each flow's messages")
        if self.size is not None and len(self.size) != len(self.interest.flows):
            raise ValueError(f"{len(self.size)} sizes for {len(self.interest.flows)} flows")
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
        cls,
        interest: Interest | Pairs,
        rates: Rates | RatesByFlow,
        *,
        on_peak: bool = False,
        count: Unit = "messages",
    ) -> Self:
        """Look up each wanted flow's rate; flows that nobody wants are left out.

        Interest may be given as (receiver, flow) pairs and rates as a mapping, or both as tables
        in memory: see `Interest.of` and `Rates.of`. With `on_peak`, costs use the peak rates too,
        not only the caps. With `count="bytes"`, rates are in bytes per second.
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
        size = None if rates.size is None else rates.size[wanted]
        rate = peak if on_peak and peak is not None else rates.rate[wanted]
        return cls(interest, rate, peak, size).count_in(count)

    def count_in(self, unit: Unit) -> Self:
        """The same demand in messages, or in bytes if the sizes are known."""
        if unit == self.unit:
            return self
        if self.size is None:
            raise ValueError("the rates have no size to count bytes by")
        by = self.size if unit == "bytes" else 1 / self.size
        peak = None if self.peak is None else self.peak * by
        return replace(self, rate=self.rate * by, peak=peak, unit=unit)

    @property
    def load(self) -> FloatArray:
        """The rate that lines must be able to carry: the peak rate where known, else the rate."""
        return self.rate if self.peak is None else self.peak

    @property
    def message_load(self) -> FloatArray:
        """The load in messages per second, whatever unit the demand counts in."""
        return self.count_in("messages").load

    @property
    def wanted_rate(self) -> FloatArray:
        """The rate that each receiver asked for."""
        return np.add.reduceat(
            self.rate[self.interest.receiver_flows], self.interest.receiver_offsets[:-1]
        )


def weigh_receivers(interest: Interest, weights: Mapping[str, float]) -> FloatArray | None:
    """How much each receiver counts, 1 unless it is named; None if none is."""
    if not weights:
        return None
    return np.array([weights.get(name, 1.0) for name in interest.receivers], np.float64)
