"""Pieces of several datagrams are split, and stamped, as the plain way does it."""

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributary.delivery.udp._piece_kernels import (
    SO_TIMESTAMPNS,
    SOL_SOCKET,
    UDP,
    UDP_GRO,
    split_pieces,
)
from distributary.delivery.udp._piece_reference import Piece
from distributary.delivery.udp._piece_reference import split_pieces as split_plainly

SLOT = 70_000
ROOM = 64  # bytes for control messages
READ_AT = 1_700_000_000_000_000_123
pieces = st.lists(
    st.tuples(
        st.integers(0, 65_535),
        st.none() | st.integers(1, 70_000),
        st.none() | st.integers(1, 2**62),
        st.booleans(),
    ),
    max_size=6,
)


def control_message(level: int, kind: int, data: bytes) -> bytes:
    """As `CMSG_NXTHDR` walks over it: a header of 16 bytes, the data, and padding to 8 bytes."""
    head = struct.pack("=Qii", 16 + len(data), level, kind)
    return (head + data).ljust(16 + -(-len(data) // 8) * 8, b"\0")


def control_of(segment: int | None, stamp: int | None, swapped: bool = False) -> bytes:
    found = []
    if stamp is not None:
        times = struct.pack("=qq", *divmod(stamp, 10**9))
        found.append(control_message(SOL_SOCKET, SO_TIMESTAMPNS, times))
    if segment is not None:
        found.append(control_message(UDP, UDP_GRO, struct.pack("=i", segment)))
    return b"".join(reversed(found) if swapped else found)


def compiled(
    sizes: list[int], controls: list[bytes], largest: int, room: int, noise: bytes
) -> tuple[list[tuple[int, int, int, int]], int, int] | int:
    n = len(sizes)
    filled = b"".join(control + noise[len(control) :] for control in controls)
    datagrams = np.empty((4, room), np.int64)
    found, too_long, total, stamped = split_pieces(
        n,
        np.array(sizes, np.uint32),
        SLOT * np.arange(n),
        np.array([len(control) for control in controls], np.uint64),
        np.frombuffer(filled, np.int32).reshape(n, ROOM // 4),
        READ_AT,
        largest,
        datagrams,
    )
    assert total == sum(sizes)
    if found < 0:
        return int(-found)
    return list(zip(*datagrams[:, :found].tolist(), strict=True)), int(too_long), int(stamped)


@given(pieces, st.integers(0, 2_000), st.binary(min_size=ROOM, max_size=ROOM))
def test_pieces_are_split_as_the_plain_way_does_it(
    told: list[tuple[int, int | None, int | None, bool]], largest: int, noise: bytes
) -> None:
    plain = [Piece(SLOT * at, *found[:3]) for at, found in enumerate(told)]
    sizes = [size for size, *_ in told]
    controls = [control_of(*found[1:]) for found in told]
    everything, _, _ = split_plainly(plain, READ_AT, 10**6)
    needed = len(everything)
    expected = split_plainly(plain, READ_AT, largest)
    assert compiled(sizes, controls, largest, needed, noise) == expected
    if needed:
        assert compiled(sizes, controls, largest, needed - 1, noise) == needed


def test_control_messages_of_another_kind_say_nothing() -> None:
    others = [
        control_message(UDP, UDP_GRO + 1, struct.pack("=i", 10)),
        control_message(SOL_SOCKET, UDP_GRO, struct.pack("=qq", 10, 10)),
        control_message(SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("=q", 10)),
    ]
    for control in others:
        assert compiled([40], [control], 100, 4, bytes(ROOM)) == ([(0, 40, 0, READ_AT)], 0, 0)


@given(st.binary(max_size=ROOM), st.integers(0, 100))
def test_control_messages_that_make_no_sense_end_nothing(control: bytes, size: int) -> None:
    found = compiled([size], [control], 10**6, 200, bytes(ROOM))
    assert not isinstance(found, int)
    assert sum(length for _, length, _, _ in found[0]) == size
