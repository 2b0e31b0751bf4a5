from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import Demand
from distributary.planning import _reference as reference
from distributary.planning.things import Things, whole_rates
from tests.strategies import Clustering, clusterings, demands


def plain(things: Things) -> list[tuple[list[int], int]]:
    """Receivers and rate of each thing."""
    bounds = things.offsets.tolist()
    return [
        (things.members[bounds[k] : bounds[k + 1]].tolist(), int(things.weight[k]))
        for k in range(len(things))
    ]


@given(demand=demands())
def test_every_flow_is_a_thing_with_its_receivers(demand: Demand) -> None:
    things = Things.flows_of(demand)
    assert len(things) == len(demand.rate)
    assert things.n_receivers == len(demand.interest.receivers)
    assert [members for members, _ in plain(things)] == [
        demand.interest.receivers_of(k).tolist() for k in range(len(things))
    ]


@given(drawn=clusterings(), data=st.data())
def test_a_subset_keeps_the_things_chosen_in_their_order(
    drawn: Clustering, data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(range(len(drawn.weight))), unique=True))
    subset = drawn.things.subset(np.array(chosen, np.int64))
    assert subset.n_receivers == drawn.n_receivers
    assert plain(subset) == [(sorted(drawn.receivers[k]), drawn.weight[k]) for k in chosen]


@given(drawn=clusterings())
def test_a_merged_thing_has_all_the_receivers_and_the_whole_rate(drawn: Clustering) -> None:
    merged = drawn.things.merge(np.array(drawn.cluster, np.int32), drawn.n_clusters)
    inside = [
        [k for k, cluster in enumerate(drawn.cluster) if cluster == c]
        for c in range(drawn.n_clusters)
    ]
    assert plain(merged) == [
        (sorted(set().union(*(drawn.receivers[k] for k in ks))), sum(drawn.weight[k] for k in ks))
        for ks in inside
    ]


@given(drawn=clusterings())
def test_intake_is_the_plain_cost_of_a_clustering(drawn: Clustering) -> None:
    intake = drawn.things.intake(np.array(drawn.cluster, np.int32), drawn.n_clusters)
    assert intake == reference.clustering_cost(drawn.receivers, drawn.weight, drawn.cluster)


@given(rate=st.lists(st.integers(1, 10**9), min_size=1, max_size=20), n=st.integers(1, 10**6))
def test_whole_rates_stay_in_exact_proportion(rate: list[int], n: int) -> None:
    weight = whole_rates(np.array(rate, np.float64), n).tolist()
    assert {Fraction(w, r) for w, r in zip(weight, rate, strict=True)} == {
        Fraction(weight[0], rate[0])
    }


@given(
    rate=st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=20),
    n=st.integers(1, 10**6),
)
def test_any_rates_become_whole_numbers_whose_costs_fit(rate: list[float], n: int) -> None:
    weight = whole_rates(np.array(rate), n).tolist()
    assert min(weight) >= 1
    assert sum(weight) * n < 2**61
    in_order = sorted(range(len(rate)), key=lambda k: rate[k])
    assert sorted(weight) == [weight[k] for k in in_order]


@given(rate=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20), n=st.integers(1, 1000))
def test_rates_keep_the_digits_that_a_cost_could_show(rate: list[float], n: int) -> None:
    weight = whole_rates(np.array(rate), n).tolist()
    total, exact = sum(weight), sum(map(Fraction, rate))
    for w, r in zip(weight, rate, strict=True):
        # Rounding is by half a unit each, and a unit at most 2**-58 of what all receive.
        assert abs(Fraction(w, total) - Fraction(r) / exact) * 2**58 <= len(rate) * n


@given(smallest=st.sampled_from([5e-324, 1e-320, 2.3e-308, 1e-300]), receivers=st.integers(1, 5))
def test_even_the_smallest_rates_there_are_become_whole(smallest: float, receivers: int) -> None:
    assert whole_rates(np.array([smallest, smallest * 3]), receivers).min() >= 2**50
