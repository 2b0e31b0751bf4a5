"""The fingerprints of a demand in memory: those of `files.fingerprint`, without the objects for it.

An `Interest` has its pairs in two orders, and names as Python strings to be encoded one by one. A
fingerprint needs one order, and takes names and numbers as they lie in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from distributary.model import FloatArray, IndexArray, IntArray

__all__ = ["fingerprint_interest", "fingerprint_rates"]

_AT_ONCE = 1 << 20


def fingerprint_interest(
    receivers: Sequence[str],
    flows: Sequence[str],
    audience: IntArray,
    pairs: IndexArray,
    place: IndexArray,
) -> str:
    """The fingerprint of the interest of these names, which are sorted.

    `audience` is the number of receivers of each flow; `place[pairs]` are the places of the
    receivers in `receivers`, flow by flow and ascending.
    """
    digest = hashlib.sha256()
    _add(digest, b"interest")
    _add_names(digest, receivers)
    _add_names(digest, flows)
    _add(digest, np.concatenate(([0], np.cumsum(audience))).astype("<i8").data)
    digest.update((4 * len(pairs)).to_bytes(8, "little"))
    for first in range(0, len(pairs), _AT_ONCE):
        digest.update(place[pairs[first : first + _AT_ONCE]].astype("<i4", copy=False).data)
    return f"sha256:{digest.hexdigest()}"


def fingerprint_rates(flows: Sequence[str], rate: FloatArray) -> str:
    """The fingerprint of the rates of these flows, which are sorted."""
    digest = hashlib.sha256()
    _add(digest, b"rates")
    _add_names(digest, flows)
    _add(digest, rate.astype("<f8").data)
    return f"sha256:{digest.hexdigest()}"


def _add_names(digest: hashlib._Hash, names: Sequence[str]) -> None:
    """The lengths of the names, and then all of them together."""
    column = pa.array(names, pa.large_string())
    _, offsets, text = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[: len(names) + 1]
    _add(digest, np.diff(ends).astype("<i8").data)
    _add(digest, b"" if text is None else memoryview(text)[: int(ends[-1])])


def _add(digest: hashlib._Hash, piece: bytes | memoryview) -> None:
    """A piece, after its length in bytes."""
    digest.update(memoryview(piece).nbytes.to_bytes(8, "little"))
    digest.update(piece)
