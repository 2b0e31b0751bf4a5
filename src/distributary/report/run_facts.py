"""Facts of a run's manifest, some of which may be missing, and how the page shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distributary.report.wording import NARROW_SPACE, number

__all__ = [
    "Facts",
    "count_wasted",
    "get_amount",
    "get_part",
    "show_bytes",
    "show_count",
    "show_moment",
    "show_plural",
    "show_rate",
]

Facts = Mapping[str, Any]


def get_part(document: Facts, key: str) -> Facts:
    """A part of the document, empty if it is missing."""
    found = document.get(key)
    return found if isinstance(found, Mapping) else {}


def get_amount(facts: Facts, key: str) -> int:
    """A number, 0 if it is missing."""
    return facts.get(key) or 0


def count_wasted(totals: Facts) -> int:
    """Count the messages that receivers receive but do not want."""
    return get_amount(totals, "received") - get_amount(totals, "wanted")


def show_count(value: int | None) -> str:
    """Format a number with all digits; a dash for None."""
    return "–" if value is None else f"{value:,}"


def show_plural(value: int | None, noun: str) -> str:
    """As `plural`, with all digits."""
    return f"{show_count(value)} {noun}" + ("" if value == 1 else "s")


def show_rate(value: float | None) -> str:
    """Format a rate; a low one as one message in so many seconds."""
    if value is None or value >= 0.1:
        return f"{number(value)} messages/s"
    return f"1 message in {number(1 / value)}{NARROW_SPACE}s"


def show_bytes(value: float | None) -> str:
    """Format a size in a suitable unit; a dash for None."""
    if value is None:
        return "–"
    size, unit = float(value), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    return f"{number(size)}{NARROW_SPACE}{unit}"


def show_moment(text: Any) -> str:
    """Format an ISO time for readers."""
    return str(text).replace("T", " ").replace("+00:00", " UTC")
