from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import Packing, packets_per_second
from tests.strategies import positive_numbers


@given(
    rate=st.lists(positive_numbers(), min_size=1),
    h=st.floats(1, 1000),
    delay_s=st.floats(0, 10),
)
def test_packets_are_rate_over_filling(rate: list[float], h: float, delay_s: float) -> None:
    found = packets_per_second(np.array(rate), h, delay_s)
    assert found.tolist() == [one / min(h, 1 + one * delay_s) for one in rate]
    assert found.tolist() == Packing(h, delay_s).packets(np.array(rate)).tolist()


def test_a_slow_session_sends_each_message_alone_and_a_fast_one_fills_its_packets() -> None:
    packets = Packing(8, 0.001).packets(np.array([0.0, 1.0, 1000.0, 7000.0, 1e6]))
    assert packets.tolist() == [0, 1 / 1.001, 500, 875, 125_000]


@pytest.mark.parametrize("h", [0.5, float("nan"), float("inf")])
def test_a_packet_holds_a_message(h: float) -> None:
    with pytest.raises(ValueError, match="messages_per_packet"):
        Packing(h)


@pytest.mark.parametrize("delay_s", [-1, float("nan"), float("inf")])
def test_a_delay_is_a_time(delay_s: float) -> None:
    with pytest.raises(ValueError, match="delay_s"):
        Packing(8, delay_s)
