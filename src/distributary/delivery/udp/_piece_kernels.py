"""Splits what recvmmsg read into datagrams. `_piece_reference.py` is the plain version.

With UDP_GRO the kernel hands over several datagrams of one size as one piece. Beside a piece it
puts control messages: the size of its datagrams, and with SO_TIMESTAMPNS when it arrived.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distributary.compiled import kernel
from distributary.model import IntArray

__all__ = ["SOL_SOCKET", "SO_TIMESTAMPNS", "UDP", "UDP_GRO", "split_pieces"]

UDP, UDP_GRO = 17, 104  # the level and the kind of the datagrams' size
SOL_SOCKET, SO_TIMESTAMPNS = 1, 35  # the same of the time of arrival
_LEVEL, _KIND, _DATA = 2, 3, 4  # where they and the data stand in a control message, as words
_HEADER = 16  # bytes of a control message before its data


@kernel
def split_pieces(
    n: int,  # IN   pieces
    sizes: NDArray[np.uint32],  # IN   of the pieces, in bytes
    places: IntArray,  # IN   where each begins
    control_sizes: NDArray[np.uint64],  # IN   of the control messages beside each
    control: NDArray[np.int32],  # IN   those, as words
    read_at: int,  # IN   ns since 1970, the stamp of pieces that the kernel gave none
    largest: int,  # IN   datagrams that are longer are left out
    datagrams: IntArray,  # OUT  rows: where each begins, its length, its piece, its stamp
) -> tuple[int, int, int, int]:
    """Split pieces into datagrams; returns four counts.

    They are the datagrams, those that were too long, the bytes of all pieces, and the datagrams
    that the kernel stamped. All datagrams of a piece but the last have the same size. If
    `datagrams` is too small, the first count is the size it needs, negated.
    """
    total = needed = 0
    for piece in range(n):
        size = int(sizes[piece])
        each, _ = _read_control(size, int(control_sizes[piece]), control[piece])
        total += size
        needed += max(1, (size + each - 1) // each)
    if needed > datagrams.shape[1]:
        return -needed, 0, total, 0
    offsets, lengths, pieces, stamps = datagrams[0], datagrams[1], datagrams[2], datagrams[3]
    found = too_long = stamped = 0
    for piece in range(n):
        size = int(sizes[piece])
        each, stamp = _read_control(size, int(control_sizes[piece]), control[piece])
        before = found
        for nth in range(max(1, (size + each - 1) // each)):
            begin = nth * each
            length = min(each, size - begin)
            if length > largest:
                too_long += 1
                continue
            offsets[found], lengths[found] = places[piece] + begin, length
            pieces[found], stamps[found] = piece, stamp if stamp else read_at
            found += 1
        stamped += found - before if stamp else 0
    return found, too_long, total, stamped


@kernel
def _read_control(size: int, control_size: int, control: NDArray[np.int32]) -> tuple[int, int]:
    """The size of a piece's datagrams, its own unless they are several; and its stamp, or 0."""
    each, stamp, at = max(size, 1), 0, 0
    room = min(control_size, 4 * len(control))
    while room - 4 * at >= _HEADER:
        length = np.int64(control[at])
        if length < _HEADER or length > room - 4 * at:
            break
        level, kind, data = control[at + _LEVEL], control[at + _KIND], at + _DATA
        if level == UDP and kind == UDP_GRO and length >= _HEADER + 4 and control[data] > 0:
            each = np.int64(control[data])
        elif level == SOL_SOCKET and kind == SO_TIMESTAMPNS and length >= _HEADER + 16:
            stamp = _read_i64(control, data) * 1_000_000_000 + _read_i64(control, data + 2)
        at += 2 * ((length + 7) // 8)
    return each, stamp


@kernel
def _read_i64(words: NDArray[np.int32], at: int) -> int:
    """Two words as one number, the lower first."""
    return np.int64(words[at + 1]) << 32 | np.int64(words[at]) & 0xFFFF_FFFF
