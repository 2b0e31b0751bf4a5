from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distributary.cost import FilteringPrices
from distributary.model import Demand, FloatArray, IntArray
from distributary.planning import _reference as reference
from distributary.planning._anneal_kernels import MovePrices, descend, draw_moves, regroup, sweep
from distributary.planning._choice_kernels import pick as compiled_pick
from distributary.planning._state_kernels import apply_moves
from distributary.planning.hierarchy import Maps
from distributary.planning.things import Things
from distributary.planning.two_level import BITS, TwoLevel
from distributary.workloads import TwoClass, two_class
from tests.strategies import Hierarchy, hierarchies

PRICES = st.integers(0, 3)
TOLLS = st.integers(0, 9) | st.integers(0, 2**40)


def state_of(drawn: Hierarchy) -> TwoLevel:
    return TwoLevel(drawn.things, drawn.maps, FilteringPrices())


def arrays_of(state: TwoLevel) -> list[np.ndarray]:
    """Every array of a state, those of both levels too."""
    *maps, in_sessions, in_groups = state.state
    return [*maps, *in_sessions, *in_groups]


def flows_of(data: st.DataObject, drawn: Hierarchy) -> list[int]:
    """Some of the flows in any order, perhaps one of them twice."""
    return data.draw(st.lists(st.integers(0, len(drawn.weight) - 1), max_size=12))


def homes_of(data: st.DataObject, drawn: Hierarchy) -> list[int]:
    n = len(drawn.weight)
    return data.draw(st.lists(st.integers(-1, len(drawn.group) - 1), min_size=n, max_size=n))


def plain(drawn: Hierarchy) -> reference.PlainPlan:
    return reference.PlainPlan(drawn.receivers, drawn.weight, drawn.session, drawn.group)


def sessions(state: TwoLevel) -> list[int]:
    return state.maps.session.tolist()


@given(data=st.data(), drawn=hierarchies(), alpha=PRICES, beta=PRICES, toll=TOLLS)
def test_a_draw_at_temperature_0_takes_what_recomputing_says_is_cheapest(
    data: st.DataObject, drawn: Hierarchy, alpha: int, beta: int, toll: int
) -> None:
    chosen, home = flows_of(data, drawn), homes_of(data, drawn)
    state = state_of(drawn)
    target = np.full(len(chosen), -7, np.int32)
    draw_moves(
        np.array(chosen, np.int64),
        np.zeros(len(chosen)),
        MovePrices(float(alpha), float(beta), float(toll), np.array(home, np.int32)),
        0.0,
        state.state,
        target,
    )
    assert target.tolist() == reference.draw_moves(chosen, plain(drawn), alpha, beta, toll, home)
    assert sessions(state) == drawn.session


@given(data=st.data(), drawn=hierarchies(), alpha=PRICES, beta=PRICES, toll=TOLLS)
def test_a_descent_does_what_its_plain_twin_does(
    data: st.DataObject, drawn: Hierarchy, alpha: int, beta: int, toll: int
) -> None:
    order, home = flows_of(data, drawn), homes_of(data, drawn)
    state = state_of(drawn)
    prices = MovePrices(float(alpha), float(beta), float(toll), np.array(home, np.int32))
    moved = descend(np.array(order, np.int64), prices, state.state)
    after = reference.descend(order, plain(drawn), alpha, beta, toll, home)
    assert sessions(state) == after
    assert moved >= sum(a != b for a, b in zip(after, drawn.session, strict=True))


@given(data=st.data(), drawn=hierarchies(), alpha=PRICES, beta=PRICES, chance=st.floats(0, 0.999))
def test_a_cold_sweep_moves_each_flow_to_a_session_that_recomputing_says_is_cheapest(
    data: st.DataObject, drawn: Hierarchy, alpha: int, beta: int, chance: float
) -> None:
    state, now = state_of(drawn), list(drawn.session)
    for k in data.draw(st.permutations(range(len(now)))):
        price = reference.prices_of_moving(k, plain(drawn)._replace(session=now), alpha, beta)
        sweep(np.array([k]), np.array([chance]), float(alpha), float(beta), 1e-5, state.state)
        now = sessions(state)
        assert price[now[k]] - min(price) <= 1e-6 * max(price)  # single precision has 24 bits


def assert_a_sweep_is_its_steps(
    one: TwoLevel, other: TwoLevel, order: IntArray, chance: FloatArray, temperature: float
) -> None:
    """One call for all flows ends where a call for each of them ends, and with the same state."""
    sweep(order, chance, 1.0, 2.0, temperature, one.state)
    for at in range(len(order)):
        sweep(order[at : at + 1], chance[at : at + 1], 1.0, 2.0, temperature, other.state)
    for whole, stepwise in zip(arrays_of(one), arrays_of(other), strict=True):
        assert whole.tolist() == stepwise.tolist()


@given(
    data=st.data(),
    drawn=hierarchies(),
    temperature=st.sampled_from([1e-5, 1.0, 1e6]),
    seed=st.integers(0, 99),
)
def test_a_sweep_over_a_permutation_is_the_same_flows_swept_one_by_one(
    data: st.DataObject, drawn: Hierarchy, temperature: float, seed: int
) -> None:
    order = np.array(data.draw(st.permutations(range(len(drawn.weight)))), np.int64)
    chance = np.random.default_rng(seed).random(len(order))
    assert_a_sweep_is_its_steps(state_of(drawn), state_of(drawn), order, chance, temperature)


@pytest.mark.parametrize("seed", range(3))
def test_a_cold_sweep_over_many_flows_is_the_same_flows_swept_one_by_one(seed: int) -> None:
    """Nearly all of them move, and each must see where those before it have gone."""
    rng = np.random.default_rng(seed)
    params = TwoClass(flows=300, receivers=40)
    things = Things.flows_of(Demand.of(*two_class(params, rng)), BITS)
    session, group = rng.integers(20, size=len(things)), np.arange(20) % 6
    maps = Maps(session.astype(np.int32), group.astype(np.int32))
    one, other = (TwoLevel(things, maps, FilteringPrices()) for _ in range(2))
    order, chance = rng.permutation(len(things)), rng.random(len(things))
    assert_a_sweep_is_its_steps(one, other, order, chance, 1e-5)
    assert (one.maps.session != maps.session).mean() > 0.5


@given(drawn=hierarchies(), alpha=PRICES)
def test_regrouping_at_temperature_0_does_what_its_plain_twin_does(
    drawn: Hierarchy, alpha: int
) -> None:
    state = state_of(drawn)
    moved = regroup(np.zeros(len(drawn.group)), float(alpha), 0.0, state.state)
    after = reference.regroup(plain(drawn), drawn.n_groups, alpha)
    assert state.maps.group.tolist() == after
    assert moved == sum(a != b for a, b in zip(after, drawn.group, strict=True))


@given(data=st.data(), drawn=hierarchies())
def test_moves_put_every_flow_at_its_target_and_are_counted(
    data: st.DataObject, drawn: Hierarchy
) -> None:
    chosen = flows_of(data, drawn)
    target = data.draw(
        st.lists(st.integers(0, len(drawn.group) - 1), min_size=len(chosen), max_size=len(chosen))
    )
    state = state_of(drawn)
    moved = apply_moves(np.array(chosen, np.int64), np.array(target, np.int32), state.state)
    expected, changes = list(drawn.session), 0
    for k, s in zip(chosen, target, strict=True):
        changes += expected[k] != s
        expected[k] = s
    assert (sessions(state), moved) == (expected, changes)


# --- the odds ------------------------------------------------------------------------------------

CHANCES = st.floats(0, 1, exclude_max=True)


def pick(price: list[float], stay: int, temperature: float, chance: float) -> int:
    prices = np.array(price, np.float64)
    return int(compiled_pick(prices, stay, temperature, chance, np.zeros(len(price))))


@st.composite
def choices(draw: st.DrawFn) -> tuple[list[float], int]:
    """Prices, few or more than are added up at once, and the present choice."""
    n = draw(st.integers(1, 6) | st.sampled_from([63, 64, 65, 130]))
    price = draw(st.lists(st.integers(0, 40).map(float), min_size=n, max_size=n))
    return price, draw(st.integers(0, n - 1))


@given(drawn=choices(), temperature=st.floats(0.05, 100), chance=CHANCES)
def test_a_choice_follows_the_cumulative_odds(
    drawn: tuple[list[float], int], temperature: float, chance: float
) -> None:
    price, stay = drawn
    least = min(price)
    odds = [max(0.0, 1 - (p - least) / (64 * temperature)) ** 64 for p in price]
    bounds = [reached / sum(odds) for reached in accumulate(odds)]
    assume(all(abs(chance - bound) > 1e-9 for bound in bounds))
    assert pick(price, stay, temperature, chance) == reference.pick(
        price, stay, temperature, chance
    )


@given(drawn=choices(), temperature=st.floats(1e-6, 100))
def test_the_odds_come_close_to_the_exponential(
    drawn: tuple[list[float], int], temperature: float
) -> None:
    price, stay = drawn
    least = min(price)
    odds = np.exp((least - np.array(price)) / temperature)
    chances = (np.arange(200) + 0.5) / 200
    found = [pick(price, stay, temperature, chance) for chance in chances]
    expected = np.searchsorted(np.cumsum(odds) / odds.sum(), chances, side="right")
    # (1 - x/64)^64 is below exp(-x) by 0.5 % of the cheapest's odds at most.
    dearest = float(np.array(price)[found].max()) - least
    assert dearest <= 64 * temperature
    if len(price) <= 6:
        for c in range(len(price)):
            here, there = found.count(c) / 200, float((expected == c).mean())
            assert here == pytest.approx(there, abs=0.03)


@given(drawn=choices())
def test_when_it_is_hot_every_choice_is_possible(drawn: tuple[list[float], int]) -> None:
    price, stay = drawn
    n = len(price)
    assert [pick(price, stay, 1e9, (c + 0.5) / n) for c in range(n)] == list(range(n))


@given(drawn=choices(), chance=CHANCES)
def test_at_temperature_0_the_cheapest_is_taken_whatever_the_chance(
    drawn: tuple[list[float], int], chance: float
) -> None:
    price, stay = drawn
    picked = pick(price, stay, 0.0, chance)
    assert price[picked] == min(price)
    if price[stay] == min(price):
        assert picked == stay
    else:
        assert picked == price.index(min(price))


@given(drawn=choices(), chance=CHANCES)
def test_when_it_is_all_but_cold_only_the_cheapest_are_possible(
    drawn: tuple[list[float], int], chance: float
) -> None:
    price, stay = drawn
    assert price[pick(price, stay, 1e-3, chance)] == min(price)
