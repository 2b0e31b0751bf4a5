"""What every sweep must hold to."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import FilteringPrices, evaluate
from distributary.model import Demand
from distributary.planning import Progress, Request, Solution, Step, plan
from distributary.planning.sweep import ONE_PER_GROUP, SessionLimit, SweepPoint, sweep
from tests.report.cases import demand_of
from tests.strategies import dense_demands

REQUEST = Request(groups=1, algorithm="sessions-first", seed=5)
PRICES = st.sampled_from([FilteringPrices(), FilteringPrices(0.1, 1.9), FilteringPrices(1.6, 0.4)])
LIMITS = st.builds(SessionLimit, st.integers(1, 9), st.booleans())


def asked_lists() -> st.SearchStrategy[tuple[list[int], list[SessionLimit], list[FilteringPrices]]]:
    return st.tuples(
        st.lists(st.integers(1, 9), min_size=1, max_size=4),
        st.lists(LIMITS, min_size=1, max_size=3),
        st.lists(PRICES, min_size=1, max_size=2),
    )


def five_flows() -> Demand:
    return demand_of({"anna": "ABC", "ben": "BC", "cleo": "DE", "dora": "E", "emil": "AD"})


def without_seconds(points: tuple[SweepPoint, ...]) -> list[SweepPoint]:
    return [replace(point, seconds=0.0) for point in points]


@settings(max_examples=25)
@given(dense_demands(max_flows=6), asked_lists())
def test_points_are_all_combinations_less_those_repeated_and_skipped(
    demand: Demand, asked: tuple[list[int], list[SessionLimit], list[FilteringPrices]]
) -> None:
    groups, limits, prices = asked
    flows = len(demand.rate)
    result = sweep(demand, REQUEST, *asked)

    expected = set()
    for n in groups:
        for limit in limits:
            most = min(n, flows)
            capped = limit if limit.per_group else SessionLimit(min(limit.number, flows))
            sessions = min(limit.number * (most if limit.per_group else 1), flows)
            expected |= {(capped, price, most, sessions) for price in prices}
    feasible = {each for each in expected if each[2] <= each[3]}
    found = [
        (curve.limit, curve.prices, point.groups, point.sessions)
        for curve in result.curves
        for point in curve.points
    ]
    assert len(found) == len(set(found))
    assert set(found) == feasible
    assert result.skipped == len(expected - feasible)
    assert result.asked == len(groups) * len(limits) * len(prices)
    assert result.asked == len(result.points) + result.repeated + result.skipped
    assert result.capped <= result.asked


@settings(max_examples=25)
@given(dense_demands(max_flows=6), asked_lists())
def test_each_point_holds_what_its_own_plan_costs(
    demand: Demand, asked: tuple[list[int], list[SessionLimit], list[FilteringPrices]]
) -> None:
    for curve in sweep(demand, REQUEST, *asked).curves:
        assert [p.groups for p in curve.points] == sorted({p.groups for p in curve.points})
        for point in curve.points:
            request = REQUEST.replace(
                groups=point.groups, sessions=point.sessions, prices=curve.prices
            )
            cost = evaluate(plan(demand, request).plan, demand, curve.prices).filtering
            assert (point.alpha, point.beta) == (curve.prices.alpha, curve.prices.beta)
            assert (point.relative_excess, point.excess, point.work, point.flooding_excess) == (
                cost.relative_excess,
                cost.excess,
                cost.work,
                cost.flooding_excess,
            )
            assert point.used_groups <= point.groups
            assert point.used_sessions <= point.sessions


@settings(max_examples=15)
@given(dense_demands(max_flows=6), asked_lists())
def test_the_same_seed_gives_the_same_rows_but_for_the_seconds(
    demand: Demand, asked: tuple[list[int], list[SessionLimit], list[FilteringPrices]]
) -> None:
    one, two = (sweep(demand, REQUEST, *asked) for _ in range(2))
    assert without_seconds(one.points) == without_seconds(two.points)
    assert [curve.knee for curve in one.curves] == [curve.knee for curve in two.curves]


@settings(max_examples=25)
@given(dense_demands(max_flows=6), asked_lists())
def test_a_point_is_marked_worse_exactly_when_fewer_groups_did_better(
    demand: Demand, asked: tuple[list[int], list[SessionLimit], list[FilteringPrices]]
) -> None:
    # A random placement: worse with more groups as often as not.
    for curve in sweep(demand, REQUEST.replace(algorithm="random"), *asked).curves:
        for at, point in enumerate(curve.points):
            before = curve.points[:at]
            best = min((p.relative_excess for p in before), default=float("inf"))
            assert point.worse == (point.relative_excess > best + 1e-9)
            if point.saved_share_per_group is None:
                assert at == 0
            else:
                assert point.compared_with in [p.groups for p in before if not p.worse]
                assert (point.saved_share_per_group < 0) == point.worse


def test_what_an_added_group_saved_is_told_in_messages_and_as_a_share_of_flooding() -> None:
    result = sweep(five_flows(), REQUEST, [1, 2, 5], prices=[FilteringPrices(2, 1)])
    first, second, last = result.points
    assert (first.compared_with, first.saved_per_group, first.saved_share_per_group) == (
        None,
        None,
        None,
    )
    assert first.relative_excess == pytest.approx(1.0)
    assert last.relative_excess == pytest.approx(0.0)
    assert last.compared_with == 2
    assert last.saved_per_group == pytest.approx((second.excess - last.excess) / 3)
    assert last.saved_share_per_group == pytest.approx(second.relative_excess / 3)


def test_a_worse_plan_is_reported_and_what_follows_is_held_against_the_better_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def worse_at_two(demand: Demand, request: Request, progress: Progress) -> Solution:
        groups = 1 if request.size.groups == 2 else min(request.size.groups + 1, len(demand.rate))
        return plan(demand, request.replace(groups=groups, sessions=groups), progress)

    # The package may name a function as it names this module.
    monkeypatch.setattr(sys.modules[sweep.__module__], "plan", worse_at_two)
    one, two, three = sweep(five_flows(), REQUEST, [1, 2, 3]).points
    assert (one.worse, two.worse, three.worse) == (False, True, False)
    assert two.relative_excess > one.relative_excess
    assert two.saved_per_group == pytest.approx(one.excess - two.excess)
    assert three.compared_with == 1
    assert three.saved_per_group == pytest.approx((one.excess - three.excess) / 2)


def test_sums_in_another_order_are_neither_a_saving_nor_worse() -> None:
    # Everybody wants everything, so nothing can be saved; these rates do not add up exactly.
    rates = {flow: 0.1 * (at + 1) for at, flow in enumerate("ABCDEF")}
    demand = demand_of(dict.fromkeys(("anna", "ben", "cleo"), "ABCDEF"), rates)
    result = sweep(demand, REQUEST.replace(algorithm="random"), [1, 2, 3, 4, 5, 6])
    assert {point.saved_per_group for point in result.points[1:]} == {0.0}
    assert not any(point.worse for point in result.points)


def test_numbers_above_the_flows_are_cut_and_counted() -> None:
    result = sweep(five_flows(), REQUEST, [2, 9, 99], [SessionLimit(4), SessionLimit(500)])
    assert [(p.groups, p.sessions) for p in result.points] == [(2, 4), (2, 5), (5, 5)]
    # Asked for are 6. Only (2, 4) holds as it is. (5, 4) does not fit, and (5, 5) and (5, 4) come
    # twice.
    assert (result.asked, result.capped, result.repeated, result.skipped) == (6, 5, 2, 1)


def test_where_sessions_are_always_too_few_nothing_is_planned() -> None:
    result = sweep(five_flows(), REQUEST, [3, 4], [SessionLimit(2)])
    assert (result.points, result.curves, result.skipped) == ((), (), 2)


def test_two_limits_that_come_to_the_same_numbers_are_planned_once() -> None:
    steps: list[Step] = []
    limits = [SessionLimit(4), SessionLimit(2, per_group=True)]
    result = sweep(five_flows(), REQUEST, [2], limits, progress=steps.append)
    assert [curve.limit.label for curve in result.curves] == [
        "2 sessions per group",
        "4 sessions",
    ]
    assert result.points[0] == result.points[1]
    assert {step.total for step in steps} == {1}
    assert steps[-1].done == 1


def test_the_clock_is_a_parameter() -> None:
    ticks = iter(range(100))
    result = sweep(five_flows(), REQUEST, [1, 2], clock=lambda: float(next(ticks)))
    assert [point.seconds for point in result.points] == [1.0, 1.0]


def test_without_prices_the_request_has_them_and_each_group_is_one_session() -> None:
    request = REQUEST.replace(prices=FilteringPrices(3, 4))
    (curve,) = sweep(five_flows(), request, [1, 3]).curves
    assert curve.prices == request.prices
    assert curve.limit == ONE_PER_GROUP
    assert [point.sessions for point in curve.points] == [1, 3]


def test_impossible_numbers_are_refused_before_any_work() -> None:
    steps: list[Step] = []
    with pytest.raises(ValueError, match="groups must be at least 1"):
        sweep(five_flows(), REQUEST, [3, 0], progress=steps.append)
    with pytest.raises(ValueError, match="sessions must be at least 1"):
        SessionLimit(0)
    assert steps == []
