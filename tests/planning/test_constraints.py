from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import FilteringPrices, evaluate
from distributary.errors import InfeasibleError
from distributary.model import (
    Constraints,
    Demand,
    Interest,
    Limits,
    Plan,
    Rates,
    broken_constraints,
    plan_problems,
)
from distributary.planning import Request, plan
from tests import oracles
from tests.strategies import constraints, dense_demands, whole_rate_values

BUDGET = 0.01
FLAT = FilteringPrices()
TINY = dense_demands(max_receivers=4, max_flows=7, rates=whole_rate_values())


def held(demand: Demand, within: Constraints, groups: int, **more: object) -> Plan:
    request = Request(groups=groups, constraints=within, budget_s=BUDGET, **more)  # type: ignore[arg-type]
    return plan(demand, request).plan


def refusal(demand: Demand, within: Constraints, groups: int, **more: object) -> InfeasibleError:
    with pytest.raises(InfeasibleError) as caught:
        held(demand, within, groups, **more)
    assert caught.value.reason in str(caught.value)
    assert caught.value.remedy
    return caught.value


@settings(max_examples=150)
@given(data=st.data(), demand=TINY, groups=st.integers(1, 3), seed=st.integers(0, 9))
def test_a_plan_within_all_limits_is_found_exactly_if_there_is_one(
    data: st.DataObject, demand: Demand, groups: int, seed: int
) -> None:
    within = data.draw(constraints(demand, n_groups=groups))
    possible = next(oracles.feasible_groups(demand, within, groups), None)
    sessions = data.draw(st.none() | st.integers(groups, 6))
    if possible is None:
        assert refusal(demand, within, groups, seed=seed, sessions=sessions).proven
        return
    found = held(demand, within, groups, seed=seed, sessions=sessions)
    assert plan_problems(found, demand.interest) == ()
    assert broken_constraints(found, demand, within) == ()
    assert oracles.broken(found, demand, within) == []
    assert found.n_groups <= groups
    assert found.n_sessions <= max(sessions or groups, groups)
    assert found.placement_flow.tolist() == list(range(len(demand.rate)))


@settings(max_examples=15)
@given(data=st.data(), demand=TINY, seed=st.integers(0, 9))
def test_the_same_seed_gives_the_same_plan_within_limits(
    data: st.DataObject, demand: Demand, seed: int
) -> None:
    within = data.draw(constraints(demand, n_groups=3))
    request = Request(groups=3, sessions=5, constraints=within, seed=seed, budget_s=BUDGET)
    try:
        found = plan(demand, request).plan
    except InfeasibleError:
        return
    assert plan(demand, request).plan == found


@settings(max_examples=25)
@given(demand=TINY, groups=st.integers(1, 3))
def test_limits_that_limit_nothing_leave_the_optimum_within_reach(
    demand: Demand, groups: int
) -> None:
    found = held(demand, Constraints(Limits(group_rate=1e6)), groups)
    cost = evaluate(found, demand).channel.cost
    wants = oracles.wanted_flows(demand.interest)
    least = oracles.cheapest_single(wants, demand.rate.tolist(), groups)
    assert least <= cost <= 1.25 * least


# --- reasons -------------------------------------------------------------------------------------


def demand_of(*rates: float, peak: list[float] | None = None) -> Demand:
    """Flows a, b, ... with a receiver each, and 'all' who wants everything."""
    flows = [chr(ord("a") + k) for k in range(len(rates))]
    interest = Interest.from_pairs(
        [*((f"only {flow}", flow) for flow in flows), *(("all", flow) for flow in flows)]
    )
    return Demand(interest, np.array(rates), None if peak is None else np.array(peak))


def sets(*names: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(name) for name in names)


@pytest.mark.parametrize(
    ("within", "groups", "said"),
    [
        (Constraints(Limits(group_rate=6.5)), 3, ("'d'", "7", "6.5")),
        (Constraints(Limits(group_rate=8), together=sets("bd")), 3, ("'b'", "'d'", "10", "8")),
        (Constraints(Limits(group_rate=7)), 2, ("17", "14", "2 groups")),
        (Constraints(Limits(receiver_rates={"all": 16})), 4, ("'all'", "17", "16")),
        (Constraints(Limits(receiver_rates={"only c": 1.5})), 4, ("'only c'", "5", "1.5")),
        (Constraints(pinned={"b": 4}), 3, ("'b'", "group 4", "3")),
        (Constraints(pinned={"a": 0, "c": 1}, together=sets("ac")), 3, ("'a'", "'c'", "0", "1")),
        (
            Constraints(pinned={"a": 0, "d": 1}, together=sets("ab", "bd")),
            3,
            ("'a'", "'d'", "together"),
        ),
        (Constraints(pinned={"a": 1, "c": 1}, apart=sets("ac")), 3, ("'a'", "'c'", "apart")),
        (Constraints(apart=sets("abc")), 2, ("'a'", "'b'", "'c'", "apart", "2 groups")),
        (Constraints(apart=sets("ab"), together=sets("abc")), 3, ("'a'", "'b'", "apart")),
        (
            Constraints(pinned={"a": 1, "c": 1}, together=sets("ab", "cd"), apart=sets("bd")),
            3,
            ("'b'", "'d'", "apart"),
        ),
    ],
    ids=lambda value: None if isinstance(value, (tuple, int)) else repr(value)[12:70],
)
def test_a_contradiction_is_refused_with_its_names_and_numbers(
    within: Constraints, groups: int, said: tuple[str, ...]
) -> None:
    demand = demand_of(2, 3, 5, 7)
    error = refusal(demand, within, groups)
    assert error.proven
    assert str(error).startswith("infeasible: ")
    for words in said:
        assert words in error.reason
    assert next(oracles.feasible_groups(demand, within, groups), None) is None


def test_a_cap_that_is_reached_exactly_holds() -> None:
    demand = demand_of(0.1, 0.2, 0.3, 0.6)  # 0.1 + 0.2 + 0.3 is not 0.6 in doubles
    found = held(demand, Constraints(Limits(group_rate=0.6, receiver_rates={"all": 1.2})), 2)
    assert found.n_groups == 2
    assert broken_constraints(found, demand, Constraints(Limits(group_rate=0.6))) == ()


def test_what_only_a_search_can_tell_is_proven_too() -> None:
    # 3 flows of 3 and 2 of 2 fill two groups of 6.5 in total, but not each of them.
    error = refusal(demand_of(3, 3, 3, 2, 2), Constraints(Limits(group_rate=6.5)), 2)
    assert error.proven


def test_names_that_nobody_wants_ask_for_nothing() -> None:
    demand = demand_of(2, 3, 5)
    within = Constraints(
        Limits(receiver_rates={"nobody": 1}),
        pinned={"x": 0},
        together=(frozenset({"a", "x"}),),
        apart=(frozenset({"b", "x"}), frozenset({"x", "y"})),
    )
    found = held(demand, within, 2)
    assert plan_problems(found, demand.interest) == ()
    assert broken_constraints(found, demand, within) == ()


def test_groups_before_a_pinned_one_are_used() -> None:
    demand = demand_of(2, 3, 5, 7)
    found = held(demand, Constraints(pinned={"d": 2}), 3)
    assert found.n_groups == 3
    assert broken_constraints(found, demand, Constraints(pinned={"d": 2})) == ()


def test_a_pin_with_too_few_flows_for_the_groups_before_it_is_refused() -> None:
    error = refusal(demand_of(2, 3), Constraints(pinned={"a": 1, "b": 1}), 2)
    assert error.proven
    assert "group 1" in error.reason


# --- peaks ---------------------------------------------------------------------------------------


def test_caps_are_held_against_peaks_and_costs_against_rates() -> None:
    demand = demand_of(1, 1, 1, 1, peak=[5, 5, 1, 1])
    within = Constraints(Limits(group_rate=6))
    found = held(demand, within, 2)
    assert broken_constraints(found, demand, within) == ()
    groups = found.session_group[found.placement_session]
    assert groups[0] != groups[1]
    calm = Demand(demand.interest, demand.rate)
    assert evaluate(found, demand).filtering.work == evaluate(found, calm).filtering.work
    assert (
        "12" in refusal(demand, Constraints(Limits(group_rate=5)), 2).reason
    )  # 4 in messages of an hour
    assert held(calm, Constraints(Limits(group_rate=5)), 1).n_groups == 1


def test_a_peak_over_a_cap_is_refused_where_its_rate_is_not() -> None:
    demand = demand_of(1, 1, peak=[9, 1])
    assert "'a'" in refusal(demand, Constraints(Limits(group_rate=8)), 2).reason
    assert "'all'" in refusal(demand, Constraints(Limits(receiver_rates={"all": 9})), 2).reason


# --- larger demands ------------------------------------------------------------------------------


def larger_demand(flows: int = 40, receivers: int = 12) -> Demand:
    rng = np.random.default_rng(3)
    pairs = [
        (f"r{j}", f"f{k:02}") for k in range(flows) for j in {*rng.integers(receivers, size=3)}
    ]
    interest = Interest.from_pairs(pairs)
    rate = rng.integers(1, 9, size=flows).astype(float)
    return Demand(interest, rate, rate * rng.integers(1, 3, size=flows))


def test_a_larger_demand_is_planned_within_every_kind_of_limit() -> None:
    demand = larger_demand()
    total = demand.load.sum()
    within = Constraints(
        Limits(group_rate=total / 4, receiver_rates={"r3": 0.9 * total}),
        pinned={"f00": 2, "f01": 0},
        together=(frozenset({"f05", "f06"}), frozenset({"f06", "f07"})),
        apart=(frozenset({"f00", "f01", "f02"}),),
    )
    found = held(demand, within, 5, sessions=12)
    assert plan_problems(found, demand.interest) == ()
    assert broken_constraints(found, demand, within) == ()


@pytest.mark.parametrize("budget_s", [1e-15, 0.01])
def test_a_search_in_vain_says_that_it_proves_nothing(budget_s: float) -> None:
    demand = larger_demand()
    # Each receiver may take in half as much again as it wants: too little with so few groups, and
    # too much to prove that by trying every plan.
    wanted = np.add.reduceat(
        demand.load[demand.interest.receiver_flows], demand.interest.receiver_offsets[:-1]
    )
    caps = dict(zip(demand.interest.receivers, (1.5 * wanted).tolist(), strict=True))
    request = Request(
        groups=3, constraints=Constraints(Limits(receiver_rates=caps)), budget_s=budget_s
    )
    with pytest.raises(InfeasibleError) as caught:
        plan(demand, request)
    assert not caught.value.proven
    assert str(caught.value).startswith("no plan found: ")


@pytest.mark.parametrize("asked", [{"algorithm": "kmeans"}, {"algorithm": "optimal"}])
def test_only_best_keeps_to_limits(asked: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="only best supports constraints"):
        Request(groups=2, constraints=Constraints(Limits(group_rate=1)), **asked)  # type: ignore[arg-type]


# --- the state of the search ---------------------------------------------------------------------


@pytest.mark.parametrize("rate", [5e-324, 1e-310, 1e-290, 1.0, 1e280])
def test_caps_hold_at_the_smallest_and_the_largest_rates(rate: float) -> None:
    flows = "abcdef"
    interest = Interest.from_pairs(("r", flow) for flow in flows)
    demand = Demand.of(interest, Rates.from_mapping(dict.fromkeys(flows, rate)))
    within = Constraints(Limits(group_rate=3 * rate))
    found = held(demand, within, 2)
    assert np.bincount(found.session_group[found.placement_session]).tolist() == [3, 3]
    loose = Constraints(Limits(group_rate=1e290, receiver_rates={"r": 1e290}))
    assert plan_problems(held(demand, loose, 2), demand.interest) == ()
