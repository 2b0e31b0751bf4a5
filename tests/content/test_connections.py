"""Connections: once and in order over any network, at least once over any number of lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.content.connections import Connection, Packet, Received, Timing
from distributary.machines import Action, Send, SetTimer
from distributary.machines.virtual import Link, Simulation
from tests.content.lossy_links import OUTSIDE, PAIR, BadNetwork, Relay, World, run_schedule

AT_ONCE = Timing(resend=1.0, longest=8.0, answer=0.0, window=8, batch=2)
LATER = Timing(resend=1.0, longest=8.0, answer=0.25, window=8, batch=2)
ALONE = Timing(resend=1.0, longest=8.0, answer=0.0, window=64, batch=1)


# By hand: two ends, and a test that is the network between them.


def packets(actions: Iterable[Action]) -> list[Packet]:
    return [action.message for action in actions if isinstance(action, Send)]


def timers(actions: Iterable[Action]) -> list[float | None]:
    return [action.at for action in actions if isinstance(action, SetTimer)]


def meet(timing: Timing) -> tuple[Connection, Connection]:
    """Two ends that know each other, at the time 0."""
    a, b = Connection("b", 1, timing), Connection("a", 1, timing)
    (hello,) = packets(a.flush(0.0))
    b.on_packet(hello, 0.0)
    (answer,) = packets(b.flush(0.0))
    a.on_packet(answer, 0.0)
    assert packets(a.flush(0.0)) == packets(b.flush(0.0)) == []
    return a, b


def carry(found: Iterable[Packet], to: Connection, now: float) -> list[tuple[int, object]]:
    """Let packets arrive; what is delivered."""
    return [message for packet in found for message in to.on_packet(packet, now).messages]


def say(connection: Connection, messages: Iterable[object], *, keep: bool = False) -> None:
    for message in messages:
        connection.send(message, keep=keep)


def settle(a: Connection, b: Connection, now: float) -> None:
    """Carry all that both ends say at one time, and do what comes at once."""
    for _ in range(1000):
        out_a, out_b = packets(a.flush(now)), packets(b.flush(now))
        if not out_a and not out_b:
            return
        for end, found in ((b, out_a), (a, out_b)):
            for number, _ in carry(found, end, now):
                end.finish(number, now)
    raise AssertionError("they never stop talking")


def test_two_ends_find_each_other_with_nothing_to_say() -> None:
    a, b = Connection("b", 3, AT_ONCE), Connection("a", 5, AT_ONCE)
    (hello,) = packets(a.flush(0.0))
    assert hello == Packet(3, 0, asks=True)
    assert b.on_packet(hello, 0.0) == Received(True, (), ())
    (answer,) = packets(b.flush(0.0))
    assert (answer.sender, answer.receiver) == (5, 3)
    assert a.on_packet(answer, 0.0) == Received(True, (), ())
    assert (a.peer_incarnation, b.peer_incarnation) == (5, 3)
    assert packets(a.flush(0.0)) == []
    assert a.idle
    assert b.idle


def test_a_hello_is_answered_again_when_the_answer_was_lost() -> None:
    a, b = Connection("b", 1, AT_ONCE), Connection("a", 1, AT_ONCE)
    carry(packets(a.flush(0.0)), b, 0.0)
    assert len(packets(b.flush(0.0))) == 1  # lost
    (hello,) = packets(a.on_timer(2.0))
    assert not b.on_packet(hello, 2.0).reset
    (answer,) = packets(b.flush(2.0))
    assert a.on_packet(answer, 2.0).reset


def test_before_the_peer_is_known_only_kept_messages_wait() -> None:
    a, b = Connection("b", 1, AT_ONCE), Connection("a", 1, AT_ONCE)
    a.send("statement", keep=False)
    say(a, ["x", "y"], keep=True)
    assert [found.messages for found in packets(a.flush(0.0))] == [()]
    assert not a.idle
    carry(packets(b.flush(0.0)), a, 0.0)
    assert a.take_kept() == ["x", "y"]
    assert a.take_kept() == []
    settle(a, b, 0.0)
    assert a.idle


def test_messages_of_one_flush_share_packets() -> None:
    a, b = meet(AT_ONCE)
    say(a, "abcde")
    found = packets(a.flush(0.0))
    assert [(packet.first, packet.messages) for packet in found] == [
        (1, ("a", "b")),
        (3, ("c", "d")),
        (5, ("e",)),
    ]
    assert carry(found, b, 0.0) == list(enumerate("abcde", 1))


def test_no_more_than_a_window_is_on_its_way() -> None:
    a, b = meet(AT_ONCE)
    say(a, range(20))
    first = packets(a.flush(0.0))
    assert sum(len(packet.messages) for packet in first) == 8
    assert packets(a.flush(0.5)) == []
    assert carry(first[:1], b, 0.5) == [(1, 0), (2, 1)]
    carry(packets(b.flush(0.5)), a, 0.5)
    assert [packet.messages for packet in packets(a.flush(0.5))] == [(8, 9)]
    assert a.backlog == 18


def test_a_packet_that_overtakes_is_held_until_its_turn() -> None:
    a, b = meet(AT_ONCE)
    say(a, range(6))
    one, two, three = packets(a.flush(0.0))
    assert carry([three, two, three], b, 0.0) == []
    assert b.duplicates == 2
    (answer,) = packets(b.flush(0.0))
    assert (answer.received, answer.held) == (0, 3)
    assert carry([one], b, 0.0) == list(enumerate(range(6), 1))
    assert carry([one, two, three], b, 0.0) == []
    assert b.duplicates == 8


@given(st.sets(st.integers(0, 29)), st.sampled_from([1, 2, 5, 7, 64]))
def test_only_what_was_lost_is_sent_again(lost: set[int], batch: int) -> None:
    """Any packets of a burst are lost, and nothing after it: each of their messages goes twice."""
    a, b = meet(Timing(resend=1.0, longest=8.0, answer=0.0, window=64, batch=batch))
    say(a, range(30))
    burst = packets(a.flush(0.0))
    arrived = [packet for at, packet in enumerate(burst) if at not in lost]
    taken = carry(arrived, b, 0.1)
    carry(packets(b.flush(0.1)), a, 0.1)
    assert packets(a.flush(0.1)) == []
    missing = sum(len(packet.messages) for at, packet in enumerate(burst) if at in lost)
    again = packets(a.on_timer(1.1))
    for _ in range(40):
        taken += carry(again, b, 1.2)
        carry(packets(b.flush(1.2)), a, 1.2)
        again = packets(a.flush(1.2))
    assert taken == list(enumerate(range(30), 1))
    assert (a.resent, b.duplicates) == (missing, 0)
    assert a.backlog == 0


def test_after_a_time_out_the_whole_gap_follows_the_first_answer() -> None:
    a, b = meet(ALONE)
    say(a, range(10))
    a.flush(0.0)  # all lost
    probe = packets(a.on_timer(1.0))
    assert [packet.messages for packet in probe] == [(0,)]
    carry(probe, b, 1.1)
    carry(packets(b.flush(1.1)), a, 1.1)
    assert [packet.first for packet in packets(a.flush(1.1))] == list(range(2, 11))
    assert packets(a.flush(1.1)) == []


def test_a_silent_peer_hears_one_packet_at_a_time() -> None:
    """The wait doubles up to the longest; what is new waits for the first answer."""
    a, b = meet(ALONE)
    say(a, "x")
    a.flush(0.0)
    times = []
    for now in range(1, 40):
        say(a, "y")
        found = packets(a.on_timer(now))
        assert [packet.messages for packet in found] in ([], [("x",)])
        times += [now] * len(found)
    assert times == [1, 3, 7, 15, 23, 31, 39]
    carry(found, b, 39.0)
    carry(packets(b.flush(39.0)), a, 39.0)
    assert [packet.messages for packet in packets(a.flush(39.0))] == [("y",)] * 39
    assert a.resent == 7


def test_a_hello_is_repeated_ever_more_rarely() -> None:
    a = Connection("b", 1, AT_ONCE)
    assert [packet.asks for packet in packets(a.flush(0.0))] == [True]
    times = [now for now in range(1, 40) if packets(a.on_timer(now))]
    assert times == [2, 6, 14, 22, 30, 38]


def test_acknowledgements_wait_to_travel_with_messages() -> None:
    a, b = meet(LATER)
    say(a, "x")
    carry(packets(a.flush(0.0)), b, 0.0)
    actions = b.flush(0.0)
    assert packets(actions) == []
    assert timers(actions) == [0.25]
    b.finish(1, 0.1)
    b.send("y", keep=False)
    (packet,) = packets(b.flush(0.1))
    assert (packet.received, packet.done, packet.messages) == (1, 1, ("y",))
    assert packets(b.on_timer(0.25)) == []


def test_acknowledgements_without_company_go_alone() -> None:
    a, b = meet(LATER)
    say(a, "x", keep=True)
    carry(packets(a.flush(0.0)), b, 0.0)
    b.flush(0.0)
    assert [packet.received for packet in packets(b.on_timer(0.25))] == [1]
    b.finish(1, 0.5)
    assert timers(b.flush(0.5)) == [0.75]
    (packet,) = packets(b.on_timer(0.75))
    assert a.on_packet(packet, 0.75).finished == ("x",)
    assert a.idle
    assert b.idle


def test_half_a_window_is_acknowledged_at_once() -> None:
    a, b = meet(LATER)
    say(a, range(8))
    found = packets(a.flush(0.0))
    carry(found[:1], b, 0.0)
    assert packets(b.flush(0.0)) == []
    carry(found[1:2], b, 0.0)
    assert [packet.received for packet in packets(b.flush(0.0))] == [4]


def test_done_is_told_up_to_the_first_that_is_not() -> None:
    a, b = meet(AT_ONCE)
    say(a, "vwxyz", keep=True)
    carry(packets(a.flush(0.0)), b, 0.0)
    finished: list[tuple[object, ...]] = []
    for number in (2, 5, 1, 4, 4, 3, 1):
        b.finish(number, 0.0)
        finished += [a.on_packet(packet, 0.0).finished for packet in packets(b.flush(0.0))]
    assert finished == [(), ("v", "w"), ("x", "y", "z")]
    assert a.idle
    assert b.idle


def test_only_what_was_delivered_can_be_done() -> None:
    a, b = meet(AT_ONCE)
    say(a, "xyz")
    carry(packets(a.flush(0.0))[1:], b, 0.0)  # the third is held, not delivered
    with pytest.raises(ValueError, match="message 3 was not delivered"):
        b.finish(3, 0.0)


def test_a_lost_word_that_all_is_done_is_asked_for() -> None:
    a, b = meet(AT_ONCE)
    say(a, "x", keep=True)
    carry(packets(a.flush(0.0)), b, 0.0)
    carry(packets(b.flush(0.0)), a, 0.0)
    a.flush(0.0)
    assert (a.backlog, a.kept) == (0, 1)
    b.finish(1, 0.5)
    assert len(packets(b.flush(0.5))) == 1  # lost
    (question,) = packets(a.on_timer(1.0))
    assert (question.asks, question.messages) == (True, ())
    b.on_packet(question, 1.0)
    (answer,) = packets(b.flush(1.0))
    assert a.on_packet(answer, 1.0).finished == ("x",)
    assert not any(packets(a.on_timer(now)) for now in (3.0, 10.0))


def test_waiting_for_long_does_not_delay_what_comes_then() -> None:
    """Kept messages that take their time are asked for ever more rarely; a loss is noticed soon."""
    a, b = meet(AT_ONCE)
    say(a, "x", keep=True)
    receive_only(a, b, 0.0)
    for now in (1.0, 3.0, 7.0, 15.0):
        assert [packet.asks for packet in packets(a.on_timer(now))] == [True]
    say(a, "y")
    actions = a.flush(15.5)
    assert len(packets(actions)) == 1  # lost
    assert timers(actions) == [16.5]
    assert [packet.messages for packet in packets(a.on_timer(16.5))] == [("y",)]


def receive_only(a: Connection, b: Connection, now: float) -> None:
    """What a says comes, and b acknowledges it, but is not done."""
    carry(packets(a.flush(now)), b, now)
    carry(packets(b.flush(now)), a, now)
    a.flush(now)


def test_what_is_done_does_not_delay_what_is_lost() -> None:
    a, b = meet(AT_ONCE)
    say(a, "wxyz", keep=True)
    receive_only(a, b, 0.0)
    say(a, "!")
    a.flush(0.0)  # lost
    for number in range(1, 5):
        b.finish(number, number / 5)
        carry(packets(b.flush(number / 5)), a, number / 5)
        a.flush(number / 5)
    assert [packet.messages for packet in packets(a.on_timer(1.0))] == [("!",)]


def test_a_new_life_of_the_peer_begins_anew() -> None:
    a, b = meet(AT_ONCE)
    say(a, "uvw", keep=True)
    a.send("statement", keep=False)
    carry(packets(a.flush(0.0)), b, 0.0)
    b.finish(1, 0.0)
    carry(packets(b.flush(0.0)), a, 0.0)
    say(a, "x", keep=True)
    born = Connection("a", 2, AT_ONCE)
    (hello,) = packets(born.flush(1.0))
    assert a.on_packet(hello, 1.0) == Received(True, (), ())
    assert a.take_kept() == ["v", "w", "x"]
    a.send("state", keep=False)
    found = [born.on_packet(packet, 1.0) for packet in packets(a.flush(1.0))]
    assert [(each.reset, each.messages) for each in found] == [(True, ((1, "state"),))]


def test_what_is_not_taken_waits_for_the_next_life() -> None:
    a, _ = meet(AT_ONCE)
    say(a, "x", keep=True)
    carry([Packet(2, 0, asks=True)], a, 0.0)
    say(a, "y", keep=True)
    carry([Packet(3, 0, asks=True)], a, 0.0)
    assert a.take_kept() == ["x", "y"]


def test_packets_of_an_older_life_change_nothing() -> None:
    a, b = meet(AT_ONCE)
    say(b, "xyz")
    late = packets(b.flush(0.0))
    carry([Packet(2, 0, asks=True)], a, 1.0)
    a.flush(1.0)
    for packet in late:
        assert a.on_packet(packet, 2.0) == Received(False, (), ())
    assert a.stale == len(late)
    assert (a.peer_incarnation, a.flush(2.0)) == (2, [])


def test_packets_to_an_older_life_tell_only_who_sent_them() -> None:
    a, _ = meet(AT_ONCE)
    say(a, "xyz")
    late = packets(a.flush(0.0))
    born = Connection("a", 2, AT_ONCE)
    assert born.on_packet(late[0], 0.0) == Received(True, (), ())
    assert born.on_packet(late[1], 0.0) == Received(False, (), ())
    born.send("state", keep=False)
    (answer,) = packets(born.flush(0.0))
    assert a.on_packet(answer, 0.0) == Received(True, ((1, "state"),), ())


def test_an_acknowledgement_of_what_was_never_sent_changes_nothing() -> None:
    a, _ = meet(AT_ONCE)
    say(a, "xy", keep=True)
    a.flush(0.0)
    for bad in (Packet(1, 1, received=3), Packet(1, 1, received=1, done=2), Packet(1, 2)):
        assert a.on_packet(bad, 0.0) == Received(False, (), ())
    assert (a.stale, a.backlog) == (3, 2)


def test_numbers_of_an_earlier_pairing_are_not_taken_for_new_ones() -> None:
    a, b = meet(AT_ONCE)
    say(a, "xyz", keep=True)
    old = [number for number, _ in carry(packets(a.flush(0.0)), b, 0.0)]
    born = Connection("b", 2, AT_ONCE)
    carry(packets(born.flush(1.0)), b, 1.0)
    carry(packets(b.flush(1.0)), born, 1.0)
    say(born, "uvw", keep=True)
    new = [number for number, _ in carry(packets(born.flush(1.0)), b, 1.0)]
    assert set(old).isdisjoint(new)
    for number in old:
        b.finish(number, 1.0)
    assert [packet.done for packet in packets(b.flush(1.0))] == [0]
    for number in new:
        b.finish(number, 1.0)
    assert [packet.done for packet in packets(b.flush(1.0))] == [3]


@pytest.mark.parametrize(
    "bad", [{"resend": 0.0}, {"resend": 9.0}, {"longest": inf}, {"answer": -1.0}]
)
def test_times_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="times must be"):
        Timing(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [lambda: Timing(window=0), lambda: Timing(batch=0)])
def test_a_window_has_room(make: Callable[[], Timing]) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        make()


def test_lives_count_from_one() -> None:
    with pytest.raises(ValueError, match="count from 1, not 0"):
        Connection("b", 0, AT_ONCE)


# In a simulation.


def two_relays(timing: Timing, link: Link) -> tuple[Simulation, BadNetwork, dict[str, Relay]]:
    rng = np.random.default_rng(0)
    network = BadNetwork(rng, link)
    simulation = Simulation(network)
    world = World()
    relays = {name: Relay(name, 1, PAIR[name], world, timing, rng) for name in PAIR}
    for name, relay in relays.items():
        simulation.add(name, relay)
        simulation.post(0.0, name, "start", sender=OUTSIDE)
    return simulation, network, relays


def test_a_lossless_link_takes_few_packets() -> None:
    """A hundred times a hundred publications: full packets out, few acknowledgements back."""
    timing = Timing(resend=0.5, answer=0.01, window=256, batch=32)
    simulation, _, relays = two_relays(timing, Link(0.01))
    connection = relays["a"].connections["b"]
    for at in range(100):
        simulation.post(1.0 + at, "a", 100, sender=OUTSIDE)
    simulation.run(max_events=1_000_000)
    assert len(relays["a"].world.stored) == 10_000
    assert connection.idle
    assert connection.resent == relays["b"].connections["a"].duplicates == 0
    assert connection.packets_sent <= 100 * 4 + 10
    assert connection.packets_received <= 100 + 10


@pytest.mark.parametrize("window", [4, 256])
def test_a_cut_link_carries_few_packets_and_goes_on_where_it_was(window: int) -> None:
    timing = Timing(resend=0.2, longest=5.0, window=window)
    simulation, network, relays = two_relays(timing, Link(0.01))
    a, b = relays["a"].connections["b"], relays["b"].connections["a"]
    for at in np.arange(0.0, 110.0, 0.1):
        simulation.post(at, "a", 1, sender=OUTSIDE)
        simulation.post(at, "b", 1, sender=OUTSIDE)
    simulation.run(until=10.0)
    network.cut("storm", ["a"])
    simulation.run(until=11.0)
    sent = Counter(a=a.packets_sent, b=b.packets_sent)
    simulation.run(until=101.0)
    for end, name in ((a, "a"), (b, "b")):
        assert end.packets_sent - sent[name] <= 90 / timing.longest + 4
    network.heal("storm")
    simulation.run(max_events=1_000_000)
    for end in (a, b):
        assert end.idle
        assert end.resent <= 2 * (90 / timing.longest + 8)
        assert end.duplicates <= 2
    world = relays["a"].world
    assert world.stored == set(world.published)
    assert len(world.published) == 2 * 1100


def test_nothing_is_said_when_there_is_nothing_to_say() -> None:
    simulation, _, relays = two_relays(Timing(), Link(0.01))
    simulation.post(1.0, "a", 1, sender=OUTSIDE)
    simulation.run(max_events=1000)
    assert simulation.clock.now < 10.0
    assert relays["a"].connections["b"].idle


def test_schedules_of_faults() -> None:
    check_schedules(range(200))


@pytest.mark.slow
def test_thousands_of_schedules_of_faults() -> None:
    check_schedules(range(1_000, 4_000))


def check_schedules(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        seen += run_schedule(seed)
    each = {what: n / len(seeds) for what, n in seen.items()}
    assert each["published"] > 30
    assert each["stored"] > 20
    assert min(each[what] for what in ("resets", "resent", "duplicates", "stale")) > 5
