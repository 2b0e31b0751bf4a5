from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import Rates
from tests.strategies import names, positive_numbers

BAD = [0.0, -1.0, float("nan"), float("inf")]


@given(data=st.data(), rates=st.dictionaries(names(), positive_numbers(), min_size=1))
def test_rates_keep_each_flows_number_whatever_the_order(
    data: st.DataObject, rates: dict[str, float]
) -> None:
    shuffled = data.draw(st.permutations(list(rates.items())))
    built = Rates.from_mapping(shuffled)
    assert built == Rates.from_mapping(rates)
    assert dict(zip(built.flows, built.rate.tolist(), strict=True)) == rates
    assert list(built.flows) == sorted(rates)


@pytest.mark.parametrize("flows", [("y", "x"), ("x", "x")])
def test_flows_out_of_order_or_twice_are_refused(flows: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="flow names must be sorted and unique"):
        Rates(flows, np.ones(2))


@pytest.mark.parametrize("bad", BAD)
def test_a_rate_must_be_a_finite_number_above_0(bad: float) -> None:
    with pytest.raises(ValueError, match="every rate must be a finite number above 0"):
        Rates(("x", "y"), np.array([1.0, bad]))


@pytest.mark.parametrize("bad", BAD)
def test_a_size_must_be_a_finite_number_above_0(bad: float) -> None:
    with pytest.raises(ValueError, match="every size must be a finite number above 0"):
        Rates(("x", "y"), np.ones(2), np.array([1.0, bad]))


def test_there_is_one_rate_and_one_size_for_each_flow() -> None:
    with pytest.raises(ValueError, match="1 rates for 2 flows"):
        Rates(("x", "y"), np.ones(1))
    with pytest.raises(ValueError, match="3 sizes for 2 flows"):
        Rates(("x", "y"), np.ones(2), np.ones(3))


def test_rates_differ_by_name_rate_or_size() -> None:
    one = Rates(("x",), np.ones(1), np.ones(1))
    assert one == Rates(("x",), np.ones(1), np.ones(1))
    assert one != Rates(("y",), np.ones(1), np.ones(1))
    assert one != Rates(("x",), np.full(1, 2.0), np.ones(1))
    assert one != Rates(("x",), np.ones(1), np.full(1, 2.0))
    assert one != Rates(("x",), np.ones(1))
    assert one != "rates"


def test_its_repr_says_how_much_flows() -> None:
    rates = Rates.from_mapping({str(flow): 0.5 for flow in range(3000)})
    assert repr(rates) == "Rates(3,000 flows, 1,500 messages/s)"
