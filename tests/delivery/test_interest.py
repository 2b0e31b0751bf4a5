"""What a receiver wants, while plans and interest change: what comes, and what is reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.delivery import (
    Brought,
    Gap,
    JoinGroup,
    LeaveGroup,
    Missing,
    PacketBatch,
    ReceiverMachine,
    SenderMachine,
    SenderParams,
    Subscribed,
    Unserved,
    wanted_flows,
)
from distributary.delivery.authentication import Authenticator
from distributary.delivery.routes import CONTROL_GROUP
from distributary.delivery.wire import Header, PacketKind, encode_request
from distributary.machines import Send
from distributary.model import Plan
from tests.delivery.machines import delivered, introduce, sends, simple_plan, start_sender
from tests.delivery.plans import random_plan

FLOWS = [f"f{at}" for at in range(6)]


class Pair:
    """A sender of single messages and a receiver, with no network between them."""

    def __init__(
        self,
        plan: Plan,
        wanted: Iterable[str] | None,
        journal_packets: int = 4_096,
        *,
        given: bool = True,
    ) -> None:
        """With `given` the receiver has each plan; else the sender tells it what it needs."""
        self.given = given
        params = SenderParams(
            grace=0.1, messages_per_packet=1, linger=1e6, journal_packets=journal_packets
        )
        self.sender = SenderMachine(plan, 5, params=params)
        self.receiver = ReceiverMachine("r", wanted, rng=np.random.default_rng(0))
        self.now = 0.0
        self.seen: list[object] = []
        self.joined: set[str] = set()
        if given:
            self.do(self.receiver.learn_plan(plan, 0.0))
        self.do(self.receiver.start(0.0))
        self.pass_on(self.sender.start(0.0))
        self.ring()  # looks up where its flows travel
        self.wait(0.2)

    def pass_on(self, actions: Iterable[object]) -> None:
        for packet in sends(actions):
            self.do(self.receiver.on_packet(packet, self.now))

    def do(self, actions: Iterable[object]) -> None:
        """Do what the receiver wants done; what it asks of the sender is answered at once."""
        self.seen += actions
        for action in actions:
            match action:
                case JoinGroup(group):
                    self.joined.add(group)
                case LeaveGroup(group):
                    self.joined.discard(group)
                case Send(_, packet):
                    self.pass_on(self.sender.on_message("r", packet, self.now))

    def ring(self) -> None:
        """Let the receiver's timer ring until a heartbeat it asks for is not held off any more."""
        for _ in range(3):
            self.now += 0.025
            self.do(self.receiver.on_timer("wake", self.now))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.pass_on(self.sender.on_timer("wake", self.now))

    def change(self, plan: Plan) -> None:
        if self.given:
            self.do(self.receiver.learn_plan(plan, self.now))
        self.pass_on(self.sender.change_plan(plan, self.now))
        self.ring()
        self.wait(0.2)
        self.wait(1.0)
        self.ring()

    def offer_all(self) -> set[str]:
        """One message of each flow: which of them come."""
        self.seen.clear()
        for flow in FLOWS:
            self.pass_on(self.sender.offer(flow, b"x", self.now))
        return {flow for flow, _, _ in delivered(self.seen)}

    def reports(self, *which: type) -> list[object]:
        return [action for action in self.seen if isinstance(action, which)]


wishes = st.lists(st.sets(st.sampled_from(FLOWS), min_size=1), min_size=1, max_size=5)


@pytest.mark.parametrize("given_plans", [True, False])
@given(wishes, st.integers(0, 1_000))
def test_without_interest_a_receiver_gets_what_each_plan_brings(
    given_plans: bool, wished: list[set[str]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plans = [random_plan({"r": sorted(flows), "s": FLOWS}, rng, unicast=False) for flows in wished]
    pair = Pair(plans[0], None, given=given_plans)
    brought = pair.reports(Brought)
    for at, plan in enumerate(plans):
        if at:
            pair.seen.clear()
            pair.change(plan)
            brought = pair.reports(Brought) or brought
        if not given_plans:
            assert isinstance(brought[-1], Brought)
            assert set(brought[-1].flows) == set(wanted_flows(plan, "r"))
        assert bool(brought) != given_plans
        assert set(pair.receiver.flows) == set(wanted_flows(plan, "r")) >= wished[at]
        for _ in range(2):
            assert pair.offer_all() == set(wanted_flows(plan, "r"))
            assert not pair.reports(Gap, Missing, Unserved)
    assert len(pair.receiver._subs.names) <= 16  # places are used again


def test_the_last_messages_of_a_flow_that_a_plan_drops_are_repaired() -> None:
    pair = Pair(simple_plan([0, 0], [0]), ["f0", "f1"])
    pair.pass_on(pair.sender.offer("f0", b"first", pair.now))
    pair.sender.offer("f0", b"lost", pair.now)
    dropped = simple_plan([0], [0])
    dropped = replace(dropped, flows=("f1",))
    pair.seen.clear()
    pair.change(dropped)
    assert [payload for _, _, payload in delivered(pair.seen)] == [b"lost"]
    assert not pair.reports(Gap, Missing)
    assert pair.receiver.unserved == ("f0",)


@given(wishes, st.integers(0, 1_000))
def test_changed_interest_holds_at_once_and_through_plan_changes(
    wished: list[set[str]], seed: int
) -> None:
    """Messages of the time when a flow was not wanted are neither delivered nor missing."""
    rng = np.random.default_rng(seed)
    wants = {"r": FLOWS, "s": FLOWS}
    pair = Pair(random_plan(wants, rng, unicast=False), wished[0])
    for at, flows in enumerate(wished):
        pair.seen.clear()
        new = flows - set(pair.receiver.flows)
        pair.do(pair.receiver.want(flows, pair.now))
        pair.ring()
        assert sorted(subscribed(pair)) == sorted(new)
        assert pair.offer_all() == flows
        if at % 2:
            pair.change(random_plan(wants, rng, unicast=False))
        assert pair.offer_all() == flows
        assert not pair.reports(Gap, Missing, Unserved)
    groups = {stream.group for stream in pair.receiver._subs.streams()}
    assert pair.joined == groups | {CONTROL_GROUP}


def subscribed(pair: Pair) -> list[str]:
    reports = (action for action in pair.seen if isinstance(action, Subscribed))
    return [flow for report in reports for flow in report.flows]


def test_a_flow_is_subscribed_when_its_session_was_heard() -> None:
    """Before that a lost packet would not be missed."""
    pair = Pair(simple_plan([0, 1], [0, 1]), ["f0"])
    pair.seen.clear()
    pair.receiver.subscribe(["f1"], pair.now)
    (lookup,) = sends(pair.receiver.on_timer("wake", pair.now))
    (block,) = sends(pair.sender.on_message("r", lookup, pair.now))
    pair.seen += pair.receiver.on_packet(block, pair.now)
    assert JoinGroup("group 1") in pair.seen
    assert not pair.reports(Subscribed)
    lost = sends(pair.sender.offer("f1", b"lost", pair.now))
    assert lost
    pair.ring()  # asks for a heartbeat
    assert pair.reports(Subscribed) == [Subscribed(("f1",))]
    assert pair.offer_all() == {"f0", "f1"}


def test_a_flow_that_was_wanted_from_the_start_is_subscribed_when_it_has_started() -> None:
    """A receiver that comes late misses what was sent before it knew where a stream stands."""
    sender = start_sender(simple_plan([0], [0]))
    sender.on_timer("wake", 0.1)
    receiver = ReceiverMachine("r", ["f0"], rng=np.random.default_rng(0))
    receiver.start(1.0)
    receiver.subscribe(["f0"], 1.0)
    assert receiver.awaits(["f0"])
    for packet in sends(sender.offer("f0", b"before", 1.1) + sender.flush(1.1), "group 0"):
        assert delivered(receiver.on_packet(packet, 1.1)) == []
    for packet in sends(sender.on_timer("wake", 2.1), CONTROL_GROUP):
        assert Subscribed(("f0",)) not in receiver.on_packet(packet, 2.1)
    assert Subscribed(("f0",)) in introduce(sender, receiver, 2.2)
    assert receiver.awaits(["f0"]) is False
    assert Subscribed(("f0",)) not in receiver.subscribe(["f0"], 2.3)


def test_messages_that_wait_behind_a_gap_are_dropped_when_unsubscribed() -> None:
    pair = Pair(simple_plan([0, 0], [0]), ["f0", "f1"])
    assert pair.offer_all() == {"f0", "f1"}
    (lost,) = sends(pair.sender.offer("f0", b"1", pair.now))
    for flow in ("f0", "f1"):
        pair.pass_on(pair.sender.offer(flow, b"2", pair.now))
    assert pair.receiver.statistics.held_packets == 1
    pair.do(pair.receiver.unsubscribe(["f0"], pair.now))
    assert pair.receiver.statistics.held_packets == 0
    pair.seen.clear()
    pair.seen += pair.receiver.on_packet(lost, pair.now)
    assert delivered(pair.seen) == []
    assert pair.offer_all() == {"f1"}


def test_a_flow_that_is_subscribed_again_brings_nothing_twice() -> None:
    pair = Pair(simple_plan([0], [0]), ["f0"])
    assert pair.offer_all() == {"f0"}
    packet = sends(pair.sender.offer("f0", b"once", pair.now))
    pair.seen += pair.receiver.on_packet(packet[0], pair.now)
    pair.do(pair.receiver.unsubscribe(["f0"], pair.now))
    pair.do(pair.receiver.subscribe(["f0"], pair.now))
    pair.seen.clear()
    pair.seen += pair.receiver.on_packet(packet[0], pair.now)  # it comes first of all, late
    assert delivered(pair.seen) == []
    pair.ring()
    pair.pass_on(pair.sender.offer("f0", b"new", pair.now))
    assert [payload for _, _, payload in delivered(pair.seen)] == [b"new"]
    assert not pair.reports(Missing)


def test_a_flow_that_no_plan_carries_is_subscribed_when_one_does() -> None:
    pair = Pair(simple_plan([0], [0]), ["f0"])
    pair.seen.clear()
    pair.do(pair.receiver.subscribe(["f1"], pair.now))
    pair.ring()
    assert pair.reports(Unserved, Subscribed) == [Unserved(1, ("f1",))]
    assert pair.receiver.awaits(["f1"]) is False  # it is known not to be served
    pair.change(simple_plan([0, 0], [0]))
    assert Subscribed(("f1",)) in pair.seen
    assert pair.offer_all() == {"f0", "f1"}


def test_a_flow_that_a_plan_drops_and_the_next_one_carries_again_is_reported() -> None:
    """Also to a receiver that was suspended, and hears of both changes at once."""
    pair = Pair(simple_plan([0, 0], [0]), ["f0", "f1"], given=False)
    assert pair.offer_all() == {"f0", "f1"}
    packets: list[bytes] = []
    for plan in (simple_plan([0], [0]), simple_plan([0, 0], [0])):
        packets += sends(pair.sender.change_plan(plan, pair.now))
        pair.now += 0.2
        packets += sends(pair.sender.on_timer("wake", pair.now))
        packets += sends(pair.sender.offer("f1", b"1", pair.now))
    assert pair.sender.unplanned["f1"] == 1
    pair.seen.clear()
    pair.do(pair.receiver.on_packets(batch_of(packets), pair.now))
    assert pair.reports(Unserved) == [Unserved(3, ("f1",)), Unserved(3, ())]
    assert [(flow, number) for flow, number, _ in delivered(pair.seen)] == [("f1", 2)]
    assert not pair.reports(Gap, Missing)


def batch_of(packets: list[bytes]) -> PacketBatch:
    lengths = np.array([len(packet) for packet in packets])
    buffer = np.frombuffer(b"".join(packets), np.uint8).copy()
    return PacketBatch(buffer, np.cumsum(lengths) - lengths, lengths)


@pytest.mark.parametrize("kept", [1, 4_096])
@pytest.mark.parametrize("stays", [False, True])
def test_a_flow_that_moves_while_the_journal_is_lost_is_delivered_or_reported(
    kept: int, stays: bool
) -> None:
    """It had no message yet when it moved to another stream; then it moves back, or stays there."""
    pair = Pair(simple_plan([0, 0, 1], [0, 1]), ["f0"], journal_packets=kept)
    assert pair.receiver.following == ("f0",)
    pair.seen.clear()
    for placement in ([1, 0, 1], [1, 0, 1] if stays else [0, 0, 1]):
        pair.sender.change_plan(simple_plan(placement, [0, 1]), pair.now)  # nobody hears of it
        for _ in range(2):
            pair.now += 0.2
            pair.sender.on_timer("wake", pair.now)
        pair.sender.offer("f0", b"lost", pair.now)
    for _ in range(3):
        pair.wait(1.0)
        pair.ring()
    pair.pass_on(pair.sender.offer("f0", b"last", pair.now))
    numbers = [number for _, number, _ in delivered(pair.seen)]
    missing = [(report.first, report.last) for report in pair.reports(Missing)]
    if kept == 1:
        assert Gap("publisher", 5, 0, 1, 3, "window") in pair.seen
        assert (numbers, missing) in [([3], [(1, 2)]), ([2, 3], [(1, 1)])]
    else:
        assert (numbers, missing) == ([1, 2, 3], [])


def test_a_report_names_the_version_that_the_journal_tells_of() -> None:
    """Whether the version's announcement, or one from before, arrives before the switch or not."""
    for order in ("journal first", "announcement first", "an old announcement last"):
        pair = Pair(simple_plan([0], [0]), ["f0", "f1"])
        assert pair.receiver.unserved == ("f1",)
        pair.pass_on(pair.sender.change_plan(simple_plan([0, 0], [0]), pair.now))
        pair.ring()
        request = Authenticator().encode_packet(Header(PacketKind.REQUEST), encode_request("r"))
        *_, asked = sends(pair.sender.on_message("r", request, pair.now), CONTROL_GROUP)
        assert asked[3] == PacketKind.ANNOUNCEMENT
        pair.now += 0.2
        packets = sends(pair.sender.on_timer("wake", pair.now), CONTROL_GROUP)
        journal = [packet for packet in packets if packet[3] == PacketKind.DATA]
        announced = [packet for packet in packets if packet[3] == PacketKind.ANNOUNCEMENT]
        assert journal
        assert announced
        pair.seen.clear()
        for packet in {
            "journal first": [*journal, *announced],
            "announcement first": [*announced, *journal],
            "an old announcement last": [*journal, asked],
        }[order]:
            pair.seen += pair.receiver.on_packet(packet, pair.now)
        assert pair.reports(Unserved) == [Unserved(2, ())]
        assert pair.receiver.version == 2


def test_a_wanted_flow_that_the_plan_does_not_have_is_reported_before_the_sender_is_heard() -> None:
    receiver = ReceiverMachine("r", ["f0", "f7", "f8"], rng=np.random.default_rng(0))
    assert receiver.learn_plan(simple_plan([0], [0]), 0.0) == [Unserved(0, ("f7", "f8"))]
    assert receiver.learn_plan(simple_plan([0, 0], [0]), 0.0) == []  # nothing new to say


def test_flows_that_go_to_others_alone_are_reported() -> None:
    plan = simple_plan([0, -1], [0], {"s": [1]})
    receiver = ReceiverMachine("r", ["f0", "f1"], rng=np.random.default_rng(0))
    assert receiver.learn_plan(plan, 0.0) == [Unserved(0, ("f1",))]


def test_a_plan_that_brings_a_receiver_nothing_any_more_is_reported() -> None:
    rng = np.random.default_rng(0)
    pair = Pair(random_plan({"r": ["f1", "f2"], "s": FLOWS}, rng, unicast=False), None)
    brought = pair.receiver.flows
    pair.seen.clear()
    pair.change(random_plan({"s": FLOWS}, rng, unicast=False))
    assert pair.reports(Unserved) == [Unserved(2, brought)]
    pair.change(random_plan({"r": ["f1"], "s": FLOWS}, rng, unicast=False))
    assert pair.reports(Unserved)[1:] == [Unserved(3, ())]
