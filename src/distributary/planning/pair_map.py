"""A growing map from pairs of numbers to whole numbers, for tens of millions of pairs.

Keys and values are two arrays, 20 to 30 bytes for each pair; a dictionary takes over 200.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from distributary.model import IntArray
from distributary.planning._pair_map_kernels import EMPTY, add_keys, find_keys

__all__ = ["PairMap", "decode_pairs", "encode_pairs"]

Numbers = npt.NDArray[np.integer[Any]]

_SMALLEST = 64
_FULL = 0.8  # share of slots in use at which the table grows
_GROWTH = 1.5


class PairMap:
    """A map from pairs of numbers from 0 to 2^31 - 1 to whole numbers; absent pairs have `default`.

    `slots_of` gives the slots of pairs, and then `values[slots]` may be read and written. When
    pairs are added, slots change and `values` may be another array.
    """

    def __init__(self, default: int = 0) -> None:
        self._default, self._used = default, 0
        self.keys: IntArray = np.full(_SMALLEST, EMPTY, np.int64)
        self.values: IntArray = np.full(_SMALLEST, default, np.int64)

    def __len__(self) -> int:
        return self._used

    @property
    def nbytes(self) -> int:
        """The memory that the map takes."""
        return self.keys.nbytes + self.values.nbytes

    def slots_of(self, left: Numbers, right: Numbers) -> IntArray:
        """The slot of each pair; pairs not known yet are added with the default value."""
        self.reserve(len(left))
        slots = np.empty(len(left), np.int64)
        self._used += add_keys(encode_pairs(left, right), self.keys, slots)
        return slots

    def get(self, left: Numbers, right: Numbers) -> IntArray:
        """The value of each pair."""
        slots = np.empty(len(left), np.int64)
        find_keys(encode_pairs(left, right), self.keys, slots)
        return np.where(slots >= 0, self.values[slots], self._default)

    def reserve(self, more: int) -> None:
        """Make room for so many more pairs."""
        if self._used + more > _FULL * len(self.keys):
            size = max(_GROWTH * len(self.keys), (self._used + more) / _FULL + 1)
            self._resize(int(size))

    def note_added(self, number: int) -> None:
        """Count pairs that a kernel added to `keys`; room for them was reserved before."""
        self._used += number

    def list_slots(self) -> IntArray:
        """The slots in use."""
        return np.flatnonzero(self.keys != EMPTY)

    def _resize(self, size: int) -> None:
        """Copy all pairs to larger arrays; those with the default value are dropped."""
        kept = np.flatnonzero((self.keys != EMPTY) & (self.values != self._default))
        keys, values = self.keys[kept], self.values[kept]
        self.keys = np.full(size, EMPTY, np.int64)
        self.values = np.full(size, self._default, np.int64)
        slots = np.empty(len(keys), np.int64)
        self._used = add_keys(keys, self.keys, slots)
        self.values[slots] = values


def encode_pairs(left: Numbers, right: Numbers) -> IntArray:
    """One number for each pair."""
    return (left.astype(np.int64) << 32) | right.astype(np.int64)


def decode_pairs(keys: IntArray) -> tuple[IntArray, IntArray]:
    """The pairs of `encode_pairs`."""
    return keys >> 32, keys & 0xFFFFFFFF
