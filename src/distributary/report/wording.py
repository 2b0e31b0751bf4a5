"""Format numbers and names for readers, and write the headline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distributary.cost import FilteringCost, PacketPrices, Prices

__all__ = [
    "NARROW_SPACE",
    "SAVING_EXPLAINED",
    "headline",
    "number",
    "percent",
    "plural",
    "prices_in_words",
    "seconds",
    "shorten",
    "stored_headline",
]

NARROW_SPACE = "\u202f"
LONGEST_NAME = 80
SAVING_EXPLAINED = (
    "Wasted work is the filtering of messages that a receiver gets but does not want; flooding "
    "sends every wanted flow to every receiver."
)


def number(value: float | None) -> str:
    """Format at least three significant digits, with thousands separators: 12,345; 1.23."""
    if value is None:
        return "–"
    size = abs(value)
    if size >= 1e12:
        return f"{value:.3g}"
    if size >= 99.95 or value == round(value):
        return f"{value:,.0f}"
    if size >= 0.001:
        digits = 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
        return f"{value:.{digits}f}"
    return f"{value:.2g}"


def percent(share: float) -> str:
    """Format a share with one decimal; only exactly 1 is 100 % and only exactly 0 is 0 %."""
    if share in (0.0, 1.0):
        text = f"{100 * share:.0f}"
    elif 0 < share < 0.0005:
        text = "<0.1"
    elif 0.9995 <= share < 1:
        text = ">99.9"
    else:
        text = f"{100 * share:,.1f}"
    return f"{text}{NARROW_SPACE}%"


def seconds(duration: float | None) -> str:
    """Format a duration with its unit: 4.2 ms, 1.53 s, 12 min."""
    if duration is None:
        return "–"
    if duration < 1:
        return f"{number(duration * 1e3)}{NARROW_SPACE}ms"
    if duration < 600:
        return f"{number(duration)}{NARROW_SPACE}s"
    return f"{duration / 60:,.0f}{NARROW_SPACE}min"


def plural(count: float, noun: str) -> str:
    """'1 flow', '7,480 flows', '15.8 groups'."""
    return f"{number(count)} {noun}" + ("" if count == 1 else "s")


def shorten(text: str) -> str:
    """Return the name, or its beginning and an ellipsis."""
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def prices_in_words(prices: Prices, alpha: str = "α", beta: str = "β") -> str:
    """Name both prices of a message and, where they have prices of their own, of packets."""
    if not isinstance(prices, PacketPrices):
        return f"{alpha} = {prices.alpha:g}, {beta} = {prices.beta:g}"
    return (
        f"{alpha} = {prices.alpha0:.3g} + {prices.alpha1:.3g} a packet, "
        f"{beta} = {prices.beta0:.3g} + {prices.beta1:.3g} a packet, of up to "
        f"{prices.messages_per_packet:g} messages or {1e3 * prices.delay_s:g} ms"
    )


def headline(filtering: FilteringCost, *, valid: bool) -> str:
    """The headline of every page and summary of a plan: the work that it saves.

    `SAVING_EXPLAINED` says what it compares.
    """
    if not valid:
        return "This plan is not valid"
    if filtering.flooding_excess == 0:
        return "Everybody wants everything, so nothing is wasted"
    if filtering.excess == 0:
        return "Receivers waste no work"
    saved = filtering.saved_share
    if np.isclose(saved, 0):
        return "Receivers waste as much work as with flooding"
    comparative = "less" if saved > 0 else "more"
    return f"Receivers waste {percent(abs(saved))} {comparative} work than with flooding"


def stored_headline(costs: Mapping[str, Any]) -> str:
    """The headline of a plan whose costs are read from a JSON document."""
    filtering = costs.get("filtering") or {}
    names = ("session_cost", "flow_cost", "wanted_work", "flooding_excess")
    if any(filtering.get(name) is None for name in names):
        return "What this plan saves was not recorded"
    cost = FilteringCost(*(float(filtering[name]) for name in names))
    return headline(cost, valid=bool(costs.get("valid", True)))
