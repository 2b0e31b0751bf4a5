"""Stock quotes, and filters on them that test ranges."""

from __future__ import annotations

from dataclasses import dataclass

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
    Value,
    Values,
)
from distributary.model.event import after, key_of

__all__ = ["QUOTE_SCHEMA", "Quotes", "quote_events", "quote_filters"]

_VENUES = ("ARCA", "BATS", "EDGX", "IEX", "MEMX", "NSDQ", "NYSE", "PSX")
QUOTE_SCHEMA = Schema(
    (
        Attribute("symbol", AttributeKind.TEXT),
        Attribute("price", AttributeKind.FLOAT),
        Attribute("volume", AttributeKind.INTEGER),
        Attribute("venue", AttributeKind.TEXT, frozenset(_VENUES)),
    )
)
_SYMBOL, _PRICE, _VOLUME, _VENUE = range(4)


@dataclass(frozen=True, slots=True)
class Quotes:
    """The parameters: the popularity of symbols, and how often a filter tests what.

    Each symbol trades around its own price between 10 and 1000. A filter on the price selects a
    band, `band` wide as a share of the symbol's price, or of 100 if it names no symbol.
    """

    symbols: int = 1_000
    exponent: float = 1.0
    test_symbol: float = 0.9
    test_price: float = 0.6
    test_volume: float = 0.3
    test_venue: float = 0.2
    band: float = 0.1

    def __post_init__(self) -> None:
        if self.symbols < 1:
            raise ValueError("there must be at least 1 symbol")
        for word in ("test_symbol", "test_price", "test_volume", "test_venue"):
            if not 0 <= getattr(self, word) <= 1:
                raise ValueError(f"{word} is a probability, not {getattr(self, word)}")
        if not self.band > 0:
            raise ValueError(f"band must be a share of the price above 0, not {self.band}")


def quote_events(params: Quotes, n: int, rng: np.random.Generator) -> pa.Table:
    """Quotes, one column per attribute of `QUOTE_SCHEMA`."""
    symbols = _draw_symbols(params, n, rng)
    prices = _home_prices(params)[symbols] * np.exp(rng.normal(0, 0.05, n))
    return pa.table(
        {
            "symbol": [_name(symbol) for symbol in symbols.tolist()],
            "price": np.round(prices, 2),
            "volume": _draw_volumes(n, rng),
            "venue": [_VENUES[at] for at in rng.integers(len(_VENUES), size=n).tolist()],
        }
    )


def quote_filters(params: Quotes, n: int, rng: np.random.Generator) -> list[Filter]:
    """Filters such as symbol = 'S00007' AND price >= 41.2 AND price < 45.3 AND volume >= 800."""
    symbols, home = _draw_symbols(params, n, rng), _home_prices(params)
    odds = (params.test_symbol, params.test_price, params.test_volume, params.test_venue)
    tested = rng.random((n, len(odds))) < odds
    around = np.where(tested[:, _SYMBOL], home[symbols], 100.0) * np.exp(rng.normal(0, 0.05, n))
    volumes, venues = _draw_volumes(n, rng), rng.integers(len(_VENUES), size=n)
    found = []
    for row in range(n):
        low, high = around[row] * (1 - params.band / 2), around[row] * (1 + params.band / 2)
        tests = (
            _single_value(_name(int(symbols[row])), AttributeKind.TEXT),
            Values(
                (
                    (
                        key_of(round(low, 2), AttributeKind.FLOAT),
                        key_of(round(high, 2) + 0.01, AttributeKind.FLOAT),
                    ),
                )
            ),
            Values(((int(volumes[row]), AttributeKind.INTEGER.end),)),
            _single_value(_VENUES[venues[row]], AttributeKind.TEXT),
        )
        chosen = [(at, tests[at]) for at in np.flatnonzero(tested[row]).tolist()]
        box = Box.of(chosen, QUOTE_SCHEMA)
        assert box is not None
        found.append(Filter(QUOTE_SCHEMA, (box,)))
    return found


def _draw_symbols(params: Quotes, n: int, rng: np.random.Generator) -> IntArray:
    odds = 1.0 / np.arange(1, params.symbols + 1) ** params.exponent
    return rng.choice(params.symbols, n, p=odds / odds.sum())


def _home_prices(params: Quotes) -> FloatArray:
    """Prices spread over their range by the golden ratio, without random draws."""
    return np.asarray(10.0 * 100.0 ** (np.arange(params.symbols) * 0.6180339887498949 % 1.0))


def _draw_volumes(n: int, rng: np.random.Generator) -> IntArray:
    return np.asarray(100 * np.ceil(rng.lognormal(1.0, 1.0, n)), np.int64)


def _name(symbol: int) -> str:
    return f"S{symbol:05}"


def _single_value(value: Value, kind: AttributeKind) -> Values:
    key = key_of(value, kind)
    return Values(((key, after(key)),))
