from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import ChannelPrices, FilteringPrices, channel_cost, evaluate, filtering_cost
from distributary.model import Constraints, Demand, Interest, Limits, Plan, Previous, plan_problems
from distributary.planning import ALGORITHMS, Request, UnicastLimits, choose_unicast, place_single
from distributary.planning import plan as solve
from distributary.planning.hybrid import drop_flows, hybrid, send_by_unicast
from tests.strategies import demands, dense_demands, whole_rate_values

SINGLE = sorted(set(ALGORITHMS) - {"user-merge", "optimal-shared"})


@st.composite
def limits(draw: st.DrawFn) -> UnicastLimits:
    return UnicastLimits(
        draw(st.integers(1, 3)),
        draw(st.none() | st.integers(0, 6)),
        draw(st.none() | st.integers(0, 12).map(float)),
    )


@st.composite
def single_plans(draw: st.DrawFn, demand: Demand) -> Plan:
    """Each flow in one of a few sessions, those in groups."""
    n_flows = len(demand.rate)
    session = draw(st.lists(st.integers(0, 3), min_size=n_flows, max_size=n_flows))
    used, session_of = np.unique(session, return_inverse=True)
    group = draw(st.lists(st.integers(0, 2), min_size=len(used), max_size=len(used)))
    return place_single(
        demand, session_of.astype(np.int32), np.unique(group, return_inverse=True)[1]
    )


def small_demands() -> st.SearchStrategy[Demand]:
    return demands(rates=whole_rate_values()) | dense_demands(rates=whole_rate_values())


def assert_within(plan: Plan, demand: Demand, limits: UnicastLimits) -> None:
    """Valid, and no more unicast than allowed."""
    assert plan_problems(plan, demand.interest) == ()
    audience = demand.interest.audience
    sent = set(plan.unicast_flow.tolist())
    assert all(audience[flow] <= limits.max_receivers for flow in sent)
    assert len(plan.unicast_flow) == sum(audience[flow] for flow in sent)
    assert limits.max_links is None or len(plan.unicast_flow) <= limits.max_links
    extra = sum((audience[flow] - 1) * demand.rate[flow] for flow in sent)
    assert limits.max_rate is None or extra <= limits.max_rate
    assert len(plan.placement_flow) >= 1


def by_filtering(demand: Demand, prices: FilteringPrices) -> Callable[[Plan], float]:
    return lambda plan: filtering_cost(plan, demand, prices).work


def by_channel(demand: Demand) -> Callable[[Plan], float]:
    return lambda plan: channel_cost(plan, demand, ChannelPrices()).cost


@given(data=st.data(), demand=small_demands(), limits=limits())
def test_what_is_chosen_saves_and_keeps_to_the_limits(
    data: st.DataObject, demand: Demand, limits: UnicastLimits
) -> None:
    plan = data.draw(single_plans(demand))
    prices = FilteringPrices(*data.draw(st.sampled_from([(1, 1), (0.5, 2), (0, 1), (1, 0)])))
    chosen = choose_unicast(demand, prices, plan, limits)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    after = send_by_unicast(demand, plan, chosen)
    assert sorted(set(after.unicast_flow.tolist())) == chosen.tolist()
    assert_within(after, demand, limits)
    price = by_filtering(demand, prices)
    assert price(after) < price(plan) if len(chosen) else after.unicast_flows == 0


@given(data=st.data(), demand=small_demands(), limits=limits())
def test_nothing_that_still_saves_and_fits_is_left_in_a_session(
    data: st.DataObject, demand: Demand, limits: UnicastLimits
) -> None:
    plan, prices = data.draw(single_plans(demand)), FilteringPrices()
    price = by_filtering(demand, prices)
    chosen = choose_unicast(demand, prices, plan, limits)
    now = send_by_unicast(demand, plan, chosen)
    audience = demand.interest.audience
    for flow in now.placement_flow.tolist():
        more = np.array(sorted({*chosen.tolist(), flow}))
        extra = float((audience[more] - 1) @ demand.rate[more])
        if (
            len(now.placement_flow) > 1
            and audience[flow] <= limits.max_receivers
            and (limits.max_links is None or audience[more].sum() <= limits.max_links)
            and (limits.max_rate is None or extra <= limits.max_rate)
        ):
            assert price(send_by_unicast(demand, plan, more)) >= price(now)


@given(data=st.data(), demand=small_demands())
def test_with_one_link_the_single_best_flow_goes(data: st.DataObject, demand: Demand) -> None:
    plan, prices = data.draw(single_plans(demand)), FilteringPrices(0.5, 2)
    price = by_filtering(demand, prices)
    singles = np.flatnonzero(demand.interest.audience == 1)
    savings = [
        price(plan) - price(send_by_unicast(demand, plan, np.array([flow]))) for flow in singles
    ] if len(demand.rate) > 1 else []  # fmt: skip
    chosen = choose_unicast(demand, prices, plan, UnicastLimits(1, max_links=1))
    if max(savings, default=0) <= 0:
        assert len(chosen) == 0
    else:
        after = send_by_unicast(demand, plan, chosen)
        assert price(plan) - price(after) == max(savings)


@given(data=st.data(), demand=small_demands(), limits=limits())
def test_copies_that_cost_more_than_they_save_are_not_sent(
    data: st.DataObject, demand: Demand, limits: UnicastLimits
) -> None:
    plan = data.draw(single_plans(demand))
    chosen = choose_unicast(demand, FilteringPrices(1, 0), plan, limits, sent_price=1.0)
    after = send_by_unicast(demand, plan, chosen)
    price = by_channel(demand)
    assert price(after) < price(plan) if len(chosen) else after.unicast_flows == 0


@given(data=st.data(), demand=small_demands(), bounds=limits())
def test_what_is_sent_by_unicast_already_counts(
    data: st.DataObject, demand: Demand, bounds: UnicastLimits
) -> None:
    plan, prices = data.draw(single_plans(demand)), FilteringPrices()
    once = send_by_unicast(demand, plan, choose_unicast(demand, prices, plan, bounds))
    assert choose_unicast(demand, prices, once, bounds).tolist() == []


@pytest.mark.parametrize("algorithm", SINGLE)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), demand=small_demands(), limits=limits())
def test_every_algorithm_plans_no_worse_with_unicast(
    algorithm: str, data: st.DataObject, demand: Demand, limits: UnicastLimits
) -> None:
    request = Request(
        groups=data.draw(st.integers(1, 2)),
        sessions=data.draw(st.none() | st.integers(2, 4)),
        algorithm=algorithm,
        objective=data.draw(st.sampled_from(["filtering", "channel"])),
        prices=FilteringPrices(0.5, 2),
        budget_s=0.01,
        labels=[flow[0] for flow in demand.interest.flows] if algorithm == "by-column" else None,
    )
    without = solve(demand, request).plan
    solution = solve(demand, request.replace(unicast=limits))
    assert_within(solution.plan, demand, limits)
    assert solution.plan.n_groups <= request.size.groups
    assert solution.plan.n_sessions <= request.size.most_sessions
    assert not solution.proven
    price = (
        by_filtering(demand, request.prices)
        if request.search.objective == "filtering"
        else by_channel(demand)
    )
    assert price(solution.plan) <= price(without)


def test_the_rest_is_planned_anew() -> None:
    """Without the lone flow x there is a session for each of y and z."""
    interest = Interest.from_pairs([("a", "x"), ("a", "y"), ("b", "y"), ("c", "z"), ("d", "z")])
    demand = Demand(interest, np.array([5.0, 3.0, 2.0]))
    asked: list[tuple[str, ...]] = []

    def by_two(rest: Demand) -> Plan:
        asked.append(rest.interest.flows)
        session = np.minimum(np.arange(len(rest.rate)), 1).astype(np.int32)
        return place_single(rest, session, np.arange(session.max() + 1, dtype=np.int32))

    def first_together(rest: Demand) -> Plan:
        if len(rest.rate) == 3:
            asked.append(rest.interest.flows)
            return place_single(rest, np.array([0, 0, 1], np.int32), np.arange(2, dtype=np.int32))
        return by_two(rest)

    prices = FilteringPrices()
    price = by_filtering(demand, prices)
    found = hybrid(demand, UnicastLimits(), first_together, price, prices)
    assert asked == [("x", "y", "z"), ("y", "z")]
    assert found.unicast_flow.tolist() == [0]
    assert evaluate(found, demand).filtering.excess == 0


def test_a_receiver_of_unicast_flows_only_subscribes_to_nothing() -> None:
    interest = Interest.from_pairs([("a", "x"), ("b", "y"), ("c", "y")])
    demand = Demand(interest, np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    rest = drop_flows(demand, np.array([0]))
    assert (rest.interest.receivers, rest.interest.flows) == (("b", "c"), ("y",))
    assert rest.peak is not None
    assert rest.peak.tolist() == [4.0]
    plan = solve(demand, Request(groups=1, unicast=UnicastLimits())).plan
    assert plan.subscription_receiver.tolist() == [1, 2]
    assert (plan.unicast_receiver.tolist(), plan.unicast_flow.tolist()) == ([0], [0])
    assert evaluate(plan, demand).valid


@given(demand=small_demands())
def test_one_flow_stays_in_a_session(demand: Demand) -> None:
    request = Request(groups=1, algorithm="hash", unicast=UnicastLimits(9))
    plan = solve(demand, request).plan
    assert len(plan.placement_flow) >= 1
    assert plan_problems(plan, demand.interest) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_receivers": 0},
        {"max_links": -1},
        {"max_rate": -1.0},
        {"max_rate": float("nan")},
        {"max_rate": float("inf")},
    ],
)
def test_limits_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least"):
        UnicastLimits(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more",
    [
        {"constraints": Constraints(Limits(group_rate=5.0))},
        {"previous": Previous({}, np.zeros(1, np.int32))},
        {"algorithm": "user-merge"},
        {"algorithm": "OCA"},
    ],
)
def test_unicast_is_refused_where_it_cannot_be(more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="unicast"):
        Request(groups=1, unicast=UnicastLimits(), **more)  # type: ignore[arg-type]


def test_a_plan_with_a_flow_in_two_sessions_is_refused() -> None:
    demand = Demand(Interest.from_pairs([("a", "x"), ("b", "x")]), np.array([1.0]))
    pairs = np.array([0, 0], np.int32), np.array([0, 1], np.int32)
    plan = Plan(("a", "b"), ("x",), *pairs, pairs[1], pairs[1], pairs[1])
    with pytest.raises(ValueError, match="each flow in one session"):
        choose_unicast(demand, FilteringPrices(), plan, UnicastLimits())
