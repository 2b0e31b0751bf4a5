"""The compiled loops of a hash table with one 64-bit key per pair; `_pair_map_reference.py` is
their plain twin.

Keys are not negative. A key is stored in the first free slot from its own one on, so a table must
never be full. A table may have any length below 2^32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distributary.compiled import inner_kernel, kernel
from distributary.model import IntArray

__all__ = ["EMPTY", "add_keys", "find_keys", "locate"]

EMPTY = -1


@inner_kernel
def locate(key: int, table: IntArray) -> int:
    """The slot of a key, or the free slot where it belongs."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    size = np.uint64(len(table))
    at: Any = np.int64(((mixed >> np.uint64(32)) * size) >> np.uint64(32))
    while table[at] != key and table[at] != EMPTY:
        at += 1
        if at == len(table):
            at = 0
    return at  # type: ignore[no-any-return]


@kernel
def add_keys(
    keys: IntArray,  # IN
    table: IntArray,  # IN and OUT
    slots: IntArray,  # OUT  of each key
) -> int:
    """Find or add each key; return how many were added."""
    added = 0
    for i in range(len(keys)):
        at = locate(keys[i], table)
        if table[at] == EMPTY:
            table[at] = keys[i]
            added += 1
        slots[i] = at
    return added


@kernel
def find_keys(
    keys: IntArray,  # IN
    table: IntArray,  # IN
    slots: IntArray,  # OUT  of each key, or -1
) -> None:
    """Find each key."""
    for i in range(len(keys)):
        at = locate(keys[i], table)
        slots[i] = at if table[at] != EMPTY else -1
