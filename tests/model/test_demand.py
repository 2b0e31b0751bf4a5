from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import MissingRateError
from distributary.model import Demand, Interest, Rates
from tests.oracles import exact_rates, wanted_flows
from tests.strategies import demands, interests, names, rate_values

INTEREST = Interest.from_pairs([("a", "x"), ("b", "x"), ("b", "y")])


@given(data=st.data(), interest=interests())
def test_each_wanted_flow_gets_its_own_rate_and_the_rest_are_left_out(
    data: st.DataObject, interest: Interest
) -> None:
    unwanted = data.draw(st.dictionaries(names(), rate_values(), max_size=4))
    listed = unwanted | {flow: data.draw(rate_values()) for flow in interest.flows}
    demand = Demand.of(interest, Rates.from_mapping(listed))
    assert demand.rate.tolist() == [listed[flow] for flow in interest.flows]


@given(data=st.data(), interest=interests())
def test_a_flow_without_a_rate_is_named(data: st.DataObject, interest: Interest) -> None:
    missing = sorted(data.draw(st.sets(st.sampled_from(interest.flows), min_size=1)))
    listed = {flow: 1.0 for flow in interest.flows if flow not in missing}
    with pytest.raises(MissingRateError) as caught:
        Demand.of(interest, Rates.from_mapping(listed))
    assert caught.value.flows == tuple(missing)
    assert caught.value.value == missing[0]
    assert f"flow {missing[0]!r} has interest but no rate" in str(caught.value)
    assert ("more" in caught.value.reason.rpartition("no rate")[2]) == (len(missing) > 1)


@given(demand=demands())
def test_a_receiver_wants_the_rates_of_its_flows(demand: Demand) -> None:
    rate = exact_rates(demand)
    expected = [float(sum(rate[flow] for flow in wants)) for wants in wanted_flows(demand.interest)]
    assert demand.wanted_rate.tolist() == pytest.approx(expected, rel=1e-12, abs=0)


def test_there_is_one_rate_for_each_wanted_flow() -> None:
    with pytest.raises(ValueError, match="3 rates for 2 flows"):
        Demand(INTEREST, np.ones(3))


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_must_be_a_finite_number_above_0(bad: float) -> None:
    with pytest.raises(ValueError, match="every rate must be a finite number above 0"):
        Demand(INTEREST, np.array([1.0, bad]))


@pytest.mark.parametrize("rate", [[1e308, 1e308], [1e308, 1.0]], ids=["sum", "sum by receivers"])
def test_rates_whose_sum_overflows_are_refused(rate: list[float]) -> None:
    with pytest.raises(ValueError, match="more than a number can hold"):
        Demand(INTEREST, np.array(rate))
