"""The receiver: both ways in do the same, gaps are closed or reported, and nothing bad gets in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distributary.delivery import (
    CONTROL_GROUP,
    Gap,
    JoinGroup,
    LeaveGroup,
    Messages,
    Missing,
    PacketBatch,
    ReceiverMachine,
    ReceiverParams,
    Restarted,
    SenderMachine,
    SenderParams,
    group_name,
)
from distributary.delivery.authentication import Authenticator
from distributary.delivery.routes import publisher_number
from distributary.delivery.wire import (
    HEADER_SIZE,
    Header,
    PacketKind,
    StreamPosition,
    decode_header,
    decode_ranges,
    encode_heartbeat,
)
from distributary.model import Plan
from tests.delivery.machines import KEY, delivered, introduce, receiver_of, sends, simple_plan, wake
from tests.delivery.plans import random_plan

PLAN = simple_plan([0, 0, 1], [0, 1])
NUMBER = publisher_number("publisher")
Key = bytes | None


def offer_message(sender: SenderMachine, flow: str, payload: bytes, now: float = 1.0) -> bytes:
    """The one packet that a message makes."""
    (packet,) = [p for p in sends(sender.offer(flow, payload, now)) if p[3] == PacketKind.DATA]
    return packet


def start_pair(
    wanted: list[str], plan: Plan = PLAN, **params: float
) -> tuple[SenderMachine, ReceiverMachine]:
    """A sender of single messages, and a receiver that was there from the start."""
    sender = SenderMachine(
        plan, 5, params=SenderParams(grace=1.0, messages_per_packet=1, announce_every=1e6)
    )
    receiver = receiver_of(plan, wanted, **params)
    for packet in sends(sender.start(0.0)):
        receiver.on_packet(packet, 0.0)
    introduce(sender, receiver, 0.5)
    sender.on_timer("wake", 1.0)
    return sender, receiver


def look_up_all(sender: SenderMachine, receiver: ReceiverMachine, now: float) -> list[bytes]:
    """The blocks of the directory that a receiver asks for."""
    asked = [p for p in sends(receiver.on_timer("wake", now + 1)) if p[3] == PacketKind.LOOKUP]
    found = [answer for packet in asked for answer in sends(sender.on_message("r", packet, now))]
    return [packet for packet in found if packet[3] == PacketKind.BLOCK]


def kinds(actions: list[object], *which: type) -> list[object]:
    return [action for action in actions if isinstance(action, which)]


def test_preparing_changes_nothing() -> None:
    _, receiver = start_pair(["f0", "f2"])
    before = receiver.statistics
    receiver.prepare()
    assert receiver.statistics == before


def test_wanted_flows_come_through_and_others_do_not() -> None:
    sender, receiver = start_pair(["f0", "f2"])
    packets = [offer_message(sender, f"f{k}", b"%d" % k) for k in range(3)]
    found = [receiver.on_packet(packet, 1.0) for packet in packets]
    assert [delivered(actions) for actions in found] == [
        [("f0", 1, b"0")],
        [],
        [("f2", 1, b"2")],
    ]
    assert receiver.statistics.unwanted_messages == 1


def test_groups_are_joined_for_wanted_flows_only() -> None:
    """And without a plan: the sender says where they travel."""
    receiver = ReceiverMachine("r", ["f2"], rng=np.random.default_rng(0))
    assert kinds(receiver.start(0.0), JoinGroup) == [JoinGroup(CONTROL_GROUP)]
    sender = SenderMachine(PLAN, 5)
    (packet,) = sends(sender.start(0.0))
    actions = receiver.on_packet(packet, 0.0)
    assert kinds(actions, JoinGroup) == []
    assert kinds(introduce(sender, receiver, 0.1), JoinGroup) == [JoinGroup(group_name(1))]


def test_a_gap_is_asked_for_after_a_while_and_closed_by_the_repair() -> None:
    sender, receiver = start_pair(["f0", "f1"], back_off=0.1)
    one, two, three = (offer_message(sender, "f0", b"%d" % k) for k in range(3))
    other = offer_message(sender, "f1", b"x")
    receiver.on_packet(one, 1.0)
    actions = receiver.on_packet(three, 1.0)
    assert delivered(actions) == []
    at = wake(actions)
    assert at is not None
    assert 1.0 <= at <= 1.1
    assert delivered(receiver.on_packet(other, 1.0)) == [("f1", 1, b"x")]  # it is next in its flow
    (nak,) = sends(receiver.on_timer("wake", at))
    header = decode_header(nak)
    assert (header.kind, header.stream) == (PacketKind.NAK, 1)
    assert decode_ranges(nak[HEADER_SIZE:], header.items) == [(2, 2)]
    repair = sends(sender.on_message("r", nak, at))[0]
    assert delivered(receiver.on_packet(repair, at)) == [("f0", 2, b"1"), ("f0", 3, b"2")]
    assert receiver.statistics.missing_ranges == receiver.statistics.held_packets == 0
    assert delivered(receiver.on_packet(two, at)) == []


def test_a_heartbeat_shows_that_the_last_packet_is_lost() -> None:
    sender, receiver = start_pair(["f0"])
    offer_message(sender, "f0", b"lost")
    beats = sends(sender.on_timer("wake", 2.0), group_name(0))
    (nak,) = sends(receiver.on_timer("wake", wake(receiver.on_packet(beats[0], 2.0)) or 0.0))
    repair = sends(sender.on_message("r", nak, 2.1))[0]
    assert delivered(receiver.on_packet(repair, 2.2)) == [("f0", 1, b"lost")]


def test_a_gap_nobody_repairs_is_reported_exactly() -> None:
    sender, receiver = start_pair(["f0"], tries=3, back_off=0.001)
    packets = [offer_message(sender, "f0", b"%d" % k) for k in range(6)]
    actions = [a for at in (0, 3, 5) for a in receiver.on_packet(packets[at], 1.0)]
    naks = 0
    for _ in range(20):
        at = wake(actions)
        if at is None:
            break
        actions = [*receiver.on_timer("wake", at)]
        naks += len(sends(actions))
        if kinds(actions, Gap):
            break
    assert naks >= 3
    found = kinds(actions, Gap, Missing)
    rest = [] if at is None else receiver.on_timer("wake", at + 1.0)
    found += kinds(rest, Gap, Missing)
    assert sorted((a for a in found if isinstance(a, Gap)), key=lambda gap: gap.first) == [
        Gap("publisher", 5, 1, 2, 3, "unanswered", ("f0",)),
        Gap("publisher", 5, 1, 5, 5, "unanswered", ("f0",)),
    ]
    assert [a for a in found if isinstance(a, Missing)] == [
        Missing("publisher", 5, "f0", 2, 3),
        Missing("publisher", 5, "f0", 5, 5),
    ]
    assert [n for _, n, _ in delivered([*actions, *rest])] == [4, 6]


def test_confirmation_puts_asking_off() -> None:
    sender, receiver = start_pair(["f0"], back_off=0.01, repair_wait=0.5)
    packets = [offer_message(sender, "f0", b"x") for _ in range(3)]
    receiver.on_packet(packets[0], 1.0)
    first = wake(receiver.on_packet(packets[2], 1.0))
    body = b"".join(n.to_bytes(8, "little") for n in (2, 2))
    header = Header(PacketKind.CONFIRM, 0, 1, NUMBER, 1, 5)
    confirm = Authenticator().encode_packet(header, body)
    later = wake(receiver.on_packet(confirm, 1.0))
    assert first is not None
    assert later is not None
    assert later >= 1.5 > first


def test_what_waits_is_bounded() -> None:
    sender, receiver = start_pair(["f0"], held_packets=10, tries=100)
    packets = [offer_message(sender, "f0", b"%d" % k) for k in range(100)]
    actions = [a for packet in packets[1:] for a in receiver.on_packet(packet, 1.0)]
    assert kinds(actions, Gap) == [Gap("publisher", 5, 1, 1, 1, "room", ("f0",))]
    assert kinds(actions, Missing) == [Missing("publisher", 5, "f0", 1, 1)]
    assert [n for _, n, _ in delivered(actions)] == list(range(2, 101))


def test_gaps_are_bounded() -> None:
    sender, receiver = start_pair(["f0"], missing_ranges=3)
    packets = [offer_message(sender, "f0", b"%d" % k) for k in range(20)]
    actions = [a for packet in packets[1::2] for a in receiver.on_packet(packet, 1.0)]
    assert receiver.statistics.missing_ranges == 3
    assert len(kinds(actions, Gap)) == 7


def test_naks_are_bounded_by_a_token_bucket() -> None:
    plan = simple_plan(list(range(40)), [0] * 40)
    sender, receiver = start_pair([f"f{k}" for k in range(40)], plan, nak_burst=5.0, naks=10.0)
    for k in range(40):
        offer_message(sender, f"f{k}", b"lost")
        receiver.on_packet(offer_message(sender, f"f{k}", b"y"), 1.0)
    assert len(sends(receiver.on_timer("wake", 2.0))) == 5
    assert len(sends(receiver.on_timer("wake", 2.5))) <= 6


def test_who_joins_late_begins_with_what_comes_first() -> None:
    sender, _ = start_pair(["f0"])
    packets = [offer_message(sender, "f0", b"%d" % k) for k in range(5)]
    receiver = receiver_of(PLAN, ["f0"])
    announcement = sends(sender.on_timer("wake", 1e7), CONTROL_GROUP)[-1]
    receiver.on_packet(announcement, 1e7)
    for packet in look_up_all(sender, receiver, 1e7):
        receiver.on_packet(packet, 1e7)
    repair = bytearray(packets[0])
    repair[3] = PacketKind.REPAIR
    assert delivered(receiver.on_packet(bytes(repair), 1e7)) == []  # it is for others
    found = [a for packet in packets[3:] for a in receiver.on_packet(packet, 1e7)]
    assert delivered(found) == [("f0", 4, b"3"), ("f0", 5, b"4")]
    assert not kinds(found, Gap, Missing)
    history = receiver_of(PLAN, ["f0"], history=True)
    history.on_packet(announcement, 1e7)
    for packet in look_up_all(sender, history, 2e7):
        history.on_packet(packet, 2e7)
    at = wake(history.on_packet(packets[3], 2e7))
    assert at is not None
    (nak,) = sends(history.on_timer("wake", at))
    assert decode_ranges(nak[HEADER_SIZE:], 1) == [(1, 3)]


def test_a_new_incarnation_ends_the_old_one_and_replays_of_it_are_dropped() -> None:
    sender, receiver = start_pair(["f0"])
    packets = [offer_message(sender, "f0", b"%d" % k) for k in range(3)]
    receiver.on_packet(packets[0], 1.0)
    receiver.on_packet(packets[2], 1.0)
    old_plan = sends(sender.on_timer("wake", 1e7), CONTROL_GROUP)[-1]
    again = SenderMachine(PLAN, 6, params=SenderParams(grace=0.0, messages_per_packet=1))
    actions = [
        a for p in sends(again.start(2.0), CONTROL_GROUP) for a in receiver.on_packet(p, 2.0)
    ]
    introduce(again, receiver, 2.5)
    assert kinds(actions, Gap, Missing, Restarted) == [
        Gap("publisher", 5, 1, 2, 2, "restart", ("f0",)),
        Missing("publisher", 5, "f0", 2, 2),
        Restarted("publisher", 5, 6),
    ]
    assert delivered(actions) == [("f0", 3, b"2")]
    new = offer_message(again, "f0", b"new", 3.0)
    assert delivered(receiver.on_packet(new, 3.0)) == [("f0", 1, b"new")]
    before = replace(receiver.statistics, packets=0, stale=0)
    for packet in (old_plan, *packets):
        assert not kinds(receiver.on_packet(packet, 3.0), Messages, Restarted)
    assert replace(receiver.statistics, packets=0, stale=0) == before
    assert receiver.statistics.stale == 4


def test_a_receiver_that_remembers_incarnations_refuses_older_ones() -> None:
    receiver = ReceiverMachine(
        "r", ["f0"], rng=np.random.default_rng(0), incarnations={"publisher": 9}
    )
    receiver.learn_plan(PLAN, 0.0)
    receiver.start(0.0)
    (packet,) = sends(SenderMachine(PLAN, 8).start(0.0))
    assert receiver.on_packet(packet, 0.0) == []
    assert receiver.statistics.stale == 1


def test_flows_move_without_loss_and_old_groups_are_left_after() -> None:
    sender, receiver = start_pair(["f0"])
    receiver.on_packet(offer_message(sender, "f0", b"a"), 1.0)
    last = offer_message(sender, "f0", b"b")
    told = [
        action
        for packet in sends(sender.change_plan(simple_plan([0], [7]), 2.0), CONTROL_GROUP)
        for action in receiver.on_packet(packet, 2.0)
    ]
    assert kinds(told, JoinGroup, LeaveGroup) == [JoinGroup(group_name(7))]
    moved = sender.on_timer("wake", 3.0)
    first = offer_message(sender, "f0", b"c", 3.0)
    assert decode_header(first).stream == 3
    receiver.on_packet(first, 3.0)  # before the receiver knows where the old stream ends
    for packet in sends(moved, CONTROL_GROUP):
        receiver.on_packet(packet, 3.0)
    asked = sends(receiver.on_timer("wake", 3.1))
    (nak,) = [packet for packet in asked if packet[3] == PacketKind.NAK and packet[6]]
    assert decode_header(nak).stream == 1
    assert decode_ranges(nak[HEADER_SIZE:], 1) == [(2, 2)]
    done = receiver.on_packet(last, 3.2)
    assert delivered(done) == [("f0", 2, b"b"), ("f0", 3, b"c")]
    assert kinds(done, JoinGroup, LeaveGroup) == [LeaveGroup(group_name(0))]
    assert receiver.version == 2


def test_flows_that_change_places_wait_for_their_own_last_packets_alone() -> None:
    """Each of two streams has a gap before the change, and the other's flow behind it."""
    sender, receiver = start_pair(["f0", "f2"], simple_plan([0, 0, 1, 1], [0, 1]))
    lost = {flow: offer_message(sender, flow, b"lost") for flow in ("f0", "f2")}
    for packet in sends(sender.change_plan(simple_plan([1, 0, 0, 1], [0, 1]), 2.0)):
        receiver.on_packet(packet, 2.0)
    for packet in sends(sender.on_timer("wake", 3.0)):
        receiver.on_packet(packet, 3.0)
    early = [
        action
        for flow in ("f0", "f2")
        for action in receiver.on_packet(offer_message(sender, flow, b"new", 3.0), 3.0)
    ]
    assert delivered(early) == []
    late = [a for packet in lost.values() for a in receiver.on_packet(packet, 3.0)]
    assert sorted(delivered(late)) == [
        (flow, 1 + at, payload)
        for flow in ("f0", "f2")
        for at, payload in enumerate((b"lost", b"new"))
    ]
    assert receiver.statistics.held_packets == receiver.statistics.missing_ranges == 0


def test_a_receiver_that_missed_all_news_of_a_change_has_repaired_what_moved() -> None:
    sender, receiver = start_pair(["f0", "f2"])
    receiver.on_packet(offer_message(sender, "f0", b"a"), 1.0)
    sender.change_plan(simple_plan([1, 0, 1], [0, 1]), 2.0)
    sender.on_timer("wake", 3.0)
    receiver.on_packet(offer_message(sender, "f2", b"x", 3.0), 3.0)
    moved = offer_message(sender, "f0", b"b", 3.0)
    assert delivered(receiver.on_packet(moved, 3.0)) == []  # it does not look for f0 there
    for packet in sends(sender.on_timer("wake", 3.1), CONTROL_GROUP):
        receiver.on_packet(packet, 3.1)
    seen = introduce(sender, receiver, 3.2)
    assert delivered(seen) == [("f0", 2, b"b")]
    assert not kinds(seen, Gap, Missing)


@pytest.mark.parametrize("max_age", [0.0, 0.4, 1.0, 60.0])
@pytest.mark.parametrize("starts", [False, True])
def test_messages_of_a_packet_that_fills_while_the_plan_changes_are_not_lost(
    max_age: float, starts: bool
) -> None:
    """The packet leaves with the old plan, before the first one by the new plan."""
    params = SenderParams(grace=0.5, messages_per_packet=100, max_age=max_age)
    sender = SenderMachine(PLAN, 5, params=params)
    receiver = receiver_of(PLAN, ["f0", "f2"])
    plan = simple_plan([1, 0, 0], [0, 1])
    packets = sends(sender.start(0.0))
    receiver.on_packet(packets[0], 0.0)
    introduce(sender, receiver, 0.05)
    now = 0.1 if starts else 0.6
    packets += sends(sender.on_timer("wake", now))
    packets += sends(sender.offer("f0", b"before", now))
    packets += sends(sender.offer("f2", b"before", now))
    packets += sends(sender.change_plan(plan, now))
    packets += sends(sender.offer("f0", b"announced", now + 0.1))
    for later in (0.5, 1.1, 1.2):  # the plans begin to hold
        packets += sends(sender.on_timer("wake", now + later))
    assert sender.version == 2
    packets += sends(sender.offer("f0", b"after", now + 1.3))
    packets += sends(sender.flush(now + 1.3))
    packets += sends(sender.on_timer("wake", now + 2.0))  # heartbeats: the old sessions have ended
    actions = [action for packet in packets for action in receiver.on_packet(packet, now + 2.0)]
    assert sorted(delivered(actions)) == [
        ("f0", 1, b"before"),
        ("f0", 2, b"announced"),
        ("f0", 3, b"after"),
        ("f2", 1, b"before"),
    ]
    assert not kinds(actions, Gap, Missing)


def test_bad_packets_change_nothing() -> None:
    sender = SenderMachine(PLAN, 5, params=SenderParams(grace=0.0, messages_per_packet=1), key=KEY)
    receiver = ReceiverMachine("r", ["f0"], rng=np.random.default_rng(0), key=KEY)
    receiver.learn_plan(PLAN, 0.0)
    receiver.start(0.0)
    for packet in sends(sender.start(0.0), CONTROL_GROUP):
        for at in range(len(packet)):
            broken = bytearray(packet)
            broken[at] ^= 1
            assert receiver.on_packet(bytes(broken), 0.0) == []
        assert receiver.version == 0
        receiver.on_packet(packet, 0.0)
    assert receiver.version == 1
    introduce(sender, receiver, 0.1)
    packet = offer_message(sender, "f0", b"payload")
    for at in range(len(packet)):
        broken = bytearray(packet)
        broken[at] ^= 0x80
        assert delivered(receiver.on_packet(bytes(broken), 1.0)) == []
        assert delivered(receiver.on_packet(packet[:at], 1.0)) == []
    assert delivered(receiver.on_packet(packet, 1.0)) == [("f0", 1, b"payload")]
    assert receiver.on_packet(packet, 1.0) == []  # a replay
    assert receiver.statistics.unauthenticated > 100


def test_a_heartbeat_from_nowhere_is_malformed() -> None:
    _, receiver = start_pair(["f0"])
    body = encode_heartbeat([StreamPosition(1, False, 100, 3)])
    header = Header(PacketKind.HEARTBEAT, items=1, publisher=NUMBER, incarnation=5)
    packet = Authenticator().encode_packet(header, body)
    assert receiver.on_packet(packet, 1.0) == []
    assert receiver.statistics.malformed == 1


@pytest.mark.parametrize("seed", range(40))
def test_one_by_one_or_in_batches_is_the_same(seed: int) -> None:
    """The same packets at the same times, through the plain filters and the compiled ones."""
    rng = np.random.default_rng(seed)
    key: Key = KEY if seed % 3 == 0 else None
    wanted = {"r": ["f0", "f1", "f3"], "s": [f"f{k}" for k in range(6)]}
    plans = [random_plan(wanted, rng) for _ in range(3)]
    sender = SenderMachine(
        plans[0],
        5,
        params=SenderParams(grace=0.02, messages_per_packet=3, linger=0.2, announce_every=0.1),
        key=key,
    )
    params = ReceiverParams(tries=4, held_packets=int(rng.choice([6, 1_000])))
    pair = [
        ReceiverMachine("r", wanted["r"], rng=np.random.default_rng(3), params=params, key=key)
        for _ in range(2)
    ]
    for receiver in pair:
        receiver.start(0.0)
    waiting = sends(sender.start(0.0))
    log: list[list[object]] = [[], []]
    for step in range(1, 150):
        now = step * 0.01
        if step in (40, 80):
            waiting += sends(sender.change_plan(plans[step // 40], now))
        for _ in range(int(rng.integers(0, 12))):
            waiting += sends(sender.offer(f"f{rng.integers(6)}", rng.bytes(20), now))
        waiting += sends(sender.on_timer("wake", now))
        batch = [p for p in waiting if rng.random() < 0.85 for _ in range(1 + (rng.random() < 0.1))]
        batch = [p if rng.random() < 0.97 else p[: int(rng.integers(len(p)))] for p in batch]
        waiting = []
        if rng.random() < 0.5:
            rng.shuffle(batch)  # type: ignore[arg-type]
        if not batch:
            continue
        lengths = np.array([len(p) for p in batch], np.int64)
        buffer = np.frombuffer(b"".join(batch), np.uint8)
        one = [a for packet in batch for a in pair[0].on_packet(packet, now)]
        many = pair[1].on_packets(PacketBatch(buffer, np.cumsum(lengths) - lengths, lengths), now)
        naks = []
        for actions, receiver, entries in zip((one, many), pair, log, strict=True):
            timed = receiver.on_timer("wake", now)
            entries += delivered(actions) + delivered(timed)
            entries += kinds([*actions, *timed], Gap, Missing)
            naks.append(sends(timed))
        assert naks[0] == naks[1]
        for nak in naks[0]:
            waiting += sends(sender.on_message("r", nak, now))
    assert sorted(map(str, log[0])) == sorted(map(str, log[1]))
    messages = [[entry for entry in entries if isinstance(entry, tuple)] for entries in log]
    for flow in wanted["r"]:
        one_flow, many_flow = ([m for m in found if m[0] == flow] for found in messages)
        assert one_flow == many_flow
    assert pair[0].statistics == pair[1].statistics
    assert len(messages[0]) > 50
