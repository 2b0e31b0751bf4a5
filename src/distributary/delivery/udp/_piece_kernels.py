"""Splits what recvmmsg read into datagrams. `_piece_reference.py` is the plain version.

With UDP_GRO the kernel hands over several datagrams of one size as one piece.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distributary.compiled import kernel
from distributary.model import IntArray

__all__ = ["KIND", "LEVEL", "SEGMENT_SIZE", "UDP", "UDP_GRO", "split_pieces"]

UDP, UDP_GRO = 17, 104  # the level and the kind of a number beside a piece
LEVEL, KIND, SEGMENT_SIZE = 2, 3, 4  # where they and the number stand, as words


@kernel
def split_pieces(
    n: int,  # IN   pieces
    sizes: NDArray[np.uint32],  # IN   of the pieces, in bytes
    places: IntArray,  # IN   where each begins
    control_sizes: NDArray[np.uint64],  # IN   of what came beside each
    control: NDArray[np.int32],  # IN   that, as words
    largest: int,  # IN   datagrams that are longer are left out
    offsets: IntArray,  # OUT  where each datagram begins
    lengths: IntArray,  # OUT  how long it is
    pieces: IntArray,  # OUT  of which piece it is
) -> tuple[int, int, int]:
    """Split pieces into datagrams: how many, how many were too long, and the bytes of all pieces.

    All datagrams of a piece but the last have the same size. If `offsets` is too small, the first
    number is the size it needs, negated.
    """
    total = needed = 0
    for piece in range(n):
        size = int(sizes[piece])
        each = _segment(size, control_sizes[piece], control[piece])
        total += size
        needed += max(1, (size + each - 1) // each)
    if needed > len(offsets):
        return -needed, 0, total
    found = too_long = 0
    for piece in range(n):
        size = int(sizes[piece])
        each = _segment(size, control_sizes[piece], control[piece])
        for nth in range(max(1, (size + each - 1) // each)):
            begin = nth * each
            length = min(each, size - begin)
            if length > largest:
                too_long += 1
                continue
            offsets[found], lengths[found] = places[piece] + begin, length
            pieces[found] = piece
            found += 1
    return found, too_long, total


@kernel
def _segment(size: int, control_size: int, control: NDArray[np.int32]) -> int:
    """The size of a piece's datagrams: its own, unless the control data says otherwise."""
    joined = control_size > 0 and control[LEVEL] == UDP and control[KIND] == UDP_GRO
    if joined and control[SEGMENT_SIZE] > 0:
        return int(control[SEGMENT_SIZE])
    return max(size, 1)
