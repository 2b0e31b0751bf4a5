"""Fifteen places where a naive reading of selective pruning loses, leaks or miscounts.

Each scene is played twice: with our broker, and with one that reads the paper naively in just this
place. The same question is asked of both, and the naive one must give the wrong answer: so each
test can fail.

Reference: Chen et al. (2011), sections III to V.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from distributary.content import (
    COVERING_POLICIES,
    AdvertiseRequest,
    ContentBroker,
    Covering,
    Detach,
    Pacing,
    Pruning,
    SubscribeRequest,
    UnsubscribeRequest,
)
from distributary.content.history import History, Seen, find_prune_distance
from distributary.content.messages import (
    Echo,
    Name,
    Probe,
    SubscribeStatement,
    UnsubscribeStatement,
)
from distributary.machines.virtual import Link, VirtualNetwork
from distributary.model import Filter
from tests.content import naive
from tests.content.faults import BadWorld
from tests.content.test_broker import ACTIVE, ALL, Broker, Delays, Scene, Tape, chain
from tests.content.worlds import Pair, World, box

LAZY = COVERING_POLICIES["lazy"]
PACING = Pacing(pause=0.5)
PRUNING = Covering("pruning", prunes=Pruning(few=0), pacing=PACING)
UNSWEPT = Covering("pruning", prunes=Pruning(few=0), sweeps=False)

WIDE, NARROW = box((0, 90)), box((10, 20))
IN_NARROW, IN_WIDE, IN_ALL = (15, 0), (50, 0), (95, 0)
# Many of which none covers another, and an event that all of them want.
INTERVALS = [box((at, at + 40)) for at in range(30)]
IN_INTERVALS = (35, 0)

S = Name("s", 1)  # the first subscription at broker s
ROW = chain("p", "b", "a", "s")


def star(*names: str) -> dict[tuple[str, str], float]:
    """Brokers around m."""
    return {("m", name): 0.01 for name in names}


# --- 1: what replaces comes first -----------------------------------------------------------------


def count_lost_while_replaced(world: World) -> int:
    """How many events somebody lacks while one that hides its subscription comes and goes."""
    for broker, message in (
        ("p", AdvertiseRequest("pub", 1, ALL)),
        ("s", SubscribeRequest("narrow", 1, NARROW)),
    ):
        world.say(broker, message)
        world.run()
    for at in range(5):
        world.say("s", SubscribeRequest("wide", 1, WIDE), after=at)
        world.say("s", UnsubscribeRequest("wide", 1), after=at + 0.5)
    events = [world.publish("p", "pub", 1, IN_NARROW, after=at / 100) for at in range(600)]
    world.run()
    return sum("narrow" not in world.got(event) for event in events)


def test_trap_1_what_replaces_a_subscription_is_said_before_it_is_taken_back() -> None:
    delays = chain("p", "m", "s", delay=0.1)
    assert count_lost_while_replaced(Scene(ContentBroker, delays)) == 0
    assert count_lost_while_replaced(Scene(naive.RemovesFirst, delays)) > 0


def out_of_order(world: World) -> World:
    """The same world with links on which messages overtake each other."""
    links = {
        pair: Link(delay, jitter=4 * delay, reorders=True)
        for (a, b), delay in world.delays.items()
        for pair in ((a, b), (b, a))
    }
    world.simulation.network = VirtualNetwork(links, np.random.default_rng(1))
    return world


def test_trap_1_links_must_keep_the_order_and_connections_make_them() -> None:
    delays = chain("p", "m", "s", delay=0.1)
    durable = BadWorld(ACTIVE, delays, np.random.default_rng(0))
    assert count_lost_while_replaced(out_of_order(durable)) == 0
    assert count_lost_while_replaced(out_of_order(Scene(ContentBroker, delays))) > 0


# --- 2 to 6: covering -----------------------------------------------------------------------------


def got_though_covered_elsewhere(broker: Broker) -> list[str]:
    """What covers it came from the publisher's side, and was sent to the other."""
    scene = Scene(broker, chain("p", "m", "s"))
    scene.promises("p", "pub", 1)
    scene.promises("s", "far", 1)
    scene.wants("p", wide=WIDE)
    scene.wants("m", narrow=NARROW)
    return scene.gets(IN_NARROW)


def test_trap_2_covered_is_what_was_sent_on_that_link() -> None:
    assert got_though_covered_elsewhere(ContentBroker) == ["narrow", "wide"]
    assert got_though_covered_elsewhere(naive.CoversByTable) == ["wide"]


def got_on_both_branches(broker: Broker) -> list[str]:
    scene = Scene(broker, star("a", "b", "p"))
    scene.promises("p", "pub", 1)
    scene.wants("a", narrow=NARROW)
    scene.wants("b", wide=WIDE)
    return scene.gets(IN_NARROW)


def test_trap_3_a_covered_subscription_of_another_hop_stays_in_the_table() -> None:
    assert got_on_both_branches(ContentBroker) == ["narrow", "wide"]
    assert got_on_both_branches(naive.DeletesCovered) == ["wide"]


def got_by_equals(broker: Broker) -> list[str]:
    scene = Scene(broker, chain("p", "s"))
    scene.promises("p", "pub", 1)
    scene.wants("s", wide=WIDE, one=NARROW, two=NARROW)
    scene.ends("s", "wide")
    return scene.gets(IN_NARROW)


def test_trap_4_of_equal_new_roots_one_is_said() -> None:
    assert got_by_equals(ContentBroker) == ["one", "two"]
    assert got_by_equals(naive.EqualsCancel) == []


def got_by_the_early(broker: Broker) -> list[str]:
    scene = Scene(broker, chain("p", "m", "s"))
    scene.wants("s", early=NARROW)
    scene.promises("p", "pub", 1)
    return scene.gets(IN_NARROW)


def test_trap_5_a_new_advertisement_pulls_subscriptions_that_are_there() -> None:
    assert got_by_the_early(ContentBroker) == ["early"]
    assert got_by_the_early(naive.DoesNotPull) == []


def got_after_two_covers(broker: Broker) -> list[str]:
    """Hidden by an earlier one, then also by a later one; the earlier ends first."""
    scene = Scene(broker, chain("p", "s"), LAZY)
    scene.promises("p", "pub", 1)
    scene.wants("s", before=box((0, 50)), narrow=NARROW, after=box((5, 80)))
    scene.ends("s", "before", "after")
    return scene.gets(IN_NARROW)


def test_trap_6_lazy_covering_says_also_what_came_before_its_cover() -> None:
    assert got_after_two_covers(ContentBroker) == ["narrow"]
    assert got_after_two_covers(naive.OnlyLaterOnes) == []


# --- 7: names -------------------------------------------------------------------------------------


def got_after_subscribing_again(broker: Broker) -> list[str]:
    scene = Scene(broker, chain("p", "s"))
    scene.promises("p", "pub", 1)
    scene.wants("s", c=NARROW)
    scene.wants("s", c=WIDE)
    return scene.gets(IN_WIDE)


def test_trap_7_who_subscribes_again_gets_a_new_name() -> None:
    assert got_after_subscribing_again(ContentBroker) == ["c"]
    assert got_after_subscribing_again(naive.ReusesNames) == []


def got_after_a_move(broker: Broker) -> list[str]:
    scene = Scene(broker, star("a", "b", "p"))
    scene.promises("p", "pub", 1)
    scene.wants("a", c=NARROW)
    scene.wants("b", c=NARROW)
    scene.say("a", Detach("c"))
    scene.run()
    return scene.gets(IN_NARROW)


@pytest.mark.parametrize("wrong", [naive.ReusesNames, naive.KeepsNameWhereverItIs])
def test_trap_7_who_moves_gets_a_new_name(wrong: Broker) -> None:
    assert got_after_a_move(ContentBroker) == ["c"]
    assert got_after_a_move(wrong) == []


def got_after_a_stray_message(broker: Broker) -> list[str]:
    """A neighbour takes back what it never brought."""
    scene = Scene(broker, star("a", "b", "p"))
    scene.promises("p", "pub", 1)
    scene.wants("a", c=NARROW)
    stray = UnsubscribeStatement(Name("a", 1))
    scene.simulation.post(scene.simulation.clock.now, "m", stray, sender="b")
    scene.run()
    return scene.gets(IN_NARROW)


def test_trap_7_only_the_last_hop_takes_a_subscription_back() -> None:
    assert got_after_a_stray_message(ContentBroker) == ["c"]
    assert got_after_a_stray_message(naive.BelievesAnyHop) == []


# --- 8 to 13: how far an unsubscription goes ------------------------------------------------------


def with_s(
    broker: Broker,
    delays: Delays = ROW,
    policy: Covering = PRUNING,
    others: Sequence[Filter] = INTERVALS,
) -> Scene:
    """A publisher at p, one who wants everything at s, and others on the way at b."""
    scene = Scene(broker, delays, policy)
    scene.promises("p", "pub", 1)
    scene.wants("s", S=ALL)
    scene.wants("b", **{f"other {at}": other for at, other in enumerate(others)})
    return scene


def knowing(scene: Scene) -> list[str]:
    """The brokers that have the subscription S in their tables."""
    return [name for name, broker in scene.brokers.items() if S in broker.subscriptions]


def publish(scene: Scene, n: int, keys: Pair, number: int = 1) -> None:
    for _ in range(n):
        scene.gets(keys, number=number)


def end_s(scene: Scene) -> Scene:
    """S ends, and that goes as far as it goes; remnants rest still."""
    scene.say("s", UnsubscribeRequest("S", 1))
    scene.run(0.3)
    return scene


def with_remnant(broker: Broker, others: Sequence[Filter] = (WIDE,)) -> Scene:
    """S has ended up to b, for all that it let through is wanted there."""
    scene = with_s(broker, ROW | chain("p", "z"), others=others)
    publish(scene, 10, IN_INTERVALS)
    end_s(scene)
    assert knowing(scene) == ["p"]
    return scene


def after_the_sweep(broker: Broker) -> tuple[list[str], float]:
    """Who gets what is wanted once nothing happens any more, and what travels for nothing."""
    scene = with_remnant(broker)
    scene.run()
    received = scene.gets(IN_WIDE)
    assert scene.gets(IN_ALL) == []
    return received, scene.work("b", "unwanted")


def test_trap_8_new_roots_are_said_before_a_remnant_is_taken_back() -> None:
    assert after_the_sweep(ContentBroker) == (["other 0"], 0)
    assert after_the_sweep(naive.SweepsWithoutRoots) == ([], 0)


def test_trap_8_where_an_unsubscription_stops_its_remnant_is_remembered() -> None:
    assert after_the_sweep(ContentBroker) == (["other 0"], 0)
    assert after_the_sweep(naive.Forgets) == (["other 0"], 1)


def burst(broker: Broker, few: int = 0) -> tuple[list[str], float]:
    """Who still knows S right after it ended, and what had to be said to p in its place."""
    scene = with_s(broker, policy=replace(PRUNING, prunes=Pruning(few=few)))
    publish(scene, 10, IN_INTERVALS)
    end_s(scene)
    return knowing(scene), scene.work("p", "triggered")


def test_trap_9_an_unsubscription_stops_at_the_critical_broker_not_one_beyond() -> None:
    assert burst(ContentBroker) == (["p"], 0)
    assert burst(naive.GoesOneTooFar) == ([], len(INTERVALS))


def test_trap_9_the_distance_is_the_least_that_enough_are_at_most() -> None:
    table = [6.0, 2.0, 2.0, 6.0, 7.0]  # table I
    assert [find_prune_distance(table, share) for share in (0.4, 0.8, 0.85)] == [2, 6, 7]
    assert [naive.strict_distance(table, share) for share in (0.4, 0.8, 0.85)] == [3, 7, 8]


def test_trap_10_the_count_is_of_subscriptions_not_of_brokers() -> None:
    assert burst(ContentBroker, few=20) == (["p"], 0)
    assert burst(naive.CountsBrokers, few=20) == ([], len(INTERVALS))


def header(broker: Broker, keys: Pair) -> tuple[float, int]:
    """Distance and count with which an event comes to s: p sends to b, b to a, a to s."""
    scene = with_s(broker)
    scene.gets(keys)
    return scene.header_for("S")


def test_traps_10_and_11_the_header_has_all_others_and_the_hops_since_the_last() -> None:
    assert header(ContentBroker, IN_INTERVALS) == (1, len(INTERVALS))
    assert header(naive.CountsBrokers, IN_INTERVALS) == (1, 1)
    assert header(ContentBroker, IN_ALL) == (inf, 0)
    assert header(naive.CountsFromPublisher, IN_ALL) == (2, 0)


def find_left_beyond_the_publisher(broker: Broker) -> tuple[list[str], float]:
    """Nobody else wants most of it: who knows S in the end, and what travels for nothing."""
    scene = with_s(broker, chain("q", "p", "b", "a", "s"), UNSWEPT)
    scene.promises("q", "far", 1)
    publish(scene, 9, IN_ALL)
    publish(scene, 1, IN_INTERVALS)
    end_s(scene).run()
    assert scene.gets(IN_ALL, at="q", client="far") == []
    return knowing(scene), scene.work("p", "unwanted")


def test_trap_11_where_nobody_else_is_interested_the_distance_has_no_end() -> None:
    assert find_left_beyond_the_publisher(ContentBroker) == ([], 0)
    assert find_left_beyond_the_publisher(naive.CountsFromPublisher) == (["q"], 1)


def find_left_where_nothing_was_heard(broker: Broker) -> tuple[list[str], float]:
    """On one side of s there are publications, on the other only a promise."""
    scene = with_s(broker, chain("p", "b", "s", "q"), UNSWEPT)
    scene.promises("q", "silent", 1)
    publish(scene, 10, IN_INTERVALS)
    end_s(scene).run()
    assert scene.gets(IN_ALL, at="q", client="silent") == []
    return knowing(scene), scene.work("s", "unwanted")


def test_trap_11_a_branch_without_history_is_cleaned() -> None:
    assert find_left_where_nothing_was_heard(ContentBroker) == (["p"], 0)
    assert find_left_where_nothing_was_heard(naive.ListsOnlyTheHeard) == (["p", "q"], 1)


def burst_with_few_samples(broker: Broker) -> tuple[list[str], float]:
    """Four promises, five events of each, one of the twenty wanted by nobody else."""
    scene = with_s(broker)
    scene.promises("p", "pub", 2, 3, 4)
    for number in (1, 2, 3, 4):
        publish(scene, 4, IN_INTERVALS, number)
        publish(scene, 1, IN_ALL if number == 4 else IN_INTERVALS, number)
    end_s(scene)
    return knowing(scene), scene.work("p", "triggered")


def test_trap_12_the_samples_of_a_link_are_taken_together() -> None:
    assert burst_with_few_samples(ContentBroker) == (["p"], 0)
    assert burst_with_few_samples(naive.JudgesEachAlone) == ([], len(INTERVALS))


def test_trap_12_links_are_judged_apart() -> None:
    one, two, other = Name("p", 1), Name("p", 2), Name("q", 1)
    for kind, expected in ((History, 2), (naive.JudgesEachAlone.Memory, inf)):
        history = kind(Pruning(few=0))
        for distance in (2, 2, 2, 2, inf):
            history.note(S, Seen(one, 2, 5))
            history.note(S, Seen(two, distance, 5))
        history.note(S, Seen(other, 4, 5))
        prune = history.prune(S, {one: "a", two: "a", other: "b"})
        assert prune == ((one, 2), (two, expected), (other, 4))


def count_statements_about_the_hidden(broker: Broker) -> float:
    """How much p is told when something ends that it never knew of."""
    scene = Scene(broker, chain("p", "b", "s"), PRUNING)
    scene.promises("p", "pub", 1)
    scene.wants("b", wide=WIDE)
    scene.wants("s", S=NARROW)
    before = scene.work("p", "statement")
    scene.ends("s", "S")
    assert knowing(scene) == []
    return scene.work("p", "statement") - before


def test_trap_13_an_unsubscription_goes_only_where_the_subscription_went() -> None:
    assert count_statements_about_the_hidden(ContentBroker) == 0
    assert count_statements_about_the_hidden(naive.UnsubscribesAnyway) == 1


def find_left_for_those_at_the_publisher(broker: Broker) -> list[str]:
    """Somebody at p wants what comes from s, so all on the way know of a wish from p's side."""
    scene = with_s(broker, policy=UNSWEPT, others=())
    scene.promises("s", "far", 1)
    scene.wants("p", near=ALL)
    publish(scene, 10, IN_WIDE)
    end_s(scene).run()
    return knowing(scene)


def test_trap_13_those_behind_the_arrival_link_are_no_others() -> None:
    assert find_left_for_those_at_the_publisher(ContentBroker) == []
    assert find_left_for_those_at_the_publisher(naive.CountsArrivalLink) == ["a", "b", "p"]


# --- 14 and 15: remnants --------------------------------------------------------------------------


def beside_a_remnant(broker: Broker) -> list[tuple[float, int]]:
    """The headers that another neighbour of p gets: with the remnant, and in the end."""
    scene = with_remnant(broker)
    scene.say("z", SubscribeRequest("Z", 1, ALL))
    scene.run(0.05)
    scene.publish("p", "pub", 1, IN_ALL)
    scene.run(0.05)
    seen = [scene.header_for("Z")]
    assert knowing(scene) == ["p"]
    assert scene.work("b", "unwanted") == 1, "it travels there anyway"
    scene.run()
    scene.gets(IN_ALL)
    return [*seen, scene.header_for("Z")]


def test_trap_14_a_remnant_counts_while_it_stands_and_the_sweep_ends_it() -> None:
    assert beside_a_remnant(ContentBroker) == [(0, 1), (inf, 0)]
    assert beside_a_remnant(naive.Forgets) == [(0, 1), (0, 1)]


SAID, REMOVED = ("p", SubscribeStatement), ("p", UnsubscribeStatement)
PROBED = [("p", Probe), ("b", Echo)]


def swept(broker: Broker, others: Sequence[Filter]) -> list[tuple[str, type]]:
    """What comes where while the remnant of S is swept, by kind and in order."""
    scene = with_remnant(broker, others)
    assert isinstance(scene.watch, Tape)
    before = len(scene.watch.came)
    scene.run()
    assert knowing(scene) == []
    return [(at, type(message)) for at, message in scene.watch.came[before:]]


def test_trap_15_sweeping_a_remnant_on_which_nothing_depends_is_free() -> None:
    others = [box((1, 101)), box((30, 40))]  # S hides the second, but the first does, too
    assert swept(ContentBroker, others) == [REMOVED, *PROBED]
    assert swept(naive.SaysAllItCovers, others) == [SAID, *PROBED, REMOVED, *PROBED]


def test_trap_15_new_roots_come_one_by_one_each_after_an_echo_and_the_removal_last() -> None:
    others = INTERVALS[:5]
    assert swept(ContentBroker, others) == [*(5 * [SAID, *PROBED]), REMOVED, *PROBED]
    assert swept(naive.SweepsAtOnce, others) == [*(5 * [SAID]), REMOVED, *PROBED]


def count_lost_while_swept(broker: Broker) -> int:
    """How many events of the next ten seconds somebody lacks, while a remnant is swept."""
    scene = with_remnant(broker, INTERVALS[:5])
    events = [scene.publish("p", "pub", 1, IN_INTERVALS, after=at / 20) for at in range(200)]
    scene.run()
    return sum(len(scene.got(event)) < 5 for event in events)


def test_trap_15_nothing_is_lost_while_a_remnant_is_swept() -> None:
    assert count_lost_while_swept(ContentBroker) == 0
    assert count_lost_while_swept(naive.SweepsWithoutRoots) > 0
