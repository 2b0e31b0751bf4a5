"""What a soak is reported by: a few numbers on one line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["report_figures"]

FILE: Final = "SOAK_FIGURES"  # the environment variable that names a file to add a line to
_VERSION: Final = "in force "  # and its kind, among changes


def report_figures(found: Mapping[str, Any]) -> None:
    """Print the figures of a soak as JSON, and add them to the file if there is to be one."""
    line = json.dumps(_pick_figures(found))
    print(line)
    if name := os.environ.get(FILE):
        with open(name, "a") as file:
            file.write(line + "\n")


def _pick_figures(found: Mapping[str, Any]) -> dict[str, Any]:
    verdict, changes = found["verdict"], found["changes"]
    return {
        "seed": found["seed"],
        "seconds": found["seconds"],
        **{name: verdict[name] for name in ("published", "due", "delivered")},
        "lost silently": len(verdict["lost"]),
        **{name: len(verdict[name]) for name in ("doubled", "disordered", "strange")},
        "excused": verdict["excused"],
        "faults": found["faults"],
        "versions": {
            what.removeprefix(_VERSION): count
            for what, count in changes.items()
            if what.startswith(_VERSION)
        },
        "waste": found["waste"],
        "phases": found["phases"],
    }
