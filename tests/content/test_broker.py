"""What a content broker does for clients and neighbours, one thing at a time."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest

from distributary.content import (
    COVERING_POLICIES,
    AdvertiseRequest,
    ContentBroker,
    Covering,
    Detach,
    Pacing,
    Publication,
    RequestRefused,
    SubscribeRequest,
    UnadvertiseRequest,
    UnsubscribeRequest,
)
from distributary.content.connections import Packet
from distributary.content.messages import Name, SubscribeStatement, UnsubscribeStatement
from distributary.content.pacing import Pace
from distributary.content.resync import StaleStatements, ToldBuckets, bucket_of
from distributary.model import Filter, equivalent
from tests.content.faults import BadWorld
from tests.content.worlds import SCHEMA, Pair, Watch, World, box

Broker = type[ContentBroker]
Delays = Mapping[tuple[str, str], float]

ACTIVE, MERGING = COVERING_POLICIES["active"], COVERING_POLICIES["merging"]
ALL = box((0, 100))

each_policy = pytest.mark.parametrize("policy", COVERING_POLICIES.values(), ids=COVERING_POLICIES)


def chain(*names: str, delay: float = 0.01) -> dict[tuple[str, str], float]:
    """Brokers in a row."""
    return dict.fromkeys(pairwise(names), delay)


class Tape(Watch):
    """What came to each broker, in the order in which it came."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[tuple[str, object]] = []

    def on_taken(self, broker: str, message: object, now: float) -> None:
        self.came.append((broker, message))
        super().on_taken(broker, message, now)


class Scene(World):
    """A world in which each thing that is done is known everywhere before the next."""

    def __init__(self, broker: Broker, delays: Delays, policy: Covering = ACTIVE) -> None:
        super().__init__(policy, delays, np.random.default_rng(0), broker, watch=Tape())

    def promises(self, at: str, client: str, *numbers: int) -> None:
        """A client will publish anything, under each of these numbers."""
        for number in numbers:
            self.say(at, AdvertiseRequest(client, number, ALL))
            self.run()

    def wants(self, at: str, **wanted: Filter) -> None:
        """Clients subscribe, each to its filter."""
        for client, filter in wanted.items():
            self.say(at, SubscribeRequest(client, 1, filter))
            self.run()

    def ends(self, at: str, *clients: str) -> None:
        """Clients take back what they wanted."""
        for client in clients:
            self.say(at, UnsubscribeRequest(client, 1))
            self.run()

    def gets(self, keys: Pair, *, at: str = "p", client: str = "pub", number: int = 1) -> list[str]:
        """Who is handed an event that is published now."""
        event = self.publish(at, client, number, keys)
        self.run()
        return self.got(event)

    def work(self, at: str, kind: str) -> float:
        """How much work of a kind there was at a broker up to now."""
        return self.simulation.record.units[at, kind]

    def header_for(self, client: str) -> tuple[float, int]:
        """Distance and count in the header of the last publication that a client got."""
        delivered = self.simulation.record.delivered
        publication = [each[-1] for each in delivered if each[2] == client][-1]
        assert isinstance(publication, Publication)
        return publication.distance, publication.count


# --- advertisements -------------------------------------------------------------------------------


def count_sent(scene: World) -> dict[tuple[str, str], int]:
    """How many subscriptions each broker has told each neighbour that was told any."""
    return {
        (name, neighbour): len(link.sent)
        for name, broker in scene.brokers.items()
        for neighbour, link in broker.links.items()
        if len(link.sent)
    }


@each_policy
def test_a_late_advertisement_pulls_the_subscriptions_it_meets_and_no_others(
    policy: Covering,
) -> None:
    scene = Scene(ContentBroker, chain("p", "m", "s"), policy)
    scene.wants("s", low=box((0, 3)), high=box((3, 6)))
    assert count_sent(scene) == {}
    scene.say("p", AdvertiseRequest("pub", 1, box((0, 3))))
    scene.run()
    assert count_sent(scene) == {("s", "m"): 1, ("m", "p"): 1}
    assert scene.gets((1, 1)) == ["low"]
    scene.say("p", AdvertiseRequest("pub", 2, box((0, 6))))
    scene.run()
    assert count_sent(scene) == {("s", "m"): 2, ("m", "p"): 2}
    assert scene.gets((4, 1), number=2) == ["high"]


@each_policy
def test_unadvertising_cleans_what_no_other_advertisement_needs(policy: Covering) -> None:
    scene = Scene(ContentBroker, chain("p", "m", "s"), policy)
    scene.say("p", AdvertiseRequest("pub", 1, box((0, 3))))
    scene.promises("m", "other", 1)
    scene.wants("s", low=box((0, 3)), high=box((3, 6)))
    assert count_sent(scene) == {("s", "m"): 2, ("m", "p"): 1}
    scene.say("p", UnadvertiseRequest("pub", 1))
    scene.run()
    assert count_sent(scene) == {("s", "m"): 2}
    assert scene.gets((1, 1), at="m", client="other") == ["low"]
    scene.say("m", UnadvertiseRequest("other", 1))
    scene.run()
    assert count_sent(scene) == {}
    assert [len(broker.subscriptions) for broker in scene.brokers.values()].count(0) == 2
    assert not any(broker.advertisements.hops for broker in scene.brokers.values())


# --- clients --------------------------------------------------------------------------------------


@each_policy
def test_who_detaches_leaves_nothing_behind(policy: Covering) -> None:
    scene = Scene(ContentBroker, chain("p", "m", "s"), policy)
    scene.promises("p", "pub", 1)
    scene.promises("s", "gone", 1, 2)
    scene.wants("s", gone=box((0, 6)), stays=box((0, 3)))
    scene.say("s", SubscribeRequest("gone", 2, box((2, 5))))
    scene.wants("p", far=box((0, 6)))
    scene.say("s", Detach("gone"))
    scene.run()
    assert scene.gets((1, 1)) == ["far", "stays"]
    assert scene.gets((5, 1)) == ["far"]
    assert count_sent(scene) == {("s", "m"): 1, ("m", "p"): 1}
    assert [*scene.table_problems()] == []


def refusals(scene: Scene) -> list[tuple[str, int, str]]:
    """To whom was said that which number was refused, and why."""
    return [
        (client, message.number, message.reason)
        for _, _, client, _, message in scene.simulation.record.delivered
        if isinstance(message, RequestRefused)
    ]


def test_what_does_not_match_its_advertisement_or_has_none_is_refused() -> None:
    scene = Scene(ContentBroker, chain("p", "s"))
    scene.say("p", AdvertiseRequest("pub", 1, box((0, 3))))
    scene.wants("s", all=ALL)
    assert scene.gets((1, 1)) == ["all"]
    assert scene.gets((4, 1)) == []  # not what was promised
    assert scene.gets((1, 1), number=2) == []  # never promised
    assert scene.gets((1, 1), client="other") == []  # promised by somebody else
    scene.say("p", UnadvertiseRequest("pub", 1))
    assert scene.gets((1, 1)) == []  # promised no more
    found = refusals(scene)
    assert [(client, number) for client, number, _ in found] == [
        ("pub", 1),
        ("pub", 2),
        ("other", 1),
        ("pub", 1),
    ]
    assert ["does not match" in reason for *_, reason in found] == [True, False, False, False]
    assert ["advertise first" in reason for *_, reason in found] == [False, True, True, True]


@each_policy
def test_a_subscription_of_the_same_number_replaces_the_last(policy: Covering) -> None:
    scene = Scene(ContentBroker, chain("p", "m", "s"), policy)
    scene.promises("p", "pub", 1)
    for wanted in (box((0, 3)), box((2, 6)), box((2, 6)), box((4, 5))):
        scene.wants("s", c=wanted)
        for x in range(6):
            expected = ["c"] if wanted.matches((x, 0)) else []
            assert scene.gets((x, 0)) == expected
    assert count_sent(scene) == {("s", "m"): 1, ("m", "p"): 1}
    scene.ends("s", "c")
    assert count_sent(scene) == {}


def move_client(policy: Covering, *, leaves_after: float) -> tuple[list[int], int]:
    """How often a client that moves is given each of many events, and handed any of them."""
    scene = Scene(ContentBroker, chain("a", "m", "b", delay=0.03) | chain("m", "p"), policy)
    scene.promises("p", "pub", 1)
    scene.wants("a", c=box((0, 3)), neighbour=box((0, 2)))
    scene.wants("b", other=box((1, 6)))
    scene.say("b", SubscribeRequest("c", 1, box((0, 3))), after=0.5)
    scene.say("a", Detach("c"), after=0.5 + leaves_after)
    events = [scene.publish("p", "pub", 1, (1, 0), after=at / 100) for at in range(150)]
    scene.run()
    handed = [each for each in scene.simulation.record.delivered if each[2] == "c"]
    return [scene.got(event).count("c") for event in events], len(handed)


@each_policy
def test_a_move_with_overlap_loses_and_doubles_nothing(policy: Covering) -> None:
    given, handed = move_client(policy, leaves_after=0.5)
    assert given == 150 * [1]
    assert handed > 150, "both brokers handed some over, and the inbox knew them"


def test_a_move_without_overlap_loses_something() -> None:
    given, handed = move_client(ACTIVE, leaves_after=0.0)
    assert given.count(0) > 0
    assert max(given) == 1
    assert handed == sum(given)


def deliver_by_the_slow_broker() -> list[str]:
    """Only the slower of two brokers has it, and brings it after the client left the faster."""
    scene = Scene(ContentBroker, chain("a", "p") | chain("p", "b", delay=1.0))
    scene.promises("p", "pub", 1)
    scene.wants("a", c=box((0, 3)))
    scene.wants("b", c=box((0, 6)))
    event = scene.publish("p", "pub", 1, (4, 0))
    scene.publish("p", "pub", 1, (1, 0))
    scene.say("a", Detach("c"), after=0.5)
    scene.run()
    handed = [each[-1] for each in scene.simulation.record.delivered]
    numbers = [each.event.number for each in handed if isinstance(each, Publication)]
    assert event in numbers, "the broker did hand it over"
    return scene.got(event)


def test_an_inbox_knows_only_what_it_was_handed_when_a_broker_leaves() -> None:
    assert deliver_by_the_slow_broker() == ["c"]


# --- faults ---------------------------------------------------------------------------------------


N = 50  # subscriptions that nothing changes


def two_brokers() -> tuple[BadWorld, Tape]:
    """Many subscriptions at a, of which none covers another, for a publisher at b."""
    tape = Tape()
    world = BadWorld(ACTIVE, chain("a", "b"), np.random.default_rng(0), watch=tape)
    world.say("b", AdvertiseRequest("pub", 1, ALL))
    for number in range(N):
        world.say("a", SubscribeRequest("c", number, box((number, number + 40))))
    world.mend()
    assert count_sent(world) == {("a", "b"): N}
    tape.came.clear()
    return world, tape


def unpack(tape: Tape, to: str) -> list[object]:
    """All messages in the packets that came to a broker, those that came again once."""
    found: dict[tuple[int, int, int], object] = {}
    for broker, packet in tape.came:
        if broker == to and isinstance(packet, Packet):
            for number, message in enumerate(packet.messages, packet.first):
                found[packet.sender, packet.receiver, number] = message
    return list(found.values())


def test_a_link_that_was_cut_tells_only_what_changed_meanwhile() -> None:
    world, tape = two_brokers()
    world.cut("b")
    for number in range(N, N + 3):
        world.say("a", SubscribeRequest("c", number, box((number, number + 40))))
    world.say("a", UnsubscribeRequest("c", 7))
    world.run(30.0)
    assert unpack(tape, "b") == []
    world.heal("b")
    world.mend()
    kinds = [type(message) for message in unpack(tape, "b")]
    assert kinds == [
        SubscribeStatement,
        SubscribeStatement,
        SubscribeStatement,
        UnsubscribeStatement,
    ]
    assert unpack(tape, "a") == []
    assert (
        world.brokers["b"].collect_received("a").subscriptions
        == world.brokers["a"].links["b"].list_sent()
    )
    assert count_sent(world) == {("a", "b"): N + 2}


def restart_b(*, snapshot: bool, changes: int) -> tuple[set[Name], set[Name], list[object]]:
    """What b is told again after a crash, all it has to know, and what else it was sent."""
    world, tape = two_brokers()
    if snapshot:
        world.snap("b")
    for number in range(N, N + changes):
        world.say("a", SubscribeRequest("c", number, box((number, number + 40))))
    world.mend()
    world.crash("b")
    tape.came.clear()
    world.mend()
    replies = [each.told for each in unpack(tape, "b") if isinstance(each, ToldBuckets)]
    assert not any(told.advertisements for told in replies)
    assert (
        world.brokers["b"].collect_received("a").subscriptions
        == world.brokers["a"].links["b"].list_sent()
    )
    others: list[object] = [
        each for each in unpack(tape, "b") if isinstance(each, SubscribeStatement | StaleStatements)
    ]
    return (
        {name for told in replies for name in told.subscriptions},
        set(world.brokers["a"].links["b"].list_sent()),
        others,
    )


def test_a_restart_without_a_snapshot_is_told_all() -> None:
    again, needed, others = restart_b(snapshot=False, changes=3)
    assert again == needed
    assert len(again) == N + 3
    assert others == []


def test_a_restart_from_a_snapshot_is_told_only_the_buckets_that_differ() -> None:
    again, needed, others = restart_b(snapshot=True, changes=3)
    late = sorted(needed)[-3:]
    assert again == {name for name in needed if bucket_of(name) in set(map(bucket_of, late))}
    assert again >= set(late)
    assert len(again) < N / 4
    assert others == []


def test_a_restart_from_a_snapshot_that_is_up_to_date_is_told_nothing() -> None:
    again, needed, others = restart_b(snapshot=True, changes=0)
    assert (again, others) == (set(), [])
    assert len(needed) == N


# --- work that can wait ---------------------------------------------------------------------------


def test_a_link_rests_as_long_as_an_echo_took_and_never_less_than_the_pause() -> None:
    pace = Pace(Pacing(pause=0.5, patience=2.0))
    for took, rest in ((0.1, 0.5), (3.0, 6.0)):
        assert pace.is_free
        number = pace.start_probe(10.0)
        assert pace.on_echo(number - 1, 10.0) is None, "an old echo says nothing"
        assert not pace.is_free
        assert pace.on_echo(number, 10.0 + took) == 10.0 + took + rest
        assert not pace.is_free
        pace.end_rest()


# --- merging --------------------------------------------------------------------------------------


def merge_three() -> tuple[Scene, list[object]]:
    """One ends that hid three others; what p is told from then on."""
    scene = Scene(ContentBroker, chain("p", "s"), MERGING)
    scene.promises("p", "pub", 1)
    scene.wants("s", wide=ALL, a=box((0, 2)), b=box((1, 4)), c=box((5, 6)), d=box((1, 2)))
    assert count_sent(scene) == {("s", "p"): 1}
    assert isinstance(scene.watch, Tape)
    before = len(scene.watch.came)
    scene.ends("s", "wide")
    kinds = SubscribeStatement | UnsubscribeStatement
    came = scene.watch.came[before:]
    return scene, [each for at, each in came if at == "p" and isinstance(each, kinds)]


def test_a_union_replaces_in_one_statement_what_a_root_had_hidden() -> None:
    _, (said, removed) = merge_three()
    assert isinstance(said, SubscribeStatement)
    assert isinstance(removed, UnsubscribeStatement)
    assert said.triggered
    assert removed.name == Name("s", 1)
    boxes = [*box((0, 4)).boxes, *box((5, 6)).boxes]
    assert equivalent(said.filter, Filter.of(boxes, SCHEMA))


def test_a_union_lets_through_just_what_is_wanted_and_shrinks_with_it() -> None:
    scene, _ = merge_three()
    wanted = {0: ["a"], 1: ["a", "b", "d"], 2: ["b"], 3: ["b"], 4: [], 5: ["c"], 6: []}
    for x, clients in wanted.items():
        assert scene.gets((x, 0)) == clients
    scene.ends("s", "b")
    for x, clients in wanted.items():
        assert scene.gets((x, 0)) == [client for client in clients if client != "b"]
    assert scene.work("s", "unwanted") == 0


def test_nothing_is_loose_when_nothing_happens() -> None:
    scene, _ = merge_three()
    for client in ("b", "a", "c", "d"):
        assert not scene.brokers["s"].links["p"].loose
        assert [*scene.table_problems()] == []
        scene.ends("s", client)
    assert count_sent(scene) == {}
