"""The plain twin of `_piece_kernels.py`."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["split_pieces"]

Datagram = tuple[int, int, int]  # where it begins, how long it is, of which piece it is


def split_pieces(
    pieces: Sequence[tuple[int, int, int | None]], largest: int
) -> tuple[list[Datagram], int]:
    """Split pieces (place, size, size of their datagrams if several) into datagrams.

    Leaves out datagrams longer than `largest`, and returns their number.
    """
    found: list[Datagram] = []
    for piece, (place, size, segment) in enumerate(pieces):
        each = segment or max(size, 1)
        begins = range(0, size, each) if size else (0,)
        found += [(place + begin, min(each, size - begin), piece) for begin in begins]
    fitting = [datagram for datagram in found if datagram[1] <= largest]
    return fitting, len(found) - len(fitting)
