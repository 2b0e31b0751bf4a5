"""Pieces of several datagrams are split as the plain way does it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributary.delivery.udp._piece_kernels import (
    KIND,
    LEVEL,
    SEGMENT_SIZE,
    UDP,
    UDP_GRO,
    split_pieces,
)
from distributary.delivery.udp._piece_reference import split_pieces as split_plainly

SLOT = 70_000
pieces = st.lists(
    st.tuples(st.integers(0, 65_535), st.one_of(st.none(), st.integers(1, 70_000))), max_size=6
)


def compiled(
    told: list[tuple[int, int | None]], largest: int, room: int, noise: np.ndarray
) -> tuple[list[tuple[int, int, int]], int] | int:
    n = len(told)
    sizes = np.array([size for size, _ in told], np.uint32)
    control = noise.copy()
    control_sizes = np.zeros(n, np.uint64)
    for at, (_, segment) in enumerate(told):
        if segment is not None:
            control_sizes[at] = 20
            control[at, [LEVEL, KIND, SEGMENT_SIZE]] = UDP, UDP_GRO, segment
    offsets, lengths, piece = np.empty((3, room), np.int64)
    found, too_long, total = split_pieces(
        n, sizes, SLOT * np.arange(n), control_sizes, control, largest, offsets, lengths, piece
    )
    assert total == sum(size for size, _ in told)
    if found < 0:
        return int(-found)
    columns = (column[:found].tolist() for column in (offsets, lengths, piece))
    return list(zip(*columns, strict=True)), int(too_long)


@given(pieces, st.integers(0, 2_000), st.integers(0, 5))
def test_pieces_are_split_as_the_plain_way_does_it(
    told: list[tuple[int, int | None]], largest: int, seed: int
) -> None:
    noise = np.random.default_rng(seed).integers(-(2**31), 2**31, (len(told), 8), np.int32)
    places = [(SLOT * at, size, segment) for at, (size, segment) in enumerate(told)]
    expected = split_plainly(places, largest)
    everything, _ = split_plainly(places, 10**6)
    needed = len(everything)
    assert compiled(told, largest, needed, noise) == expected
    if needed:
        assert compiled(told, largest, needed - 1, noise) == needed


def test_a_number_of_another_kind_beside_a_piece_does_not_split_it() -> None:
    control = np.zeros((1, 8), np.int32)
    control[0, [LEVEL, KIND, SEGMENT_SIZE]] = UDP, UDP_GRO + 1, 10
    offsets, lengths, piece = np.empty((3, 4), np.int64)
    found = split_pieces(
        1, np.array([40], np.uint32), np.zeros(1, np.int64), np.array([20], np.uint64), control,
        100, offsets, lengths, piece,
    )  # fmt: skip
    assert found == (1, 0, 40)
    assert lengths[0] == 40
