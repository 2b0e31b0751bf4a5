"""Trees are unions of routes; what is sent on them is counted by kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distributary.topics.overlay.identifiers import identifier
from distributary.topics.overlay.messages import MAINTENANCE
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.simulation import OverlayNetwork
from tests.topics.overlay import oracles
from tests.topics.overlay.schedules import QUICK, REPAIR


def build_network(n: int, parameters: OverlayParameters = QUICK) -> OverlayNetwork:
    return OverlayNetwork.build_converged(
        [f"p{at}" for at in range(n)], np.random.default_rng(n), parameters
    )


def test_one_event_is_one_message_for_each_edge() -> None:
    network = build_network(200)
    for at in range(50):
        network.subscribe(f"p{at}", "g")
    network.run(REPAIR)
    oracles.check_tree(network, "g", [f"p{at}" for at in range(50)])
    before = network.count_messages()
    for number in range(10):
        network.publish("p100", "g", number)
        network.run(1.0)
    spent = network.count_messages() - before
    assert spent["event"] == 10 * (len(network.tree("g")) - 1)
    assert spent["accept"] == 10
    assert spent["replicate"] == 10 * 2 * QUICK.replicas
    # Only the first event looks for the root; it is known from then on.
    assert 10 <= spent["publish"] <= 10 + 4
    assert spent["publish"] == spent["acknowledge"]
    assert spent["catch-up"] == 0


@pytest.mark.parametrize("per_neighbour", [False, True])
def test_maintenance_is_counted_for_each_tree_or_each_neighbour(per_neighbour: bool) -> None:
    network = build_network(60, replace(QUICK, per_neighbour=per_neighbour))
    groups = [f"g{at}" for at in range(8)]
    for group in groups:
        for at in range(0, 60, 3):
            network.subscribe(f"p{at}", group)
    network.run(REPAIR)
    edges = [
        (parent.name, child)
        for group in groups
        for child, parent in network.tree(group).items()
        if parent is not None
    ]
    before = network.count_messages()
    periods = 6
    network.run(periods * QUICK.tree_period)
    spent = network.count_messages() - before
    pairs = set(edges) if per_neighbour else edges
    assert spent["tree-keep-alive"] == periods * len(pairs)
    assert spent["keep-alive"] == periods * QUICK.leaf_set * 60
    assert spent["refresh"] == periods / QUICK.refresh_every * len(edges)
    assert set(spent) <= MAINTENANCE


def test_helpers_leave_with_the_last_child() -> None:
    network = build_network(150)
    subscribers = [f"p{at}" for at in range(30)]
    for name in subscribers:
        network.subscribe(name, "g")
    network.run(REPAIR)
    assert len(network.tree("g")) > 30
    for name in subscribers[:25]:
        network.unsubscribe(name, "g")
    network.run(REPAIR)
    oracles.check_tree(network, "g", subscribers[25:])
    for name in subscribers[25:]:
        network.unsubscribe(name, "g")
    network.run(REPAIR)
    assert set(network.tree("g")) == {oracles.nearest(network.peers, identifier("g"))}


def test_a_nearer_peer_becomes_the_root_and_goes_on_with_the_numbers() -> None:
    network = build_network(40)
    for at in range(10):
        network.subscribe(f"p{at}", "g")
    network.run(REPAIR)
    for number in range(4):
        root = oracles.nearest(network.peers, identifier("g"))
        network.publish("p20", "g", number)
        network.run(1.0)
        name = nearer(root, "g", number)
        network.join(name, ["p20"])
        network.run(2 * REPAIR)
        assert network.owner("g") == name
        assert network.peers[name].scribe.roots.serves(identifier("g"))
    oracles.check_tree(network, "g", [f"p{at}" for at in range(10)])
    for stream in network.collect_received("g").values():
        assert [found.sequence for found in stream] == list(range(4))
        assert [found.publication.payload for found in stream] == list(range(4))


def nearer(root: str, group: str, number: int) -> str:
    """A name nearer to the group than its root."""
    key = identifier(group)
    names = (f"new {number} {at}" for at in range(100_000))
    far = oracles.far(identifier(root), key)
    return next(name for name in names if oracles.far(identifier(name), key) < far)


def test_a_group_without_subscribers_is_kept_through_crashes_of_roots() -> None:
    network = build_network(40)
    network.create("p0", "g")
    network.publish("p0", "g", "first")
    network.run(REPAIR)
    for _ in range(6):
        root = oracles.nearest(network.peers, identifier("g"))
        if root != "p0":
            network.crash(root)
        network.run(2 * REPAIR)
    network.subscribe("p1" if "p1" in network.peers else "p0", "g")
    network.run(REPAIR)
    network.publish("p0", "g", "second")
    network.run(REPAIR)
    (stream,) = network.collect_received("g").values()
    assert [(found.sequence, found.publication.payload) for found in stream] == [(1, "second")]


def test_what_is_asked_before_the_join_is_over_is_done_after() -> None:
    network = build_network(30)
    network.join("new", ["p0"])
    network.subscribe("new", "g")
    network.create("new", "h")
    network.publish("new", "g", 1)
    network.run(REPAIR)
    network.publish("p5", "g", 2)
    network.run(REPAIR)
    assert [found.publication.payload for found in network.collect_received("g")["new"]][-1] == 2
    assert network.peers["new"].scribe.publisher.last_accepted(identifier("g")) == 1
    root = oracles.nearest(network.peers, identifier("h"))
    assert network.peers[root].scribe.roots.serves(identifier("h"))
