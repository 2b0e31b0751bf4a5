"""A change of a channel is recorded as what changed, and replayed into the same state."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from distributary.topics.carriage import Carriage, ClusterState
from distributary.topics.channel import Member
from distributary.topics.policy import OURS
from distributary.topics.records import HostLog, HostState

CLUSTER = "cluster/1"
NAMES = st.sampled_from(["a", "b", "ü", "a b", ""])
CARRIAGES = st.builds(
    Carriage,
    flow=st.floats(0, 1e12),
    size=st.integers(0, 2**53),
    told=st.integers(-1, 2**53),
    tell=st.booleans(),
    others=st.lists(NAMES, max_size=2).map(tuple),
)
# A topic with what is carried of it from now on, or None where it is dropped.
CHANGES = st.tuples(NAMES, st.none() | CARRIAGES)


class Recorded:
    """A log, and the state that its records are replayed into."""

    def __init__(self) -> None:
        self.log = HostLog(HostState(), OURS)
        self.cluster = ClusterState()
        self.copy = HostState()

    def record(self, who: str | None = None) -> list[bytes]:
        self.log.record_channel(CLUSTER, self.cluster, who)
        records = self.log.take()
        for record in records:
            self.copy.replay(record, OURS)
        assert self.copy.states == {CLUSTER: self.cluster}
        return records


@given(st.lists(st.lists(CHANGES, max_size=4), max_size=8))
def test_replayed_topics_are_those_carried(turns: list[list[tuple[str, Carriage | None]]]) -> None:
    recorded = Recorded()
    recorded.record()
    for changes in turns:
        for topic, held in changes:
            if held is None:
                recorded.cluster.topics.pop(topic, None)
            else:
                recorded.cluster.topics[topic] = held
        recorded.record()
        from_snapshot = HostState()
        for record in recorded.log.state.snapshot():
            from_snapshot.replay(record, OURS)
        assert from_snapshot == recorded.copy


def test_one_changed_topic_of_many_makes_a_small_record() -> None:
    recorded = Recorded()
    recorded.cluster.topics |= {f"t{at}": Carriage(1.0, 5) for at in range(1_000)}
    (whole,) = recorded.record()
    recorded.cluster.topics["t7"] = replace(recorded.cluster.topics["t7"], flow=2.0)
    (changed,) = recorded.record()
    assert len(changed) < len(whole) / 100
    assert recorded.record() == []


def test_a_member_that_joins_is_recorded_without_topics() -> None:
    recorded = Recorded()
    recorded.cluster.topics |= {f"t{at}": Carriage(1.0, 5) for at in range(1_000)}
    recorded.record()
    recorded.cluster.members["client/1"] = Member(1)
    (joined,) = recorded.record("client/1")
    assert len(joined) < 100


def test_a_cluster_that_is_removed_and_made_anew_has_only_its_new_topics() -> None:
    recorded = Recorded()
    recorded.cluster.topics["a"] = Carriage(1.0, 5)
    recorded.record()
    recorded.log.remove_channel(CLUSTER)
    recorded.cluster = ClusterState(topics={"b": Carriage(1.0, 5)})
    recorded.record()


def test_topics_among_the_fields_of_an_older_record_are_replayed() -> None:
    older = {"version": 3, "topics": {"a": {"flow": 1.5, "size": 2}}}
    record = msgspec.msgpack.encode(["patch", CLUSTER, older, {}, {}])
    state = HostState()
    state.replay(record, OURS)
    assert state.states == {CLUSTER: ClusterState(version=3, topics={"a": Carriage(1.5, 2)})}
