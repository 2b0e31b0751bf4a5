"""Parse times, shares, sizes and moments: `30s`, `1%`, `4GiB`, `2025-03-03T09:30`.

Typer uses these as the parsers of options. A quantity is a number that remembers its text, so that
`--help` shows a default as one would type it.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import ClassVar, Self

import typer

from distributary.model import Amount, Unit

__all__ = ["ByteCount", "Delay", "Rate", "Seconds", "Share", "parse_moment"]

LONGEST_S = 1e9  # about 30 years: more is a typo


class Seconds(float):
    """A time above 0 from `30`, `30s`, `500ms`, `2m`, `1h` or `7d`."""

    _text: str
    _asked: ClassVar[str] = "a time above 0, such as 30s or 2m"

    def __new__(cls, given: str | float) -> Self:
        """Parse a time; anything else is a usage error."""
        text = str(given)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|us|s|m|h|d)?", text.strip())
        unit = {"us": 1e-6, "ms": 0.001, "m": 60, "h": 3600, "d": 86400}
        seconds = float(match[1]) * unit.get(match[2], 1) if match else math.nan
        if not cls._accepts(seconds):
            raise typer.BadParameter(f"{text!r} is not {cls._asked}")
        made = super().__new__(cls, seconds)
        made._text = text
        return made

    @staticmethod
    def _accepts(seconds: float) -> bool:
        return 0 < seconds <= LONGEST_S

    def __str__(self) -> str:
        return self._text


class Delay(Seconds):
    """A time of 0 or more, such as `500us`, `1ms` or `0`."""

    _asked: ClassVar[str] = "a time of 0 or more, such as 500us or 1ms"

    @staticmethod
    def _accepts(seconds: float) -> bool:
        return 0 <= seconds <= LONGEST_S


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


class Rate(float):
    """A rate from `5000`, `800Mbit` or `100MB`.

    Bits and bytes are bytes; a number without a unit is in messages or in bytes, as the demand
    counts.
    """

    _text: str
    _amount: Amount

    def __new__(cls, given: str | float) -> Self:
        """Parse a rate; anything else is a usage error."""
        text = str(given)
        try:
            amount = Amount.parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        made = super().__new__(cls, amount.value)
        made._text, made._amount = text, amount
        return made

    def count_in(self, unit: Unit) -> float:
        """The number in what the demand counts; bytes are a usage error if it counts messages."""
        try:
            return self._amount.count_in(unit)
        except ValueError:
            raise typer.BadParameter(
                f"{self._text!r} is in bytes, but the rates are in messages: give a number of "
                "messages, or --count bytes where the command takes it"
            ) from None

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
