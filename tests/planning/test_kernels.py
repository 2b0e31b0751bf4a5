from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.planning import _reference as reference
from distributary.planning._kernels import (
    Clusters,
    Merging,
    audience_sizes,
    cluster_counts,
    kmeans_pass,
    merge_closest,
    place_beside,
)
from distributary.planning._search_kernels import (
    Covers,
    Cursor,
    Partitions,
    search_covers,
    search_partitions,
)
from distributary.planning.merging import bits
from tests import oracles
from tests.strategies import Clustering, clusterings


class State:
    """The arrays that k-means keeps, as `cluster_counts` fills them."""

    def __init__(self, drawn: Clustering, cluster: list[int]) -> None:
        things = drawn.things
        self.cluster = np.array(cluster, np.int32)
        self._things = (things.offsets, things.members, things.weight, self.cluster)
        self.clusters = Clusters(
            count=np.full((drawn.n_receivers, drawn.n_clusters), 77, np.int32),
            present=np.full((drawn.n_receivers, drawn.n_clusters), 77, np.uint8),
            audience=np.full(drawn.n_clusters, 77, np.int64),
            total=np.full(drawn.n_clusters, 77, np.int64),
        )
        cluster_counts(*self._things, self.clusters)

    def run_pass(self) -> tuple[int, int]:
        return kmeans_pass(*self._things, self.clusters)


@given(drawn=clusterings())
def test_counts_from_scratch_are_those_of_plain_sets(drawn: Clustering) -> None:
    state = State(drawn, drawn.cluster)
    for c in range(drawn.n_clusters):
        things = [k for k, cluster in enumerate(drawn.cluster) if cluster == c]
        assert state.clusters.total[c] == sum(drawn.weight[k] for k in things)
        copies = [sum(n in drawn.receivers[k] for k in things) for n in range(drawn.n_receivers)]
        assert state.clusters.count[:, c].tolist() == copies
        assert state.clusters.present[:, c].tolist() == [int(n > 0) for n in copies]
        assert state.clusters.audience[c] == sum(n > 0 for n in copies)


@given(drawn=clusterings())
def test_audience_sizes_are_those_of_plain_sets(drawn: Clustering) -> None:
    things, cluster = drawn.things, np.array(drawn.cluster, np.int32)
    sizes = audience_sizes(
        things.offsets,
        things.members,
        cluster,
        np.argsort(cluster, kind="stable"),
        drawn.n_receivers,
        drawn.n_clusters,
    )
    of_cluster = [
        [
            members
            for members, cluster in zip(drawn.receivers, drawn.cluster, strict=True)
            if cluster == c
        ]
        for c in range(drawn.n_clusters)
    ]
    assert sizes.tolist() == [len(set().union(*members)) for members in of_cluster]


@given(drawn=clusterings())
def test_a_kmeans_pass_does_what_its_plain_twin_does(drawn: Clustering) -> None:
    state = State(drawn, drawn.cluster)
    moves, saved = state.run_pass()
    expected = reference.kmeans_pass(drawn.receivers, drawn.weight, drawn.cluster, drawn.n_clusters)
    assert (state.cluster.tolist(), moves, saved) == expected


@given(drawn=clusterings(), known=st.integers(0, 8))
def test_placing_beside_known_things_does_what_its_plain_twin_does(
    drawn: Clustering, known: int
) -> None:
    audiences: list[set[int]] = [set() for _ in range(drawn.n_clusters)]
    totals = [0.5] * drawn.n_clusters
    for members, weight, c in zip(
        drawn.receivers[:known], drawn.weight[:known], drawn.cluster[:known], strict=True
    ):
        audiences[c] |= members
        totals[c] += weight
    things = drawn.things.subset(np.arange(min(known, len(drawn.weight)), len(drawn.weight)))
    present = np.array(
        [[n in audience for audience in audiences] for n in range(drawn.n_receivers)], np.uint8
    )
    found = np.full(len(things), -1, np.int32)
    place_beside(
        things.offsets,
        things.members,
        things.weight.astype(np.float64),
        present,
        np.array([len(audience) for audience in audiences], np.float64),
        np.array(totals),
        found,
    )
    weights = [float(weight) for weight in drawn.weight[known:]]
    expected = reference.place_beside(drawn.receivers[known:], weights, audiences, totals)
    assert found.tolist() == expected


@given(drawn=clusterings(), passes=st.integers(1, 5))
def test_the_state_kept_by_kmeans_is_the_state_from_scratch(drawn: Clustering, passes: int) -> None:
    state = State(drawn, drawn.cluster)
    for _ in range(passes):
        state.run_pass()
        fresh = State(drawn, state.cluster.tolist())
        for kept, recounted in zip(state.clusters, fresh.clusters, strict=True):
            assert kept.tolist() == recounted.tolist()


@given(drawn=clusterings(), passes=st.integers(1, 5))
def test_what_passes_say_they_save_is_the_exact_fall_of_cost(
    drawn: Clustering, passes: int
) -> None:
    state = State(drawn, drawn.cluster)
    saved = sum(int(state.run_pass()[1]) for _ in range(passes))
    before = reference.clustering_cost(drawn.receivers, drawn.weight, drawn.cluster)
    after = reference.clustering_cost(drawn.receivers, drawn.weight, state.cluster.tolist())
    assert before - after == saved >= 0
    intake = drawn.things.intake(state.cluster, drawn.n_clusters)
    assert intake == after


def test_a_pass_moves_nothing_on_a_tie_and_of_equal_clusters_takes_the_first() -> None:
    # The third thing is at home with neither of the others; clusters 2 and 3 are empty alike.
    drawn = Clustering(3, [{0}, {1}, {2}], [1, 1, 1], 4, [0, 1, 1])
    state = State(drawn, drawn.cluster)
    assert state.run_pass() == (1, 2)
    assert state.cluster.tolist() == [0, 2, 1]
    assert state.run_pass() == (0, 0)
    assert state.cluster.tolist() == [0, 2, 1]


class Sets(NamedTuple):
    """Sets to merge, in plain Python."""

    n_elements: int
    sets: list[set[int]]
    element_weight: list[int] | None
    mass: list[int]
    bonus: int


@st.composite
def sets_to_merge(draw: st.DrawFn, *, max_sets: int = 9) -> Sets:
    """As flow-merge has them (rates as masses) or as user-merge does (weighed elements)."""
    n_elements = draw(st.integers(1, 6) | st.sampled_from([63, 64, 65, 130]))
    some = st.sets(st.integers(0, n_elements - 1), max_size=6)
    sets = draw(st.lists(some, min_size=1, max_size=max_sets))
    n = len(sets)

    def numbers(size: int, largest: int) -> list[int]:
        number = st.integers(1, draw(st.sampled_from([1, 2, 4, largest])))
        return draw(st.lists(number, min_size=size, max_size=size))

    if draw(st.booleans()):
        return Sets(n_elements, sets, None, numbers(n, 2**60 // (n * n_elements)), 0)
    weights = numbers(n_elements, 2**60 // ((n + 1) * n_elements))
    return Sets(n_elements, sets, weights, [1] * n, 1)


def start_merging(drawn: Sets) -> Merging:
    """The arrays that merging keeps, at their start."""
    n = len(drawn.sets)
    owner = np.array([a for a, members in enumerate(drawn.sets) for _ in members], np.int64)
    element = np.array([e for members in drawn.sets for e in members], np.int32)
    words = bits(owner, element, n, drawn.n_elements)
    weights = drawn.element_weight or []
    padding = [0] * (words.shape[1] * 64 - len(weights)) if weights else []
    weigh = weights or [1] * drawn.n_elements
    return Merging(
        words,
        np.array([*weights, *padding], np.int64),
        mass=np.array(drawn.mass, np.int64),
        extent=np.array([sum(weigh[e] for e in s) for s in drawn.sets], np.int64),
        bonus=drawn.bonus,
        parent=np.arange(n, dtype=np.int32),
        nearest=np.full(n, -1, np.int32),
        least=np.full(n, np.iinfo(np.int64).min, np.int64),
        stale=np.ones(n, np.bool_),
    )


def rows_together(merging: Merging) -> list[set[int]]:
    root = list(range(len(merging.parent)))
    for row, parent in enumerate(merging.parent.tolist()):
        root[row] = root[parent]
    return [{row for row in range(len(root)) if root[row] == a} for a in sorted(set(root))]


@given(drawn=sets_to_merge(), data=st.data())
def test_merging_does_what_its_plain_twin_does(drawn: Sets, data: st.DataObject) -> None:
    steps = data.draw(st.integers(0, len(drawn.sets)))
    merging = start_merging(drawn)
    merged = merge_closest(merging, steps)
    weigh = drawn.element_weight or [1] * drawn.n_elements
    expected = reference.merge_closest(drawn.sets, weigh, drawn.mass, drawn.bonus, steps)
    assert rows_together(merging) == expected
    assert merged == min(steps, len(drawn.sets) - 1)
    for rows in expected:
        a = min(rows)
        elements = set().union(*(drawn.sets[row] for row in rows))
        assert merging.mass[a] == sum(drawn.mass[row] for row in rows)
        assert merging.extent[a] == sum(weigh[e] for e in elements)
        in_words = sum(int(word) << 64 * w for w, word in enumerate(merging.words[a]))
        assert in_words == sum(1 << e for e in elements)


def test_a_merged_set_that_ties_goes_before_later_sets() -> None:
    # Row 0 is as near to 2 as to 3. Once 3 is merged into 1, that is the pair with smaller rows.
    drawn = Sets(5, [{1}, {2, 3}, {4}, {1, 2, 3}], None, [1, 1, 1, 5], 0)
    merging = start_merging(drawn)
    merge_closest(merging, 1)
    assert rows_together(merging) == [{0}, {1, 3}, {2}]
    merge_closest(merging, 1)
    assert rows_together(merging) == [{0, 1, 3}, {2}]


@given(drawn=sets_to_merge(), chunks=st.lists(st.integers(1, 3), min_size=1, max_size=8))
def test_merging_in_several_calls_is_merging_in_one(drawn: Sets, chunks: list[int]) -> None:
    whole, parts = start_merging(drawn), start_merging(drawn)
    merged = merge_closest(whole, sum(chunks))
    assert merged == sum(merge_closest(parts, steps) for steps in chunks)
    assert parts.parent.tolist() == whole.parent.tolist()
    assert parts.words.tolist() == whole.words.tolist()
    assert parts.mass.tolist() == whole.mass.tolist()
    assert parts.extent.tolist() == whole.extent.tolist()


@given(drawn=sets_to_merge(max_sets=30))
def test_merging_many_sets_does_what_its_plain_twin_does(drawn: Sets) -> None:
    merging = start_merging(drawn)
    steps = max(0, len(drawn.sets) - 2)
    merge_closest(merging, steps)
    weigh = drawn.element_weight or [1] * drawn.n_elements
    expected = reference.merge_closest(drawn.sets, weigh, drawn.mass, drawn.bonus, steps)
    assert rows_together(merging) == expected


class Search:
    """A branch and bound at its start, where nothing is known and anything would be an improvement.

    Each receiver's wishes are bits of a number, as are the sets of groups in `search_covers`.
    """

    def __init__(self, wishes: list[int], rate: list[int], n_choices: int) -> None:
        n_flows = len(rate)
        self.rate = np.array(rate, np.int64)
        self.wants = np.array([[w >> k & 1 for w in wishes] for k in range(n_flows)], np.bool_)
        self.cursor = Cursor(
            child=np.zeros((n_flows, n_choices), np.int64),
            bound=np.zeros((n_flows, n_choices), np.int64),
            width=np.full(n_flows, -1, np.int64),
            at=np.zeros(n_flows, np.int64),
            best_child=np.full(n_flows, -1, np.int64),
        )
        self.depth, self.best = 0, 2**62

    def prove(
        self,
        kernel: Callable[..., tuple[int, int]],
        flows: Partitions | Covers,
        least: int,
        steps: list[int],
    ) -> list[int]:
        """Search in those steps, then to the end; return the choice for each flow."""
        for nodes in steps:
            self.depth, self.best = kernel(flows, self.cursor, self.depth, self.best, nodes)
            assert min([self.best, *self.bounds_left]) <= least <= self.best
        assert kernel(flows, self.cursor, self.depth, self.best, 10**9) == (-1, least)
        return self.cursor.best_child.tolist()

    @property
    def bounds_left(self) -> list[int]:
        """The bounds of all the choices that were listed and not tried."""
        bounds, width, at = self.cursor.bound, self.cursor.width, self.cursor.at
        return [
            int(bound)
            for level in range(self.depth + 1)
            for bound in bounds[level, at[level] : width[level]]
        ]


@st.composite
def searches(
    draw: st.DrawFn, *, max_receivers: int, max_flows: int
) -> tuple[list[int], list[int], int]:
    """Wishes as bits, rates and a number of groups."""
    n_flows = draw(st.integers(1, max_flows))
    wishes = draw(st.lists(st.integers(0, 2**n_flows - 1), min_size=1, max_size=max_receivers))
    most = draw(st.sampled_from([1, 3, 2**60 // (n_flows * 3 * (len(wishes) + 1))]))
    rate = draw(st.lists(st.integers(1, most), min_size=n_flows, max_size=n_flows))
    return wishes, rate, draw(st.integers(1, 3))


@given(case=searches(max_receivers=6, max_flows=6), steps=st.lists(st.integers(1, 20), max_size=20))
def test_the_search_for_partitions_finds_what_its_plain_twin_finds(
    case: tuple[list[int], list[int], int], steps: list[int]
) -> None:
    wishes, rate, n_groups = case
    n_flows = len(rate)
    receivers = [{j for j, w in enumerate(wishes) if w >> k & 1} for k in range(n_flows)]
    least = reference.cheapest_partition(receivers, rate, n_groups) - sum(rate)
    search = Search(wishes, rate, n_groups)
    flow, receiver = np.nonzero(search.wants)
    words = bits(flow, receiver.astype(np.int32), n_flows, len(wishes))
    flows = Partitions(
        search.rate,
        words,
        np.zeros((n_flows, n_groups, words.shape[1]), np.uint64),
        np.zeros((n_flows, n_groups), np.int64),
        np.zeros(n_flows, np.int64),
    )
    found = search.prove(search_partitions, flows, least, steps)
    assert set(found) <= set(range(n_groups))
    assert reference.clustering_cost(receivers, rate, found) == least


@settings(max_examples=40)
@given(case=searches(max_receivers=5, max_flows=4), steps=st.lists(st.integers(1, 40), max_size=20))
def test_the_search_for_covers_finds_what_its_plain_twin_finds(
    case: tuple[list[int], list[int], int], steps: list[int]
) -> None:
    wishes, rate, n_groups = case
    n_flows, n_sets = len(rate), 2**n_groups
    receivers = [{j for j, w in enumerate(wishes) if w >> k & 1} for k in range(n_flows)]
    least = reference.cheapest_sharing(receivers, rate, n_groups, len(wishes))
    search = Search(wishes, rate, n_sets)
    meets = [sum(1 << t for t in range(n_sets) if s & t) for s in range(n_sets)]
    alone = [r * (len(wanting) + 1) for r, wanting in zip(rate, receivers, strict=True)]
    flows = Covers(
        search.rate,
        search.wants,
        np.array(meets, np.uint64),
        np.array([sum(alone[k:]) for k in range(n_flows + 1)], np.int64),
        np.full((n_flows, len(wishes)), 2**n_sets - 1, np.uint64),
        np.zeros((n_flows, n_groups), np.int64),
        np.zeros(n_flows, np.int64),
        np.ones(len(wishes), np.int64),
        1,
    )
    found = search.prove(search_covers, flows, least, steps)
    placed = [{g for g in range(n_groups) if s >> g & 1} for s in found]
    carried = [
        sum(r for r, groups in zip(rate, placed, strict=True) if g in groups)
        for g in range(n_groups)
    ]
    received = sum(
        oracles.cheapest_cover_price([placed[k] for k in range(n_flows) if w >> k & 1], carried)
        for w in wishes
    )
    assert sum(carried) + received == least


@given(
    data=st.data(), n_rows=st.integers(1, 4), n_elements=st.sampled_from([1, 5, 63, 64, 65, 129])
)
def test_bits_are_the_pairs_given(data: st.DataObject, n_rows: int, n_elements: int) -> None:
    one = st.tuples(st.integers(0, n_rows - 1), st.integers(0, n_elements - 1))
    pairs = data.draw(st.lists(one, max_size=20))
    row, element = np.array(pairs, np.int32).reshape(-1, 2).T
    words = bits(row, element, n_rows, n_elements)
    assert words.shape == (n_rows, -(-n_elements // 64))
    for r in range(n_rows):
        number = sum(int(word) << 64 * w for w, word in enumerate(words[r]))
        assert number == sum(1 << e for e in {e for row, e in pairs if row == r})
