"""Formats numbers and tables for the pages of figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["NOTHING", "join_words", "percent", "sentence_case", "span", "table"]

NOTHING = "–"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def percent(share: float, digits: int = 0, *, signed: bool = False) -> str:
    """A share as a percentage."""
    rounded = round(100 * share, digits) + 0.0  # turns -0.0 into 0.0
    return f"{rounded:{'+' if signed else ''}.{digits}f} %"


def span(low: str, high: str) -> str:
    """ "low to high", or just one of them if both are the same."""
    return low if low == high else f"{low} to {high}"


def join_words(items: Sequence[str], nothing: str = "nowhere") -> str:
    """Join items as in "one, two and three"."""
    if not items:
        return nothing
    return " and ".join(part for part in (", ".join(items[:-1]), items[-1]) if part)


def sentence_case(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
