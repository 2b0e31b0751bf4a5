"""The knee against curves worked out by hand, and what it promises of any curve."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.planning.knee import Knee, find_knee


def test_an_obvious_elbow_is_the_knee() -> None:
    # The chord from (1, 1) to (5, 0.1) is at 0.775, 0.55 and 0.325; the curve is below it by
    # 0.575, 0.4 and 0.2. The first added group saved 0.8; the next one's 0.05 is the most left.
    knee = find_knee([1, 2, 3, 4, 5], [1.0, 0.2, 0.15, 0.125, 0.1])
    assert knee is not None
    assert knee.groups == 2
    assert knee.share_before == pytest.approx(0.8)
    assert knee.share_after == pytest.approx(0.05)


def test_groups_count_by_their_number_and_not_by_their_logarithm() -> None:
    # Straight by the logarithm. The chord falls by 0.3 in 990 groups; at 100 groups the curve has
    # saved 0.2 of the 0.3 in 90 of the 990.
    knee = find_knee([10, 100, 1000], [0.9, 0.7, 0.6])
    assert knee == Knee(100, pytest.approx(0.2 / 90), pytest.approx(0.1 / 900))


def test_of_points_equally_deep_the_one_with_fewer_groups_is_the_knee() -> None:
    # 1/x: at 20 and at 50 of 10 to 100 groups the curve is 4/9 of its fall below the chord.
    knee = find_knee([10, 20, 50, 100], [1 / 10, 1 / 20, 1 / 50, 1 / 100])
    assert knee is not None
    assert knee.groups == 20


@pytest.mark.parametrize(
    ("groups", "excess"),
    [
        ([10, 20, 30, 50], [0.9, 0.8, 0.7, 0.5]),
        ([10, 20, 30, 50], [0.9, 0.79, 0.69, 0.5]),
        ([10, 20, 30], [0.9, 0.85, 0.3]),
        ([10, 20, 30], [0.4, 0.4, 0.4]),
        ([10, 20, 30], [0.4, 0.397, 0.3965]),
        ([10, 20, 30], [0.4, 0.5, 0.6]),
        ([10, 20, 30], [0.0, 0.0, 0.0]),
        ([10, 20], [0.9, 0.1]),
        ([10], [0.9]),
        ([], []),
    ],
    ids=[
        "straight",
        "nearly straight",
        "bent the other way",
        "flat",
        "nearly flat",
        "rising",
        "perfect from the start",
        "two points",
        "one point",
        "no points",
    ],
)
def test_there_is_no_knee_where_nothing_bends(groups: list[int], excess: list[float]) -> None:
    assert find_knee(groups, excess) is None


def test_a_point_worse_than_fewer_groups_counts_as_those_for_the_knee() -> None:
    smooth = find_knee([1, 2, 3, 4, 5], [1.0, 0.2, 0.2, 0.125, 0.1])
    assert find_knee([1, 2, 3, 4, 5], [1.0, 0.2, 0.9, 0.125, 0.1]) == smooth
    assert smooth is not None
    assert smooth.groups == 2


def test_a_curve_must_ascend_and_have_an_excess_for_each_number_of_groups() -> None:
    with pytest.raises(ValueError, match="ascending"):
        find_knee([1, 3, 2], [1.0, 0.5, 0.2])
    with pytest.raises(ValueError, match="one excess for each"):
        find_knee([1, 2, 3], [1.0, 0.5])


@given(
    st.dictionaries(st.integers(1, 500), st.floats(0, 1), min_size=3, max_size=9),
    st.sampled_from([1, 3, 7]),
    st.sampled_from([1.0, 0.5, 0.25]),
)
def test_groups_save_more_than_average_up_to_the_knee_and_no_more_after_it(
    curve: dict[int, float], wider: int, lower: float
) -> None:
    groups = sorted(curve)
    excess = [curve[n] for n in groups]
    knee = find_knee(groups, excess)
    if knee is None:
        return
    best = {n: min(excess[: at + 1]) for at, n in enumerate(groups)}
    first, last, at = groups[0], groups[-1], knee.groups
    average = (best[first] - best[last]) / (last - first)
    assert knee.share_before > average
    assert knee.share_after <= average + 1e-9
    for n in groups:
        if n < at:
            assert (best[n] - best[at]) / (at - n) > average - 1e-9
        if n > at:
            assert (best[at] - best[n]) / (n - at) <= knee.share_after + 1e-12
    # Other units on either axis do not move it.
    scaled = find_knee([wider * n for n in groups], [lower * value for value in excess])
    assert scaled is not None
    assert scaled.groups == wider * at
