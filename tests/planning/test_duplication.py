from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import FilteringPrices, filtering_cost, plan_loads
from distributary.model import Demand, Interest, plan_problems
from distributary.planning._duplication_kernels import CopyPrices, Sources, redraw_sources
from distributary.planning.duplication import Copying, Duplicated, duplicate, place_parts
from distributary.planning.hierarchy import Maps
from distributary.planning.merging import user_merge
from distributary.planning.things import Things, in_messages
from distributary.planning.two_level import BITS, TwoLevel
from tests.strategies import Hierarchy, demands, dense_demands, hierarchies, whole_rate_values

SHORT_S = 0.001  # a budget of some twenty sweeps

limits = st.just(1.0) | st.floats(1, 4)
seeds = st.integers(0, 2**32)
whole_prices = st.builds(FilteringPrices, st.integers(0, 3), st.integers(1, 3))

Pairs = list[tuple[int, int]]  # (flow, receiver), ascending


def pairs_of(drawn: Hierarchy) -> Pairs:
    return [(k, n) for k, members in enumerate(drawn.receivers) for n in sorted(members)]


def plain_sent(pairs: Pairs, weight: Sequence[int], source: Sequence[int]) -> int:
    return sum(weight[k] for k, _ in {(k, s) for (k, _), s in zip(pairs, source, strict=True)})


def plain_work(
    pairs: Pairs,
    weight: Sequence[int],
    source: Sequence[int],
    group: Sequence[int],
    prices: FilteringPrices,
) -> float:
    """Cw from sets: every copy once in its session, every receiver where it takes something."""
    taken = list(zip(pairs, source, strict=True))
    copies = {(k, s) for (k, _), s in taken}
    subscribed = {(n, s) for (_, n), s in taken}
    joined = {(n, group[s]) for n, s in subscribed}
    accepted = sum(weight[k] for n, s in subscribed for k, t in copies if s == t)
    received = sum(weight[k] for n, m in joined for k, t in copies if m == group[t])
    return prices.alpha * received + prices.beta * accepted


def plain_redraw(
    pairs: Pairs,
    weight: Sequence[int],
    source: list[int],
    group: Sequence[int],
    prices: FilteringPrices,
    fee: int,
    limit: int,
) -> list[int]:
    """The plain twin of `redraw_sources` at temperature 0: each choice priced from scratch."""
    source = list(source)

    def redraw(part: list[int]) -> None:
        old = source[part[0]]
        price = {}
        for session in range(len(group)):
            there = [session if i in part else s for i, s in enumerate(source)]
            sent = plain_sent(pairs, weight, there)
            if sent <= max(limit, plain_sent(pairs, weight, source) if session == old else 0):
                price[session] = plain_work(pairs, weight, there, group, prices) + fee * sent
        least = min(price.values())
        new = old if price[old] == least else min(s for s in price if price[s] == least)
        for i in part:
            source[i] = new

    for k in range(len(weight)):
        mine = [i for i, (flow, _) in enumerate(pairs) if flow == k]
        for i in mine:  # whole parts, each at the first of its pairs
            part = [j for j in mine if source[j] == source[i]]
            if part[0] == i:
                redraw(part)
        for i in mine:
            if sum(source[j] == source[i] for j in mine) > 1:
                redraw([i])
    return source


def split(drawn: Hierarchy, source: list[int]) -> tuple[Things, Maps]:
    """Every copy as a thing of its own."""
    pairs = pairs_of(drawn)
    copies = sorted({(k, s) for (k, _), s in zip(pairs, source, strict=True)})
    receivers = [
        {n for (k, n), s in zip(pairs, source, strict=True) if (k, s) == copy} for copy in copies
    ]
    weight = [drawn.weight[k] for k, _ in copies]
    parts = drawn._replace(receivers=receivers, weight=weight, session=[s for _, s in copies])
    return parts.things, parts.maps


def sources_of(things: Things, source: np.ndarray, sent: np.ndarray, state: TwoLevel) -> Sources:
    inner = state.state
    return Sources(
        things.offsets,
        things.members,
        things.weight.astype(float),
        source,
        sent,
        inner.group,
        inner.sessions,
        inner.groups,
    )


@given(data=st.data(), drawn=hierarchies(max_flows=5), prices=whole_prices)
def test_redrawing_compiled_and_plain_choose_the_same_sessions(
    data: st.DataObject, drawn: Hierarchy, prices: FilteringPrices
) -> None:
    pairs = pairs_of(drawn)
    anywhere = st.integers(0, len(drawn.group) - 1)
    source = data.draw(st.lists(anywhere, min_size=len(pairs), max_size=len(pairs)))
    fee = data.draw(st.integers(0, 3))
    begin = plain_sent(pairs, drawn.weight, source)
    limit = begin + data.draw(st.integers(0, sum(drawn.weight)))
    state = TwoLevel(*split(drawn, source), prices)
    compiled, sent = np.array(source, np.int32), np.array([float(begin)])
    things = drawn.things
    redraw_sources(
        np.arange(len(things)),
        np.zeros(2 * len(pairs)),
        CopyPrices(prices.alpha, prices.beta, float(fee), float(limit), 0.0),
        sources_of(things, compiled, sent, state),
    )
    assert compiled.tolist() == plain_redraw(
        pairs, drawn.weight, source, drawn.group, prices, fee, limit
    )
    assert sent[0] == plain_sent(pairs, drawn.weight, compiled.tolist())


@given(data=st.data(), drawn=hierarchies(), prices=whole_prices, seed=seeds)
def test_after_any_redrawing_the_state_kept_is_the_state_from_scratch(
    data: st.DataObject, drawn: Hierarchy, prices: FilteringPrices, seed: int
) -> None:
    pairs, things, rng = pairs_of(drawn), drawn.things, np.random.default_rng(seed)
    source = np.repeat(drawn.maps.session, np.diff(things.offsets))
    limit = float(sum(drawn.weight) * data.draw(st.integers(1, 3)))
    state = TwoLevel(things, drawn.maps, prices)
    sent = np.array([float(sum(drawn.weight))])
    for _ in range(3):
        heat = data.draw(st.sampled_from([0.0, 1.0, 1e6, 1e12]))
        redraw_sources(
            rng.permutation(len(things)),
            rng.random(2 * len(pairs)),
            CopyPrices(prices.alpha, prices.beta, 0.5, limit, heat),
            sources_of(things, source, sent, state),
        )
        fresh = TwoLevel(*split(drawn, source.tolist()), prices)
        kept_levels = (*state.state.sessions, *state.state.groups)
        fresh_levels = (*fresh.state.sessions, *fresh.state.groups)
        for kept, counted in zip(kept_levels, fresh_levels, strict=True):
            assert kept.tolist() == counted.tolist()
        assert sent[0] == plain_sent(pairs, drawn.weight, source.tolist()) <= limit


def duplicated(
    demand: Demand,
    sessions: int,
    groups: int,
    prices: FilteringPrices,
    max_sent: float,
    seed: int,
    *,
    with_homes: bool = True,
    budget_s: float = SHORT_S,
) -> tuple[Things, Maps, Duplicated]:
    """From whole flows placed at random, so that there is much to gain."""
    rng = np.random.default_rng(seed)
    things = Things.flows_of(demand, BITS)
    group = np.concatenate((np.arange(groups), rng.integers(groups, size=sessions - groups)))
    maps = Maps(rng.integers(sessions, size=len(things)).astype(np.int32), group.astype(np.int32))
    homes = user_merge(demand, groups) if with_homes else None
    found = duplicate(things, maps, prices, Copying(max_sent, homes, budget_s), rng)
    return things, maps, found


sizes = st.tuples(st.integers(1, 3), st.integers(0, 3)).map(lambda gs: (sum(gs), gs[0]))
some_demands = demands() | dense_demands()
whole_demands = demands(rates=whole_rate_values()) | dense_demands(rates=whole_rate_values())


@given(some_demands, sizes, whole_prices, limits, seeds, st.booleans())
def test_the_plan_is_valid_within_its_limits_and_no_worse_than_the_start(
    demand: Demand,
    size: tuple[int, int],
    prices: FilteringPrices,
    max_sent: float,
    seed: int,
    with_homes: bool,
) -> None:
    things, maps, found = duplicated(demand, *size, prices, max_sent, seed, with_homes=with_homes)
    plan = place_parts(demand, found)
    assert plan_problems(plan, demand.interest) == ()
    assert plan.n_sessions <= size[0]
    assert plan.n_groups <= size[1]
    assert found.sent <= max_sent * int(things.weight.sum())
    assert found.work(prices) <= maps.work(things, prices)


@given(whole_demands, sizes, whole_prices, limits, seeds)
def test_the_plan_costs_exactly_what_the_solver_says(
    demand: Demand, size: tuple[int, int], prices: FilteringPrices, max_sent: float, seed: int
) -> None:
    _, _, found = duplicated(demand, *size, prices, max_sent, seed)
    plan = place_parts(demand, found)
    n_receivers = len(demand.interest.receivers)
    work = in_messages(found.work(prices), demand.rate, n_receivers, BITS)
    assert filtering_cost(plan, demand, prices).work == work
    sent = float(plan_loads(plan, demand).session_rate.sum())
    assert sent == in_messages(found.sent, demand.rate, n_receivers, BITS)
    assert sent <= max_sent * demand.rate.sum()


@given(some_demands, sizes, whole_prices, limits, seeds)
def test_the_parts_of_a_flow_share_out_its_receivers_over_different_sessions(
    demand: Demand, size: tuple[int, int], prices: FilteringPrices, max_sent: float, seed: int
) -> None:
    things, _, found = duplicated(demand, *size, prices, max_sent, seed)
    placed = list(zip(found.flow.tolist(), found.maps.session.tolist(), strict=True))
    assert len(placed) == len(set(placed))
    assert found.things.weight.tolist() == things.weight[found.flow].tolist()
    owner = np.repeat(found.flow, np.diff(found.things.offsets))
    pairs = sorted(zip(owner.tolist(), found.things.members.tolist(), strict=True))
    interest = demand.interest
    assert pairs == list(
        zip(interest.pair_flows().tolist(), interest.flow_receivers.tolist(), strict=True)
    )


@given(some_demands, sizes, whole_prices, limits, seeds)
def test_the_same_seed_gives_the_same_plan(
    demand: Demand, size: tuple[int, int], prices: FilteringPrices, max_sent: float, seed: int
) -> None:
    one, other = (
        place_parts(demand, duplicated(demand, *size, prices, max_sent, seed)[2]) for _ in range(2)
    )
    assert one == other


@given(some_demands, sizes, whole_prices, seeds)
def test_nothing_is_sent_twice_when_all_may_be_sent_once(
    demand: Demand, size: tuple[int, int], prices: FilteringPrices, seed: int
) -> None:
    things, _, found = duplicated(demand, *size, prices, 1.0, seed)
    assert found.flow.tolist() == list(range(len(things)))


@settings(deadline=None)
@given(
    dense_demands(max_receivers=3, max_flows=3, rates=whole_rate_values()),
    st.sampled_from([(2, 1), (2, 2), (3, 2)]),
    whole_prices,
    limits,
    seeds,
)
def test_no_single_move_helps_and_the_cheapest_of_all_plans_is_no_dearer(
    demand: Demand, size: tuple[int, int], prices: FilteringPrices, max_sent: float, seed: int
) -> None:
    things, _, found = duplicated(demand, *size, prices, max_sent, seed)
    weight, group = things.weight.tolist(), found.maps.group.tolist()
    limit = int(max_sent * sum(weight))
    taken = sorted(
        (int(found.flow[part]), int(n), int(found.maps.session[part]))
        for part in range(len(found.flow))
        for n in found.things.members[found.things.offsets[part] : found.things.offsets[part + 1]]
    )
    pairs = [(k, n) for k, n, _ in taken]
    source = [s for _, _, s in taken]
    work = found.work(prices)
    assert work == plain_work(pairs, weight, source, group, prices)
    again = plain_redraw(pairs, weight, source, group, prices, 0, limit)
    assert plain_work(pairs, weight, again, group, prices) == work
    if len(group) ** len(pairs) <= 600:
        every = product(range(len(group)), repeat=len(pairs))
        allowed = (s for s in every if plain_sent(pairs, weight, s) <= limit)
        groupings = list(product(range(size[1]), repeat=len(group)))
        assert work >= min(
            plain_work(pairs, weight, s, g, prices) for s in allowed for g in groupings
        )


# Tock et al., Table 1: U1 wants flows 1 and 2, U2 wants 1 and 3; there are two groups.
TABLE_1 = Demand(
    Interest.from_pairs([("U1", "1"), ("U1", "2"), ("U2", "1"), ("U2", "3")]),
    np.array([1.0, 100.0, 100.0]),
)


@pytest.mark.parametrize("with_homes", [False, True])
@pytest.mark.parametrize("session", [[0, 0, 1], [1, 0, 1], [0, 1, 1]])
def test_with_a_second_copy_of_flow_1_nothing_is_wasted(
    session: list[int], with_homes: bool
) -> None:
    things = Things.flows_of(TABLE_1, BITS)
    maps = Maps(np.array(session, np.int32), np.arange(2, dtype=np.int32))
    prices, rng = FilteringPrices(), np.random.default_rng(0)
    homes = user_merge(TABLE_1, 2) if with_homes else None
    plan = place_parts(TABLE_1, duplicate(things, maps, prices, Copying(1.01, homes), rng))
    assert filtering_cost(plan, TABLE_1, prices).excess == 0
    assert plan.duplicated_flows == 1
    assert plan_loads(plan, TABLE_1).group_rate.tolist() == [101, 101]


def test_a_copy_that_the_limit_does_not_hold_is_not_made() -> None:
    things = Things.flows_of(TABLE_1, BITS)
    maps = Maps(np.array([0, 0, 1], np.int32), np.arange(2, dtype=np.int32))
    prices, rng = FilteringPrices(), np.random.default_rng(0)
    plan = place_parts(TABLE_1, duplicate(things, maps, prices, Copying(1.004), rng))
    assert plan.duplicated_flows == 0
    assert filtering_cost(plan, TABLE_1, prices).excess == 200


@pytest.mark.parametrize("max_sent", [0.99, float("nan"), float("inf")])
def test_a_limit_below_sending_all_once_is_refused(max_sent: float) -> None:
    with pytest.raises(ValueError, match="max_sent"):
        Copying(max_sent)


def test_more_homes_than_groups_are_refused() -> None:
    things = Things.flows_of(TABLE_1, BITS)
    maps = Maps(np.zeros(3, np.int32), np.zeros(1, np.int32))
    copying = Copying(2.0, np.arange(2, dtype=np.int32))
    with pytest.raises(ValueError, match="2 homes for 1 groups"):
        duplicate(things, maps, FilteringPrices(), copying, np.random.default_rng(0))
