"""Broker processes one rule at a time: links, sessions, limits, trust, statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distributary.content import COVERING_POLICIES
from distributary.content.connections import Packet
from distributary.content.events import ContentEvent
from distributary.content.handshake import fingerprint, judge_hello, judge_welcome
from distributary.content.host import BrokerHost
from distributary.content.messages import (
    AdvertiseStatement,
    Barrier,
    Name,
    Packed,
    Probe,
    Publication,
    SubscribeStatement,
)
from distributary.content.protocol import (
    Accepted,
    Advertise,
    Cut,
    Hello,
    Identity,
    LinkFact,
    OpenSession,
    Peer,
    Publish,
    Refusal,
    Refused,
    SendFrame,
    SessionOpened,
    Status,
    Stored,
    Subscribe,
    Welcome,
)
from distributary.content.resync import HeardDigests, Known, ToldBuckets
from distributary.content.spanning import Spanning
from distributary.machines.actions import Save
from distributary.model import Attribute, AttributeKind, Filter, Schema
from tests.content.applications import Application
from tests.content.processes import SMALL, Network
from tests.content.worlds import SCHEMA

ALL = (0, 6)


def network(*links: tuple[str, str], seed: int = 0, **words: Any) -> Network:
    found = Network(COVERING_POLICIES["merging"], [*links], np.random.default_rng(seed), **words)
    found.run(5.0)
    return found


def got(application: Application) -> list[tuple[str, int]]:
    (sub,) = application.subs.values()
    return sub.got


# --- links ----------------------------------------------------------------------------------------


def test_a_link_that_would_close_a_cycle_is_refused_with_the_way_in_words() -> None:
    world = network(("a", "b"), ("b", "c"))
    world.link("c", "a")
    world.run(5.0)
    (reason,) = {reason for _, _, reason in world.refusals}
    assert "a - b - c" in reason
    assert world.processes["a"].host.spanning.links == [("a", "b"), ("b", "c")]


def test_both_ends_judge_a_link_alike() -> None:
    world = network(("a", "b"), ("b", "c"))
    hosts = {name: process.host for name, process in world.processes.items()}
    mine = hosts["c"].identity
    hello = Hello("broker", "c", mine.versions, mine.schema, mine.incarnation, mine.links)
    assert isinstance(hosts["a"].judge(hello), Refusal)
    his = hosts["a"].identity
    welcome = Welcome("a", 1, his.schema, his.incarnation, (), his.links)
    assert isinstance(hosts["c"].judge_welcome(welcome, "a"), Refusal)


@pytest.mark.parametrize("seed", range(40))
def test_of_two_links_that_close_a_cycle_at_once_all_give_up_the_same(seed: int) -> None:
    world = network(("a", "b"), ("c", "d"), seed=seed)
    ann, bob = world.add_application("ann", "a"), world.add_application("bob", "d")
    world.run(2.0)
    ann.subscribe(ALL, ALL)
    world.link("a", "c")
    world.link("b", "d")
    world.run(20.0)
    kept = {tuple(process.host.spanning.links) for process in world.processes.values()}
    assert len(kept) == 1
    (links,) = kept
    assert len(links) == 3
    assert {("a", "b"), ("c", "d")} <= set(links)
    for _ in range(3):
        bob.publish(1, 1)
    world.run(20.0)
    assert got(ann) == [("bob", 0), ("bob", 1), ("bob", 2)]


def test_a_link_that_both_ends_configure_is_one_link() -> None:
    world = network(("a", "b"))
    world.link("b", "a")
    ann, bob = world.add_application("ann", "a"), world.add_application("bob", "b")
    world.run(5.0)
    ann.subscribe(ALL, ALL)
    world.run(5.0)
    bob.publish(1, 1)
    world.run(5.0)
    assert got(ann) == [("bob", 0)]
    assert world.processes["a"].host.spanning.links == [("a", "b")]


def test_a_broker_joins_a_running_network_and_leaves_it_for_good() -> None:
    world = network(("a", "b"))
    ann, bob = world.add_application("ann", "a"), world.add_application("bob", "b")
    world.run(2.0)
    ann.subscribe(ALL, ALL)
    world.run(2.0)
    world.start("c")
    world.link("c", "b")
    world.run(5.0)
    carl = world.add_application("carl", "c")
    world.run(2.0)
    carl.publish(2, 2)
    world.run(5.0)
    assert got(ann) == [("carl", 0)]
    carl.subscribe(ALL, ALL)
    world.run(5.0)
    world.crash("c")
    del world.links["c", "b"]
    bob.publish(3, 3)
    world.run(5.0)
    host = world.processes["b"].host
    assert host.statistics().kept_events == 1
    world.processes["b"].call(host.remove_link, "c")
    world.run(5.0)
    statistics = host.statistics()
    assert (statistics.kept_events, statistics.kept_dropped) == (0, 1)
    assert statistics.network == (("a", "b"),)
    assert world.processes["a"].host.statistics().network == (("a", "b"),)
    assert [link.neighbour for link in statistics.links] == ["a"]
    assert got(ann) == [("carl", 0), ("bob", 0)]


def test_the_latest_link_of_a_cycle_is_the_surplus_one() -> None:
    facts = [
        LinkFact("a", "b", 1, True),
        LinkFact("b", "c", 2, True),
        LinkFact("c", "d", 2, True),
        LinkFact("a", "d", 2, True),
    ]
    for name in "abcd":
        for order in (facts, facts[::-1]):
            found = Spanning(name, order).find_surplus()
            assert found == (("c", "d"), ["c", "b", "a", "d"])


def test_newer_facts_win_in_any_order() -> None:
    old, new = LinkFact("a", "b", 1, True), LinkFact("a", "b", 2, False)
    for order in ([old, new], [new, old]):
        spanning = Spanning("a", order)
        assert spanning.links == []
        assert spanning.facts == (new,)


# --- handshake ------------------------------------------------------------------------------------

MINE = Identity("broker", "a", 1, fingerprint(SCHEMA))
HELLO = Hello("broker", "b", (1, 1), MINE.schema, 1)


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (replace(HELLO, versions=(2, 5)), "wire versions 2 to 5"),
        (replace(HELLO, versions=(1, 0)), "wire versions"),
        (replace(HELLO, schema="x" * 32), "the same schema file"),
        (replace(HELLO, schema=""), "the same schema file"),
        (replace(HELLO, name="a"), "name of its own"),
        (replace(HELLO, name=""), "printable"),
        (replace(HELLO, name="b\n"), "printable"),
        (replace(HELLO, incarnation=0), "counts from 1"),
        (replace(HELLO, role="king"), "role"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused_in_words(hello: Hello, words: str) -> None:
    answer = judge_hello(hello, MINE, SCHEMA)
    assert isinstance(answer, Refusal)
    assert words in answer.reason


@pytest.mark.parametrize(
    ("hello", "is_final"),
    [
        (replace(HELLO, versions=(2, 5)), False),
        (replace(HELLO, schema="x" * 32), False),
        (replace(HELLO, name="a"), True),
        (replace(HELLO, role="client", name="eve"), True),
    ],
)
def test_a_wrong_name_is_refused_for_good_and_what_an_upgrade_mends_for_now(
    hello: Hello, is_final: bool
) -> None:
    answer = judge_hello(hello, MINE, SCHEMA, proven="b" if hello.role == "client" else None)
    assert isinstance(answer, Refusal)
    assert answer.is_final is is_final


def test_wire_versions_negotiate_the_newest_in_common() -> None:
    newer = replace(MINE, versions=(1, 3))
    answer = judge_hello(replace(HELLO, versions=(2, 9)), newer, SCHEMA)
    assert isinstance(answer, Welcome)
    assert answer.version == 3
    assert judge_welcome(answer, replace(MINE, name="b"), expected="a") is not None
    assert judge_welcome(answer, replace(newer, name="b"), expected="a") is None
    assert judge_welcome(answer, replace(newer, name="b"), expected="z") is not None


def test_a_proven_name_is_the_only_one_that_may_be_used() -> None:
    assert isinstance(judge_hello(HELLO, MINE, SCHEMA, proven="b"), Welcome)
    assert isinstance(judge_hello(HELLO, MINE, SCHEMA, proven="c"), Refusal)


def test_everything_that_gives_keys_a_meaning_is_in_the_fingerprint() -> None:
    first = Attribute("x", AttributeKind.DECIMAL, scale=2)
    schemas = [
        Schema((first,)),
        Schema((replace(first, name="y"),)),
        Schema((replace(first, scale=3),)),
        Schema((replace(first, kind=AttributeKind.INTEGER),)),
        Schema((replace(first, domain=frozenset({1})),)),
        Schema((first, replace(first, name="y"))),
        Schema((replace(first, name="y"), first)),
    ]
    assert len({fingerprint(each) for each in schemas}) == len(schemas)


def test_an_old_copy_of_a_brokers_state_is_refused() -> None:
    world = network(("a", "b"))
    world.crash("b")
    world.start("b")
    world.run(5.0)
    host = world.processes["a"].host
    mine = world.processes["b"].host.identity
    answer = host.judge(Hello("broker", "b", mine.versions, mine.schema, 1, mine.links))
    assert isinstance(answer, Refusal)
    assert "old copy" in answer.reason


# --- sessions -------------------------------------------------------------------------------------


def alone(**words: Any) -> Network:
    found = network(params=replace(SMALL, **words))
    found.start("a")
    return found


@pytest.mark.parametrize("restarts", [False, True])
def test_an_absent_clients_session_ends_after_its_lease(restarts: bool) -> None:
    world = alone()
    ann = world.add_application("ann", "a", lease=50.0)
    world.run(2.0)
    ann.subscribe(ALL, ALL)
    world.run(2.0)
    ann.go_away()
    world.run(40.0)
    if restarts:
        world.crash("a")
        world.start("a")
    world.run(8.0)
    assert world.processes["a"].host.statistics().sizes["sessions"] == 1
    world.run(5.0)
    statistics = world.processes["a"].host.statistics()
    assert (statistics.sizes["sessions"], statistics.subscriptions) == (0, 0)
    assert world.saved["a"] == {}


def test_a_client_that_is_there_keeps_its_session() -> None:
    world = alone()
    world.add_application("ann", "a", lease=50.0)
    world.run(200.0)
    assert world.processes["a"].host.statistics().sizes["sessions"] == 1


def test_an_ephemeral_session_saves_nothing_and_ends_with_its_connection() -> None:
    world = alone()
    ann = world.add_application("ann", "a", ephemeral=True)
    world.run(2.0)
    ann.subscribe(ALL, ALL)
    world.run(2.0)
    assert world.saved["a"] == {}
    ann.go_away()
    world.run(2.0)
    assert world.processes["a"].host.statistics().subscriptions == 0


def test_a_client_that_wants_to_be_disconnected_is_when_its_outbox_is_full() -> None:
    world = alone()
    ann = world.add_application("ann", "a", when_full="disconnect", most_events=3)
    bob = world.add_application("bob", "a")
    world.run(2.0)
    ann.subscribe(ALL, ALL)
    ann.pause = 1_000.0
    world.run(2.0)
    for _ in range(6):
        bob.publish(1, 1)
    world.run(5.0)
    assert ann.process.has_ended
    assert not bob.tickets
    assert world.processes["a"].host.statistics().sizes["sessions"] == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_publishers_wait_for_an_absent_client_for_a_while_and_it_learns_what_it_missed(
    restarts: bool,
) -> None:
    world = alone(patience=60.0)
    ann = world.add_application("ann", "a", most_events=3)
    bob = world.add_application("bob", "a")
    world.run(2.0)
    ann.subscribe(ALL, ALL)
    ann.may_lose = True
    world.run(2.0)
    ann.go_away()
    for _ in range(40):
        bob.publish(1, 1)
    world.run(50.0)
    assert sum(pub.state == "under way" for pub in bob.pubs) > 20
    if restarts:  # it remembers since when the client is away
        world.crash("a")
        world.start("a")
        world.run(5.0)
        assert sum(pub.state == "under way" for pub in bob.pubs) > 20
    world.run(30.0)
    assert {pub.state for pub in bob.pubs} == {"stored"}
    ann.come_back()
    world.run(5.0)
    (sub,) = ann.subs.values()
    assert [number for _, number in sub.got] == [37, 38, 39]
    assert len(sub.lost) == 37


def test_publishers_wait_again_for_a_client_that_is_back() -> None:
    world = alone(patience=60.0)
    ann = world.add_application("ann", "a", most_events=3)
    bob = world.add_application("bob", "a")
    world.run(2.0)
    ann.subscribe(ALL, ALL)
    world.run(2.0)
    ann.go_away()
    world.run(100.0)
    ann.come_back()
    ann.pause = 5.0
    world.run(5.0)
    for _ in range(40):
        bob.publish(1, 1)
    world.run(20.0)
    assert sum(pub.state == "under way" for pub in bob.pubs) > 10
    ann.pause = 0.0
    world.run(60.0)
    assert [number for _, number in got(ann)] == list(range(40))


def test_the_newest_connection_of_a_client_takes_its_session_over() -> None:
    host = BrokerHost("a", SCHEMA, COVERING_POLICIES["merging"])
    host.start(0.0)
    for connection in (1, 2):
        host.on_open(Peer(connection, "client", "ann"), 0.0)
    host.on_message(1, OpenSession(), 0.0)
    actions = host.on_message(2, OpenSession(), 1.0)
    assert [each.connection for each in actions if isinstance(each, Cut)] == [1]
    (opened,) = sent(actions, SessionOpened)
    assert opened.resumed
    assert host.on_message(1, Subscribe(1, "x = 1"), 2.0) == []
    assert host.statistics().violations == 0


def test_a_client_that_is_back_learns_how_many_events_wait() -> None:
    host = BrokerHost("a", SCHEMA, COVERING_POLICIES["merging"])
    host.start(0.0)
    for connection, name in enumerate(("ann", "bob"), start=1):
        host.on_open(Peer(connection, "client", name), 0.0)
        host.on_message(connection, OpenSession(most_events=3), 0.0)
    host.on_message(1, Subscribe(1, "x = 1"), 0.0)
    host.on_close(1, 1.0)
    for number in range(1, 6):
        host.on_message(2, Publish(number, {"x": 1, "y": 1}), 2.0)
    host.on_open(Peer(3, "client", "ann"), 3.0)
    (opened,) = sent(host.on_message(3, OpenSession(), 3.0), SessionOpened)
    assert (opened.resumed, opened.waiting) == (True, 5)


def test_an_advertisement_that_ends_early_survives_a_crash_with_its_publications() -> None:
    world = network(("a", "b"))
    ann, bob = world.add_application("ann", "b"), world.add_application("bob", "a")
    world.run(2.0)
    ann.subscribe(ALL, ALL)
    bob.advertise()
    world.run(5.0)
    world.crash("b")
    world.run(1.0)
    bob.publish(1, 1)
    world.run(2.0)
    bob.advertise()  # takes it back
    world.run(2.0)
    assert any(key[0] == "ending" for key in world.saved["a"])  # type: ignore[index]
    world.crash("a")
    world.start("a")
    world.run(5.0)
    assert world.processes["a"].host.statistics().advertisements == 1
    world.start("b")
    world.run(10.0)
    assert got(ann) == [("bob", 0)]
    assert world.processes["a"].host.statistics().advertisements == 0
    assert not any(key[0] == "ending" for key in world.saved["a"])  # type: ignore[index]


# --- limits ---------------------------------------------------------------------------------------


def test_publishers_are_refused_while_too_much_is_kept_for_a_broker_that_is_away() -> None:
    world = network(("a", "b"))
    ann, bob = world.add_application("ann", "b"), world.add_application("bob", "a")
    world.run(2.0)
    ann.subscribe(ALL, ALL)
    world.run(5.0)
    world.crash("b")
    world.run(2.0)
    for _ in range(20):
        bob.publish(1, 1)
    world.run(10.0)
    states = [pub.state for pub in bob.pubs]
    assert states == ["stored"] * 12 + ["refused"] * 8
    world.start("b")
    world.run(10.0)
    assert [number for _, number in got(ann)] == list(range(12))


def test_publishers_wait_while_a_client_is_slow_and_lose_nothing() -> None:
    world = network(("a", "b"))
    ann = world.add_application("ann", "b", most_events=2)
    bob = world.add_application("bob", "a")
    world.run(2.0)
    ann.subscribe(ALL, ALL)
    ann.pause = 5.0
    world.run(5.0)
    for _ in range(60):
        bob.publish(1, 1)
    world.run(10.0)
    assert {pub.state for pub in bob.pubs} == {"stored", "under way"}
    assert sum(pub.state == "stored" for pub in bob.pubs) < 30
    ann.pause = 0.0
    world.run(60.0)
    assert {pub.state for pub in bob.pubs} == {"stored"}
    assert [number for _, number in got(ann)] == list(range(60))


def test_a_client_may_not_have_more_than_its_share() -> None:
    host = one_client(replace(SMALL, subscriptions=1, advertisements=1, payload=3))
    assert [*sent(host.on_message(1, Subscribe(1, "x = 1"), 1.0), Refused)] == []
    (refused,) = sent(host.on_message(1, Subscribe(2, "x = 1"), 1.0), Refused)
    assert "the most it may have" in refused.reason
    (refused,) = sent(host.on_message(1, Publish(1, {"x": 1}, b"long"), 1.0), Refused)
    assert "4 bytes" in refused.reason


# --- trust ----------------------------------------------------------------------------------------


def one_client(params: Any = SMALL) -> BrokerHost:
    host = BrokerHost("a", SCHEMA, COVERING_POLICIES["merging"], params=params)
    host.start(0.0)
    host.on_open(Peer(1, "client", "ann"), 0.0)
    host.on_message(1, OpenSession(), 0.0)
    return host


def sent(actions: list[Any], kind: type) -> list[Any]:
    return [
        each.message
        for each in actions
        if isinstance(each, SendFrame) and isinstance(each.message, kind)
    ]


@pytest.mark.parametrize(
    "message",
    [Publish(2, {"x": 1}), Publish(9, {}), OpenSession(), Packet(1, 1), Probe(1), 5, None, b"x"],
    ids=str,
)
def test_a_client_that_breaks_a_rule_is_cut_off_and_counted(message: Any) -> None:
    host = one_client()
    actions = host.on_message(1, message, 1.0)
    assert [each.connection for each in actions if isinstance(each, Cut)] == [1]
    assert host.statistics().violations == 1
    assert host.on_message(1, Subscribe(1, "x = 1"), 1.0) == []


def test_a_session_that_is_resumed_is_kept_as_it_is_asked_for_now() -> None:
    host = one_client()
    asked = OpenSession(lease=5.0, when_full="drop-oldest", most_events=3)
    host.on_close(1, 1.0)
    host.on_open(Peer(2, "client", "ann"), 2.0)
    saves = [each for each in host.on_message(2, asked, 2.0) if isinstance(each, Save)]
    host.on_message(2, Subscribe(1, "x = 1"), 2.0)
    session = host.sessions.get("ann")
    assert session is not None
    assert (session.record.lease, session.record.when_full) == (5.0, "drop-oldest")
    assert Save(("session", "ann"), session.record) in saves
    assert Save(("absent", "ann"), 8.0) in host.on_close(2, 3.0)
    host.on_open(Peer(3, "client", "bob"), 3.0)
    host.on_message(3, OpenSession(), 3.0)
    for number in range(1, 6):
        host.on_message(3, Publish(number, {"x": 1}), 3.0)
    assert (len(session.outbox), session.outbox.dropped) == (3, 2)


def test_an_advertisement_replaces_the_one_that_the_broker_made_by_itself() -> None:
    host = one_client()
    (stored,) = sent(host.on_message(1, Publish(1, {"x": 9}), 1.0), Stored)
    assert stored.published == 1
    host.on_message(1, Advertise(1, "x < 3"), 1.0)
    (refused,) = sent(host.on_message(1, Publish(2, {"x": 9}), 1.0), Refused)
    assert "matches no advertisement" in refused.reason
    assert not [*sent(host.on_message(1, Publish(3, {"x": 1}), 1.0), Refused)]


def test_of_two_connections_of_a_client_the_newer_one_wins_whichever_asks_first() -> None:
    for first, second in ((2, 3), (3, 2)):
        host = one_client()
        for connection in (2, 3):
            host.on_open(Peer(connection, "client", "ann"), 1.0)
        host.on_message(first, OpenSession(), 1.0)
        actions = host.on_message(second, OpenSession(), 1.0)
        assert [each.connection for each in actions if isinstance(each, Cut)] == [2]
        assert host.on_message(2, Subscribe(1, "x = 1"), 1.0) == []
        assert [*sent(host.on_message(3, Subscribe(1, "x = 1"), 1.0), Accepted)]


def test_a_client_without_room_is_cut_off_if_it_publishes_on() -> None:
    host = one_client()
    for number in range(1, 4):
        (stored,) = sent(host.on_message(1, Publish(number, {"x": 1}), 1.0), Stored)
    assert stored.window == SMALL.publications
    assert [*sent(host.on_message(1, Publish(4, {"x": 1}), 1.0), Stored)]


FOREIGN = (
    SubscribeStatement(Name("a", 5), Filter.everything(SCHEMA)),
    AdvertiseStatement(Name("c", 5), Filter.everything(SCHEMA)),
)


@pytest.mark.parametrize(
    "inside",
    [
        *FOREIGN,
        Packed(FOREIGN),
        ToldBuckets(
            (1, 2), Known({Name("c", 5): FOREIGN[1].filter}, {Name("a", 5): FOREIGN[0].filter})
        ),
        Publication(ContentEvent(1, (1, 1), 0.0), Name("c", 5), 7),
        Barrier(Name("a", 5)),
    ],
    ids=str,
)
def test_what_a_broker_says_for_others_is_ignored_and_counted(inside: Any) -> None:
    world = network(("a", "b"), ("a", "c"))
    host = world.processes["a"].host
    host.on_open(Peer(99, "broker", "z", 1), world.clock.now)
    host.on_message(99, Packet(1, 1), world.clock.now)
    before = host.broker.core.collect_received("z")
    host.on_message(99, Packet(1, 1, first=1, messages=(inside,)), world.clock.now)
    assert host.statistics().reasons == {"speaks for others": 1}
    assert host.broker.core.collect_received("z") == before
    assert host.broker.sizes["barriers"] == host.broker.sizes["unfinished"] == 0


@pytest.mark.parametrize(
    "packet",
    [
        Packet(1, 1, first=1, messages=(HeardDigests((1, 2, 3)),)),
        Packet(1, 1, first=1, messages=(ToldBuckets((64,), Known({}, {})),)),
        Packet(2, 1),
        Packet(1, -1),
        Packet(1, 1, first=0, messages=(Probe(1),)),
    ],
    ids=str,
)
def test_a_broker_that_breaks_a_rule_is_cut_off(packet: Packet) -> None:
    world = network(("a", "b"))
    host = world.processes["a"].host
    host.on_open(Peer(99, "broker", "z", 1), world.clock.now)
    actions = host.on_message(99, packet, world.clock.now)
    assert [each.connection for each in actions if isinstance(each, Cut)] == [99]
    assert host.statistics().violations == 1
    assert "z" not in host.connected


# --- statistics -----------------------------------------------------------------------------------


def test_statistics_count_what_happened_on_each_link_and_for_each_client() -> None:
    world = network(("a", "b"), ("b", "c"))
    ann, bob = world.add_application("ann", "c"), world.add_application("bob", "a")
    world.run(2.0)
    ann.subscribe((0, 3), ALL)
    world.run(5.0)
    for x in range(6):
        bob.publish(x, 1)
        world.run(3.0)
    a, b, c = (world.processes[name].host.statistics() for name in "abc")
    assert (a.accepted, a.matched, c.matched, c.acknowledged) == (6, 0, 3, 3)
    assert a.network == b.network == (("a", "b"), ("b", "c"))
    (link,) = a.links
    assert (link.neighbour, link.brokers) == ("b", ("b", "c"))
    assert (link.forwarded, link.unneeded) == (3, 0)
    assert link.unfinished == link.waiting == 0
    (client,) = c.clients
    assert (client.client, client.delivered, client.outbox) == ("ann", 3, 0)
    assert (client.subscriptions, client.connected) == (1, True)
    (client,) = a.clients
    assert (client.published, client.advertisements) == (6, 1)
    assert Status(a.as_mapping()).status["links"][0]["brokers"] == ["b", "c"]


def test_every_forward_that_nobody_wanted_is_counted() -> None:
    world = network(("a", "b"))
    bob = world.add_application("bob", "a")
    world.run(2.0)
    bob.publish(1, 1)  # nobody knows yet that nobody wants it
    world.run(5.0)
    bob.publish(1, 1)
    world.run(5.0)
    a, b = (world.processes[name].host.statistics() for name in "ab")
    assert (a.forwarded, b.unneeded, b.links[0].unneeded, b.links[0].received) == (1, 1, 1, 1)
