"""Plans survive their bytes, and damaged bytes are refused."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.control.plan_codec import PlanCodecError, decode_plan, encode_plan, name_plan
from distributary.model import IndexArray, Plan


def ints(*values: int) -> IndexArray:
    return np.array(values, np.int32)


PLAN = Plan(
    receivers=("a", "b \N{SNOWMAN}"),
    flows=("x", "y", "z.>"),
    placement_flow=ints(0, 1),
    placement_session=ints(0, 1),
    session_group=ints(0, 0),
    subscription_receiver=ints(0, 1),
    subscription_session=ints(0, 1),
    unicast_receiver=ints(1),
    unicast_flow=ints(2),
)


def test_a_plan_comes_back_as_it_was_and_has_one_name() -> None:
    data = encode_plan(PLAN)
    assert decode_plan(data) == PLAN
    assert encode_plan(decode_plan(data)) == data
    assert name_plan(PLAN) == name_plan(decode_plan(data))


@given(at=st.integers(0, len(encode_plan(PLAN)) - 1), by=st.integers(1, 255))
def test_a_flipped_byte_is_noticed(at: int, by: int) -> None:
    data = bytearray(encode_plan(PLAN))
    data[at] ^= by
    try:
        found = decode_plan(bytes(data))
    except PlanCodecError:
        return
    assert found == PLAN  # flags of zlib that say nothing about the content


@given(st.binary(max_size=200))
def test_bytes_that_are_no_plan_are_refused(data: bytes) -> None:
    for each in (data, zlib.compress(data)):
        with pytest.raises(PlanCodecError):
            decode_plan(each)


def test_bytes_that_end_early_are_refused() -> None:
    with pytest.raises(PlanCodecError, match="no whole plan"):
        decode_plan(encode_plan(PLAN)[:-3])
