"""A clustering keeps everybody on a channel with what they want, whatever is done to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.model.topics import Clustering

STEPS = ("want", "unwant", "follow", "unfollow", "join", "leave", "form", "add", "drop", "dissolve")


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    step = st.tuples(
        st.sampled_from(STEPS), st.integers(0, 3), st.integers(0, 4), st.integers(0, 9)
    )
    return draw(st.lists(step, max_size=60))


def try_step(state: Clustering, step: tuple[str, int, int, int]) -> bool:
    """Do one thing to the clustering; whether it was allowed."""
    what, who, topic, cluster = step
    try:
        match what:
            case "want" | "unwant" | "follow" | "unfollow":
                getattr(state, what)(who, topic)
            case "join" | "leave":
                getattr(state, what)(who, cluster % len(state.alive))
            case "form":
                state.form([topic, (topic + 1) % state.n_topics])
            case "add" | "drop":
                getattr(state, what)(cluster % len(state.alive), topic)
            case "dissolve":
                state.dissolve(cluster % len(state.alive))
    except ValueError:
        return False
    return True


@settings(max_examples=150, deadline=None)
@given(steps())
def test_nobody_lacks_a_wanted_topic_after_any_steps(
    listed: list[tuple[str, int, int, int]],
) -> None:
    state = Clustering(4, 5)
    for step in listed:
        wanted = {(s, t) for s, t in zip(*np.nonzero(state.wants), strict=True)}
        before = state.direct.copy(), state.member.copy(), state.carries.copy()
        if not try_step(state, step):  # refused: nothing has changed
            for old, new in zip(before, (state.direct, state.member, state.carries), strict=True):
                assert np.array_equal(old, new)
        state.check()
        for s, t in wanted:
            brings = state.direct[s, t] or (state.member[s] & state.carries[:, t]).any()
            assert brings or not state.wants[s, t]


def test_whoever_moves_joins_first_and_leaves_after() -> None:
    state = Clustering(1, 2)
    state.follow(0, 0)
    state.want(0, 0)
    cluster = state.form([0, 1])
    with pytest.raises(ValueError, match="has no other channel for it"):
        state.unfollow(0, 0)
    state.join(0, cluster)
    state.unfollow(0, 0)
    with pytest.raises(ValueError, match="no channel but cluster 0"):
        state.leave(0, cluster)
    with pytest.raises(ValueError, match="no channel but cluster 0"):
        state.drop(cluster, 0)
    assert state.filtered.tolist() == [[False, True]]


def test_a_topic_is_wanted_only_where_it_comes() -> None:
    with pytest.raises(ValueError, match="no channel brings it"):
        Clustering(1, 1).want(0, 0)


def test_many_clusters_fit_and_rows_are_given_away_again() -> None:
    state = Clustering(2, 3)
    formed = [state.form([0]) for _ in range(40)]
    assert len(set(formed)) == 40
    state.dissolve(formed[7])
    assert state.form([1]) == formed[7]
    state.check()


def test_a_cluster_with_members_does_not_dissolve() -> None:
    state = Clustering(2, 3)
    cluster = state.form([0])
    state.join([0, 1], cluster)
    with pytest.raises(ValueError, match="cluster 0 still has 2 members"):
        state.dissolve(cluster)
