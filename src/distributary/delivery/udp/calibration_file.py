"""Calibrations as files, for `plan --calibration`: what was measured, and the fit."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distributary.cost import FilteringPrices
from distributary.delivery.udp.calibration import Calibration
from distributary.errors import InputError
from distributary.files import replace_file

__all__ = ["DEFAULT_FACTOR", "calibration_document", "read_prices", "write_calibration"]

DEFAULT_FACTOR = 8  # messages per packet, as `publish` has it
_FORMAT = 1
_NUMBERS = ("alpha0", "alpha1", "beta0", "beta1")


def calibration_document(found: Calibration) -> dict[str, Any]:
    """A calibration as JSON: prices in CPU seconds a message, rates in messages a second."""
    return {
        "format": _FORMAT,
        "unit": "CPU seconds per message",
        "alpha0": found.alpha.constant,
        "alpha1": found.alpha.per_packet,
        "beta0": found.beta.constant,
        "beta1": found.beta.per_packet,
        "alpha_r2": found.alpha.r2,
        "beta_r2": found.beta.r2,
        "prices": [asdict(price) for price in found.prices],
        "points": [asdict(point) for point in found.points],
        "params": asdict(found.params),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}",
    }


def write_calibration(found: Calibration, path: str | os.PathLike[str]) -> None:
    """Write a calibration whole or not at all."""
    with replace_file(Path(path)) as file:
        file.write(json.dumps(calibration_document(found), indent=2).encode() + b"\n")


def read_prices(
    path: str | os.PathLike[str], messages_per_packet: float = DEFAULT_FACTOR
) -> FilteringPrices:
    """The prices at h messages per packet, out of a file that `distributary calibrate` wrote."""
    name = os.fspath(path)
    remedy = "write it with `distributary calibrate`"
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise InputError(error.strerror or str(error), path=name, remedy="check the path") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"does not parse as JSON: {error}", path=name, remedy=remedy) from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise InputError("is not a calibration", path=name, remedy=remedy)
    numbers: dict[str, float] = {}
    for key in _NUMBERS:
        value = document.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InputError(f"{key} is not a number", path=name, value=value, remedy=remedy)
        numbers[key] = value
    try:
        return FilteringPrices.for_packets(messages_per_packet, **numbers)
    except ValueError as error:
        raise InputError(str(error), path=name, remedy=remedy) from None
