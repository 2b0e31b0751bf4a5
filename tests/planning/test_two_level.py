from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import FilteringPrices
from distributary.planning import _reference as reference
from distributary.planning._state_kernels import Level, State, apply_moves, count_two_levels
from distributary.planning.hierarchy import Maps
from distributary.planning.things import Things
from distributary.planning.two_level import TwoLevel
from tests.strategies import Hierarchy, hierarchies

prices_of_any_kind = st.builds(
    FilteringPrices,
    st.integers(0, 3).map(float) | st.floats(0.01, 50),
    st.integers(1, 3).map(float) | st.floats(0.01, 50),
)
Change = Callable[[TwoLevel], object]


def count_anew(things: Things, maps: Maps, n_groups: int) -> State:
    """A state counted from scratch into arrays full of rubbish."""

    def rubbish(n: int) -> Level:
        shape = (things.n_receivers, n)
        counts = np.full(shape, 77, np.int32), np.full(shape, 77, np.uint8)
        return Level(*counts, np.full(n, 77.0), np.full(n, 77.0))

    state = State(
        things.offsets,
        things.members,
        things.weight.astype(float),
        maps.session,
        maps.group,
        rubbish(len(maps.group)),
        rubbish(n_groups),
    )
    count_two_levels(state)
    return state


def levels(state: State) -> tuple[np.ndarray, ...]:
    return (*state.sessions, *state.groups)


def assert_in_step(state: TwoLevel, n_groups: int) -> None:
    anew = count_anew(state.things, state.maps, n_groups)
    for kept, recounted in zip(levels(state.state), levels(anew), strict=True):
        assert kept.tolist() == recounted.tolist()
    assert state.work == state.maps.work(state.things, state.prices)


@given(drawn=hierarchies())
def test_counts_from_scratch_are_those_of_plain_sets(drawn: Hierarchy) -> None:
    state = count_anew(drawn.things, drawn.maps, drawn.n_groups)
    flow_group = [drawn.group[s] for s in drawn.session]
    for level, owner, n in (
        (state.sessions, drawn.session, len(drawn.group)),
        (state.groups, flow_group, drawn.n_groups),
    ):
        count, present, audience, total = level
        for c in range(n):
            flows = [k for k, own in enumerate(owner) if own == c]
            copies = [sum(j in drawn.receivers[k] for k in flows) for j in range(drawn.n_receivers)]
            assert count[:, c].tolist() == copies
            assert present[:, c].tolist() == [int(copy > 0) for copy in copies]
            assert audience[c] == sum(copy > 0 for copy in copies)
            assert total[c] == sum(drawn.weight[k] for k in flows)


@st.composite
def changes(draw: st.DrawFn, drawn: Hierarchy) -> Change:
    """One way to change a state, as a function of it."""
    n_flows, n_sessions = len(drawn.weight), len(drawn.group)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    heat = draw(st.sampled_from([0.0, 1e-3, 1.0, 1e12]))
    flows = np.array(draw(st.lists(st.integers(0, n_flows - 1), max_size=8)), np.int64)
    home = rng.integers(-1, n_sessions, n_flows).astype(np.int32)
    toll = draw(st.sampled_from([0.0, 1.0, 1e6]))
    kind = draw(st.sampled_from(["sweep", "move", "regroup", "descend", "home", "once"]))
    if kind == "sweep":
        order = rng.permutation(n_flows)
        return lambda state: state.sweep(order, rng.random(n_flows), max(heat, 1e-3))
    if kind == "move":
        target = rng.integers(n_sessions, size=len(flows)).astype(np.int32)
        return lambda state: apply_moves(flows, target, state.state)
    if kind == "regroup":
        return lambda state: state.regroup(rng.random(n_sessions), heat)
    if kind == "descend":
        return lambda state: state.descend()
    if kind == "home":
        return lambda state: state.descend(toll, home)
    return lambda state: state.descend_once(flows, toll, home)


@given(data=st.data(), drawn=hierarchies(), prices=prices_of_any_kind)
def test_after_any_changes_the_state_kept_is_the_state_from_scratch(
    data: st.DataObject, drawn: Hierarchy, prices: FilteringPrices
) -> None:
    state = TwoLevel(drawn.things, drawn.maps, prices)
    assert_in_step(state, drawn.n_groups)
    for change in data.draw(st.lists(changes(drawn), max_size=6)):
        change(state)
        assert_in_step(state, drawn.n_groups)


@given(drawn=hierarchies(), prices=prices_of_any_kind)
def test_a_state_does_not_change_the_maps_it_was_made_from_or_has_given(
    drawn: Hierarchy, prices: FilteringPrices
) -> None:
    begin = drawn.maps
    state = TwoLevel(drawn.things, begin, prices)
    before = state.maps
    state.descend()
    for maps in (begin, before):
        assert maps.session.tolist() == drawn.session
        assert maps.group.tolist() == drawn.group


@given(drawn=hierarchies(), alpha=st.integers(0, 3), beta=st.integers(1, 3))
def test_after_a_descent_no_single_move_of_a_flow_or_a_session_helps(
    drawn: Hierarchy, alpha: int, beta: int
) -> None:
    state = TwoLevel(drawn.things, drawn.maps, FilteringPrices(alpha, beta))
    before = state.work
    state.descend()
    assert state.work <= before
    session, group = state.maps.session.tolist(), state.maps.group.tolist()
    plain = reference.PlainPlan(drawn.receivers, drawn.weight, session, group)
    for k in range(len(session)):
        assert min(reference.prices_of_moving(k, plain, alpha, beta)) == state.work
    assert reference.regroup(plain, drawn.n_groups, alpha) == group


@given(drawn=hierarchies(), alpha=st.integers(0, 3), beta=st.integers(1, 3))
def test_the_gain_of_a_flow_is_what_its_cheapest_session_would_save(
    drawn: Hierarchy, alpha: int, beta: int
) -> None:
    state = TwoLevel(drawn.things, drawn.maps, FilteringPrices(alpha, beta))
    saved, target = state.gains()
    plain = reference.PlainPlan(drawn.receivers, drawn.weight, drawn.session, drawn.group)
    cost = reference.two_level_cost(plain, alpha, beta)
    for k in range(len(drawn.weight)):
        price = reference.prices_of_moving(k, plain, alpha, beta)
        assert saved[k] == cost - min(price)
        assert price[target[k]] == min(price)
    assert_in_step(state, drawn.n_groups)
    assert state.maps.session.tolist() == drawn.session


CHANCES = 2_000


@settings(max_examples=25)
@given(
    data=st.data(),
    drawn=hierarchies(),
    prices=prices_of_any_kind,
    degrees=st.sampled_from([0.01, 0.3, 3.0, 100.0]),
)
def test_a_flow_goes_to_each_session_in_proportion_to_its_odds(
    data: st.DataObject, drawn: Hierarchy, prices: FilteringPrices, degrees: float
) -> None:
    """Over evenly spread chances, the share of each session is its odds from exact prices."""
    k = data.draw(st.integers(0, len(drawn.weight) - 1))
    plain = reference.PlainPlan(drawn.receivers, drawn.weight, drawn.session, drawn.group)
    price = np.array(reference.prices_of_moving(k, plain, prices.alpha, prices.beta))
    temperature = degrees * (price.mean() + 1) / 10
    steps = (price[drawn.session[k]] - price) / (64 * temperature)
    odds = np.maximum(1 + steps, 0) ** 64
    if odds.sum() > 1e34:  # staying is no measure where something is far cheaper
        odds = np.maximum(1 + steps - steps.max(), 0) ** 64
    drawn_to = np.zeros(len(odds))
    for chance in (np.arange(CHANCES) + 0.5) / CHANCES:
        state = TwoLevel(drawn.things, drawn.maps, prices)
        state.sweep(np.array([k]), np.array([chance]), temperature)
        drawn_to[state.maps.session[k]] += 1
    assert drawn_to / CHANCES == pytest.approx(odds / odds.sum(), abs=0.01)


def test_a_flow_of_very_many_receivers_is_drawn_as_any_other() -> None:
    """Counts of receivers that do not fit one byte: 300 want the first flow, 299 the second."""
    receivers = [set(range(300)), set(range(299)), {299}]
    drawn = Hierarchy(300, receivers, [1, 1, 1], [1, 0, 1], 1, [0, 0])
    state = TwoLevel(drawn.things, drawn.maps, FilteringPrices(0, 1))
    state.sweep(np.array([0]), np.array([0.5]), 1e-3)
    assert state.maps.session.tolist() == [0, 0, 1]
