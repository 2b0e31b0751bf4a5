from __future__ import annotations

from itertools import chain, combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import ChannelPrices, PacketPrices, channel_cost, evaluate
from distributary.model import Constraints, Demand, FloatArray, Limits
from distributary.planning import ALGORITHMS, Request, plan
from distributary.planning.weighted import WholeWeights, gather_receivers, repeat_receivers
from tests import oracles
from tests.strategies import demands, dense_demands, whole_rate_values

PRICES = st.builds(
    ChannelPrices, st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([0.0, 0.25, 1.0, 7.0])
)
TINY = dense_demands(max_receivers=4, max_flows=4, rates=whole_rate_values())


@st.composite
def weights_for(draw: st.DrawFn, demand: Demand) -> dict[str, float]:
    names = demand.interest.receivers
    one = st.sampled_from([0.5, 1.0, 2.0, 3.0])
    return {name: draw(one) for name in names}


def weigh(demand: Demand, weights: dict[str, float]) -> list[float]:
    return [weights[name] for name in demand.interest.receivers]


def cheapest(
    demand: Demand, weights: list[float], prices: ChannelPrices, groups: int, copies: bool
) -> float:
    """The least weighted channel cost of all plans with a session per group, by trying all."""
    wants, rate = oracles.wanted_flows(demand.interest), demand.rate.tolist()
    every = range(groups)
    sets = [c for n in range(1, (groups if copies else 1) + 1) for c in combinations(every, n)]
    least = float("inf")
    for placed in product(sets, repeat=len(rate)):
        carried = [sum(r for r, at in zip(rate, placed, strict=True) if g in at) for g in every]
        received = sum(
            weight * oracles.cheapest_cover_price([placed[flow] for flow in flows], carried)
            for weight, flows in zip(weights, wants, strict=True)
        )
        least = min(least, prices.received * received + prices.sent * sum(carried))
    return least


@settings(max_examples=60)
@given(data=st.data(), demand=TINY, prices=PRICES, groups=st.integers(1, 2))
def test_the_exact_algorithms_prove_the_least_weighted_cost(
    data: st.DataObject, demand: Demand, prices: ChannelPrices, groups: int
) -> None:
    weights = data.draw(weights_for(demand))
    for algorithm, copies in (("optimal", False), ("optimal-shared", True)):
        request = Request(groups, algorithm=algorithm, receiver_weights=weights, channel=prices)
        solution = plan(demand, request)
        each = weigh(demand, weights)
        least = cheapest(demand, each, prices, min(groups, len(demand.rate)), copies)
        cost = channel_cost(solution.plan, demand, prices, weights=np.array(each)).cost
        assert cost == pytest.approx(least)
        assert solution.proven
        assert solution.channel_lower_bound == pytest.approx(least)


@settings(max_examples=60)
@given(data=st.data(), demand=demands(rates=whole_rate_values()), prices=PRICES)
def test_user_merge_merges_first_what_costs_least_at_the_weights(
    data: st.DataObject, demand: Demand, prices: ChannelPrices
) -> None:
    weights = data.draw(weights_for(demand))
    n, each = len(demand.interest.receivers), weigh(demand, weights)
    if n < 2:
        return
    request = Request(n - 1, algorithm="user-merge", receiver_weights=weights, channel=prices)
    found = plan(demand, request).plan
    cost = channel_cost(found, demand, prices, weights=np.array(each)).cost
    wants, rate = oracles.wanted_flows(demand.interest), demand.rate.tolist()

    def price(members: tuple[int, ...]) -> float:
        carried = sum(rate[flow] for flow in set(chain(*(wants[j] for j in members))))
        return (prices.received * sum(each[j] for j in members) + prices.sent) * carried

    alone = sum(price((j,)) for j in range(n))
    least = min(
        alone - price((a,)) - price((b,)) + price((a, b)) for a, b in combinations(range(n), 2)
    )
    assert cost == pytest.approx(least)


@settings(max_examples=15, deadline=None)
@given(data=st.data(), demand=demands(rates=whole_rate_values()))
@pytest.mark.parametrize(
    "algorithm", sorted(set(ALGORITHMS) - {"best", "by-column", "user-merge", "optimal-shared"})
)
def test_a_weight_of_n_is_n_receivers_that_want_the_same(
    algorithm: str, data: st.DataObject, demand: Demand
) -> None:
    n = len(demand.interest.receivers)
    copies = data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    weights = dict(zip(demand.interest.receivers, map(float, copies), strict=True))
    request = Request(2, 3, algorithm=algorithm, budget_s=0.001, patience=1e6)
    weighted = plan(demand, request.replace(receiver_weights=weights)).plan
    many = repeat_receivers(demand, np.array(copies))
    plain = plan(many, request).plan
    assert weighted.session_group.tolist() == plain.session_group.tolist()
    assert weighted.placement_session.tolist() == plain.placement_session.tolist()
    as_weighed = evaluate(weighted, demand, weights=np.array(copies, np.float64))
    assert as_weighed.valid
    assert as_weighed.filtering.work == evaluate(plain, many).filtering.work


@given(data=st.data(), demand=demands())
def test_receivers_come_back_from_their_copies(data: st.DataObject, demand: Demand) -> None:
    n = len(demand.interest.receivers)
    copies = np.array(data.draw(st.lists(st.integers(1, 12), min_size=n, max_size=n)))
    many = repeat_receivers(demand, copies)
    owner = [j for j, times in enumerate(copies.tolist()) for _ in range(times)]
    wants = oracles.wanted_flows(demand.interest)
    assert oracles.wanted_flows(many.interest) == [wants[j] for j in owner]
    request = Request(2, algorithm="hash")
    again = gather_receivers(plan(many, request).plan, demand, copies)
    assert oracles.plain(again) == oracles.plain(plan(demand, request).plan)


@given(
    whole=st.lists(st.integers(1, 50), min_size=1, max_size=6),
    sent=st.integers(0, 50),
    unit=st.sampled_from([1.0, 0.1, 3.0, 1e-6, 1e6]),
)
def test_weights_with_a_common_measure_are_whole_and_exact(
    whole: list[int], sent: int, unit: float
) -> None:
    found = WholeWeights.of(unit * np.array(whole, np.float64), unit * sent)
    assert found.exact
    assert (found.unit * found.receivers).tolist() == pytest.approx([unit * w for w in whole])
    assert found.unit * found.sent == pytest.approx(unit * sent)


@given(
    weights=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6).map(np.array),
    most=st.integers(10, 200),
)
def test_other_weights_are_rounded_to_at_most_so_many(weights: FloatArray, most: int) -> None:
    found = WholeWeights.of(weights, most=most)
    assert found.receivers.min() >= 1
    assert found.receivers.sum() <= most + len(weights)
    close = np.abs(found.unit * found.receivers - weights) <= found.unit * (1 + 1e-9)
    assert close.all()


def test_rounded_weights_prove_nothing() -> None:
    demand = Demand.of([("ann", "a"), ("bob", "b"), ("bob", "a")], {"a": 1.0, "b": 2.0})
    odd = {"ann": 1.0, "bob": 2**0.5}
    for algorithm in ("optimal", "optimal-shared"):
        solution = plan(demand, Request(1, algorithm=algorithm, receiver_weights=odd))
        assert not solution.proven
        assert solution.channel_lower_bound is None


def test_a_receiver_counts_for_something() -> None:
    with pytest.raises(ValueError, match="'ann' must be a finite number above 0, not 0"):
        Request(1, receiver_weights={"ann": 0.0})


def test_a_request_with_packet_prices_has_their_packing() -> None:
    prices = PacketPrices(1, 2, 3, 4, messages_per_packet=16, delay_s=0.002)
    request = Request(1, prices=prices)
    assert request.packing == prices.packing
    assert request.linear_prices == prices.linear
    assert request.replace(algorithm="hash").prices == prices
    with pytest.raises(ValueError, match="a packing of their own"):
        request.replace(packing=Request(1).packing)


def test_limits_count_receivers_and_not_their_weights() -> None:
    demand = Demand.of([("ann", "a"), ("bob", "b")], {"a": 1.0, "b": 2.0})
    limits = Constraints(Limits(group_members=1))
    request = Request(2, receiver_weights={"ann": 2.0}, constraints=limits, budget_s=0.01)
    assert plan(demand, request).plan.n_groups == 2
