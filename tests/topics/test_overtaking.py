"""Messages of one subscriber that arrive in another order than it said them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.real.store import Store
from distributary.topics import (
    TAMARA,
    ClusterChannel,
    ClusterState,
    TopicChannel,
    TopicState,
    derive_generator,
    topic_channel,
)
from distributary.topics.channel import ChannelMachine
from distributary.topics.codec import Create
from distributary.topics.messages import Carried, Found, Join, Leave
from tests.topics.hosting import StoredHost


def a_topic() -> TopicChannel:
    return TopicChannel(TAMARA, derive_generator(0, "t"), TopicState.new("t", 0.01))


def a_cluster() -> ClusterChannel:
    machine = ClusterChannel("cluster/1/a", TAMARA, derive_generator(0, "c"), ClusterState())
    machine.on_message("topic/a", Found(("a", "b")), 0.0)
    for name in "ab":
        carried = Carried(machine.state.version, 0.01, 5, 1.0, ())
        machine.on_message(topic_channel(name), carried, 0.0)
    return machine


@pytest.mark.parametrize("make", [a_topic, a_cluster])
@given(order=st.permutations(range(1, 7)))
def test_a_leave_that_overtakes_its_join_leaves_nobody_behind(
    make: Callable[[], ChannelMachine], order: list[int]
) -> None:
    """Whatever the order, the last word that was said counts: odd ones come, even ones go."""
    machine = make()
    for version in order:
        machine.on_message("s", Join(version) if version % 2 else Leave(version), 0.0)
    assert machine.size == 0
    assert machine.census.counted == 0
    machine.on_message("s", Join(7), 0.0)
    assert machine.size == 1


def test_a_leave_that_overtakes_its_join_does_so_across_a_restart(tmp_path: Path) -> None:
    channel = topic_channel("t")
    with Store(tmp_path) as store:
        host = StoredHost(store)
        host.take("p", channel, Create(0.0), 0.0)
        host.take("s", channel, Leave(2), 0.0)
    with Store(tmp_path) as store:
        host = StoredHost(store)
        host.perform(host.start(1.0))
        host.take("s", channel, Join(1), 1.0)
        assert not host.topics[channel].size
