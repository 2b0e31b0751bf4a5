"""A trading floor: symbols in a few markets; each trader follows part of two of them.

Reference: Tock et al. (2005), section 5.1. What the paper leaves open is chosen to reproduce its
figures: a market's size and its interest both fall as 1/i, a symbol's message rate is its market's
weight times its popularity, and a trader draws symbols without replacement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from distributary.model import FloatArray, IntArray, Interest, Rates

__all__ = ["TradingFloor", "trading_floor"]


@dataclass(frozen=True, slots=True)
class TradingFloor:
    """The parameters; by default those of the paper's benchmark system."""

    symbols: int = 20_000
    markets: int = 10
    receivers: int = 500
    markets_per_receiver: int = 2
    share_of_market: float = 0.01  # the share of a market's symbols that a receiver follows
    top_tenth_share: float = 0.55  # the share of a market's trade in its top 10 % of symbols
    peak_rate: float = 1000.0  # messages/s of the busiest symbol: the top of Fig. 4's axis

    def __post_init__(self) -> None:
        if min(self.symbols, self.markets, self.receivers, self.markets_per_receiver) < 1:
            raise ValueError(
                "symbols, markets, receivers and markets per receiver must be at least 1"
            )
        if self.markets_per_receiver > self.markets:
            raise ValueError(
                f"a receiver cannot follow {self.markets_per_receiver} of {self.markets} markets"
            )
        if self.symbols < self.markets:
            raise ValueError(f"{self.symbols} symbols cannot fill {self.markets} markets")
        if not 0 < self.share_of_market <= 1:
            raise ValueError("the share of a market that a receiver follows must be in (0, 1]")
        if not 0.1 < self.top_tenth_share < 1:
            raise ValueError(
                "the top tenth must hold more than 10 % and less than all of the trade"
            )
        if not 0 < self.peak_rate < math.inf:
            raise ValueError("the peak rate must be a finite number above 0")


def trading_floor(params: TradingFloor, rng: np.random.Generator) -> tuple[Interest, Rates]:
    """Draw who follows which symbol; rates cover every symbol, followed or not."""
    weight = 1.0 / np.arange(1, params.markets + 1)
    sizes = _market_sizes(params.symbols, weight)
    first = np.concatenate(([0], np.cumsum(sizes)))
    decay = _decay(params.top_tenth_share)
    popularity = [np.exp(-decay * (np.arange(size) + 0.5) / size) for size in sizes]

    receiver_codes, flow_codes = [], []
    for receiver in range(params.receivers):
        followed = rng.choice(
            params.markets, params.markets_per_receiver, replace=False, p=weight / weight.sum()
        )
        for market in followed:
            n = max(1, round(params.share_of_market * sizes[market]))
            odds = popularity[market] / popularity[market].sum()
            flow_codes.append(first[market] + rng.choice(sizes[market], n, replace=False, p=odds))
            receiver_codes.append(np.full(n, receiver))

    names = _symbol_names(sizes)
    rate = params.peak_rate * np.concatenate(
        [w * p for w, p in zip(weight, popularity, strict=True)]
    )
    flows, codes = np.unique(np.concatenate(flow_codes), return_inverse=True)
    width = len(str(params.receivers - 1))
    interest = Interest.from_codes(
        (f"trader-{receiver:0{width}}" for receiver in range(params.receivers)),
        (names[flow] for flow in flows),
        np.concatenate(receiver_codes).astype(np.int32),
        codes.astype(np.int32),
    )
    return interest, Rates(tuple(names), rate)


def _market_sizes(symbols: int, weight: FloatArray) -> IntArray:
    """Integers in proportion to `weight` with the given sum; largest remainders round up."""
    share = symbols * weight / weight.sum()
    sizes: IntArray = np.maximum(1, np.floor(share)).astype(np.int64)
    by_remainder = np.argsort(sizes - share, kind="stable")
    short = symbols - int(sizes.sum())
    sizes[by_remainder[: max(short, 0)]] += 1
    while sizes.sum() > symbols:  # possible if many small markets were raised to one symbol
        sizes[np.flatnonzero(sizes == sizes.max())[-1]] -= 1
    return sizes


def _decay(top_tenth_share: float) -> float:
    """The c for which the first tenth of exp(-c x) on [0, 1] holds the given share."""
    low, high = 1e-9, 1e3
    for _ in range(100):
        middle = (low + high) / 2
        if math.expm1(-0.1 * middle) / math.expm1(-middle) < top_tenth_share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _symbol_names(sizes: IntArray) -> list[str]:
    market_width, rank_width = len(str(len(sizes))), len(str(int(sizes.max()) - 1))
    return [
        f"m{market:0{market_width}}-{rank:0{rank_width}}"
        for market, size in enumerate(sizes, start=1)
        for rank in range(size)
    ]
