"""Topics end, with all that belongs to them: subscribers are told, and clusters drop them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distributary.machines.real.store import Store
from distributary.topics import cluster_channel, topic_channel
from distributary.topics.codec import Create, Created, NoTopic, Put, Remove, Removed, Taken
from distributary.topics.messages import CarriageChange, Event, Found, Join, Settled
from distributary.topics.records import HostState
from tests.topics.hosting import StoredHost
from tests.topics.nats.running import QUICK


def sent(host: StoredHost, to: str, kind: type) -> list[Any]:
    return [message for name, _, message in host.out if name == to and isinstance(message, kind)]


def replay(host: StoredHost) -> HostState:
    state = HostState()
    for record in host.state.snapshot():
        state.replay(record, QUICK)
    return state


def test_a_removed_topic_is_gone_with_its_subscriptions_and_streams(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        host = StoredHost(store)
        host.perform(host.start(0.0))
        channel = topic_channel("t")
        host.take("p", channel, Create(1.0), 0.0)
        host.take("s", channel, Join(1), 1.0)
        host.take("p", channel, Put(1, 1, b"x"), 1.0)
        host.take("p", channel, Remove(), 2.0)
        assert sent(host, "p", Removed) == [Removed(True)]
        assert sent(host, "s", NoTopic) == [NoTopic("t")]
        host.take("p", channel, Remove(), 2.0)
        assert sent(host, "p", Removed) == [Removed(True), Removed(False)]
        host.take("p", channel, Put(1, 2, b"y"), 3.0)
        assert sent(host, "p", NoTopic) == [NoTopic("t")]
        assert not host.state.states
        assert not host.state.streams
    with Store(tmp_path) as store:
        assert StoredHost(store).state == host.state == replay(host)


def test_a_topic_that_is_created_again_goes_on_with_the_numbers(tmp_path: Path) -> None:
    """A subscriber that was away would take lower numbers for events that it has had."""
    with Store(tmp_path) as store:
        host = StoredHost(store)
        host.perform(host.start(0.0))
        channel = topic_channel("t")
        host.take("p", channel, Create(1.0), 0.0)
        for number in range(1, 4):
            host.take("p", channel, Put(1, number, b"x"), 1.0)
        host.take("p", channel, Remove(), 2.0)
        host.take("p", channel, Create(1.0), 3.0)
        assert sent(host, "p", Created) == [Created(True), Created(True)]
        host.take("s", channel, Join(1), 3.0)
        host.take("p", channel, Put(2, 1, b"new"), 4.0)
        assert sent(host, "p", Taken)[-1] == Taken(2, 1)
        (event,) = [m for to, _, m in host.out if to.startswith("members/")]
        assert isinstance(event, Event)
        assert event.number == 4
        assert replay(host) == host.state
        host.take("p", channel, Remove(), 5.0)
        host.perform(host.sweep(5.0 + 100.0, 50.0))
        assert not host.state.ended
        assert replay(host) == host.state


def test_a_cluster_stops_to_carry_a_removed_topic(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        host = StoredHost(store)
        host.perform(host.start(0.0))
        for topic in "ab":
            host.take("p", topic_channel(topic), Create(1.0), 0.0)
        cluster = cluster_channel(1, "a")
        host.perform(host.tell(cluster, Found(("a", "b"), ("s",)), 0.0))
        assert set(host.clusters[cluster].state.topics) == {"a", "b"}
        host.take("s", cluster, Join(1, ("a", "b")), 1.0)
        host.take("p", topic_channel("a"), Remove(), 2.0)
        state = host.clusters[cluster].state
        assert set(state.topics) == {"b"}
        (change,) = sent(host, "s", CarriageChange)
        assert [found.topic for found in change.topics] == ["b"]
        host.take("s", cluster, Settled(change.carry_version, ("b",), (cluster,)), 3.0)
        assert not state.dropping
