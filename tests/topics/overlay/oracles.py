"""What a ring and its trees should be, worked out from the set of live peers alone."""

from __future__ import annotations

from collections.abc import Iterable

from distributary.topics.overlay.identifiers import identifier
from distributary.topics.overlay.simulation import OverlayNetwork

RING = 2**64


def far(one: int, other: int) -> int:
    return min((one - other) % RING, (other - one) % RING)


def nearest(names: Iterable[str], key: int) -> str:
    return min(names, key=lambda name: (far(identifier(name), key), identifier(name)))


def leaves(names: Iterable[str], own: str, half: int) -> set[str]:
    """The peers that come next in both directions."""
    order = sorted(names, key=identifier)
    at = order.index(own)
    steps = range(1, min(half, len(order) - 1) + 1)
    found = {order[(at + step) % len(order)] for step in steps}
    return found | {order[at - step] for step in steps}


def digits(of: int) -> str:
    return f"{of:016x}"


def common(one: int, other: int) -> int:
    """With how many hexadecimal digits the two begin alike."""
    pairs = list(zip(digits(one), digits(other), strict=True))
    return next((at for at, (a, b) in enumerate(pairs) if a != b), 16)


def next_hop(network: OverlayNetwork, own: str, key: int) -> str:
    """By the rules of Pastry, from this peer's table and the leaf set that it should have."""
    half = network.parameters.leaf_set // 2
    names = sorted(network.peers, key=identifier)
    at, n = names.index(own), len(names)
    if n <= 2 * half:
        return nearest(names, key)
    around = [names[(at + step) % n] for step in range(-half, half + 1)]
    lowest, highest = identifier(around[0]), identifier(around[-1])
    if (key - lowest) % RING <= (highest - lowest) % RING:
        return nearest(around, key)
    mine = identifier(own)
    shared = common(mine, key)
    table = [peer.name for peer in network.peers[own].pastry.table]
    for name in table:
        if common(identifier(name), key) > shared:
            return name
    known = [name for name in (*table, *around) if common(identifier(name), key) >= shared]
    return nearest(known, key)


def routes(network: OverlayNetwork, subscribers: Iterable[str], group: str) -> dict[str, str]:
    """The parents in the union of the subscribers' routes; the root is its own."""
    key = identifier(group)
    parents: dict[str, str] = {}
    for name in subscribers:
        at = name
        while at not in parents:
            parents[at] = next_hop(network, at, key)
            at = parents[at]
    return parents


def check_ring(network: OverlayNetwork) -> None:
    """All leaf sets are those of the live peers; entries stand where they belong, and live."""
    names = list(network.peers)
    half = network.parameters.leaf_set // 2
    for name, peer in network.peers.items():
        assert peer.pastry.active, f"{name} is not part of the ring"
        assert set(peer.pastry.leaves.members) == leaves(names, name, half), name
        for entry in peer.pastry.table:
            slot = peer.pastry.table.slot(entry.identifier)
            shared = common(identifier(name), entry.identifier)
            assert slot == (shared, int(digits(entry.identifier)[shared], 16))


def check_tree(network: OverlayNetwork, group: str, subscribers: Iterable[str]) -> None:
    """The tree is the union of routes: parents and children agree, and no one else is in it."""
    key = identifier(group)
    parents = routes(network, subscribers, group)
    root = nearest(network.peers, key)
    found = {name: None if at is None else at.name for name, at in network.tree(group).items()}
    expected = {name: None if name == root else parent for name, parent in parents.items()}
    found.pop(root, None)
    expected.pop(root, None)
    assert found == expected
    for name, peer in network.peers.items():
        place = peer.scribe.place(key)
        children = set() if place is None else set(place[1])
        assert children == {child for child, parent in expected.items() if parent == name}
        assert peer.scribe.roots.serves(key) == (name == root)
