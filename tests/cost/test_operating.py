from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import Cluster, OperatingPrices, operating_cost, plan_operating_cost
from distributary.model import Demand
from tests import oracles
from tests.strategies import any_plans, demands, near, rate_values

LINEAR = OperatingPrices()
CURVED = OperatingPrices(
    maintain=lambda n: 3.0 + n * n,
    associate=lambda n: 0.5 * n + 7.0,
    notify=2.5,
    disseminate=lambda n: float(n * (n + 1)),
)
# Milo, section 3.1, in plain Python.
PLAIN_LINEAR = (lambda n: n, lambda n: n, 1, lambda n: n)
PLAIN_CURVED = (lambda n: 3 + n * n, lambda n: n / 2 + 7, 2.5, lambda n: n * n + n)

PRICE_LISTS = pytest.mark.parametrize(
    ("prices", "plain_prices"),
    [(LINEAR, PLAIN_LINEAR), (CURVED, PLAIN_CURVED)],
    ids=["linear", "curved"],
)


@PRICE_LISTS
@given(data=st.data())
def test_topics_and_clusters_cost_what_the_formulas_say(
    prices: OperatingPrices, plain_prices: tuple, data: st.DataObject
) -> None:
    n = data.draw(st.integers(1, 6))
    frequency = data.draw(st.lists(rate_values(), min_size=n, max_size=n))
    sizes = st.lists(st.integers(0, 50), min_size=n, max_size=n)
    direct, audience = data.draw(sizes), data.draw(sizes)
    topics = st.sets(st.integers(0, n - 1)).map(sorted)
    clusters = data.draw(st.lists(st.tuples(topics, st.integers(0, 50)), max_size=4))
    cost = operating_cost(
        np.array(frequency),
        np.array(direct),
        [Cluster(tuple(topics), size) for topics, size in clusters],
        np.array(audience),
        prices,
    )
    expected = oracles.operating(frequency, direct, clusters, *plain_prices)
    alone = oracles.operating(frequency, audience, [], *plain_prices)
    assert cost.maintenance == near(float(expected.maintenance))
    assert cost.dissemination == near(float(expected.dissemination))
    assert cost.cost == cost.maintenance + cost.dissemination
    assert cost.unclustered == near(float(sum(alone)))


@PRICE_LISTS
@given(data=st.data(), demand=demands())
def test_any_plan_is_priced_with_each_group_as_a_cluster(
    prices: OperatingPrices, plain_prices: tuple, data: st.DataObject, demand: Demand
) -> None:
    plan = data.draw(any_plans(demand.interest))
    cost = plan_operating_cost(plan, demand, prices)
    it, rate = oracles.plain(plan), demand.rate.tolist()
    wants = oracles.wanted_flows(demand.interest)
    clusters = [
        (
            [flow for flow in range(len(rate)) for _ in range(it.copies(flow, group))],
            sum(it.joins(receiver, group) for receiver in range(len(wants))),
        )
        for group in it.groups
    ]
    expected = oracles.operating(rate, [0] * len(rate), clusters, *plain_prices)
    audience = [sum(flow in wanted for wanted in wants) for flow in range(len(rate))]
    alone = oracles.operating(rate, audience, [], *plain_prices)
    assert cost.maintenance == near(float(expected.maintenance))
    assert cost.dissemination == near(float(expected.dissemination))
    assert cost.unclustered == near(float(sum(alone)))


def spent(frequency: list[float], direct: list[int], clusters: list[Cluster]) -> float:
    """OC at the linear prices of the paper's running example."""
    sizes = np.array(direct)
    return operating_cost(np.array(frequency), sizes, clusters, sizes, LINEAR).cost


@pytest.mark.parametrize(
    ("interested", "pays"), [(909, False), (910, False), (911, True), (912, True)]
)
def test_milos_example_of_adding_a_topic_to_a_cluster(interested: int, pays: bool) -> None:
    # Section 3.1: 10,000 subscribers, frequency 0.1, threshold 910.09.
    frequency = [0.1, 0.7, 3.0]
    before = spent(frequency, [interested + 5, 0, 8], [Cluster((1, 2), 10_000)])
    after = spent(frequency, [5, 0, 8], [Cluster((0, 1, 2), 10_000)])
    assert (after < before) == pays
    assert after - before == pytest.approx(0.1 * (10_001 - interested) + 1 - interested, abs=1e-6)


@pytest.mark.parametrize(
    ("common_topics", "common_users", "pays"),
    [(80, 79, False), (80, 80, True), (7, 466, False), (7, 467, True)],
)
def test_milos_example_of_merging_two_clusters(
    common_topics: int, common_users: int, pays: bool
) -> None:
    # Section 3.2 with alpha = 0.1: 20 topics and 200 users of its own each; 79.11 and 466.06.
    topics = range(common_topics + 40)
    one = Cluster(tuple(topics[: common_topics + 20]), 200 + common_users)
    other = Cluster((*topics[:common_topics], *topics[common_topics + 20 :]), 200 + common_users)
    both = Cluster(tuple(topics), 400 + common_users)
    assert len(one.topics) == len(other.topics) == common_topics + 20
    frequency, direct = [0.1] * len(topics), [0] * len(topics)
    assert (spent(frequency, direct, [both]) < spent(frequency, direct, [one, other])) == pays


@given(
    eighths=st.integers(1, 24),
    own=st.integers(1, 20),
    others=st.integers(0, 40),
    subscribers=st.integers(0, 500),
)
def test_milos_rule_for_subscribing_to_a_cluster(
    eighths: int, own: int, others: int, subscribers: int
) -> None:
    # Section 4: join it where |t~| > (1 + alpha |T_c|) / (1 + alpha).
    alpha, size = Fraction(eighths, 8), own + others
    frequency = [float(alpha)] * size
    topics = tuple(range(size))
    direct = [3] * own + [0] * others
    apart = spent(frequency, direct, [Cluster(topics, subscribers)])
    joined = spent(frequency, [2] * own + [0] * others, [Cluster(topics, subscribers + 1)])
    assert Fraction(joined) - Fraction(apart) == 1 - own + alpha * others
    assert (joined < apart) == (own > (1 + alpha * size) / (1 + alpha))


def test_two_topics_that_share_their_users_are_cheaper_together() -> None:
    # 100 users of both: each topic keeps a channel nobody is on, the cluster serves all.
    apart = spent([0.1, 0.1], [100, 100], [])
    together = spent([0.1, 0.1], [0, 0], [Cluster((0, 1), 100)])
    assert apart == pytest.approx(200 + 0.2 * 101)
    assert together == pytest.approx(100 + 2 + 0.2 * 1 + 0.2 * 101)
