from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import FilteringPrices
from distributary.model import Demand, Previous, plan_problems
from distributary.planning import Request, Step, plan
from distributary.planning import _reference as reference
from distributary.planning.best import SWEEPS_PER_ROUND, Allowance, anneal, best, effort
from distributary.planning.hierarchy import TwoLevelProblem, groups_first
from distributary.workloads import TwoClass, two_class
from tests import oracles
from tests.strategies import Hierarchy, hierarchies

module = sys.modules["distributary.planning.best"]  # the package has a function of that name
SHORT = 0.005  # seconds of a plain machine: some 50 to 100 sweeps of what is tiny
FEW = settings(max_examples=30)


@pytest.fixture(scope="module", autouse=True)
def _a_clock_that_stands() -> Iterator[None]:
    """However busy the machine, no run here is cut short unless a test says so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0.0))
        yield


def random_things(seed: int, flows: int, receivers: int, heaviest: int = 9) -> Hierarchy:
    """Flows that each receiver wants with a chance of 0.4, all of them in one session."""
    rng = np.random.default_rng(seed)
    wants = rng.random((flows, receivers)) < 0.4
    wants[np.arange(flows), rng.integers(receivers, size=flows)] = True
    return Hierarchy(
        receivers,
        [set(np.flatnonzero(row).tolist()) for row in wants],
        rng.integers(1, heaviest + 1, size=flows).tolist(),
        [0] * flows,
        1,
        [0],
    )


@FEW
@given(
    drawn=hierarchies(),
    sessions=st.integers(1, 5),
    alpha=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_best_is_never_worse_than_the_groups_first_it_starts_from(
    drawn: Hierarchy, sessions: int, alpha: int, seed: int
) -> None:
    things, prices = drawn.things, FilteringPrices(alpha, 1)
    sessions = min(sessions, len(things))
    groups = min(2, sessions)
    problem = TwoLevelProblem(things, sessions, groups, prices)
    first = groups_first(problem, np.random.default_rng(seed))
    found = best(problem, np.random.default_rng(seed), Allowance(SHORT))
    assert found.maps.work(things, prices) <= first.work(things, prices)
    assert len(found.maps.session) == len(things)
    assert int(found.maps.session.max()) < sessions
    assert int(found.maps.group.max()) < groups


@FEW
@given(drawn=hierarchies(), seed=st.integers(0, 99), budget=st.sampled_from([1e-9, SHORT]))
def test_best_is_never_worse_than_the_start_it_is_given(
    drawn: Hierarchy, seed: int, budget: float
) -> None:
    things, prices, start = drawn.things, FilteringPrices(), drawn.maps
    problem = TwoLevelProblem(things, len(drawn.group), drawn.n_groups, prices)
    rng = np.random.default_rng(seed)
    found = best(problem, rng, Allowance(budget), start=start)
    assert found.maps.work(things, prices) <= start.work(things, prices)
    assert start.session.tolist() == drawn.session


@pytest.fixture
def _threads_for_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONG_CHAIN_S", 0.0)


@pytest.mark.usefixtures("_threads_for_little")
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_one_thread_and_two_find_the_same_plan(seed: int) -> None:
    """With chains side by side (many sweeps) and with classes side by side (few)."""
    problem = TwoLevelProblem(random_things(seed, 300, 40).things, 60, 24)
    for budget, classes in ((0.5, 1), (0.02, 2)):
        assert effort(budget, problem).classes == classes
        one, two = (
            best(problem, np.random.default_rng(seed), Allowance(budget, threads=threads))
            for threads in (1, 2)
        )
        assert one.maps.session.tolist() == two.maps.session.tolist()
        assert one.maps.group.tolist() == two.maps.group.tolist()


@settings(max_examples=20)
@given(drawn=hierarchies(), seed=st.integers(0, 99), classes=st.integers(2, 4))
def test_annealing_in_classes_tells_the_cost_of_the_maps_it_gives(
    drawn: Hierarchy, seed: int, classes: int
) -> None:
    things, prices = drawn.things, FilteringPrices(1, 2)
    rng = np.random.default_rng(seed)
    classes = min(classes, drawn.n_groups)
    problem = TwoLevelProblem(things, len(drawn.group), drawn.n_groups, prices)
    rounds = anneal(problem, drawn.maps, 12, rng, max(2, classes))
    for done, work, maps in rounds:
        assert 0 < done <= 12
        assert work == maps.work(things, prices)
        assert int(maps.group.max()) < drawn.n_groups
    assert done == 12


def test_more_budget_is_more_sweeps_and_a_larger_demand_fewer() -> None:
    def sweeps(budget: float = 10, flows: int = 50, sessions: int = 9, groups: int = 3) -> int:
        things = random_things(1, flows, 10).things
        return effort(budget, TwoLevelProblem(things, sessions, groups)).sweeps

    assert sweeps(1e-12) == 1
    assert sweeps(1) < sweeps(10) < sweeps(100)
    assert sweeps(20) == pytest.approx(2 * sweeps(10), rel=1e-3)
    assert sweeps(flows=500) < sweeps(flows=50)
    assert sweeps(sessions=90) < sweeps(sessions=9)
    assert sweeps(groups=9) < sweeps(groups=3)
    assert sweeps(float("inf")) >= sweeps(1e9)


def test_classes_are_for_budgets_that_are_short_for_the_demand() -> None:
    things = random_things(1, 400, 50).things
    classes = [
        effort(budget, TwoLevelProblem(things, 200, 100)).classes
        for budget in (10, 0.1, 0.01, 1e-6)
    ]
    assert classes == sorted(classes)
    assert classes[0] == 1
    assert classes[-1] == 8  # of at least 12 groups each
    assert effort(1e-6, TwoLevelProblem(things, 200, 23)).classes == 1


def clock_that_jumps(patch: pytest.MonkeyPatch, jump: float, looks: int) -> None:
    """A clock that stands still, then shows `jump` seconds more after so many looks."""
    ticks = count()
    patch.setattr(
        module,
        "time",
        SimpleNamespace(monotonic=lambda: 1000.0 + (jump if next(ticks) > looks else 0.0)),
    )


@pytest.mark.parametrize("looks", [0, 1, 30])
def test_a_run_that_the_clock_ends_says_so_and_is_still_no_worse(
    monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    things = random_things(1, 40, 12).things
    prices = FilteringPrices()
    clock_that_jumps(monkeypatch, 100, looks)
    steps: list[Step] = []
    problem = TwoLevelProblem(things, 6, 3)
    found = best(problem, np.random.default_rng(2), Allowance(10), steps.append)
    assert found.cut_short
    assert len(steps) <= looks + 1
    first = groups_first(problem, np.random.default_rng(2))
    assert found.maps.work(things, prices) <= first.work(things, prices)


def test_a_run_that_the_clock_does_not_end_does_not_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    things = random_things(1, 40, 12).things
    clock_that_jumps(monkeypatch, 0, 0)
    steps: list[Step] = []
    problem = TwoLevelProblem(things, 6, 3)
    found = best(problem, np.random.default_rng(2), Allowance(0.02), steps.append)
    assert not found.cut_short
    kinds, _ = things.kinds()
    assert len(steps) == -(-effort(0.02, TwoLevelProblem(kinds, 6, 3)).sweeps // SWEEPS_PER_ROUND)
    told = [step.best for step in steps]
    assert told == sorted(told, reverse=True, key=float)  # type: ignore[arg-type]
    assert all(step.done <= (step.total or 0) for step in steps)


def test_a_solution_says_whether_the_clock_ended_its_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = TwoClass(flows=30, receivers=9, fast_share=0.5, want_unpopular=0.4)
    demand = Demand.of(*two_class(params, np.random.default_rng(1)))
    request = Request(groups=4, sessions=6, budget_s=SHORT)
    clock_that_jumps(monkeypatch, 0, 0)
    assert not plan(demand, request).cut_short
    clock_that_jumps(monkeypatch, 100, 3)
    solution = plan(demand, request)
    assert solution.cut_short
    assert plan_problems(solution.plan, demand.interest) == ()


def test_improving_a_plan_says_whether_the_clock_ended_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = TwoClass(flows=30, receivers=9, fast_share=0.5, want_unpopular=0.4)
    demand = Demand.of(*two_class(params, np.random.default_rng(1)))
    flows = demand.interest.flows
    previous = Previous({flow: at % 6 for at, flow in enumerate(flows)}, np.arange(6) % 4)
    request = Request(groups=4, sessions=6, budget_s=SHORT, previous=previous)
    clock_that_jumps(monkeypatch, 0, 0)
    assert not plan(demand, request).cut_short
    clock_that_jumps(monkeypatch, 100, 3)
    assert plan(demand, request).cut_short


@pytest.mark.parametrize("seed", range(5))
def test_a_tiny_demand_ends_long_before_a_large_budget(seed: int) -> None:
    things = random_things(seed, 6, 5).things
    steps: list[Step] = []
    problem = TwoLevelProblem(things, 3, 2)
    best(problem, np.random.default_rng(seed), Allowance(3600), steps.append)
    total = steps[0].total
    assert total is not None
    assert total > 1_000_000
    assert len(steps) < 10_000


def test_the_optimum_of_tiny_flat_demands_is_nearly_always_met() -> None:
    met = 0
    instances = 60
    for seed in range(instances):
        tiny = random_things(seed, 6, 5)
        prices = FilteringPrices(1, 1)
        problem = TwoLevelProblem(tiny.things, 3, 3, prices)
        found = best(problem, np.random.default_rng(seed), Allowance(0.02)).maps
        least = 2 * (
            reference.cheapest_partition(tiny.receivers, tiny.weight, 3) - sum(tiny.weight)
        )
        assert found.work(tiny.things, prices) >= least
        met += found.work(tiny.things, prices) == least
    assert met >= 0.9 * instances


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (3, 1), (1, 3), (0, 1)])
def test_the_optimum_of_tiny_two_level_demands_is_nearly_always_met(
    alpha: float, beta: float
) -> None:
    met = 0
    instances = 10
    for seed in range(instances):
        tiny = random_things(100 + seed, 5, 4)
        prices = FilteringPrices(alpha, beta)
        problem = TwoLevelProblem(tiny.things, 3, 2, prices)
        found = best(problem, np.random.default_rng(seed), Allowance(0.02)).maps
        wants = [{k for k in range(5) if receiver in tiny.receivers[k]} for receiver in range(4)]
        least = oracles.cheapest_two_level(wants, tiny.weight, 3, 2, alpha, beta)
        assert found.work(tiny.things, prices) >= least
        met += found.work(tiny.things, prices) == least
    assert met >= 0.9 * instances


@pytest.mark.parametrize("objective", ["filtering", "channel"])
def test_a_plan_of_a_real_kind_is_valid_and_repeats(objective: str) -> None:
    params = TwoClass(flows=60, receivers=20, fast_share=0.5, want_unpopular=0.4)
    demand = Demand.of(*two_class(params, np.random.default_rng(1)))
    request = Request(groups=5, sessions=12, budget_s=0.05, objective=objective)  # type: ignore[arg-type]
    found = plan(demand, request).plan
    assert plan_problems(found, demand.interest) == ()
    assert found == plan(demand, request).plan
    assert found.placement_flow.tolist() == list(range(len(demand.rate)))
