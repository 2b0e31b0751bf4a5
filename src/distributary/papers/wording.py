"""Numbers and tables as the pages of figures write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["NOTHING", "listed", "percent", "sentence_case", "span", "table"]

NOTHING = "–"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def percent(share: float, digits: int = 0, *, signed: bool = False) -> str:
    """A share of 1 in percent."""
    rounded = round(100 * share, digits) + 0.0  # never minus nothing
    return f"{rounded:{'+' if signed else ''}.{digits}f} %"


def span(low: str, high: str) -> str:
    """From low to high, or the one number that both are."""
    return low if low == high else f"{low} to {high}"


def listed(items: Sequence[str], nothing: str = "nowhere") -> str:
    """One, two and three."""
    if not items:
        return nothing
    return " and ".join(part for part in (", ".join(items[:-1]), items[-1]) if part)


def sentence_case(text: str) -> str:
    """The text with its first letter raised."""
    return text[:1].upper() + text[1:]
