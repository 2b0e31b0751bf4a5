"""Flows of two rates and two popularities, wanted at random.

Reference: Adler et al. (2001), section 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from distributary.model import FloatArray, Interest, Rates

__all__ = ["TwoClass", "two_class"]

_MOST_DRAWS = 10_000


@dataclass(frozen=True, slots=True)
class TwoClass:
    """The parameters; by default those of Fig. 2. Comments give the paper's symbols."""

    flows: int = 9  # N
    receivers: int = 9  # M
    fast_share: float = 0.1  # alpha
    fast_rate: float = 10.0  # lambda_H
    slow_rate: float = 1.0  # lambda_L
    popular_share: float = 0.2  # beta
    want_popular: float = 0.6  # P_pop
    want_unpopular: float = 0.1  # P_unp

    def __post_init__(self) -> None:
        if self.flows < 1 or self.receivers < 1:
            raise ValueError("there must be at least 1 flow and 1 receiver")
        for word in ("fast_share", "popular_share", "want_popular", "want_unpopular"):
            if not 0 <= getattr(self, word) <= 1:
                raise ValueError(f"{word} is a probability, not {getattr(self, word)}")
        if (
            self.want_popular * self.popular_share + self.want_unpopular * (1 - self.popular_share)
            <= 0
        ):
            raise ValueError("with these probabilities nobody wants anything")
        if not (0 < self.fast_rate < float("inf") and 0 < self.slow_rate < float("inf")):
            raise ValueError("rates must be finite numbers above 0")


def two_class(params: TwoClass, rng: np.random.Generator) -> tuple[Interest, Rates]:
    """Draw flows and receivers until there are as many *active* ones as requested.

    The paper removes flows that nobody wants and receivers who want nothing. Removing them from one
    draw would leave fewer than its figures show, so inactive ones are redrawn instead.
    """
    popular, rate = _draw_flows(params, params.flows, rng)
    wanted = _draw_interest(params, popular, params.receivers, rng)
    for _ in range(_MOST_DRAWS):
        idle_flows = np.flatnonzero(~wanted.any(axis=0))
        idle_receivers = np.flatnonzero(~wanted.any(axis=1))
        if not len(idle_flows) and not len(idle_receivers):
            return _build_demand(params, wanted, rate)
        popular[idle_flows], rate[idle_flows] = _draw_flows(params, len(idle_flows), rng)
        fresh = _draw_interest(params, popular, params.receivers, rng)
        wanted[:, idle_flows] = fresh[:, idle_flows]
        wanted[idle_receivers] = fresh[idle_receivers]
    raise ValueError("interest is too rare: some flow or receiver stayed inactive in every draw")


def _build_demand(
    params: TwoClass, wanted: npt.NDArray[np.bool_], rate: FloatArray
) -> tuple[Interest, Rates]:
    receivers, flows = np.nonzero(wanted)
    flow_width, receiver_width = len(str(params.flows - 1)), len(str(params.receivers - 1))
    names = tuple(f"flow-{flow:0{flow_width}}" for flow in range(params.flows))
    interest = Interest.from_codes(
        (f"user-{receiver:0{receiver_width}}" for receiver in range(params.receivers)),
        names,
        receivers.astype(np.int32),
        flows.astype(np.int32),
    )
    return interest, Rates(names, rate)


def _draw_flows(
    params: TwoClass, n: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.bool_], FloatArray]:
    popular = rng.random(n) < params.popular_share
    rate = np.where(rng.random(n) < params.fast_share, params.fast_rate, params.slow_rate)
    return popular, rate


def _draw_interest(
    params: TwoClass,
    popular: npt.NDArray[np.bool_],
    receivers: int,
    rng: np.random.Generator,
) -> npt.NDArray[np.bool_]:
    odds = np.where(popular, params.want_popular, params.want_unpopular)
    return rng.random((receivers, len(popular))) < odds
