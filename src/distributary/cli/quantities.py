"""Parse times, shares, sizes and moments: `30s`, `1%`, `4GiB`, `2025-03-03T09:30`.

Typer uses these as the parsers of options. A quantity is a number that remembers its text, so that
`--help` shows a default as one would type it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Self

import typer

__all__ = ["ByteCount", "Seconds", "Share", "parse_moment"]

LONGEST_S = 1e9  # about 30 years: more is a typo


class Seconds(float):
    """A time above 0 from `30`, `30s`, `500ms`, `2m`, `1h` or `7d`."""

    _text: str

    def __new__(cls, given: str | float) -> Self:
        """Parse a time; anything else is a usage error."""
        text = str(given)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", text.strip())
        unit = {"ms": 0.001, "m": 60, "h": 3600, "d": 86400}
        seconds = float(match[1]) * unit.get(match[2], 1) if match else 0
        if not 0 < seconds <= LONGEST_S:
            raise typer.BadParameter(f"{text!r} is not a time above 0, such as 30s or 2m")
        made = super().__new__(cls, seconds)
        made._text = text
        return made

    def __str__(self) -> str:
        return self._text


class Share(float):
    """A share from `1%` or `0.01`, between 0 and 1."""

    _text: str

    def __new__(cls, given: str | float) -> Self:
        """Parse a share; anything else is a usage error."""
        text = str(given)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%)?", text.strip())
        share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
        if not 0 <= share <= 1:
            raise typer.BadParameter(f"{text!r} is not a share from 0 to 1, such as 1% or 0.01")
        made = super().__new__(cls, share)
        made._text = text
        return made

    def __str__(self) -> str:
        return self._text


class ByteCount(int):
    """Bytes from `4GiB`, `500MB` or `1000`."""

    _text: str

    def __new__(cls, given: str | int) -> Self:
        """Parse a size; anything else is a usage error."""
        text = str(given)
        pattern = r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?)B?|B)?"
        match = re.fullmatch(pattern, text.strip(), re.IGNORECASE)
        if not match:
            raise typer.BadParameter(f"{text!r} is not a size in bytes, such as 4GiB or 500MB")
        power = " KMGT".index((match[2] or " ").upper())
        made = super().__new__(cls, float(match[1]) * (1024 if match[3] else 1000) ** power)
        made._text = text
        return made

    def __str__(self) -> str:
        return self._text


def parse_moment(text: str) -> datetime:
    """Parse a moment in ISO 8601; without a time zone it is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a moment in ISO 8601, such as 2025-03-03T09:30:00Z"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
