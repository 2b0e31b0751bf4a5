"""Read the prices that `distributary calibrate` measured."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from distributary.cost import PacketPrices
from distributary.errors import InputError
from distributary.model import Packing

__all__ = ["FORMAT", "read_prices"]

FORMAT = 1
_NUMBERS = ("alpha0", "alpha1", "beta0", "beta1")


def read_prices(path: str | os.PathLike[str], packing: Packing | None = None) -> PacketPrices:
    """Read the prices of messages and packets from a file that `distributary calibrate` wrote."""
    name = os.fspath(path)
    remedy = "write it with `distributary calibrate`"
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise InputError(error.strerror or str(error), path=name, remedy="check the path") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"does not parse as JSON: {error}", path=name, remedy=remedy) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError("is no calibration", path=name, remedy=remedy)
    numbers: dict[str, float] = {}
    for key in _NUMBERS:
        value = document.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InputError(f"{key} is not a number", path=name, value=value, remedy=remedy)
        numbers[key] = value
    try:
        return PacketPrices(**numbers, **asdict(packing or Packing()))
    except ValueError as error:
        raise InputError(str(error), path=name, remedy=remedy) from None
