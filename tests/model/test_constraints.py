from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import Constraints, Demand, Interest, Rates, broken_constraints
from tests import oracles
from tests.strategies import any_plans, constraints, demands, whole_rate_values

INTEREST = Interest.from_pairs([("r", "a"), ("r", "b")])


@st.composite
def draw_peaked_demand(draw: st.DrawFn) -> Demand:
    """A demand of whole rates, half of the time with peaks."""
    demand = draw(demands(rates=whole_rate_values()))
    n = len(demand.rate)
    peak = draw(st.none() | st.lists(whole_rate_values(), min_size=n, max_size=n).map(np.array))
    return Demand(demand.interest, demand.rate, peak)


@given(data=st.data(), demand=draw_peaked_demand())
def test_broken_constraints_are_those_found_the_long_way(
    data: st.DataObject, demand: Demand
) -> None:
    plan = data.draw(any_plans(demand.interest))
    within = data.draw(constraints(demand, n_groups=3))
    assert list(broken_constraints(plan, demand, within)) == oracles.broken(plan, demand, within)


@given(data=st.data(), demand=draw_peaked_demand())
def test_no_constraints_are_never_broken(data: st.DataObject, demand: Demand) -> None:
    plan = data.draw(any_plans(demand.interest))
    assert broken_constraints(plan, demand, Constraints()) == ()


def test_constraints_are_true_where_they_ask_for_anything() -> None:
    assert not Constraints()
    assert Constraints(group_rate=1)
    assert Constraints(receiver_rate={"r": 1})
    assert Constraints(pinned={"a": 0})
    assert Constraints(together=(frozenset("ab"),))
    assert Constraints(apart=(frozenset("ab"),))


@pytest.mark.parametrize("cap", [0, -1, float("nan")])
def test_a_cap_is_above_0(cap: float) -> None:
    with pytest.raises(ValueError, match="cap"):
        Constraints(group_rate=cap)
    with pytest.raises(ValueError, match="cap"):
        Constraints(receiver_rate={"r": cap})


def test_a_group_to_pin_to_is_numbered_from_0() -> None:
    with pytest.raises(ValueError, match="from 0"):
        Constraints(pinned={"a": -1})


def test_receivers_without_a_cap_may_take_in_anything() -> None:
    caps = Constraints(receiver_rate={"b": 2.0, "x": 1.0}).receiver_caps(("a", "b"))
    assert caps.tolist() == [float("inf"), 2.0]


# --- peaks ---------------------------------------------------------------------------------------


def test_a_demand_on_peak_counts_costs_in_peaks_too() -> None:
    rates = Rates(("a", "b", "c"), np.array([1.0, 2.0, 3.0]), peak=np.array([10.0, 20.0, 30.0]))
    calm, busy = Demand.of(INTEREST, rates), Demand.of(INTEREST, rates, on_peak=True)
    assert calm.rate.tolist() == [1, 2]
    assert calm.load.tolist() == [10, 20]
    assert busy.rate.tolist() == busy.load.tolist() == [10, 20]
    assert calm.wanted_rate.tolist() == [3]
    assert busy.wanted_rate.tolist() == [30]


def test_without_peaks_the_load_is_the_rate_and_there_is_none_to_plan_on() -> None:
    rates = Rates.from_mapping({"a": 1.0, "b": 2.0})
    assert Demand.of(INTEREST, rates).load.tolist() == [1, 2]
    with pytest.raises(ValueError, match="no peak"):
        Demand.of(INTEREST, rates, on_peak=True)


@pytest.mark.parametrize("peak", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, np.inf], [np.nan, 1.0]])
def test_bad_peaks_are_refused_like_bad_rates(peak: list[float]) -> None:
    rate = np.array([1.0, 2.0])
    with pytest.raises(ValueError, match=r"peaks for 2 flows|every peak must be"):
        Rates(("a", "b"), rate, peak=np.array(peak))
    with pytest.raises(ValueError, match=r"rates for 2 flows|every rate must be"):
        Demand(INTEREST, rate, np.array(peak))


def test_rates_with_other_peaks_are_not_equal() -> None:
    rate = np.array([1.0])
    one, other = Rates(("a",), rate, peak=np.array([2.0])), Rates(("a",), rate)
    assert one != other
    assert one == Rates(("a",), rate, peak=np.array([2.0]))
