from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import (
    Constraints,
    Demand,
    Interest,
    Limits,
    Packing,
    Plan,
    Rates,
    broken_constraints,
    broken_limits,
    limit_uses,
)
from tests import oracles
from tests.strategies import (
    any_plans,
    constraints,
    demands,
    limits,
    whole_rate_values,
    with_unicast,
)

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
    plan = data.draw(any_plans(demand.interest).flatmap(with_unicast))
    within = data.draw(constraints(demand, n_groups=3))
    within = replace(within, limits=data.draw(limits(demand)))
    packing = data.draw(st.builds(Packing, st.integers(1, 9), st.sampled_from([0, 0.001, 2])))
    found = broken_constraints(plan, demand, within, packing)
    assert list(found) == oracles.broken(plan, demand, within, packing)
    assert found[: len(broken_limits(plan, demand, within.limits, packing))] == broken_limits(
        plan, demand, within.limits, packing
    )


@given(data=st.data(), demand=draw_peaked_demand())
def test_the_use_of_a_limit_is_above_it_exactly_where_it_is_broken(
    data: st.DataObject, demand: Demand
) -> None:
    plan = data.draw(any_plans(demand.interest).flatmap(with_unicast))
    within = data.draw(limits(demand))
    broken = broken_limits(plan, demand, within)
    uses = limit_uses(plan, demand, within)
    assert len({use.limit for use in uses}) == len(uses)
    for use in uses:
        said = [sentence for sentence in broken if sentence.startswith(f"{use.where} ")]
        assert use.share <= 1 + 1e-9 or said
    assert any(use.share > 1 + 1e-9 for use in uses) == bool(broken)
    assert limit_uses(plan, demand, Limits()) == ()


@given(data=st.data(), demand=draw_peaked_demand())
def test_no_constraints_are_never_broken(data: st.DataObject, demand: Demand) -> None:
    plan = data.draw(any_plans(demand.interest).flatmap(with_unicast))
    assert broken_constraints(plan, demand, Constraints()) == ()


def test_constraints_are_true_where_they_ask_for_anything() -> None:
    assert not Constraints()
    assert Constraints(Limits(group_rate=1))
    assert Constraints(Limits(receiver_rates={"r": 1}))
    assert Constraints(pinned={"a": 0})
    assert Constraints(together=(frozenset("ab"),))
    assert Constraints(apart=(frozenset("ab"),))


def test_a_group_to_pin_to_is_numbered_from_0() -> None:
    with pytest.raises(ValueError, match="from 0"):
        Constraints(pinned={"a": -1})


def test_a_pinned_flow_may_have_outliers_but_not_only_outliers() -> None:
    pairs = [("r", "a"), ("s", "a"), ("s", "b")]
    interest = Interest.from_pairs(pairs)
    demand = Demand(interest, np.ones(2))
    within = Constraints(pinned={"a": 0, "nobody's": 5})
    none, one = np.zeros(0, np.int32), np.zeros(1, np.int32)
    plan = Plan(interest.receivers, interest.flows, one, one, one, one, one, one + 1, one)
    assert broken_constraints(plan, demand, within) == ()
    alone = replace(plan, placement_flow=none, placement_session=none)
    assert broken_constraints(alone, demand, within) == ("flow 'a' is not in group 0",)


def test_the_plan_and_the_demand_must_be_of_the_same_names() -> None:
    plan = Plan(("r",), ("a",), *[np.zeros(1, np.int32)] * 5)
    with pytest.raises(ValueError, match="same receivers"):
        broken_constraints(plan, Demand(INTEREST, np.ones(2)), Constraints())


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
