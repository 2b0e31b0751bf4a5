"""Routes end at the nearest live peer in few hops; leaf sets are those of the live peers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.topics.overlay.converged import build_ring, measure_trees
from distributary.topics.overlay.identifiers import (
    DIGITS,
    Peer,
    count_shared_digits,
    digit,
    distance,
    identifier,
    make_peer,
)
from distributary.topics.overlay.leafset import LeafSet
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.peer import OverlayPeer
from distributary.topics.overlay.routing_table import RoutingTable
from distributary.topics.overlay.simulation import OverlayNetwork
from tests.topics.overlay import oracles
from tests.topics.overlay.schedules import QUICK, REPAIR

KEYS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**64 - 1])


@given(KEYS, KEYS)
def test_digits_are_those_of_the_hexadecimal_number(one: int, other: int) -> None:
    assert count_shared_digits(one, other) == oracles.common(one, other)
    assert [digit(one, row) for row in range(DIGITS)] == [int(c, 16) for c in f"{one:016x}"]
    assert distance(one, other)[0] == oracles.far(one, other)


@given(st.sets(KEYS, min_size=1, max_size=30), st.data())
def test_a_leaf_set_holds_the_next_on_both_sides(places: set[int], data: st.DataObject) -> None:
    """Whatever the order of coming and going."""
    peers = {f"{place:x}": Peer(place, f"{place:x}") for place in places}
    own, *others = data.draw(st.permutations(sorted(peers.values())))
    leaves = LeafSet(own, 6)
    here: list[Peer] = []
    for peer in others:
        leaves.add(peer)
        here.append(peer)
    ring = sorted([own, *here])
    at = ring.index(own)
    steps = range(1, min(3, len(ring) - 1) + 1)
    near = {ring[(at + s) % len(ring)] for s in steps} | {ring[at - s] for s in steps}
    assert set(leaves.members.values()) == near
    key = data.draw(KEYS)
    if leaves.covers(key):
        best = min(ring, key=lambda peer: (oracles.far(key, peer.identifier), peer.identifier))
        assert leaves.nearest(key) == best
    for peer in list(near):
        assert leaves.remove(peer.name)
    assert not leaves.members


@given(st.sets(KEYS, min_size=2, max_size=40), st.data())
def test_a_table_keeps_the_first_of_each_slot(places: set[int], data: st.DataObject) -> None:
    own, *others = [
        Peer(place, f"{place:x}") for place in data.draw(st.permutations(sorted(places)))
    ]
    table = RoutingTable(own, others)
    firsts: dict[str, Peer] = {}
    for peer in others:
        shared = oracles.common(own.identifier, peer.identifier)
        firsts.setdefault(oracles.digits(peer.identifier)[: shared + 1], peer)
    assert set(table) == set(firsts.values())
    assert set(table.row(0)) == {peer for prefix, peer in firsts.items() if len(prefix) == 1}
    assert set(table.rows(1)) == {peer for prefix, peer in firsts.items() if len(prefix) <= 2}
    for peer in others:
        assert table.remove(peer) == (peer in firsts.values())
    assert not list(table)


def path(network: OverlayNetwork, start: str, key: int) -> list[str]:
    """The peers that a message meets."""
    met = [start]
    while (hop := network.peers[met[-1]].pastry.next_hop(key)) is not None:
        met.append(hop.name)
        assert len(met) <= network.parameters.max_hops, met
    return met


def check_routes(network: OverlayNetwork, rng: np.random.Generator, n: int) -> float:
    """Routes end right, each hop as the rules say; the mean number of hops."""
    names = list(network.peers)
    hops = []
    for _ in range(n):
        key = int(rng.integers(0, 2**64, dtype=np.uint64))
        met = path(network, str(rng.choice(names)), key)
        assert met[-1] == oracles.nearest(names, key)
        hops.append(len(met) - 1)
    assert max(hops) <= math.log(len(names), 16) + 4
    return float(np.mean(hops))


@pytest.mark.parametrize("n", [1, 2, 5, 17, 18, 60, 1000])
def test_routes_of_a_settled_ring_are_short_and_right(n: int) -> None:
    rng = np.random.default_rng(n)
    network = OverlayNetwork.build_converged([f"peer {at}" for at in range(n)], rng)
    network.run(0.1)
    oracles.check_ring(network)
    mean = check_routes(network, rng, 300)
    assert mean <= math.log(n, 16) + 1


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 90), st.integers(0, 2**32), KEYS)
def test_hops_for_all_peers_at_once_are_those_of_each(n: int, seed: int, key: int) -> None:
    """Also for keys next to peers, where the leaf set decides."""
    rng = np.random.default_rng(seed)
    names = sorted((f"peer {at}" for at in range(n)), key=identifier)
    parameters = OverlayParameters(leaf_set=4)
    places = [identifier(name) for name in names]
    ring = build_ring(places, rng, leaf_set=4)
    peers = [OverlayPeer(make_peer(name), parameters) for name in names]
    for at, peer in enumerate(peers):
        peer.pastry.converge(
            [peers[leaf].own for leaf in ring.leaves(at)],
            [peers[entry].own for entry in ring.entries(at)],
        )
    for wanted in (key, places[0], (places[-1] + 1) % 2**64, (places[n // 2] - 1) % 2**64):
        hops = ring.next_hops(wanted)
        for at, peer in enumerate(peers):
            hop = peer.pastry.next_hop(wanted)
            assert names[hops[at]] == (names[at] if hop is None else hop.name)


def test_a_ring_grows_from_one_peer() -> None:
    """Join after join, through random peers; some at one time."""
    rng = np.random.default_rng(0)
    network = OverlayNetwork(rng, QUICK)
    network.join("p0")
    for at in range(1, 60):
        names = [name for name, peer in network.peers.items() if peer.pastry.active] or ["p0"]
        network.join(f"p{at}", [str(rng.choice(names))])
        if rng.random() < 0.5:
            network.run(float(rng.exponential(2.0)))
    network.run(REPAIR)
    oracles.check_ring(network)
    check_routes(network, rng, 300)


@pytest.mark.parametrize("way", ["leave", "crash"])
def test_routes_are_right_again_after_many_go(way: str) -> None:
    rng = np.random.default_rng(1)
    network = OverlayNetwork.build_converged([f"p{at}" for at in range(150)], rng)
    for name in rng.choice(list(network.peers), 30, replace=False):
        (network.leave if way == "leave" else network.crash)(str(name))
    network.run(6 * network.parameters.leaf_period)
    oracles.check_ring(network)
    # Dead entries of tables are found out when they are used: events go around them.
    for at, name in enumerate(list(network.peers)[:40]):
        network.publish(name, f"group {at}", at)
    network.run(30.0)
    for at, name in enumerate(list(network.peers)[:40]):
        key = identifier(f"group {at}")
        assert network.peers[name].scribe.publisher.last_accepted(key) == 1
        root = oracles.nearest(network.peers, key)
        assert [n for n, peer in network.peers.items() if peer.scribe.roots.serves(key)] == [root]
    assert network.count_messages()["repair"] > 0


def test_a_join_asks_another_if_the_first_is_dead() -> None:
    rng = np.random.default_rng(2)
    network = OverlayNetwork.build_converged([f"p{at}" for at in range(20)], rng, QUICK)
    network.crash("p3")
    network.join("new", ["p3", "p4"])
    network.run(3 * REPAIR)
    oracles.check_ring(network)


def test_tree_sizes_are_those_of_real_trees() -> None:
    rng = np.random.default_rng(6)
    network = OverlayNetwork.build_converged([f"p{at}" for at in range(300)], rng)
    sizes = []
    for at in range(12):
        chosen = [str(name) for name in rng.choice(list(network.peers), 40, replace=False)]
        for name in chosen:
            network.subscribe(name, f"g{at}")
        network.run(5.0)
        oracles.check_tree(network, f"g{at}", chosen)
        sizes.append(len(network.tree(f"g{at}")))
    table = measure_trees(300, [0, 20, 40, 300], np.random.default_rng(7), groups=60)
    assert table.peers[2] == pytest.approx(np.mean(sizes), rel=0.1)
    assert table.size(0) == 1.0
    assert table.size(300) == 300.0
    assert table.size(30) == pytest.approx((table.size(20) + table.size(40)) / 2)
    assert (table.helpers == table.peers - table.subscribers).all()
    with pytest.raises(ValueError, match="from 0 to 3"):
        measure_trees(3, [4], rng)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="must be even"):
        LeafSet(make_peer("a"), 5)
    with pytest.raises(ValueError, match="above 0"):
        OverlayParameters(patience=0.0)
    with pytest.raises(ValueError, match="at least 1"):
        OverlayParameters(misses=0)
    with pytest.raises(ValueError, match="replicas"):
        OverlayParameters(replicas=17)
    with pytest.raises(ValueError, match="must be unique"):
        build_ring([1, 1], np.random.default_rng(0))
    peer = OverlayPeer(make_peer("a"))
    with pytest.raises(TypeError, match="cannot handle"):
        peer.on_message("b", "hello", 0.0)
    with pytest.raises(ValueError, match="no timer"):
        peer.on_timer("tick", 0.0)
