"""The compiled draw of one choice by its price: exact in doubles, fast in single precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from distributary.compiled import CACHED, kernel
from distributary.model import FloatArray

__all__ = ["STRETCH", "pick", "pick_near"]

STRETCH = 64  # choices whose odds are added up at once
_LARGEST = 1e34  # the limit for a sum of odds in single precision; 3.5 ** 64 is 6e34


@njit(cache=CACHED, nogil=True, fastmath={"nnan", "ninf", "nsz"})
def _least(price: FloatArray) -> float:
    """The smallest price. No price is NaN, so the loop can be vectorised."""
    least = price[0]
    for c in range(1, len(price)):
        least = min(least, price[c])
    return least


@kernel
def pick(price: FloatArray, stay: int, temperature: float, chance: float, odds: FloatArray) -> int:
    """Draw one of the choices, with a probability proportional to exp(-price / temperature).

    At temperature 0 it returns the first of the cheapest, or `stay` if that is as cheap. The
    exponential is computed as (1 + x/64) ** 64, which can be vectorised; `odds` is scratch space.
    """
    least = _least(price)
    if temperature <= 0:
        if price[stay] == least:
            return stay
        for c in range(len(price)):
            if price[c] == least:
                return c
    scale = 1.0 / (64.0 * temperature)
    for c in range(len(price)):
        x = 1.0 + (least - price[c]) * scale
        x = x if x > 0.0 else 0.0
        x *= x
        x *= x
        x *= x
        x *= x
        x *= x
        odds[c] = x * x
    total = 0.0
    for first in range(0, len(price), STRETCH):
        total += _sum(odds[first : first + STRETCH])
    left = chance * total
    for first in range(0, len(price), STRETCH):
        stretch = odds[first : first + STRETCH]
        here = _sum(stretch)
        if left < here:
            for c in range(len(stretch)):
                left -= stretch[c]
                if left < 0:
                    return first + c
            return first + len(stretch) - 1  # rounding: the sum was slightly more than its parts
        left -= here
    return stay


@kernel
def _sum(values: FloatArray) -> float:
    """Add up four sums side by side, in the same order on every machine."""
    a = b = c = d = 0.0
    whole = len(values) // 4 * 4
    for i in range(0, whole, 4):
        a += values[i]
        b += values[i + 1]
        c += values[i + 2]
        d += values[i + 3]
    for i in range(whole, len(values)):
        a += values[i]
    return (a + b) + (c + d)


@kernel
def pick_near(
    price: Any, stay: int, temperature: float, chance: float, odds: Any, sums: Any
) -> int:
    """As `pick`, but relative to the price of staying, so that no minimum has to be searched for.

    If something is so much cheaper than staying that the powers would overflow, prices are taken
    relative to the cheapest instead.
    """
    scale = np.float32(1.0 / (64.0 * temperature))
    total = _powers(price, price[stay], scale, odds, sums)
    if total > _LARGEST:
        total = _powers(price, _least(price), scale, odds, sums)
    left = np.float32(chance) * total
    for s in range(len(sums)):
        if left < sums[s]:
            stretch = odds[s * STRETCH : (s + 1) * STRETCH]
            for c in range(len(stretch)):
                left -= stretch[c]
                if left < 0:
                    return s * STRETCH + c
            return s * STRETCH + len(stretch) - 1  # rounding
        left -= sums[s]
    return stay


@kernel
def _powers(price: Any, against: float, scale: float, odds: Any, sums: Any) -> float:
    """Fill the odds and their sums per stretch; return the total."""
    zero, one, most = np.float32(0), np.float32(1), np.float32(3.5)
    for c in range(len(price)):
        x = one + (against - price[c]) * scale
        x = x if x > zero else zero
        x = x if x < most else most
        x *= x
        x *= x
        x *= x
        x *= x
        x *= x
        odds[c] = x * x
    total = zero
    for s in range(len(sums)):
        sums[s] = _sum_near(odds[s * STRETCH : (s + 1) * STRETCH])
        total += sums[s]
    return total


@kernel
def _sum_near(values: Any) -> float:
    """Add up eight sums side by side, always in the same order."""
    a = b = c = d = e = f = g = h = np.float32(0)
    whole = len(values) // 8 * 8
    for i in range(0, whole, 8):
        a += values[i]
        b += values[i + 1]
        c += values[i + 2]
        d += values[i + 3]
        e += values[i + 4]
        f += values[i + 5]
        g += values[i + 6]
        h += values[i + 7]
    for i in range(whole, len(values)):
        a += values[i]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))
