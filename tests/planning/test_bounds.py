"""No plan is cheaper than a bound says: against all plans of tiny instances."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import ChannelPrices, FilteringPrices, PacketPrices
from distributary.model import Constraints, Demand, Interest, Limits
from distributary.planning import (
    Bound,
    Request,
    Size,
    UnicastLimits,
    anchors,
    bound_plan,
    bounds,
    lower_bound,
    make_plan,
)
from distributary.planning import _reference as reference
from distributary.planning._bound_kernels import (
    Kinds,
    measure_unions,
    price_anchors,
    search_cluster,
)
from distributary.planning._nested_kernels import make_nested, search_nested
from distributary.planning.anchors import bound_by_anchors
from tests import oracles
from tests.planning.every_plan import cheapest_plan
from tests.planning.tiny_instances import KINDS, tiny_instance
from tests.planning.tiny_plans import Instance, Prices
from tests.planning.tiny_requests import as_demand, as_prices
from tests.strategies import demands, dense_demands, near, rate_values, whole_rate_values

RATES = rate_values() | whole_rate_values()
DEMANDS = demands(rates=RATES) | dense_demands(max_receivers=6, rates=RATES)
PRICES = st.sampled_from(
    [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (1e-6, 1.0), (1e12, 1e-9), (3.0, 0.5)]
)
WORK = st.sampled_from([0, 3_000, 100_000_000])
PLENTY = 100_000_000


def least_work(demand: Demand, size: Size, prices: FilteringPrices) -> float:
    return oracles.cheapest_two_level(
        oracles.wanted_flows(demand.interest),
        demand.rate.tolist(),
        size.most_sessions,
        size.groups,
        prices.alpha,
        prices.beta,
    )


def is_below(bound: float, least: float) -> bool:
    return bound <= least * (1 + 1e-9) + 1e-300


@settings(max_examples=60, deadline=None)
@given(
    demand=dense_demands(max_receivers=6, max_flows=5, rates=RATES),
    groups=st.integers(1, 3),
    more=st.integers(0, 1),
    prices=PRICES,
    work=WORK,
)
def test_no_plan_costs_less_than_the_bound(
    demand: Demand, groups: int, more: int, prices: tuple[float, float], work: int
) -> None:
    size, priced = Size(groups, groups + more), FilteringPrices(*prices)
    bound = lower_bound(demand, size, priced, work=work)
    least = least_work(demand, size, priced)
    assert is_below(bound.value, least)
    wanted = (priced.alpha + priced.beta) * float(demand.wanted_rate.sum())
    assert bound.value >= wanted * (1 - 1e-12)
    if work == PLENTY:
        assert bound.value == pytest.approx(least, rel=3e-9, abs=1e-300)
        assert bound.gap(least) == 0


SPLIT = {"unicast", "copies"}


@pytest.mark.parametrize("nth", range(6))
def test_no_plan_with_any_terms_costs_less_than_the_bound(nth: int) -> None:
    """The bound for a request with terms; sent messages are added as `bound_plan` adds them."""
    tight = 0
    for seed, kind in enumerate(KINDS):
        instance = tiny_instance(kind, seed + nth * len(KINDS))
        found = cheapest_plan(instance)
        if found is None:
            continue
        bound = bound_instance(instance, work=[0, 3_000, PLENTY][(seed + nth) % 3])
        assert is_below(bound, found.cost), kind
        tight += bound == pytest.approx(found.cost, rel=3e-9, abs=1e-300)
    assert tight > len(KINDS) / 10, "bounds that are never reached show little"


def bound_instance(instance: Instance, work: int) -> float:
    demand = as_demand(instance)
    weights = None if instance.weight is None else np.array(instance.weight)
    bound = lower_bound(
        demand,
        Size(min(instance.most_groups, instance.most_sessions), instance.most_sessions),
        as_prices(instance),
        weights=weights,
        shared=instance.unicast is not None or instance.max_sent is not None,
        work=work,
    )
    return bound.value + instance.prices.sent * float(demand.rate.sum())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), prices=PRICES, weighted=st.booleans(), work=WORK)
def test_no_plan_costs_less_than_the_bound_if_receivers_differ(
    seed: int, prices: tuple[float, float], weighted: bool, work: int
) -> None:
    instance = tiny_instance(("weights",) if weighted else (), seed)
    priced = Prices(alpha0=prices[0], beta0=prices[1])
    found = cheapest_plan(replace(instance, prices=priced))
    assert found is not None
    assert is_below(bound_instance(replace(instance, prices=priced), work), found.cost)


# --- each argument by itself ----------------------------------------------------------------------


@st.composite
def kinds(draw: st.DrawFn, max_kinds: int = 6) -> Kinds:
    """Kinds as `lower_bound` scales them, with equal or different receivers."""
    demand = draw(dense_demands(max_receivers=6, max_flows=max_kinds, rates=RATES))
    n_receivers = len(demand.interest.receivers)
    weight = st.lists(
        st.sampled_from([0.1, 1.0, 3.0, 50.0]), min_size=n_receivers, max_size=n_receivers
    )
    weights = draw(st.none() | weight.map(np.array))
    return bounds._scale(demand, weights)[0]


def plain_receivers(drawn: Kinds) -> list[set[int]]:
    return [
        set(drawn.members[begin:end].tolist())
        for begin, end in zip(drawn.offsets[:-1], drawn.offsets[1:], strict=True)
    ]


def least_clustering(drawn: Kinds, n_clusters: int) -> float:
    receivers, rate = plain_receivers(drawn), drawn.rate.tolist()
    least = float("inf")
    for cluster in product(range(n_clusters), repeat=len(rate)):
        cost = 0.0
        for own in set(cluster):
            inside = [k for k, c in enumerate(cluster) if c == own]
            audience = set().union(*(receivers[k] for k in inside))
            cost += sum(rate[k] for k in inside) * sum(drawn.weight[j] for j in audience)
        least = min(least, cost)
    return least


@settings(max_examples=60, deadline=None)
@given(drawn=kinds(), n_clusters=st.integers(2, 3), work=WORK)
def test_no_clustering_costs_less_than_any_argument_says(
    drawn: Kinds, n_clusters: int, work: int
) -> None:
    least = least_clustering(drawn, n_clusters)
    assert is_below(bound_by_anchors(drawn, n_clusters, work), least)
    assert is_below(bounds._bound_pigeonhole(drawn, n_clusters), least)


@settings(max_examples=40, deadline=None)
@given(drawn=kinds(), n_clusters=st.integers(1, 3), most=st.integers(1, 4))
def test_slow_kinds_may_be_left_out_of_the_anchors(
    drawn: Kinds, n_clusters: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anchors, "_MOST_KINDS", most)
        bound = bound_by_anchors(drawn, n_clusters, PLENTY)
    assert is_below(bound, least_clustering(drawn, n_clusters))


WORTH = st.floats(0, 400) | st.integers(0, 8).map(float)


@settings(max_examples=100, deadline=None)
@given(drawn=kinds(), data=st.data())
def test_profits_at_anchors_are_those_of_the_plain_twins(drawn: Kinds, data: st.DataObject) -> None:
    n_kinds = len(drawn.rate)
    worth = np.array(data.draw(st.lists(WORTH, min_size=n_kinds, max_size=n_kinds)))
    plain = (plain_receivers(drawn), drawn.rate, drawn.weight, worth)
    union = np.zeros((n_kinds, n_kinds), np.int32)
    profit, width = np.zeros(n_kinds), np.zeros(n_kinds, np.int64)
    measure_unions(drawn, union)
    price_anchors(drawn, union, worth, profit, width)
    for anchor in range(n_kinds):
        largest = reference.largest_profit(*plain, anchor)
        by_pairs = reference.pair_profit(*plain, anchor)
        slack = 1e-9 * (1 + float(worth.max()) + float(drawn.weight.sum()))
        found, _ = search_cluster(drawn, worth, anchor, 500, np.zeros(n_kinds))
        cut, _ = search_cluster(
            drawn, worth, anchor, data.draw(st.integers(1, 4)), np.zeros(n_kinds)
        )
        # Widths are rounded down to whole steps, which differ by the order of a sum.
        rounded = 0.0 if drawn.step == 1 else 2 * drawn.step
        assert largest - slack <= found <= largest + rounded + slack
        assert found - rounded - slack <= cut <= profit[anchor] + rounded + slack
        assert by_pairs - slack <= profit[anchor] <= by_pairs + rounded + slack


@settings(max_examples=60, deadline=None)
@given(
    demand=dense_demands(max_receivers=6, max_flows=5, rates=whole_rate_values()),
    groups=st.integers(1, 3),
    more=st.integers(0, 2),
    prices=PRICES,
    max_nodes=st.integers(0, 30),
)
def test_the_search_of_nested_clusters_finds_the_optimum(
    demand: Demand, groups: int, more: int, prices: tuple[float, float], max_nodes: int
) -> None:
    scaled, unit = bounds._scale(demand, None)
    n_sessions = min(groups + more, 3)
    least = least_work(demand, Size(groups, n_sessions), FilteringPrices(*prices)) / unit
    best, proven = search_nested(make_nested(scaled, groups, n_sessions, *prices), PLENTY)
    assert best == proven == near(least)
    best, proven = search_nested(make_nested(scaled, groups, n_sessions, *prices), max_nodes)
    assert is_below(proven, least)
    assert best >= least * (1 - 1e-9)


# --- what a plan says -----------------------------------------------------------------------------

PAIRS = [("ann", "x"), ("bob", "x"), ("bob", "y"), ("cyd", "y"), ("cyd", "z")]
DEMAND = Demand(Interest.from_pairs(PAIRS), np.array([1.0, 2.0, 4.0]))


def bounded(**settings: object) -> float:
    made = bound_plan(make_plan(DEMAND, Request(**{"groups": 2, **settings})), DEMAND)  # type: ignore[arg-type]
    assert made.bound is not None
    assert made.gap is not None
    assert made.bound.value <= made.cost * (1 + 1e-9)
    return made.gap


def test_an_optimal_plan_is_known_to_be_one() -> None:
    assert bounded(budget_s=1) == 0
    assert bounded(budget_s=1, groups=1, sessions=2) == 0
    assert bounded(budget_s=1, objective="channel") == 0
    assert bounded(budget_s=1, receiver_weights={"bob": 3.0}) == 0


def test_a_plan_that_is_not_optimal_has_a_gap() -> None:
    requests = [Request(2, algorithm="random", seed=seed) for seed in range(10)]
    plans = [bound_plan(make_plan(DEMAND, request), DEMAND) for request in requests]
    least = min(made.cost for made in plans)
    assert max(made.cost for made in plans) > least
    for made in plans:
        assert made.gap == pytest.approx(made.cost / least - 1, abs=1e-8)


def test_copies_and_unicast_are_bounded_by_what_is_wanted() -> None:
    limits = UnicastLimits(1)
    for terms in ({"unicast": limits}, {"max_sent": 1.5}, {"algorithm": "user-merge"}):
        made = bound_plan(make_plan(DEMAND, Request(2, budget_s=0.1, **terms)), DEMAND)  # type: ignore[arg-type]
        assert made.bound == Bound(made.evaluation.filtering.wanted_work, "wanted")


def test_limits_on_groups_and_sessions_count() -> None:
    limits = Limits(groups=1, sessions=2)
    request = Request(3, 3, budget_s=0.1, constraints=Constraints(limits))
    made = bound_plan(make_plan(DEMAND, Request(1, 2, budget_s=0.1)), DEMAND)
    assert bound_plan(replace(made, request=request), DEMAND).bound == made.bound


@pytest.mark.parametrize("received", [0.0, 1.0, 7.0])
def test_the_channel_objective_is_bounded_at_its_prices(received: float) -> None:
    prices = ChannelPrices(received, 2.0)
    for algorithm in ("best", "optimal", "user-merge"):
        gap = bounded(objective="channel", channel=prices, algorithm=algorithm, budget_s=0.1)
        assert gap == 0 or algorithm == "user-merge"


def test_packets_and_bytes_are_bounded_in_their_units() -> None:
    prices = PacketPrices(0.5, 2.0, 0.5, 1.0, heartbeats=1.0)
    in_bytes = Demand(DEMAND.interest, DEMAND.rate, size=np.array([10.0, 20.0, 30.0]))
    for demand in (DEMAND, in_bytes.count_in("bytes")):
        made = bound_plan(make_plan(demand, Request(2, prices=prices, budget_s=0.1)), demand)
        assert made.bound is not None
        assert made.evaluation.filtering.wanted_work <= made.bound.value * (1 + 1e-9)
        assert made.bound.value <= made.cost


def test_the_same_demand_has_the_same_bound() -> None:
    rng = np.random.default_rng(1)
    pairs = [(f"r{j}", f"f{k}") for k in range(60) for j in rng.choice(50, 8, replace=False)]
    demand = Demand(Interest.from_pairs(pairs), rng.integers(1, 9, 60).astype(float))
    first, second = (lower_bound(demand, Size(5, 12), FilteringPrices()) for _ in range(2))
    assert first == second
    assert "anchors" in first.how


def test_without_any_bound_the_gap_is_infinite() -> None:
    assert Bound(0.0, "wanted").gap(1.0) == float("inf")
    assert Bound(0.0, "wanted").gap(0.0) == 0
    assert Bound(2.0, "wanted").gap(3.0) == 0.5
