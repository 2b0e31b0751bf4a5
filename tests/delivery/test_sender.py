"""The sender alone: packing, pacing, heartbeats, repairs, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.delivery import CONTROL_GROUP, FullError, SenderMachine, SenderParams, group_name
from distributary.delivery.authentication import Authenticator
from distributary.delivery.directory_wire import decode_block
from distributary.delivery.repair_allowances import RepairAllowances
from distributary.delivery.routes import publisher_number
from distributary.delivery.wire import (
    HEADER_SIZE,
    Header,
    PacketKind,
    StreamPosition,
    decode_announcement,
    decode_header,
    decode_heartbeat,
    encode_lookup,
    encode_ranges,
    encode_request,
)
from distributary.machines import Send, SetTimer
from tests.delivery.machines import KEY, sends, simple_plan, start_sender, wake

PLAN = simple_plan([0, 0, 1], [0, 1])
QUIET = {"announce_every": 1e6, "announce_soon": 1e6, "heartbeat_min": 1e3, "heartbeat_max": 1e3}


def headers(actions: list[object], kind: PacketKind) -> list[tuple[int, int, int]]:
    """Stream, sequence and number of messages or ranges of each packet of a kind."""
    found = [decode_header(packet) for packet in sends(actions)]
    return [(h.stream, h.sequence, h.items) for h in found if h.kind == kind]


def positions(actions: list[object]) -> list[StreamPosition]:
    """What heartbeats say."""
    packets = [packet for packet in sends(actions) if packet[3] == PacketKind.HEARTBEAT]
    found = [decode_heartbeat(packet[HEADER_SIZE:], packet[6]) for packet in packets]
    return [position for each in found for position in each]


def nak(
    sender: SenderMachine,
    ranges: list[tuple[int, int]],
    stream: int = 1,
    publisher: str = "publisher",
) -> bytes:
    header = Header(
        PacketKind.NAK,
        items=len(ranges),
        publisher=publisher_number(publisher),
        stream=stream,
        incarnation=sender.incarnation,
    )
    return Authenticator().encode_packet(header, encode_ranges(ranges))


def test_a_packet_goes_when_it_has_so_many_messages() -> None:
    sender = start_sender(PLAN, messages_per_packet=3, max_age=10.0, **QUIET)
    actions = [a for k in range(7) for a in sender.offer(f"f{k % 2}", b"x", 1.0)]
    assert headers(actions, PacketKind.DATA) == [(1, 1, 3), (1, 2, 3)]
    assert {a.to for a in actions if isinstance(a, Send)} == {group_name(0)}


def test_a_packet_goes_when_the_next_message_does_not_fit() -> None:
    sender = start_sender(PLAN, messages_per_packet=100, packet_size=1_400, max_age=10.0, **QUIET)
    actions = [a for _ in range(5) for a in sender.offer("f0", b"x" * 600, 1.0)]
    assert headers(actions, PacketKind.DATA) == [(1, 1, 2), (1, 2, 2)]
    assert all(len(packet) <= 1_400 for packet in sends(actions))


def test_a_packet_goes_when_its_first_message_is_old() -> None:
    sender = start_sender(PLAN, messages_per_packet=100, max_age=0.5, **QUIET)
    assert wake(sender.offer("f0", b"x", 1.0)) == 1.5
    sender.offer("f1", b"y", 1.4)
    assert headers(sender.on_timer("wake", 1.5), PacketKind.DATA) == [(1, 1, 2)]


def test_a_message_larger_than_a_packet_is_a_mistake() -> None:
    sender = start_sender(PLAN)
    sender.offer("f0", b"x" * sender.largest_message, 0.0)
    with pytest.raises(ValueError, match="does not fit into a packet"):
        sender.offer("f0", b"x" * (sender.largest_message + 1), 0.0)


def test_pacing_holds_the_rate_and_a_full_queue_refuses() -> None:
    sender = start_sender(
        PLAN, messages_per_packet=1, rate=1e3, burst=500.0, queue_packets=4, **QUIET
    )
    taken, now, sent, at = 0, 0.0, 0, None
    for _ in range(50):
        try:
            actions = sender.offer("f0", b"x" * 44, now)
        except FullError:
            break
        taken += 1
        sent += sum(map(len, sends(actions)))
        at = wake(actions) if any(not isinstance(a, Send) for a in actions) else at
    assert taken == 4 + sent // 100  # what went at once, and what waits
    assert 500 <= sent <= 600
    while sender.waiting:
        assert at is not None
        now = at
        actions = sender.on_timer("wake", now)
        sent += sum(map(len, sends(actions)))
        at = wake(actions)
        assert sent <= 600 + now * 1e3 + 1
    assert sender.statistics.messages == taken
    assert sender.statistics.refused == 1


def test_heartbeats_tell_the_last_packet_less_and_less_often() -> None:
    sender = start_sender(
        PLAN, messages_per_packet=1, heartbeat_min=0.1, heartbeat_max=0.4, announce_every=1e6
    )
    actions = sender.offer("f2", b"x", 10.0)
    beats, at = [], wake(actions)
    for _ in range(40):
        assert at is not None
        now, actions = at, sender.on_timer("wake", at)
        beats += [(round(now, 6), found.last) for found in positions(actions) if found.stream == 2]
        at = wake(actions)
    late = [(time, last) for time, last in beats if time > 10.0]
    assert late[:4] == [(10.1, 1), (10.3, 1), (10.7, 1), (11.1, 1)]


def test_repairs_are_sent_once_in_the_hold_off_time() -> None:
    sender = start_sender(PLAN, messages_per_packet=1, hold_off=0.1, **QUIET)
    data = sends([a for k in range(5) for a in sender.offer("f0", b"%d" % k, 1.0)])
    first = sends(sender.on_message("a", nak(sender, [(2, 3), (5, 9)]), 2.0))
    assert [(*decode_header(p)[:2], decode_header(p).sequence) for p in first] == [
        (PacketKind.REPAIR, len(data[1]), 2),
        (PacketKind.REPAIR, len(data[2]), 3),
        (PacketKind.REPAIR, len(data[4]), 5),
    ]
    assert [p[:3] + b"\1" + p[4:] for p in first] == [data[1], data[2], data[4]]
    assert headers(sender.on_message("b", nak(sender, [(2, 4)]), 2.05), PacketKind.REPAIR) == [
        (1, 4, 1)
    ]
    assert headers(sender.on_message("b", nak(sender, [(2, 2)]), 2.2), PacketKind.REPAIR) == [
        (1, 2, 1)
    ]
    assert sender.statistics.repairs == 5


def test_repairs_have_a_share_of_the_rate_and_are_confirmed_while_they_wait() -> None:
    sender = start_sender(
        PLAN, messages_per_packet=1, rate=1e4, burst=2e3, repair_share=0.1, **QUIET
    )
    for _ in range(20):
        sender.offer("f0", b"x" * 44, 1.0)
    for now in (2.0, 3.0, 4.0):
        sender.on_timer("wake", now)
    actions = sender.on_message("a", nak(sender, [(1, 20)]), 10.0)
    assert len(headers(actions, PacketKind.REPAIR)) == 2  # a tenth of the burst
    assert headers(actions, PacketKind.CONFIRM) == [(1, 0, 1)]
    repaired, now = 2, 10.0
    while repaired < 20:
        at = wake(actions)
        assert at is not None
        actions = sender.on_timer("wake", at)
        repaired += len(headers(actions, PacketKind.REPAIR))
        assert repaired * 100 <= 200 + (at - now) * 1e3 + 101


def test_what_is_out_of_the_window_is_answered_with_where_it_begins() -> None:
    sender = start_sender(PLAN, messages_per_packet=1, window_packets=3, **QUIET)
    for _ in range(10):
        sender.offer("f0", b"x", 1.0)
    actions = sender.on_message("a", nak(sender, [(1, 2**62)]), 2.0)
    assert headers(actions, PacketKind.REPAIR) == [(1, 8, 1), (1, 9, 1), (1, 10, 1)]
    assert positions(actions) == [StreamPosition(1, False, 8, 10)]


def test_bad_packets_change_nothing() -> None:
    sender = SenderMachine(PLAN, 5, params=SenderParams(grace=0.0), key=KEY)
    sender.start(0.0)
    good = nak(sender, [(1, 1)])
    assert sender.on_message("a", good, 1.0) == []
    assert sender.on_message("a", b"", 1.0) == []
    assert sender.statistics.unauthenticated == 2
    open_sender = start_sender(PLAN, **QUIET)
    for packet in (b"", b"x" * 40, good[:-1], good[:6] + b"\7" + good[7:]):
        assert open_sender.on_message("a", packet, 1.0) == []
    assert open_sender.statistics.malformed == 4
    assert open_sender.statistics.naks == 0


def test_naks_for_another_incarnation_stream_or_publisher_are_ignored() -> None:
    sender = start_sender(PLAN, messages_per_packet=1, **QUIET)
    sender.offer("f0", b"x", 1.0)
    stale = SenderMachine(PLAN, 4)
    for packet in (
        nak(stale, [(1, 1)]),
        nak(sender, [(1, 1)], 9),
        nak(sender, [(1, 1)], 1, "another"),
    ):
        assert sends(sender.on_message("a", packet, 2.0)) == []


def ask_of(name: str) -> bytes:
    return Authenticator().encode_packet(Header(PacketKind.REQUEST), encode_request(name))


def test_an_address_that_was_given_is_not_changed_by_a_question() -> None:
    plan = simple_plan([0, -1], [0], {"r": [1], "s": [1]})
    params = SenderParams(messages_per_packet=1, grace=0.0, **QUIET)
    sender = SenderMachine(plan, 5, params=params, addresses={"s": "10.0.0.1:1"})
    sender.start(0.0)
    for name in ("r", "s"):
        sender.on_message("10.0.0.7:99", ask_of(name), 1.0)
    actions = sender.offer("f1", b"x", 2.0)
    to = [a.to for a in actions if isinstance(a, Send)]
    assert [each for each in to if each != CONTROL_GROUP] == ["10.0.0.7:99", "10.0.0.1:1"]


def test_unicast_goes_to_where_a_receiver_asked_from() -> None:
    plan = simple_plan([0, -1], [0], {"r": [1], "s": [1]})
    sender = start_sender(plan, messages_per_packet=1, **QUIET)
    answer = sender.on_message("10.0.0.7:99", ask_of("s"), 1.0)
    assert len(sends(answer, CONTROL_GROUP)) == 1
    actions = sender.offer("f1", b"x", 2.0)
    assert [a.to for a in actions if isinstance(a, Send)] == ["r", "10.0.0.7:99"]
    assert headers(actions, PacketKind.DATA) == [
        (2, 1, 1),
        (3, 1, 1),
    ]  # streams behind those of sessions


@given(st.lists(st.text(max_size=2_000), min_size=1), st.integers(0, 3))
def test_questions_are_remembered_only_of_receivers_that_get_something_alone(
    names: list[str], known: int
) -> None:
    """Whoever asks under however many and however long names costs the sender no memory."""
    plan = simple_plan([0, -1], [0], {f"u{at}": [1] for at in range(3)})
    sender = start_sender(plan, messages_per_packet=1, **QUIET)
    for at, name in enumerate([*names, *(f"u{k}" for k in range(known)), "r", *names]):
        sender.on_message(f"10.0.0.7:{at}", ask_of(name), 1.0)
    assert set(sender._streams.addresses) == {f"u{k}" for k in range(known)}
    sender.change_plan(PLAN, 2.0)
    for now in (3.0, 30.0):
        sender.on_timer("wake", now)
    assert sender._streams.addresses == {}


@pytest.mark.parametrize("askers", [1, 3])
@pytest.mark.parametrize(
    "ranges", [[(1, 2**62)], [(1, 2**62)] * 64, [(k, k) for k in range(1, 65)]]
)
def test_a_storm_of_naks_is_bounded_for_each_asker(
    askers: int, ranges: list[tuple[int, int]]
) -> None:
    """A thousand NAKs for everything, a hold-off time apart: a few repairs of each packet."""
    packets, naks = 400, 1_000
    sender = start_sender(PLAN, messages_per_packet=1, rate=1e9, burst=1e9, **QUIET)
    for _ in range(packets):
        sender.offer("f0", b"x", 1.0)
    now = 1.0
    for at in range(naks):
        now += 0.006
        sender.on_message(f"asker {at % askers}", nak(sender, ranges), now)
    most = 1_024 + (now - 1.0) * sender.params.asker_rate
    assert sender.statistics.repairs <= askers * most
    assert sender.statistics.curbed_naks > 0
    # Others are repaired as ever.
    asked = sender.on_message("another", nak(sender, [(1, 3)]), now + 1.0)
    assert [sequence for _, sequence, _ in headers(asked, PacketKind.REPAIR)] == [1, 2, 3]


def test_a_receiver_that_loses_half_of_a_fast_stream_is_not_curbed() -> None:
    sender = start_sender(PLAN, messages_per_packet=1, rate=1e9, burst=1e9, **QUIET)
    now = 1.0
    for packet in range(1, 20_001):  # ten thousand a second
        now += 0.0001
        sender.offer("f0", b"x", now)
        if packet % 100 == 0:
            lost = [(at, at) for at in range(packet - 98, packet + 1, 2)]
            sender.on_message("a", nak(sender, lost), now)
    assert sender.statistics.repairs == 10_000
    assert sender.statistics.curbed_naks == 0


def test_who_asks_for_all_that_there_is_of_many_sessions_is_not_curbed() -> None:
    plan = simple_plan(list(range(20)), [0] * 20)
    sender = start_sender(plan, messages_per_packet=1, rate=1e9, burst=1e9, **QUIET)
    for _ in range(500):
        for flow in plan.flows:
            sender.offer(flow, b"x", 1.0)
    for session in range(20):
        sender.on_message("late", nak(sender, [(1, 500)], 1 + session), 2.0)
    assert sender.statistics.repairs == 10_000
    assert sender.statistics.curbed_naks == 0


def test_askers_are_told_apart_in_bounded_memory() -> None:
    askers = RepairAllowances(1.0)
    for at in range(10_000):
        assert askers.allow(f"asker {at}", 0, 0, 0.0) == 1_024
        askers.spend(f"asker {at}", 1_024)
    assert len(askers) == 4_096
    assert askers.allow("asker 9999", 0, 0, 0.0) == 0


def test_a_plan_is_announced_before_it_holds_and_the_last_one_wins() -> None:
    sender = SenderMachine(PLAN, 5, params=SenderParams(grace=1.0, messages_per_packet=1))
    (packet,) = sends(sender.start(0.0))
    first = decode_announcement(packet[HEADER_SIZE:])
    assert (first.current, first.upcoming) == (0, 1)
    assert sends(sender.offer("f0", b"x", 0.5), group_name(0)) == []
    assert headers(sender.on_timer("wake", 1.0), PacketKind.DATA) == [(1, 1, 1)]
    sender.change_plan(simple_plan([0, 0, 0], [0]), 2.0)
    actions = sender.change_plan(simple_plan([0, 1, 1], [0, 0]), 2.5)
    *journal, packet = sends(actions, CONTROL_GROUP)
    second = decode_announcement(packet[HEADER_SIZE:])
    assert (second.current, second.upcoming) == (1, 3)
    assert second.journal_last == 2
    assert [decode_header(packet).stream for packet in journal] == [0]
    actions = sender.on_timer("wake", 3.5)
    assert sender.version == 3
    *_, packet = sends(actions, CONTROL_GROUP)
    assert decode_announcement(packet[HEADER_SIZE:]).current == 3


def test_a_change_closes_packets_of_the_streams_that_it_touches_alone() -> None:
    """Sessions that both plans have keep their stream, and even the packet that is being filled."""
    plan = simple_plan([0, 0, 1, 1, 2], [0, 1, 1])
    sender = start_sender(plan, messages_per_packet=100, max_age=1e6, **QUIET)
    for flow in plan.flows:
        sender.offer(flow, b"before", 1.0)
    change = sender.change_plan(simple_plan([0, 0, 1, 2, 2], [0, 1, 1]), 1.0)
    change += sender.on_timer("wake", 1.0)
    assert sender.version == 2
    assert [found for found in headers(change, PacketKind.DATA) if found[0]] == [
        (2, 1, 2),
        (3, 1, 1),
    ]
    for flow in plan.flows:
        sender.offer(flow, b"after", 2.0)
    assert headers(sender.flush(3.0), PacketKind.DATA) == [(1, 1, 4), (2, 2, 1), (3, 2, 2)]


def test_a_stream_that_has_ended_is_repaired_for_a_while_and_then_says_where_it_ended() -> None:
    sender = start_sender(PLAN, messages_per_packet=1, linger=5.0, **QUIET)
    for _ in range(3):
        sender.offer("f2", b"x", 1.0)
    sender.change_plan(simple_plan([0, 0, 0], [0]), 2.0)
    sender.on_timer("wake", 2.0)
    assert headers(sender.on_message("a", nak(sender, [(1, 1)], 2), 4.0), PacketKind.REPAIR) == [
        (2, 1, 1)
    ]
    sender.on_timer("wake", 8.0)
    actions = sender.on_message("a", nak(sender, [(1, 3)], 2), 9.0)
    assert headers(actions, PacketKind.REPAIR) == []
    assert positions(actions) == [StreamPosition(2, True, 4, 3)]


def test_one_packet_has_the_heartbeats_of_all_idle_streams_of_a_group() -> None:
    plan = simple_plan(list(range(40)), [0] * 30 + [1] * 10)
    sender = start_sender(plan, messages_per_packet=1, announce_every=1e6)
    for flow in plan.flows:
        sender.offer(flow, b"x", 1.0)
    actions = sender.on_timer("wake", 1.02)
    to = [a.to for a in actions if isinstance(a, Send) and a.message[3] == PacketKind.HEARTBEAT]
    assert sorted(to) == [group_name(0), group_name(1)]
    assert sorted(positions(actions)) == [
        StreamPosition(1 + stream, False, 1, 1) for stream in range(40)
    ]


@given(st.lists(st.tuples(st.floats(0.0, 0.2), st.integers(0, 7)), max_size=60))
def test_every_stream_that_falls_silent_is_in_a_heartbeat_soon(
    packets: list[tuple[float, int]],
) -> None:
    """However busy others of its group are."""
    plan = simple_plan(list(range(8)), [0, 0, 0, 0, 0, 1, 1, 1])
    sender = start_sender(plan, messages_per_packet=1, announce_every=1e6)
    now, told, silent = 1.0, dict.fromkeys(range(1, 9), 0), dict.fromkeys(range(1, 9), 1.0)
    due: float | None = None
    sent = dict.fromkeys(range(1, 9), 0)

    def take(actions: list[object]) -> None:
        nonlocal due
        for found in positions(actions):
            told[found.stream] = found.last
        if any(isinstance(action, SetTimer) for action in actions):
            due = wake(actions)

    for wait, flow in [*packets, (0.1, 0)]:
        until = now + wait
        while due is not None and due <= until:
            now, at = due, due
            due = None
            take(sender.on_timer("wake", at))
        now = until
        for stream, since in silent.items():
            if now - since > 0.03:
                assert told[stream] == sent[stream], (stream, now, since)
        sent[flow + 1] += 1
        silent[flow + 1] = now
        take(sender.offer(f"f{flow}", b"x", now))


def test_packets_say_when_they_were_first_sent() -> None:
    clock = iter(range(1_000, 2_000))
    params = SenderParams(messages_per_packet=1, grace=0.0, **QUIET)  # type: ignore[arg-type]
    sender = SenderMachine(PLAN, 5, params=params, wall_clock=lambda: next(clock))
    sender.start(0.0)
    packets = [p for k in range(3) for p in sends(sender.offer("f0", b"x", 1.0))]
    times = [decode_header(packet).sent for packet in packets]
    assert times == sorted(times)
    assert times[0] >= 1_000
    (repair,) = sends(sender.on_message("a", nak(sender, [(2, 2)]), 5.0))
    assert decode_header(repair).sent == times[1]


def look_up(sender: SenderMachine, blocks: list[int]) -> bytes:
    header = Header(
        PacketKind.LOOKUP,
        items=len(blocks),
        publisher=publisher_number("publisher"),
        incarnation=sender.incarnation,
    )
    return Authenticator().encode_packet(header, encode_lookup(blocks))


def test_blocks_of_the_directory_go_to_all_once_in_the_hold_off_time() -> None:
    sender = start_sender(PLAN, hold_off=0.1, **QUIET)
    for asker, now in (("a", 1.0), ("b", 1.05), ("c", 1.2)):
        actions = sender.on_message(asker, look_up(sender, [0, 5, 2**32 - 1]), now)
        blocks = [p for p in sends(actions, CONTROL_GROUP) if p[3] == PacketKind.BLOCK]
        assert len(blocks) == (now != 1.05)
        for packet in blocks:
            assert len(decode_block(packet[HEADER_SIZE:], 3).entries) == 3
    assert sender.statistics.lookups == 3
    assert sender.statistics.directory_packets == 2


def test_flows_outside_the_plan_are_counted() -> None:
    sender = start_sender(PLAN, **QUIET)
    for flow in ("nobody's", "nothing", "nobody's"):
        assert sender.offer(flow, b"x", 1.0) == []
    assert sender.unplanned == {"nobody's": 2, "nothing": 1}
    for at in range(20_000):
        sender.offer(f"flow {at}", b"x", 1.0)
    assert sender.statistics.unplanned_messages == 20_003
    assert len(sender.unplanned) == 10_000


@pytest.mark.parametrize(
    "bad", [{"packet_size": 100}, {"rate": 0.0}, {"repair_share": 2.0}, {"grace": -1.0}]
)
def test_settings_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"a packet has|cannot be|repair_share"):
        SenderParams(**bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="incarnation"):
        SenderMachine(PLAN, 0)


def test_messages_that_are_offered_together_go_by_one_plan() -> None:
    """Also where a change is due, and where the queue is full after the first of them."""
    params = SenderParams(grace=1.0, messages_per_packet=1, queue_packets=1, rate=1e3, burst=1.0)
    sender = SenderMachine(simple_plan([0, 0], [0]), 5, params=params)
    sender.start(0.0)
    sender.on_timer("wake", 1.0)
    before = sender.fingerprint
    sender.change_plan(simple_plan([-1, 0], [0], {"r": [0]}), 2.0)
    together = [("f0", b"a"), ("f1", b"b"), ("f0", b"c"), ("nobody's", b"d")]
    packets = sends(sender.offer_together(together, 9.0))  # the change is due since 3.0
    assert sender.is_full
    assert sender.fingerprint != before
    assert sender.unplanned == {"nobody's": 1}
    now = 9.0
    while sender.waiting:
        now += 1.0
        packets += sends(sender.on_timer("wake", now))
    data = [decode_header(packet) for packet in packets if packet[3] == PacketKind.DATA]
    assert [header.sequence for header in data if header.stream == 1] == [1, 2, 3]
    assert {header.stream for header in data} == {0, 1}  # nothing went by the new plan
