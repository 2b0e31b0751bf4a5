"""Every policy gets each event to those who want it, once, and where it should go only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.content import (
    POLICIES,
    Broker,
    ContentEvent,
    LinkSearch,
    PublishEvent,
    SubscribeRequest,
)
from distributary.machines import Send
from distributary.matching import parse_filter
from distributary.matching.links import LinkMatcher
from distributary.model import Filter, Key, Topology
from tests.content.networks import Brokers, Scan
from tests.examples import up_to
from tests.matching.schemas import SMALL, SMALL_WORLD, conditions, small_tests
from tests.model.topologies import topologies

FILTERS = st.builds(parse_filter, conditions(small_tests()), st.just(SMALL))


def interested_clients(
    subscriptions: dict[tuple[str, int], Filter], keys: tuple[Key | None, ...]
) -> list[str]:
    return sorted({client for (client, _), want in subscriptions.items() if want.matches(keys)})


def on_the_way(topology: Topology, root: str, clients: list[str]) -> list[str]:
    """The root, and the brokers on the paths from there to the clients' brokers."""
    tree = topology.tree(root)
    return sorted({root, *(at for c in clients for at in tree.path(topology.clients[c]))})


@dataclass
class Everyone:
    """Brokers beside what the world knows: all subscriptions in one place."""

    brokers: Brokers
    policy: str
    subscriptions: dict[tuple[str, int], Filter]

    def subscribe(self, client: str, number: int, wanted: Filter) -> None:
        self.subscriptions[client, number] = wanted
        self.brokers.subscribe(client, number, wanted)

    def unsubscribe(self, client: str, number: int) -> None:
        del self.subscriptions[client, number]
        self.brokers.unsubscribe(client, number)

    def check(self, root: str, number: int, keys: tuple[Key | None, ...]) -> None:
        topology = self.brokers.topology
        delivered, visited = self.brokers.publish(root, number, keys)
        expected = interested_clients(self.subscriptions, keys)
        assert delivered == expected
        everywhere = list(topology.brokers)
        flooded = self.policy == "flooding"
        assert visited == (everywhere if flooded else on_the_way(topology, root, expected))


@pytest.mark.parametrize("policy", POLICIES)
@up_to(120, by_default=50)
@given(data=st.data(), topology=topologies())
def test_events_reach_exactly_those_who_want_them(
    policy: str, data: st.DataObject, topology: Topology
) -> None:
    """While subscriptions come and go, from any broker, on trees and with cycles."""
    check_random_changes(data, topology, policy, Scan)


@up_to(25, by_default=6)
@given(data=st.data(), topology=topologies())
def test_link_matching_by_the_search_tree(data: st.DataObject, topology: Topology) -> None:
    check_random_changes(data, topology, "link-matching", partial(Folded, SMALL))


class Folded(LinkMatcher):
    """However few the filters are, they are in the tree."""

    def links(self, keys: Sequence[Key | None], mask: int) -> int:
        self.fold()
        return super().links(keys, mask)


def check_random_changes(
    data: st.DataObject, topology: Topology, policy: str, matcher: Callable[[int], LinkSearch]
) -> None:
    roots = data.draw(st.lists(st.sampled_from(topology.brokers), min_size=1, unique=True))
    world = Everyone(Brokers(topology, policy, roots, matcher), policy, {})
    clients = sorted(topology.clients)
    for client in clients:
        world.subscribe(client, -1, data.draw(FILTERS))
    for number in range(data.draw(st.integers(1, 6))):
        keys = data.draw(st.sampled_from(SMALL_WORLD))
        for root in roots:
            world.check(root, number, keys)
        if clients:
            change(data, world, data.draw(st.sampled_from(clients)), number)


def change(data: st.DataObject, world: Everyone, client: str, number: int) -> None:
    """A new subscription, one in the place of an old one, or an old one taken back."""
    old = sorted(found for found in world.subscriptions if found[0] == client)
    subscription = data.draw(st.sampled_from([*old, (client, number)]))
    if subscription in world.subscriptions and data.draw(st.booleans()):
        world.unsubscribe(*subscription)
    else:
        world.subscribe(*subscription, data.draw(FILTERS))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_ring_has_no_spurious_hop(policy: str) -> None:
    """A and C want what D publishes, B does not: A reaches C through B, but not for D."""
    ring = Topology(
        {("A", "B"): 1.0, ("B", "C"): 1.0, ("C", "D"): 1.0, ("D", "A"): 1.0}, {"a": "A", "c": "C"}
    )
    world = Everyone(Brokers(ring, policy), policy, {})
    for client in ring.clients:
        world.subscribe(client, 0, parse_filter("a = 1", SMALL))
    for root in ring.brokers:
        for number, keys in enumerate(SMALL_WORLD):
            world.check(root, number, keys)


def work_of(policy: str, brokers: Brokers, kind: str) -> dict[str, float]:
    return {
        node: units
        for (node, found), units in brokers.simulation.record.units.items()
        if found == kind and units
    }


@pytest.mark.parametrize(
    ("policy", "sends", "matches", "lists"),
    [
        ("link-matching", {"a": 1, "b": 2, "c": 1}, {"a": 2, "b": 2, "c": 1}, {}),
        ("flooding", {"a": 1, "b": 2, "c": 2, "d": 0}, {}, {}),
        ("match-first", {"a": 1, "b": 2, "c": 1}, {"a": 2}, {"a": 2, "b": 2, "c": 1}),
    ],
)
def test_policies_report_their_work(
    policy: str, sends: dict[str, int], matches: dict[str, int], lists: dict[str, int]
) -> None:
    line = Topology({("a", "b"): 0.1, ("b", "c"): 0.1, ("c", "d"): 0.1}, {"at b": "b", "at c": "c"})
    brokers = Brokers(line, policy)
    for client in line.clients:
        brokers.subscribe(client, 0, parse_filter("a = 1", SMALL))
    brokers.simulation.record.units.clear()
    keys = SMALL.keys({"a": 1})
    assert brokers.publish("a", 0, keys)[0] == ["at b", "at c"]
    assert work_of(policy, brokers, "send") == {node: n for node, n in sends.items() if n}
    assert work_of(policy, brokers, "match") == matches
    assert work_of(policy, brokers, "list") == lists
    assert brokers.simulation.record.work().num_rows > 0


def test_deliveries_tell_the_delay_since_publication() -> None:
    line = Topology({("a", "b"): 0.25, ("b", "c"): 0.5}, {"x": "c"})
    brokers = Brokers(line, "link-matching")
    brokers.subscribe("x", 0, parse_filter("a = 1", SMALL))
    brokers.publish("a", 7, SMALL.keys({"a": 1}))
    (row,) = brokers.simulation.record.deliveries().to_pylist()
    assert (row["node"], row["client"]) == ("c", "x")
    assert row["delay"] == pytest.approx(0.75)


def test_a_subscription_spreads_to_every_broker_once() -> None:
    ring = Topology({("a", "b"): 1.0, ("b", "c"): 1.0, ("c", "a"): 1.0}, {"x": "c"})
    brokers = Brokers(ring, "link-matching")
    brokers.subscribe("x", 0, parse_filter("a = 1", SMALL))
    assert {name: len(found.taken) for name, found in brokers.machines.items()} == dict.fromkeys(
        "abc", 1
    )


def test_the_machine_is_plain_input_and_output() -> None:
    topology = Topology({("a", "b"): 1.0}, {"x": "b"})
    policy = POLICIES["link-matching"]("a", topology, None)
    broker = Broker("a", topology, policy, Scan)
    wanted = parse_filter("a = 1", SMALL)
    assert broker.on_message("b", SubscribeRequest("x", 0, wanted), 0.0)
    (sent, *_) = broker.on_message(
        "p", PublishEvent(ContentEvent(0, SMALL.keys({"a": 1}), 1.0)), 1.0
    )
    assert isinstance(sent, Send)
    assert (sent.to, sent.message.root) == ("b", "a")
    with pytest.raises(TypeError, match="cannot handle"):
        broker.on_message("b", "hello", 2.0)
    with pytest.raises(ValueError, match="no timer"):
        broker.on_timer("tick", 2.0)
