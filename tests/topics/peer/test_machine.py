"""Single cases of peers that host topics: copies, suspensions, partitions, topics that end."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from distributary.machines.actions import Action
from distributary.topics.codec import Created, NoTopic, Pulse, Removed
from distributary.topics.errors import EventsForgottenError
from distributary.topics.messages import Event, Repair
from distributary.topics.overlay.identifiers import identifier, make_peer
from distributary.topics.overlay.messages import (
    BallotRefused,
    KeepAlive,
    Recover,
    Replicate,
    Route,
)
from distributary.topics.peer.client import CancelRequest, Confirmed
from distributary.topics.peer.copies import PeerState
from distributary.topics.peer.messages import ToChannel
from distributary.topics.peer.simulation import PeerNetwork
from tests.topics.peer.schedules import GIVE_UP, OVERLAY, PARAMETERS, POLICIES, REPAIR

CHANNEL = "topic/t"
KEY = identifier(CHANNEL)


def build(peers: int = 8, *, seed: int = 1, replicas: int = 2) -> PeerNetwork:
    """A ring with the topic `t`, the publisher `p` and the readers `a` and `b`."""
    parameters = replace(PARAMETERS, overlay=replace(OVERLAY, replicas=replicas))
    network = PeerNetwork(POLICIES["tamara"], parameters, seed=seed)
    names = [f"p{at}" for at in range(peers)]
    network.build_converged(names)
    network.run(0.5)
    others = [name for name in names if name != network.owner(CHANNEL)] or names
    for at, client in enumerate("pab"):
        network.client(client, [others[at % len(others)], *others])
    network.create("p", "t")
    network.run(2.0)
    for client in "ab":
        network.want(client, "t")
    network.run(3.0)
    return network


def read(network: PeerNetwork, client: str) -> list[bytes]:
    return [each.payload for each in network.delivered(client) if isinstance(each, Event)]


def confirmed(network: PeerNetwork, client: str = "p") -> int:
    found = [each.upto for each in network.delivered(client) if isinstance(each, Confirmed)]
    return max(found, default=0)


def holders(network: PeerNetwork) -> dict[str, int]:
    """The peers with a copy of the topic, and the number of its next event there."""
    found = {}
    for name, peer in network.peers.items():
        log = peer.state.logs.get(KEY)
        state = None if log is None else log.state.states.get(CHANNEL)
        if state is not None:
            found[name] = state.next_number  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("replicas", [0, 1, 2, 3])
def test_an_event_is_confirmed_once_so_many_peers_besides_the_root_have_it(replicas: int) -> None:
    network = build(replicas=replicas)
    network.say("p", "t", b"x")
    network.run(0.0)
    sent = network.count_messages()
    assert not sent["Taken"] + sent["event"]
    while not confirmed(network):
        network.simulation.run(max_events=1)
        sent = network.count_messages()
        if sent["Taken"] + sent["event"]:
            assert list(holders(network).values()) == [2] * (replicas + 1)


def test_all_peers_crash_and_come_back_with_what_they_have_stored() -> None:
    network = build()
    for number in range(20):
        network.say("p", "t", b"%d" % number)
    network.run(2.0)
    names = list(network.peers)
    for name in names:
        network.crash(name)
    network.run(1.0)
    network.join(names[0])
    for name in names[1:]:
        network.run(0.5)
        network.join(name, names[:1])
    network.run(REPAIR)
    network.say("p", "t", b"after")
    network.run(10.0)
    for client in "ab":
        assert read(network, client) == [*(b"%d" % number for number in range(20)), b"after"]
    assert confirmed(network) == 21


def test_the_stored_state_of_a_peer_is_its_state() -> None:
    network = build()
    for number in range(50):
        network.say("p", "t", b"%d" % number)
        network.run(0.1)
    network.crash(network.owner(CHANNEL))
    network.run(REPAIR)
    for name, peer in network.peers.items():
        replayed, copied = PeerState(network.policy), PeerState(network.policy)
        for record in network.simulation.logs[name]:
            replayed.replay(record)
        for record in peer.state.snapshot():
            copied.replay(record)
        for found in (replayed, copied):
            assert found.logs.keys() == peer.state.logs.keys()
            for group, log in found.logs.items():
                now = peer.state.logs[group]
                assert (log.end, log.written, log.promised) == (now.end, now.written, now.promised)
                assert (log.members, log.proposed) == (now.members, now.proposed)
                assert [*log.state.snapshot()] == [*now.state.snapshot()]


def test_a_root_that_was_suspended_accepts_nothing_more() -> None:
    """It wakes with its timers overdue and messages waiting, while another peer is root."""
    network = build()
    for number in range(5):
        network.say("p", "t", b"%d" % number)
    network.run(2.0)
    root = network.owner(CHANNEL)
    peer = network.peers[root]
    network.simulation.network.cut("asleep", [root])
    ears = peer.on_message, peer.on_timer
    slept: list[tuple[str, str, object]] = []
    peer.on_message = lambda sender, message, now: slept.append(("m", sender, message)) or []  # type: ignore[method-assign,func-returns-value]
    peer.on_timer = lambda name, now: slept.append(("t", name, None)) or []  # type: ignore[method-assign,func-returns-value]
    network.run(GIVE_UP)
    network.say("p", "t", b"while it sleeps")
    network.run(REPAIR)
    assert confirmed(network) == 6
    peer.on_message, peer.on_timer = ears  # type: ignore[method-assign]
    network.simulation.network.heal("asleep")
    for what, name, message in slept:
        if what == "t":
            network.simulation.call(root, partial(peer.on_timer, name))
        else:
            network.simulation.post(network.clock.now, root, message, sender=name)
    network.run(0.001)
    assert len(peer.overlay.pastry.leaves.members) == 7, "it takes live peers for dead"
    for number in range(5):
        network.say("p", "t", b"after %d" % number)
    network.run(2 * REPAIR)
    assert confirmed(network) == 11
    expected = [
        *(b"%d" % number for number in range(5)),
        b"while it sleeps",
        *(b"after %d" % number for number in range(5)),
    ]
    assert read(network, "a") == read(network, "b") == expected
    assert [len(hosts) for hosts in network.hosts().values()] == [1]


def test_a_minority_accepts_nothing_until_a_partition_has_lasted_long() -> None:
    network = build(3)
    root = network.owner(CHANNEL)
    network.say("p", "t", b"0")
    network.run(2.0)
    network.client("lonely", [root])
    network.run(1.0)
    network.cut("island", [root])
    network.run(4.0)
    network.say("lonely", "t", b"in the minority")
    network.say("p", "t", b"in the majority")
    network.run(GIVE_UP - 6.0)
    assert confirmed(network, "lonely") == 0
    assert confirmed(network) == 2
    network.heal("island")
    network.run(REPAIR)
    assert confirmed(network, "lonely") == 1
    assert sorted(read(network, "a")) == sorted([b"0", b"in the majority", b"in the minority"])


def test_without_a_majority_of_its_members_a_topic_waits_only_once() -> None:
    """Its next root waits for those that are lost before it recovers, and not again after it."""
    network = build()
    root = network.owner(CHANNEL)
    replica = next(name for name in holders(network) if name != root)
    for name in (root, replica):
        network.crash(name)
    began = network.clock.now
    network.say("p", "t", b"x")
    while not confirmed(network):
        network.run(0.5)
    assert GIVE_UP < network.clock.now - began < 1.5 * GIVE_UP


def test_members_that_are_lost_are_waited_for_once_however_often_a_claim_is_refused() -> None:
    network = build()
    root = network.owner(CHANNEL)
    replica = next(name for name in holders(network) if name != root)
    for name in (root, replica):
        network.crash(name)
    began = network.clock.now
    heir = network.owner(CHANNEL)
    network.say("p", "t", b"x")
    while not confirmed(network) and network.clock.now < began + 2 * GIVE_UP:
        network.run(3.0)
        refused = BallotRefused(KEY, (int(network.clock.now), 1))
        network.simulation.post(network.clock.now, heir, refused, sender="p")
    assert GIVE_UP < network.clock.now - began < 1.5 * GIVE_UP + 3.0


def test_after_a_long_partition_subscribers_are_told_what_was_given_up() -> None:
    network = build(3)
    root = network.owner(CHANNEL)
    network.client("lonely", [root])
    network.run(1.0)
    network.want("lonely", "t")
    network.run(2.0)
    network.cut("island", [root])
    network.run(2 * GIVE_UP)
    network.say("lonely", "t", b"here")
    network.say("p", "t", b"there")
    network.run(10.0)
    assert confirmed(network, "lonely") == confirmed(network) == 1
    network.heal("island")
    network.run(2 * REPAIR)
    network.say("p", "t", b"after")
    network.run(10.0)
    told = {
        client: any(isinstance(e, EventsForgottenError) for e in network.delivered(client))
        for client in ("a", "b", "lonely")
    }
    assert any(told.values())
    assert not all(told.values())
    for client in ("a", "b", "lonely"):
        assert read(network, client)[-1] == b"after"


def test_copies_that_are_not_needed_any_more_are_released() -> None:
    network = build()
    network.say("p", "t", b"x")
    for at in range(30):
        network.run(1.0)
        network.join(f"new{at}", ["p0", "p1"])
    network.run(REPAIR + 15 * OVERLAY.tree_period)
    assert len(holders(network)) == OVERLAY.replicas + 1


def test_what_was_asked_of_topics_that_do_not_exist_is_forgotten() -> None:
    network = build()
    before = sum(len(peer.state.logs) for peer in network.peers.values())
    for at in range(20):
        network.want("a", f"none{at}")
    network.run(5.0)
    assert sum(isinstance(each, NoTopic) for each in network.delivered("a")) >= 20
    for at in range(20):
        network.unwant("a", f"none{at}")
    network.run(REPAIR + 60.0)
    assert sum(len(peer.state.logs) for peer in network.peers.values()) <= before


def test_a_removed_topic_stays_removed_though_its_root_crashes() -> None:
    network = build()
    network.say("p", "t", b"x")
    network.run(2.0)
    network.remove("p", "t")
    network.run(2.0)
    assert ("t", Removed(True)) in network.delivered("p")
    for client in "ab":
        assert NoTopic("t") in network.delivered(client)
        network.unwant(client, "t")
    network.crash(network.owner(CHANNEL))
    network.run(REPAIR)
    network.want("a", "t")
    network.run(3.0)
    assert network.delivered("a")[-1] == NoTopic("t")
    assert not holders(network)
    network.unwant("a", "t")
    network.create("p", "t")
    network.run(3.0)
    assert network.delivered("p")[-1] == ("t", Created(True))


def test_a_client_whose_peer_dies_goes_on_at_another() -> None:
    network = build()
    reader = network.clients["client/a"]
    network.say("p", "t", b"0")
    network.run(2.0)
    network.crash(reader.peer)
    network.run(0.5)
    for number in range(1, 6):
        network.say("p", "t", b"%d" % number)
    network.run(REPAIR)
    assert reader.moves >= 1
    assert read(network, "a") == [b"%d" % number for number in range(6)]
    host = network.hosts()[CHANNEL][0]
    assert set(host.topics[CHANNEL].state.members) == {"client/a", "client/b"}


def test_a_client_that_vanishes_is_removed_from_its_channels() -> None:
    network = build()
    network.stop_client("a")
    network.run(PARAMETERS.dead_after + 3.0)
    host = network.hosts()[CHANNEL][0]
    assert set(host.topics[CHANNEL].state.members) == {"client/b"}


@pytest.mark.parametrize(("talks", "dead"), [(True, False), (False, True)])
def test_a_replica_that_is_slow_is_not_dead_while_it_sends_anything(
    *, talks: bool, dead: bool
) -> None:
    """It answers to copies late, as if much else waited before them."""
    network = build()
    key = network.owner(CHANNEL)
    root = network.peers[key]
    name = next(name for name in holders(network) if name != key)
    slow, patience = network.peers[name], OVERLAY.patience
    take = slow.on_message

    def take_late(sender: str, message: object, now: float) -> list[Action]:
        if not isinstance(message, Replicate):
            return take(sender, message, now)
        again = partial(slow_turn, sender, message)
        network.clock.at(now + 3 * patience, again)
        return []

    def slow_turn(sender: str, message: object) -> None:
        network.simulation.call(name, partial(take, sender, message))

    slow.on_message = take_late  # type: ignore[method-assign]
    said = KeepAlive(slow.own, slow.overlay.pastry.leaves.members)
    for at in range(40 * talks):
        network.simulation.post(network.clock.now + at * patience / 4, key, said, sender=name)
    before = network.count_messages()["recover"]
    network.say("p", "t", b"x")
    suspected = False
    for _ in range(30):
        network.run(patience / 10)
        suspected |= name not in root.overlay.pastry.leaves.members
    network.run(REPAIR)
    assert suspected == dead
    assert confirmed(network) == 1
    assert read(network, "a") == read(network, "b") == [b"x"]
    assert dead or network.count_messages()["recover"] == before, "the root was changed for it"


@pytest.mark.parametrize("kind", [Replicate, Recover])
def test_what_is_lost_on_the_way_to_a_peer_that_talks_is_repeated(kind: type) -> None:
    """It is not taken for dead for a few times the patience, so that would cost as long."""
    network = build()
    key = network.owner(CHANNEL)
    root = network.peers[key]
    name = next(name for name in holders(network) if name != key)
    lossy, lost = network.peers[name], list[object]()
    take = lossy.on_message

    def take_second(sender: str, message: object, now: float) -> list[Action]:
        if isinstance(message, kind) and not lost:
            lost.append(message)
            return []
        return take(sender, message, now)

    lossy.on_message = take_second  # type: ignore[method-assign]
    said = KeepAlive(lossy.own, lossy.overlay.pastry.leaves.members)
    for at in range(20):
        time = network.clock.now + at * OVERLAY.patience / 4
        network.simulation.post(time, key, said, sender=name)
    if kind is Recover:
        root.overlay.scribe.roots.give_up(KEY, network.clock.now)
    network.say("p", "t", b"x")
    network.run(3 * OVERLAY.patience)
    assert lost
    assert confirmed(network) == 1


def test_a_leaf_that_talks_but_does_not_route_is_routed_around() -> None:
    """It is being started again, say: it owes an answer for a few times the patience at most."""
    network = build()
    key = network.owner(CHANNEL)
    root = network.peers[key]
    take = root.on_message
    root.on_message = lambda sender, message, now: (  # type: ignore[method-assign]
        [] if isinstance(message, Route) else take(sender, message, now)
    )
    via = network.peers[network.clients["client/p"].peer]
    said = KeepAlive(root.own, root.overlay.pastry.leaves.members)
    for at in range(40):
        time = network.clock.now + at * OVERLAY.patience / 4
        network.simulation.post(time, via.own.name, said, sender=key)
    network.say("p", "t", b"x")
    began, times = network.clock.now, list[float]()
    for _ in range(100):
        network.run(OVERLAY.patience / 20)
        if key not in via.overlay.pastry.leaves.members:
            times.append(network.clock.now - began)
    assert 3 * OVERLAY.patience < times[0] < 6 * OVERLAY.patience


def test_a_side_without_copies_does_not_say_that_a_topic_does_not_exist() -> None:
    """It cannot know, and a topic that it was asked for survives the next crash of its root."""
    network = build()
    network.say("p", "t", b"0")
    network.run(2.0)
    far = [name for name in network.peers if name not in holders(network)]
    network.client("lonely", [far[0]])
    network.run(1.0)
    network.cut("island", far)
    network.run(2 * GIVE_UP)
    network.want("lonely", "t")
    network.say("lonely", "t", b"from the island")
    network.remove("lonely", "t")
    network.run(2 * GIVE_UP)
    assert not [e for e in network.delivered("lonely") if not isinstance(e, Pulse)]
    network.clients["client/lonely"].on_message("application", CancelRequest("t"), 0.0)
    network.heal("island")
    network.run(REPAIR)
    assert confirmed(network, "lonely") == 1
    network.crash(network.owner(CHANNEL))
    network.run(REPAIR)
    network.say("p", "t", b"after")
    network.run(10.0)
    for client in "ab":
        assert read(network, client) == [b"0", b"from the island", b"after"]
    assert read(network, "lonely")[-1] == b"after"


def owned_by(network: PeerNetwork, root: str) -> str:
    """A topic that does not exist yet and whose root is that peer."""
    names = (f"new{at}" for at in range(1_000))
    return next(name for name in names if network.owner(f"topic/{name}") == root)


def creations(network: PeerNetwork, client: str, topic: str) -> list[bool]:
    """What the client was answered when it created a topic: whether it was new."""
    told = [each for each in network.delivered(client) if isinstance(each, tuple)]
    return [said.new for name, said in told if name == topic and isinstance(said, Created)]


def test_only_the_majority_creates_a_topic_while_the_ring_is_cut() -> None:
    """The minority waits, even though it has the peer nearest to the topic's key."""
    network = build(3)
    root = network.owner(CHANNEL)
    topic = owned_by(network, root)
    network.client("lonely", [root])
    network.run(1.0)
    network.cut("island", [root])
    network.run(4.0)
    network.create("lonely", topic)
    network.create("p", topic)
    network.run(GIVE_UP - 6.0)
    assert creations(network, "p", topic) == [True]
    assert not creations(network, "lonely", topic)
    network.say("p", topic, b"in the majority")
    network.run(1.0)
    network.heal("island")
    network.run(REPAIR)
    assert creations(network, "lonely", topic) == [False]
    network.want("lonely", topic)
    network.run(2.0)
    network.say("p", topic, b"after")
    network.run(5.0)
    assert [each.number for each in network.delivered("lonely") if isinstance(each, Event)] == [2]


def test_a_topic_that_one_side_of_a_long_partition_creates_is_kept() -> None:
    """The other side was asked for it, and its root, which has no copy, is the nearest peer."""
    network = build(3)
    root = network.owner(CHANNEL)
    topic = owned_by(network, root)
    network.client("lonely", [root])
    network.run(1.0)
    network.cut("island", [root])
    network.run(2.0 * GIVE_UP)
    network.want("lonely", topic)
    network.create("p", topic)
    network.run(3.0)
    assert NoTopic(topic) in network.delivered("lonely")
    assert creations(network, "p", topic) == [True]
    network.say("p", topic, b"created")
    network.run(2.0)
    network.heal("island")
    network.run(REPAIR)
    network.say("lonely", topic, b"after")
    network.run(5.0)
    (host,) = network.hosts()[f"topic/{topic}"]
    assert host.topics[f"topic/{topic}"].state.next_number == 3


def test_nobody_hears_of_a_removal_before_it_is_accepted() -> None:
    """Until then the topic may be kept by a root that replaces this one."""
    network = build(3)
    root = network.owner(CHANNEL)
    for client in ("lonely", "other"):
        network.client(client, [root])
    network.run(1.0)
    network.cut("island", [root])
    network.remove("lonely", "t")
    network.run(1.0)
    network.say("other", "t", b"x")
    network.run(3.0)
    assert not [each for each in network.delivered("lonely") if isinstance(each, tuple)]
    assert NoTopic("t") not in network.delivered("other")
    network.heal("island")
    network.run(REPAIR)
    assert [each for each in network.delivered("lonely") if isinstance(each, tuple)]
    assert NoTopic("t") in network.delivered("other")


def test_a_root_without_a_copy_asks_a_peer_that_has_one() -> None:
    """Such a peer may be no neighbour of the root, which may have no entries itself."""
    whole = build(14, seed=2)
    whole.say("p", "t", b"kept")
    whole.run(2.0)
    kept = whole.peers[whole.owner(CHANNEL)].state.logs[KEY]
    network = PeerNetwork(POLICIES["tamara"], PARAMETERS, seed=2)
    network.build_converged([f"p{at}" for at in range(14)])
    network.run(0.5)
    root = network.peers[network.owner(CHANNEL)]
    far = next(
        peer
        for name, peer in network.peers.items()
        if peer != root and name not in root.overlay.pastry.leaves.members
    )
    network.client("q", [root.own.name])
    network.want("q", "t")
    network.run(3.0)
    assert NoTopic("t") in network.delivered("q")
    copy = far.overlay.scribe.roots.log(KEY)
    copy.restore(kept.copy(), kept.end)
    copy.written = copy.promised = (1, far.own.identifier)
    network.run(12 * OVERLAY.tree_period)
    network.say("q", "t", b"next")
    network.run(5.0)
    assert confirmed(network, "q") == 1
    assert max(holders(network).values()) == 3


def test_a_root_whose_subscriber_knows_a_later_epoch_claims_the_topic_again() -> None:
    """It was cut off and replaced, so it must not report what its successor accepted as lost."""
    network = build(3)
    root = network.peers[network.owner(CHANNEL)]
    network.say("p", "t", b"0")
    network.run(2.0)
    (host,) = network.hosts()[CHANNEL]
    a, via = network.clients["client/a"], make_peer(network.clients["client/a"].peer)
    asked = ToChannel(CHANNEL, a.name, Repair(2, host.state.epoch + 1), via)
    network.cut("island", [root.own.name])
    network.simulation.post(network.clock.now, root.own.name, Route(KEY, 1, asked, 1), sender="x")
    network.run(0.1)
    assert CHANNEL not in root.hosting.hosts()
    network.heal("island")
    network.run(5.0)
    network.say("p", "t", b"1")
    network.run(5.0)
    assert read(network, "a") == read(network, "b") == [b"0", b"1"]
