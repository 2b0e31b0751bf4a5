from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import ChannelPrices, FilteringPrices, channel_cost, evaluate
from distributary.model import Demand, Interest, Rates, plan_problems
from distributary.planning import ALGORITHMS, DEFAULT_ALGORITHM, Request, Step, plan
from distributary.workloads import TwoClass, two_class
from tests import oracles
from tests.strategies import demands, dense_demands, rate_values, whole_rate_values

EVERY = pytest.mark.parametrize("algorithm", list(ALGORITHMS))
FEW = settings(max_examples=20)  # of each algorithm
SINGLE = sorted(set(ALGORITHMS) - {"user-merge", "optimal-shared"})
RATES = rate_values() | whole_rate_values()
SMALL = demands(rates=RATES) | dense_demands(rates=RATES)


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    """How many groups, and how many sessions in them."""
    groups = draw(st.integers(1, 4))
    return groups, draw(st.integers(groups, 8))


def asked(
    demand: Demand, algorithm: str, groups: int, sessions: int | None = None, **more: object
) -> Request:
    """A request, with labels for the one algorithm that goes by them."""
    if algorithm.lower() == "by-column":
        more["labels"] = [f"label {flow % 3}" for flow in range(len(demand.rate))]
    return Request(groups=groups, sessions=sessions, algorithm=algorithm, **more)  # type: ignore[arg-type]


def cost_of(demand: Demand, request: Request) -> float:
    return channel_cost(plan(demand, request).plan, demand, ChannelPrices()).cost


@EVERY
@FEW
@given(demand=SMALL, size=sizes(), seed=st.integers(0, 99))
def test_every_plan_is_valid_and_within_what_was_asked(
    algorithm: str, demand: Demand, size: tuple[int, int], seed: int
) -> None:
    groups, sessions = size
    request = asked(demand, algorithm, groups, sessions, seed=seed)
    found = plan(demand, request).plan
    assert oracles.problems(found, demand.interest) == []
    assert plan_problems(found, demand.interest) == ()
    assert found.n_groups <= groups
    assert found.n_sessions <= sessions
    if algorithm in SINGLE:
        assert found.placement_flow.tolist() == list(range(len(demand.rate)))


@EVERY
@FEW
@given(demand=SMALL, groups=st.integers(1, 4))
def test_without_sessions_every_group_is_one(algorithm: str, demand: Demand, groups: int) -> None:
    found = plan(demand, asked(demand, algorithm, groups)).plan
    assert found.n_sessions <= groups
    if algorithm in ("random", "balanced-size", "flow-merge", "user-merge", "optimal", "kmeans"):
        assert found.session_group.tolist() == list(range(found.n_sessions))


@EVERY
@FEW
@given(demand=SMALL, size=sizes(), seed=st.integers(0, 99))
def test_the_same_seed_gives_the_same_plan_under_any_name(
    algorithm: str, demand: Demand, size: tuple[int, int], seed: int
) -> None:
    groups, sessions = size
    acronym = ALGORITHMS[algorithm].acronym
    called = [algorithm, algorithm.upper(), *([acronym, acronym.lower()] if acronym else [])]
    found = [plan(demand, asked(demand, name, groups, sessions, seed=seed)).plan for name in called]
    assert all(other == found[0] for other in found)


@pytest.mark.parametrize(
    "algorithm",
    [
        *("random", "balanced-size", "balanced-rate", "kmeans"),
        *("sessions-first", "groups-first", "iterative", "annealed"),
    ],
)
def test_another_seed_gives_another_plan(algorithm: str) -> None:
    rng = np.random.default_rng(1)
    interest = Interest.from_pairs(
        (f"r{j}", f"f{i:02}") for i in range(40) for j in {*rng.integers(9, size=3).tolist()}
    )
    demand = Demand(interest, rng.integers(1, 9, size=40).astype(float))
    request = [Request(groups=4, sessions=8, algorithm=algorithm, seed=seed) for seed in range(4)]
    found = [plan(demand, one).plan for one in request]
    assert any(other != found[0] for other in found[1:])


@EVERY
@FEW
@given(data=st.data(), demand=SMALL, size=sizes())
def test_the_order_of_rows_and_the_names_themselves_do_not_matter(
    algorithm: str, data: st.DataObject, demand: Demand, size: tuple[int, int]
) -> None:
    groups, sessions = size
    interest = demand.interest
    # Other names in the same order, in rows of any order. A hash goes by the name itself.
    flows = [f"flow {flow:03}" for flow in range(len(interest.flows))]
    names = interest.flows if algorithm == "hash" else flows
    pairs = [
        (f"receiver {receiver:03}", names[flow])
        for receiver, wants in enumerate(oracles.wanted_flows(interest))
        for flow in wants
    ]
    shuffled = data.draw(st.permutations(pairs))
    rates = list(zip(names, demand.rate.tolist(), strict=True))
    renamed = Demand.of(
        Interest.from_pairs(shuffled), Rates.from_mapping(data.draw(st.permutations(rates)))
    )
    request = asked(demand, algorithm, groups, sessions)
    here, there = plan(demand, request).plan, plan(renamed, request).plan
    for part in (
        "placement_flow",
        "placement_session",
        "session_group",
        "subscription_receiver",
        "subscription_session",
    ):
        assert getattr(here, part).tolist() == getattr(there, part).tolist()


@EVERY
@pytest.mark.parametrize("exponent", [-1000, -40, 40, 950])
def test_a_unit_of_rates_twice_as_large_changes_nothing(algorithm: str, exponent: int) -> None:
    interest = Interest.from_pairs(
        [("a", "w"), ("a", "x"), ("b", "x"), ("b", "y"), ("c", "y"), ("c", "z"), ("d", "w")]
    )
    rate = np.array([3.0, 1.0, 4.0, 5.0])
    request = asked(Demand(interest, rate), algorithm, 2, 3)
    here = plan(Demand(interest, rate), request)
    there = plan(Demand(interest, np.ldexp(rate, exponent)), request)
    assert there.plan == here.plan
    assert there.proven == here.proven
    if here.channel_lower_bound is not None:
        assert there.channel_lower_bound == pytest.approx(
            np.ldexp(here.channel_lower_bound, exponent), rel=1e-12, abs=0
        )


@pytest.mark.parametrize(
    "algorithm", sorted(set(ALGORITHMS) - {"random", "user-merge", "hash", "by-column"})
)
@FEW
@given(demand=SMALL, more=st.integers(0, 3), seed=st.integers(0, 99))
def test_with_a_group_for_every_flow_nothing_is_wasted(
    algorithm: str, demand: Demand, more: int, seed: int
) -> None:
    request = asked(demand, algorithm, len(demand.rate) + more, seed=seed)
    found = evaluate(plan(demand, request).plan, demand)
    assert found.channel.cost == pytest.approx(found.channel.lower_bound, rel=1e-12)
    assert found.filtering.work == pytest.approx(found.filtering.wanted_work, rel=1e-12)


@FEW
@given(demand=SMALL, groups=st.integers(1, 3), seed=st.integers(0, 99))
def test_nothing_that_places_flows_once_is_cheaper_than_optimal(
    demand: Demand, groups: int, seed: int
) -> None:
    least = cost_of(demand, Request(groups=groups, algorithm="optimal"))
    for algorithm in SINGLE:
        cost = cost_of(demand, asked(demand, algorithm, groups, seed=seed))
        assert least <= cost * (1 + 1e-12), algorithm


@given(demand=SMALL, groups=st.integers(1, 3))
def test_nothing_at_all_is_cheaper_than_optimal_shared(demand: Demand, groups: int) -> None:
    least = cost_of(demand, Request(groups=groups, algorithm="optimal-shared"))
    for algorithm in ("optimal", "user-merge"):
        assert least <= cost_of(demand, Request(groups=groups, algorithm=algorithm)) * (1 + 1e-12)


@pytest.mark.parametrize("algorithm", ["optimal", "optimal-shared"])
@given(demand=SMALL, groups=st.integers(1, 3))
def test_a_proven_plan_costs_its_own_lower_bound(
    algorithm: str, demand: Demand, groups: int
) -> None:
    solution = plan(demand, Request(groups=groups, algorithm=algorithm))
    assert solution.proven
    cost = channel_cost(solution.plan, demand, ChannelPrices()).cost
    assert cost == pytest.approx(solution.channel_lower_bound, rel=1e-12)


@pytest.mark.parametrize("algorithm", ["iterative", "annealed"])
@FEW
@given(
    demand=SMALL,
    size=sizes(),
    alpha=st.integers(0, 3),
    objective=st.sampled_from(["filtering", "channel"]),
)
def test_progress_comes_to_its_end_and_its_best_is_the_plans_own_work(
    algorithm: str, demand: Demand, size: tuple[int, int], alpha: int, objective: str
) -> None:
    steps: list[Step] = []
    groups, sessions = size
    prices = FilteringPrices(alpha, 2)
    request = Request(
        groups=groups, sessions=sessions, algorithm=algorithm, prices=prices, objective=objective
    )
    found = evaluate(plan(demand, request, steps.append).plan, demand, prices)
    assert all(step.total is None or 0 <= step.done <= step.total for step in steps)
    assert steps[-1].done == steps[-1].total
    best = [step.best for step in steps if step.best is not None]
    assert best == sorted(best, reverse=True)
    goal = found.filtering.work if objective == "filtering" else found.channel.received
    assert best[-1] == pytest.approx(goal, rel=1e-9)


def test_best_returns_the_best_it_told_of() -> None:
    params = TwoClass(flows=60, receivers=30)
    demand = Demand.of(*two_class(params, np.random.default_rng(1)))
    steps: list[Step] = []
    request = Request(groups=8, sessions=20, algorithm="best", budget_s=0.5)
    work = evaluate(plan(demand, request, steps.append).plan, demand).filtering.work
    told = [step.best for step in steps if step.best is not None]
    assert told == sorted(told, reverse=True)
    assert work <= told[-1] * (1 + 1e-9)


@pytest.mark.parametrize("algorithm", ["iterative", "annealed"])
def test_the_prices_decide_between_plans(algorithm: str) -> None:
    # Whatever the prices, the same plans are met on the way; only the choice of the best differs.
    rng = np.random.default_rng(5)
    interest = Interest.from_pairs(
        (f"r{j}", f"f{i:02}") for i in range(30) for j in {*rng.integers(8, size=3).tolist()}
    )
    demand = Demand(interest, rng.integers(1, 9, size=30).astype(float))
    first, second = FilteringPrices(9.0, 0.1), FilteringPrices(0.1, 9.0)
    differ = False
    for seed in range(10):
        plans = {
            prices: plan(
                demand,
                Request(groups=3, sessions=9, algorithm=algorithm, prices=prices, seed=seed),
            ).plan
            for prices in (first, second)
        }
        for own, other in ((first, second), (second, first)):
            work = [evaluate(plans[prices], demand, own).filtering.work for prices in (own, other)]
            assert work[0] <= work[1]
            differ |= work[0] < work[1]
    assert differ


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"groups": 0}, "groups must be at least 1, not 0"),
        ({"groups": -3}, "groups must be at least 1, not -3"),
        ({"groups": 5, "sessions": 4}, r"sessions \(4\) must be at least groups \(5\)"),
        ({"groups": 1, "sessions": 0}, r"sessions \(0\) must be at least groups \(1\)"),
        ({"groups": 1, "seed": -1}, "seed must be at least 0, not -1"),
        ({"groups": 1, "budget_s": 0.0}, "budget must be more than 0 seconds, not 0.0"),
        ({"groups": 1, "budget_s": -1.0}, "budget must be more than 0 seconds, not -1.0"),
        ({"groups": 1, "budget_s": float("nan")}, "budget must be more than 0 seconds, not nan"),
        (
            {"groups": 1, "algorithm": "magic"},
            "no algorithm is called 'magic'; there are best, .*flow-merge, ",
        ),
        ({"groups": 1, "algorithm": ""}, "no algorithm is called ''"),
        ({"groups": 1, "objective": "chanel"}, "objective"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(asked: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Request(**asked)  # type: ignore[arg-type]


def test_every_algorithm_has_a_name_and_a_label_of_its_own() -> None:
    assert DEFAULT_ALGORITHM in ALGORITHMS
    called = [a.acronym for a in ALGORITHMS.values() if a.acronym] + list(ALGORITHMS)
    assert len({name.lower() for name in called}) == len(called)
    assert ALGORITHMS["flow-merge"].label == "flow-merge (FBM)"
    assert ALGORITHMS["kmeans"].label == "kmeans"
