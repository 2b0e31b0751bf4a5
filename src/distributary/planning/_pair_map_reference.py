"""The plain twin of `_pair_map_kernels.py`: a dictionary of keys and slots."""

from __future__ import annotations

from distributary.model import IntArray

__all__ = ["add_keys", "find_keys"]

EMPTY = -1


def add_keys(keys: IntArray, table: IntArray, slots: IntArray) -> int:
    """Find or add each key; return how many were added. New keys take the first free slots."""
    known = _list_known(table)
    free = [at for at, key in enumerate(table.tolist()) if key == EMPTY]
    added = 0
    for i, key in enumerate(keys.tolist()):
        if key not in known:
            known[key] = free[added]
            table[known[key]] = key
            added += 1
        slots[i] = known[key]
    return added


def find_keys(keys: IntArray, table: IntArray, slots: IntArray) -> None:
    """Find each key."""
    known = _list_known(table)
    slots[:] = [known.get(key, -1) for key in keys.tolist()]


def _list_known(table: IntArray) -> dict[int, int]:
    return {key: at for at, key in enumerate(table.tolist()) if key != EMPTY}
