"""Messages to a channel wait at its next root until that serves, but not for long, nor too many."""

from __future__ import annotations

from distributary.topics.codec import Put, Remove, Removed
from distributary.topics.messages import Event
from distributary.topics.overlay.identifiers import identifier
from distributary.topics.peer.client import Confirmed
from distributary.topics.peer.hosting import ChannelHosting
from distributary.topics.peer.messages import ToChannel
from distributary.topics.peer.simulation import PeerNetwork
from tests.topics.peer.schedules import GIVE_UP, PARAMETERS, REPAIR
from tests.topics.peer.test_machine import CHANNEL, KEY, build, holders

MIB = 1 << 20


def build_recovering() -> tuple[PeerNetwork, ChannelHosting]:
    """A ring, and the next root of a topic, which waits, since most members of it are lost."""
    network = build()
    root = network.owner(CHANNEL)
    for name in (root, next(name for name in holders(network) if name != root)):
        network.crash(name)
    network.say("p", "t", b"x")
    hosting = network.peers[network.owner(CHANNEL)].hosting
    for _ in range(50):
        if hosting.waiting_bytes:
            break
        network.run(0.1)
    assert KEY in hosting.scribe.roots
    assert not hosting.scribe.roots.serves(KEY)
    return network, hosting


def find_nearer(network: PeerNetwork) -> str:
    """The name of a peer that would be nearer to the topic than all others."""
    names = (f"n{at}" for at in range(1_000))
    far = abs(identifier(network.owner(CHANNEL)) - KEY)
    return next(name for name in names if abs(identifier(name) - KEY) < far / 2)


def put(network: PeerNetwork, hosting: ChannelHosting, number: int) -> None:
    message = Put(1, number, bytes(MIB))
    via = hosting.scribe.roots.log(KEY).members.peers[0]
    hosting.arrive(ToChannel(CHANNEL, "client/x", message, via), network.clock.now)


def test_what_waited_for_a_claim_that_was_lost_is_not_done_when_the_next_one_succeeds() -> None:
    network, hosting = build_recovering()
    via = hosting.scribe.roots.log(KEY).members.peers[0]
    hosting.arrive(ToChannel(CHANNEL, "client/p", Remove(), via), network.clock.now)
    nearer = find_nearer(network)
    network.join(nearer, network.peers)
    network.run(2.0)
    assert KEY not in hosting.scribe.roots
    assert not hosting.waiting_bytes
    network.run(REPAIR)
    network.crash(nearer)
    network.run(REPAIR)
    assert hosting.scribe.roots.serves(KEY)
    network.say("p", "t", b"y")
    network.run(3.0)
    assert ("t", Removed(True)) not in network.delivered("p")
    assert network.delivered("p")[-1] == Confirmed("t", 2)
    read = [each.payload for each in network.delivered("a") if isinstance(each, Event)]
    assert read == [b"x", b"y"]


def test_what_waits_is_bounded_in_bytes() -> None:
    network, hosting = build_recovering()
    for number in range(1, 81):
        put(network, hosting, number)
    assert 60 * MIB < hosting.waiting_bytes <= 64 * MIB
    network.run(GIVE_UP + 3.0)
    assert hosting.scribe.roots.serves(KEY)
    assert not hosting.waiting_bytes


def test_what_has_waited_for_as_long_as_a_client_may_be_silent_is_dropped() -> None:
    """Whoever sent it has repeated it, or is gone."""
    network, hosting = build_recovering()
    put(network, hosting, 1)
    network.run(PARAMETERS.dead_after - 0.5)
    assert hosting.waiting_bytes > MIB
    network.run(2.0)
    assert not hosting.scribe.roots.serves(KEY)
    assert 0 < hosting.waiting_bytes < MIB


def test_a_peer_that_is_not_the_root_keeps_nothing() -> None:
    network = build()
    root = network.owner(CHANNEL)
    other = next(name for name in network.peers if name not in holders(network))
    hosting = network.peers[other].hosting
    via = network.peers[root].own
    hosting.arrive(ToChannel(CHANNEL, "client/x", Remove(), via), network.clock.now)
    for _ in range(20):
        network.run(0.5)
    assert not hosting.waiting_bytes
    assert CHANNEL in network.hosts()
