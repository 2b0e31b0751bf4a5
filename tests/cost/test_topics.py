"""The running bill of a clustering against a bill made afresh, and estimates against the truth."""

from __future__ import annotations

from math import isclose

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import OperatingPrices
from distributary.cost.topics import CostLedger, MeasuredCost, clustering_cost, unclustered_cost
from distributary.cost.updates import (
    Channel,
    estimate_absorption,
    estimate_addition,
    estimate_dissolution,
    estimate_merge,
    estimate_pairing,
    estimate_removal,
    has_enough_common,
    toll,
)
from distributary.model import FloatArray
from distributary.model.topics import Clustering
from distributary.topics.policy import coin, invert_coin
from tests.model.test_topics import steps, try_step

LINEAR = OperatingPrices()
HELPERS = MeasuredCost((0, 4, 16, 64), (0.0, 7.0, 22.0, 75.0))
TREE = OperatingPrices(maintain=HELPERS, associate=lambda n: 2.0 * n, notify=3.0)
PRICES = st.sampled_from([LINEAR, TREE])
FREQUENCIES = st.lists(st.floats(0.001, 3.0), min_size=5, max_size=5).map(np.array)


@settings(max_examples=120, deadline=None)
@given(steps(), FREQUENCIES, PRICES)
def test_the_running_bill_equals_one_made_afresh_after_every_step(
    listed: list[tuple[str, int, int, int]], frequency: FloatArray, prices: OperatingPrices
) -> None:
    state = Clustering(4, 5)
    ledger = CostLedger(state, frequency, prices)
    for step in listed:
        try_step(state, step)
        afresh = CostLedger(state, frequency, prices)
        assert (ledger.maintenance, ledger.dissemination) == (
            afresh.maintenance,
            afresh.dissemination,
        )
        scratch = clustering_cost(state, frequency, prices)
        assert ledger.maintenance == pytest.approx(scratch.maintenance, rel=1e-12, abs=1e-12)
        assert ledger.dissemination == pytest.approx(scratch.dissemination, rel=1e-12, abs=1e-12)
        both = unclustered_cost(state.wants.sum(axis=0), frequency, prices)
        assert sum(both) == pytest.approx(scratch.unclustered, rel=1e-12)


# --- estimates -----------------------------------------------------------------------------------


def world(seed: int) -> tuple[Clustering, FloatArray]:
    """Two clusters (0 1 2 and 2 3), members and direct subscribers; all want what they get."""
    rng = np.random.default_rng(seed)
    state = Clustering(12, 6)
    one, other = state.form([0, 1, 2]), state.form([2, 3])
    state.join(np.flatnonzero(rng.random(12) < 0.6), one)
    state.join(np.flatnonzero(rng.random(12) < 0.5), other)
    for topic in range(6):
        rows = np.flatnonzero((rng.random(12) < 0.5) & (state.copies[:, topic] == 0))
        state.follow(rows, topic)
    for s, t in zip(*np.nonzero((state.copies > 0) & (rng.random((12, 6)) < 0.7)), strict=True):
        state.want(int(s), int(t))
    return state, rng.uniform(0.01, 0.5, size=6)


def cluster_of(state: Clustering, frequency: FloatArray, c: int) -> Channel:
    carried = state.carries[c]
    return Channel(int(state.cluster_size[c]), float(frequency[carried].sum()), int(carried.sum()))


def topic_of(state: Clustering, frequency: FloatArray, t: int) -> Channel:
    return Channel(int(state.topic_size[t]), float(frequency[t]))


def shed(state: Clustering, cluster: int) -> None:
    for t in state.topics_of(cluster):
        state.unfollow(np.flatnonzero(state.direct[:, t] & state.member[:, cluster]), int(t))


@pytest.mark.parametrize("prices", [LINEAR, TREE], ids=["linear", "tree"])
@pytest.mark.parametrize("seed", range(8))
def test_adding_and_removing_are_exact(prices: OperatingPrices, seed: int) -> None:
    state, frequency = world(seed)
    before = clustering_cost(state, frequency, prices).cost
    common = int((state.direct[:, 4] & state.member[:, 0]).sum())
    says = estimate_addition(
        prices, cluster_of(state, frequency, 0), topic_of(state, frequency, 4), common
    )
    state.add(0, 4)
    shed(state, 0)
    after = clustering_cost(state, frequency, prices).cost
    assert after - before == pytest.approx(says)
    needing = np.flatnonzero(state.member[:, 0] & state.wants[:, 4] & (state.copies[:, 4] == 1))
    cluster, topic = cluster_of(state, frequency, 0), topic_of(state, frequency, 4)
    says = estimate_removal(prices, cluster, topic, len(needing))
    state.follow(needing, 4)
    state.drop(0, 4)
    assert clustering_cost(state, frequency, prices).cost - after == pytest.approx(says)


@pytest.mark.parametrize("prices", [LINEAR, TREE], ids=["linear", "tree"])
@pytest.mark.parametrize("seed", range(8))
def test_pairing_absorbing_and_destroying_are_exact(prices: OperatingPrices, seed: int) -> None:
    state, frequency = world(seed)
    before = clustering_cost(state, frequency, prices).cost
    four, five = state.direct[:, 4], state.direct[:, 5]
    one, other = topic_of(state, frequency, 4), topic_of(state, frequency, 5)
    says = estimate_pairing(prices, one, other, int((four & five).sum()))
    new = state.form([4, 5])
    state.join(np.flatnonzero(four | five), new)
    shed(state, new)
    after = clustering_cost(state, frequency, prices).cost
    assert after - before == pytest.approx(says)
    common = int((state.direct[:, 1] & state.member[:, new]).sum())
    cluster, topic = cluster_of(state, frequency, new), topic_of(state, frequency, 1)
    says = estimate_absorption(prices, cluster, topic, common)
    state.add(new, 1)
    state.join(np.flatnonzero(state.direct[:, 1]), new)
    shed(state, new)
    last = clustering_cost(state, frequency, prices).cost
    assert last - after == pytest.approx(says)
    members, needed = np.flatnonzero(state.member[:, new]), state.dependencies(new)
    topics = [int(t) for t in state.topics_of(new)]
    counts = needed.sum(axis=0)
    says = estimate_dissolution(
        prices,
        cluster_of(state, frequency, new),
        [(topic_of(state, frequency, t), int(n)) for t, n in zip(topics, counts, strict=True)],
    )
    for column, t in enumerate(topics):
        state.follow(members[needed[:, column]], t)
    state.leave(members, new)
    state.dissolve(new)
    assert clustering_cost(state, frequency, prices).cost - last == pytest.approx(says)


@pytest.mark.parametrize("seed", range(8))
def test_merging_never_promises_more_than_comes(seed: int) -> None:
    state, frequency = world(seed)
    before = clustering_cost(state, frequency, LINEAR).cost
    common = int((state.member[:, 0] & state.member[:, 1]).sum())
    shared = Channel(0, float(frequency[2]), 1)
    one, other = (cluster_of(state, frequency, c) for c in (0, 1))
    says = estimate_merge(LINEAR, one, other, common, shared)
    for t in (0, 1):
        state.add(1, t)
    members = np.flatnonzero(state.member[:, 0])
    state.join(members, 1)
    state.leave(members, 0)
    state.dissolve(0)
    shed(state, 1)
    assert clustering_cost(state, frequency, LINEAR).cost - before <= says + 1e-9


# --- the paper's own examples --------------------------------------------------------------------


def test_the_example_of_section_3_1() -> None:
    cluster, topic = Channel(10_000, 0.5, 5), Channel(5_000, 0.1)
    assert (
        estimate_addition(LINEAR, cluster, topic, 910)
        >= 0
        > estimate_addition(LINEAR, cluster, topic, 911)
    )
    assert not has_enough_common(LINEAR, cluster, topic, 910)
    assert has_enough_common(LINEAR, cluster, topic, 911)
    assert isclose((1 + 0.1 * 10_001) / 1.1, 910.09, abs_tol=0.01)
    assert coin(0.99, 911) == pytest.approx(0.005042, abs=1e-6)


@pytest.mark.parametrize(("shared", "threshold"), [(80, 79.11), (7, 466.06)])
def test_the_examples_of_section_3_2_with_alpha_of_a_tenth(shared: int, threshold: float) -> None:
    def change(common: int) -> float:
        cluster = Channel(200 + common, 0.1 * (shared + 20), shared + 20)
        return estimate_merge(LINEAR, cluster, cluster, common, Channel(0, 0.1 * shared, shared))

    assert change(int(threshold)) >= 0 > change(int(threshold) + 1)


@pytest.mark.parametrize("alpha", [0.05, 0.3])
@pytest.mark.parametrize("carried", [2, 7, 30])
def test_the_threshold_of_section_4(alpha: float, carried: int) -> None:
    """A cluster pays once more than (1 + alpha |c|)/(1 + alpha) of its topics are wanted."""
    price = toll(LINEAR, Channel(50, alpha * carried, carried))
    alone = toll(LINEAR, Channel(50, alpha))
    for wanted in range(1, carried + 1):
        assert (wanted * alone > price) == (wanted > (1 + alpha * carried) / (1 + alpha))


# --- measured costs ------------------------------------------------------------------------------


def test_a_measured_cost_goes_straight_between_and_beyond_its_points() -> None:
    assert [HELPERS(n) for n in (0, 2, 4, 10, 64, 112)] == [0, 3.5, 7, 14.5, 75, 128]


@pytest.mark.parametrize(
    ("sizes", "costs"), [((1,), (1.0,)), ((1, 1), (1.0, 2.0)), ((1, 2), (2.0, 1.0))]
)
def test_a_measured_cost_that_makes_no_sense_is_refused(
    sizes: tuple[int, ...], costs: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match=r"needs as many|must be increasing|must not decrease"):
        MeasuredCost(sizes, costs)


@given(
    st.integers(0, 60),
    st.integers(0, 60),
    st.floats(0.001, 3.0),
    st.integers(0, 80),
    PRICES,
)
def test_one_estimate_tells_whether_enough_are_common(
    members: int, size: int, flow: float, common: int, prices: OperatingPrices
) -> None:
    cluster, topic = Channel(members, 0.5, 4), Channel(size, flow)
    full = Channel(max(size, members + 2), flow)
    pays = [estimate_addition(prices, cluster, full, n) < 0 for n in range(members + 2)]
    least = pays.index(True) if True in pays else members + 2
    assert has_enough_common(prices, cluster, topic, common) == (common >= least)


@given(st.sampled_from([0.0, 0.5, 0.99, 1.0]), st.floats(0.0, 0.999), st.integers(1, 5_000))
def test_a_draw_wins_the_coins_of_up_to_so_many(phi: float, draw: float, n: int) -> None:
    odds = coin(phi, n)
    if abs(odds - draw) > 1e-9:
        assert (draw < odds) == (n <= invert_coin(phi, draw))
