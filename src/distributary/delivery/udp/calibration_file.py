"""Write calibrations for `plan --calibration`, which `files.calibration` reads."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distributary.delivery.udp.calibration import Calibration
from distributary.files import replace_file
from distributary.files.calibration import FORMAT

__all__ = ["calibration_document", "write_calibration"]


def calibration_document(found: Calibration) -> dict[str, Any]:
    """A calibration as JSON: prices in CPU seconds a message, rates in messages a second."""
    return {
        "format": FORMAT,
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
