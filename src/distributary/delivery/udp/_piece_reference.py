"""The plain twin of `_piece_kernels.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Piece", "split_pieces"]

Datagram = tuple[int, int, int, int]  # where it begins, how long it is, its piece, its stamp


class Piece(NamedTuple):
    """What the kernel handed over at once."""

    place: int
    size: int
    segment: int | None  # the size of its datagrams, if they are several
    stamp: int | None  # of the kernel, in ns since 1970


def split_pieces(
    pieces: Sequence[Piece], read_at: int, largest: int
) -> tuple[list[Datagram], int, int]:
    """Split pieces into datagrams; those without a stamp have the time of the read.

    Leaves out datagrams longer than `largest`, and returns their number, and that of the others
    that the kernel stamped.
    """
    found: list[Datagram] = []
    for number, (place, size, segment, stamp) in enumerate(pieces):
        each = segment or max(size, 1)
        begins = range(0, size, each) if size else (0,)
        arrived = stamp or read_at
        found += [(place + begin, min(each, size - begin), number, arrived) for begin in begins]
    fitting = [datagram for datagram in found if datagram[1] <= largest]
    stamped = sum(1 for datagram in fitting if pieces[datagram[2]].stamp)
    return fitting, len(found) - len(fitting), stamped
