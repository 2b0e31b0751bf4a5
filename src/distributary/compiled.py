"""How inner loops are compiled: once per machine, without the interpreter's lock."""

from __future__ import annotations

from pathlib import Path

from numba import njit

__all__ = ["CACHED", "kernel"]

# Compiled code is kept beside its source. Shipped to an executor inside a wheel there is no such
# place, and each worker compiles for itself.
CACHED = Path(__file__).is_file()

kernel = njit(cache=CACHED, nogil=True)
