"""Parse a rate with its unit: `800Mbit`, `100MB`, `5000`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Self

from distributary.model.demand import Unit

__all__ = ["Amount"]

_PATTERN = re.compile(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(?:([kKMGT])?(i)?(bit|bps|B)(?:/s)?)?")
_PREFIXES = " KMGT"


@dataclass(frozen=True, slots=True)
class Amount:
    """A number per second; `unit` is None if only a number was given.

    Such a number is in the unit that the demand counts in; bits and bytes are always bytes.
    """

    value: float
    unit: Unit | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an amount; anything else raises `ValueError`."""
        match = _PATTERN.fullmatch(text.strip())
        if not match:
            raise ValueError(f"{text!r} is not a rate, such as 5000, 800Mbit or 100MB")
        number, prefix, binary, unit = match.groups()
        value = float(number)
        if unit is not None:
            power = _PREFIXES.index((prefix or " ").upper())
            value *= (1024 if binary else 1000) ** power / (1 if unit == "B" else 8)
        if not value < math.inf:
            raise ValueError(f"{text!r} is more than a rate can be")
        return cls(value, None if unit is None else "bytes")

    def count_in(self, unit: Unit) -> float:
        """The number in the unit that a demand counts in."""
        if self.unit not in (None, unit):
            raise ValueError(f"a rate in {self.unit} needs a demand that counts {self.unit} too")
        return self.value
