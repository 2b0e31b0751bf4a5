"""Frames: the same bodies however the stream is cut, and nothing larger than allowed is kept."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.real.frames import (
    KEEP_ALIVE,
    FrameSplitter,
    FrameTooLongError,
    join_frames,
)


def split_plainly(stream: bytes, longest: int) -> tuple[list[bytes], int | None]:
    """The bodies of a stream, and the length of a frame that is too long."""
    bodies = []
    while len(stream) >= 4:
        length = int.from_bytes(stream[:4], "big")
        if length > longest:
            return bodies, length
        if len(stream) < 4 + length:
            break
        if length:
            bodies.append(stream[4 : 4 + length])
        stream = stream[4 + length :]
    return bodies, None


def split_in_parts(parts: list[bytes], longest: int) -> tuple[list[bytes], int | None]:
    splitter = FrameSplitter(longest)
    bodies = []
    for part in parts:
        splitter.feed(part)
        try:
            while (body := splitter.pop()) is not None:
                bodies.append(body)
        except FrameTooLongError as error:
            return bodies, error.length
    return bodies, None


def cut(stream: bytes, rng: Random) -> list[bytes]:
    places = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.randrange(8)))
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


@given(st.lists(st.binary(min_size=1, max_size=50)), st.randoms(use_true_random=False))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    bodies: list[bytes], rng: Random
) -> None:
    assert split_in_parts(cut(join_frames(bodies), rng), 50) == (bodies, None)


def test_keep_alives_are_no_frames() -> None:
    stream = KEEP_ALIVE * 3 + join_frames([b"a"]) + KEEP_ALIVE + join_frames([b"b"]) + KEEP_ALIVE
    assert split_in_parts([stream], 1) == ([b"a", b"b"], None)


def test_a_frame_that_is_too_long_is_refused_before_it_has_arrived() -> None:
    splitter = FrameSplitter(100)
    splitter.feed((101).to_bytes(4, "big"))
    with pytest.raises(FrameTooLongError, match="101 bytes is longer than the 100 allowed"):
        splitter.pop()


def test_the_longest_frame_may_change_after_the_handshake() -> None:
    splitter = FrameSplitter(3)
    splitter.feed(join_frames([b"abc", b"defgh"]))
    assert splitter.pop() == b"abc"
    splitter.longest = 5
    assert splitter.pop() == b"defgh"
    assert splitter.pop() is None


def damage_streams(streams: int, seed: int) -> int:
    """Compare with the plain twin on valid, damaged and random streams; returns their frames."""
    rng = Random(seed)
    frames = 0
    for _ in range(streams):
        longest = rng.choice([1, 7, 200, 70_000])
        bodies = [rng.randbytes(rng.choice([1, 2, 7, 60])) for _ in range(rng.randrange(12))]
        stream = bytearray(join_frames(bodies))
        for _ in range(rng.randrange(3)):
            match rng.randrange(3) if stream else 2:
                case 0:
                    stream[rng.randrange(len(stream))] = rng.randrange(256)
                case 1:
                    del stream[rng.randrange(len(stream)) :]
                case _:
                    stream += rng.randbytes(rng.randrange(10))
        expected = split_plainly(bytes(stream), longest)
        assert split_in_parts(cut(bytes(stream), rng), longest) == expected
        frames += len(bodies)
    return frames


def test_damaged_streams_split_as_a_plain_parser_splits_them() -> None:
    assert damage_streams(2_000, seed=1) > 5_000


@pytest.mark.slow
def test_many_damaged_streams_split_as_a_plain_parser_splits_them() -> None:
    assert damage_streams(200_000, seed=2) > 500_000
