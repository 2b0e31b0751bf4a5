"""Several publishers under one plan: each flow from one of them, and reports of who has which."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.delivery import (
    Back,
    Claimed,
    Contested,
    Gap,
    Gone,
    HandedOver,
    Left,
    Missing,
    ReceiverMachine,
    ReceiverParams,
    Refused,
    Released,
    Restarted,
    SenderMachine,
    SenderParams,
    Unfollowed,
    Unserved,
)
from distributary.delivery.authentication import Authenticator
from distributary.delivery.errors import NotHeldError
from distributary.delivery.routes import CONTROL_GROUP, publisher_number
from distributary.delivery.wire import (
    Announcement,
    Header,
    PacketKind,
    encode_announcement,
)
from distributary.machines import Send, SetTimer
from tests.delivery.machines import delivered, simple_plan

PLAN = simple_plan([0, 0, 1, 1], [0, 1])
PARAMS = SenderParams(messages_per_packet=1, grace=0.2, max_age=0.0)
STEP = 0.01
REPORTS = (
    Back, Contested, Gap, Gone, HandedOver, Missing, Restarted, Unfollowed, Unserved,
)  # fmt: skip


class Net:
    """Publishers at addresses of their names and one receiver; what is not lost arrives at once."""

    def __init__(self, wanted: Iterable[str] | None = None, **params: float) -> None:
        settings = ReceiverParams(**params)  # type: ignore[arg-type]
        wanted = PLAN.flows if wanted is None else wanted
        self.receiver = ReceiverMachine("r", wanted, rng=np.random.default_rng(1), params=settings)
        self.senders: dict[str, SenderMachine] = {}
        self.now = 0.0
        self.seen: list[object] = []
        self.told: list[tuple[str, object]] = []  # what publishers report
        self.lost: set[tuple[str, str]] = set()  # from whom to whom nothing arrives
        self.from_receiver(self.receiver.start(0.0))

    def start(
        self, name: str, flows: Iterable[str] | None = None, incarnation: int | None = None
    ) -> SenderMachine:
        at = 1 + round(self.now * 1e9) if incarnation is None else incarnation
        sender = SenderMachine(PLAN, at, name=name, params=PARAMS, flows=flows)
        self.senders[name] = sender
        self.from_sender(name, sender.start(self.now))
        return sender

    def crash(self, name: str) -> None:
        del self.senders[name]

    def offer(self, name: str, flow: str, *payloads: bytes) -> None:
        for payload in payloads:
            self.from_sender(name, self.senders[name].offer(flow, payload, self.now))

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            for name, sender in list(self.senders.items()):
                self.from_sender(name, sender.on_timer("wake", self.now))
            self.from_receiver(self.receiver.on_timer("wake", self.now))

    def from_sender(self, name: str, actions: Iterable[object]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self.carry(name, action)
            elif not hasattr(action, "at"):
                self.told.append((name, action))

    def carry(self, name: str, action: Send) -> None:
        """A publisher's packet: to the receiver, to another publisher, or to all of them."""
        if action.to in self.senders or action.to == CONTROL_GROUP:
            for other in list(self.senders):
                reached = other != name if action.to == CONTROL_GROUP else other == action.to
                if reached and (name, other) not in self.lost:
                    heard = self.senders[other].on_message(name, action.message, self.now)
                    self.from_sender(other, heard)
        if action.to not in self.senders and (name, "r") not in self.lost:
            self.from_receiver(self.receiver.on_packet(action.message, self.now, name))

    def from_receiver(self, actions: Iterable[object]) -> None:
        for action in actions:
            self.seen.append(action)
            if not isinstance(action, Send) or ("r", action.to) in self.lost:
                continue
            sender = self.senders.get(action.to)
            if sender is not None:
                self.from_sender(action.to, sender.on_message("r", action.message, self.now))

    def got(self) -> list[tuple[str, int, bytes]]:
        """What was delivered since the last time."""
        found = delivered(self.seen)
        self.seen = [action for action in self.seen if not delivered([action])]
        return found

    def reports(self, *kinds: type) -> list[object]:
        """The reports since the last time."""
        found = [action for action in self.seen if isinstance(action, kinds or REPORTS)]
        self.seen = [action for action in self.seen if not isinstance(action, kinds or REPORTS)]
        return found


def announcement(name: str, incarnation: int = 7, sequence: int = 1) -> bytes:
    header = Header(
        PacketKind.ANNOUNCEMENT,
        publisher=publisher_number(name),
        incarnation=incarnation,
        sequence=sequence,
    )
    body = encode_announcement(Announcement(1, 0, 7, 0, publisher=name))
    return Authenticator().encode_packet(header, body)


# --- the receiver --------------------------------------------------------------------------------


def test_flows_come_from_the_publishers_that_have_them() -> None:
    net = Net()
    net.start("A", ["f0", "f2"])
    net.start("B", ["f1", "f3"])
    net.wait(0.5)
    net.offer("A", "f0", b"1", b"2")
    net.offer("B", "f1", b"1")
    net.offer("B", "f3", b"1")
    net.offer("A", "f2", b"1")
    assert net.got() == [
        ("f0", 1, b"1"), ("f0", 2, b"2"), ("f1", 1, b"1"), ("f3", 1, b"1"), ("f2", 1, b"1"),
    ]  # fmt: skip
    assert net.receiver.incarnations == {"A": 1, "B": 1}
    assert net.reports()[-1:] in ([], [Unserved(1, ())])


def test_the_first_message_of_a_publisher_that_joins_is_not_missed() -> None:
    net = Net()
    net.start("A", ["f0"])
    net.wait(3.0)
    net.start("B", ["f1"])
    net.wait(0.15)
    net.offer("B", "f1", b"early")  # sent when the grace time is over
    net.wait(0.2)
    assert net.got() == [("f1", 1, b"early")]


def test_a_flow_is_unserved_only_if_no_publisher_has_it() -> None:
    net = Net()
    net.start("A", ["f0"])
    net.wait(0.5)
    assert net.reports() == [Unserved(0, ("f1", "f2", "f3"))]
    net.start("B", ["f1", "f2"])
    net.wait(0.5)
    assert net.reports()[-1] == Unserved(1, ("f3",))
    assert net.receiver.unserved == ("f3",)


def test_a_flow_that_a_plan_drops_is_reported_while_another_publisher_does_not_answer() -> None:
    """What the silent one may carry is not known, but nobody carries what the plan dropped."""
    net = Net(["f0", "f1"])
    net.start("A", ["f0", "f2"])
    net.start("B", ["f1", "f3"])
    net.wait(0.5)
    net.reports()
    net.crash("A")
    net.from_receiver(net.receiver.subscribe(["f2", "f3"], net.now))
    net.wait(0.1)
    net.from_sender("B", net.senders["B"].change_plan(simple_plan([0], [0]), net.now))
    net.wait(0.5)
    assert net.reports() == [Unserved(2, ("f1", "f3"))]
    assert net.receiver.unserved == ("f1", "f3")
    net.from_sender("B", net.senders["B"].change_plan(PLAN, net.now))
    net.wait(0.5)
    assert net.reports() == [Unserved(3, ())]
    net.offer("B", "f1", b"again")
    assert net.got() == [("f1", 1, b"again")]


def test_a_publisher_that_is_silent_is_reported_with_its_flows_and_found_again() -> None:
    net = Net()
    net.start("A", ["f0", "f1"])
    net.start("B", ["f2", "f3"])
    net.wait(0.5)
    net.offer("A", "f0", b"1")
    net.reports()
    net.lost |= {("A", "r"), ("r", "A")}
    net.offer("A", "f0", b"2")
    net.wait(7.0)
    assert net.reports() == [Gone("A", 1, ("f0", "f1")), Unserved(1, ("f0", "f1"))]
    net.offer("B", "f2", b"1")
    net.lost.clear()
    net.wait(2.0)
    net.offer("A", "f0", b"3")
    assert net.got() == [("f0", 1, b"1"), ("f2", 1, b"1"), ("f0", 2, b"2"), ("f0", 3, b"3")]
    assert net.reports() == [Back("A", 1), Unserved(1, ())]


def test_a_publisher_that_starts_again_does_not_disturb_the_flows_of_another() -> None:
    net = Net()
    net.start("A", ["f0"])
    net.start("B", ["f2"])
    net.wait(0.5)
    net.offer("A", "f0", b"1")
    net.offer("B", "f2", b"1")
    net.reports()
    net.crash("A")
    net.start("A", ["f0"])
    net.wait(0.5)
    net.offer("A", "f0", b"1 again")
    net.offer("B", "f2", b"2")
    assert net.got() == [
        ("f0", 1, b"1"), ("f2", 1, b"1"), ("f0", 1, b"1 again"), ("f2", 2, b"2"),
    ]  # fmt: skip
    assert net.reports(Restarted, HandedOver, Gap, Missing) == [
        Restarted("A", 1, net.senders["A"].incarnation)
    ]


def test_of_two_publishers_that_claim_a_flow_the_receiver_takes_one_and_reports_the_other() -> None:
    """They do not hear each other, so that nobody is refused."""
    net = Net()
    net.lost |= {("A", "B"), ("B", "A")}
    net.start("A", ["f0", "f1"])
    net.wait(0.5)
    net.start("B", ["f1", "f2"])
    net.wait(1.0)
    for at in range(3):
        net.offer("A", "f1", b"A %d" % at)
        net.offer("B", "f1", b"B %d" % at)
        net.offer("B", "f2", b"B %d" % at)
    assert [(flow, payload) for flow, _, payload in net.got() if flow == "f1"] == [
        ("f1", b"A 0"), ("f1", b"A 1"), ("f1", b"A 2"),
    ]  # fmt: skip
    assert net.reports(Contested) == [Contested("A", "B", ("f1",))]


def test_a_flow_of_a_publisher_that_is_gone_begins_anew_with_another() -> None:
    net = Net(["f0"])
    net.start("A", ["f0"])
    net.wait(0.5)
    net.offer("A", "f0", b"1", b"2")
    net.crash("A")
    net.wait(7.0)
    net.start("B", ["f0"])
    net.wait(0.1)
    net.offer("B", "f0", b"anew")
    net.wait(0.2)
    assert net.got() == [("f0", 1, b"1"), ("f0", 2, b"2"), ("f0", 1, b"anew")]
    assert net.reports(Gone, HandedOver, Contested) == [
        Gone("A", 1, ("f0",)), HandedOver("A", "B", ("f0",), anew=True),
    ]  # fmt: skip


def test_too_many_publishers_are_left_out_counted_and_reported_once() -> None:
    net = Net(publishers=2)
    net.start("A", ["f0"])
    net.start("B", ["f1"])
    net.wait(0.5)
    net.reports()
    for at in range(5):
        net.from_receiver(net.receiver.on_packet(announcement(f"C{at}"), net.now, "C"))
    assert net.reports() == [Unfollowed("C0")]
    assert net.receiver.statistics.unfollowed == 5
    assert set(net.receiver.incarnations) == {"A", "B"}


def test_a_publisher_takes_the_place_of_one_that_never_replied() -> None:
    net = Net(publishers=2)
    net.start("A", ["f0"])
    net.from_receiver(net.receiver.on_packet(announcement("liar"), net.now, "liar"))
    net.wait(2.0)
    net.start("B", ["f1"])
    net.wait(0.5)
    net.offer("B", "f1", b"1")
    assert net.got() == [("f1", 1, b"1")]
    assert set(net.receiver.incarnations) == {"A", "B"}


def test_a_liar_that_claims_everything_does_not_keep_flows_from_who_replies() -> None:
    """Nor does it keep a receiver from saying which flows nobody has."""
    net = Net(["f0", "f3"])
    liar = SenderMachine(PLAN, 1, name="liar", params=PARAMS)
    for action in (*liar.start(0.0), *liar.on_timer("wake", 0.3)):
        if isinstance(action, Send):
            net.from_receiver(net.receiver.on_packet(action.message, 0.3, "liar"))
    net.now = 0.3
    net.start("A", ["f0"])
    net.wait(1.5)
    net.offer("A", "f0", b"1")
    assert net.got() == [("f0", 1, b"1")]
    assert net.receiver.unserved == ("f3",)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 2**62)), max_size=300))
def test_announcements_of_many_publishers_leave_the_receiver_as_large_as_it_is(
    heard: list[tuple[int, int]],
) -> None:
    net = Net(publishers=8)
    net.start("A", ["f0"])
    net.wait(0.3)
    for name, incarnation in heard:
        packet = announcement(f"liar {name}", incarnation)
        net.from_receiver(net.receiver.on_packet(packet, net.now, f"liar {name}"))
        net.wait(STEP)
    assert len(net.receiver.incarnations) <= 8
    assert len(net.receiver._subs.tables.publishers) <= 8
    net.offer("A", "f0", b"1")
    assert ("f0", 1, b"1") in net.got()


def test_a_number_that_is_not_of_the_name_is_malformed() -> None:
    net = Net()
    packet = bytearray(announcement("A"))
    packet[8] ^= 1
    net.from_receiver(net.receiver.on_packet(bytes(packet), 0.0, "A"))
    assert net.receiver.incarnations == {}
    assert net.receiver.statistics.malformed == 1


@pytest.mark.parametrize("known", [8, 7])
def test_recorded_packets_of_a_publisher_before_its_known_incarnation_are_refused(
    known: int,
) -> None:
    receiver = ReceiverMachine(
        "r", ["f0"], rng=np.random.default_rng(0), incarnations={"A": known, "B": 99}
    )
    receiver.on_packet(announcement("A"), 0.0, "A")
    assert ("A" in receiver.incarnations) == (known == 7)


# --- claims --------------------------------------------------------------------------------------


def test_a_publisher_is_refused_the_flows_that_another_has() -> None:
    net = Net()
    net.start("A", ["f0", "f1"])
    net.wait(1.0)
    net.start("B", ["f1", "f2"])
    net.wait(1.0)
    assert net.told == [("B", Refused("A", ("f1",)))]
    with pytest.raises(NotHeldError, match="'f1' is published by 'A'"):
        net.senders["B"].offer("f1", b"x", net.now)
    net.offer("A", "f1", b"1")
    net.offer("B", "f2", b"1")
    assert net.got() == [("f1", 1, b"1"), ("f2", 1, b"1")]
    assert net.reports(Contested, HandedOver) == []


@pytest.mark.parametrize("names", ["AB", "BA"])
@pytest.mark.parametrize("later", [0, 1])
def test_of_two_that_start_at_the_same_moment_the_earlier_has_the_flow(
    names: str, later: int
) -> None:
    net = Net()
    first, second = names
    net.start(first, ["f0"], incarnation=100 + later)
    net.start(second, ["f0"], incarnation=100)
    winner = min((100 + later, first), (100, second))[1]
    net.wait(1.0)
    loser = ({"A", "B"} - {winner}).pop()
    assert net.told == [(loser, Refused(winner, ("f0",)))]
    net.offer(winner, "f0", b"1")
    assert net.got() == [("f0", 1, b"1")]
    assert net.reports(Contested) == []


def test_a_publisher_waits_for_answers_and_is_refused_what_nobody_answered() -> None:
    net = Net()
    net.start("A", ["f0"])
    net.wait(1.0)
    net.start("B", ["f1"])
    net.lost.add(("B", "A"))  # A is heard, but hears nothing any more
    net.offer("B", "f1", b"1")
    net.wait(3.0)
    assert net.got() == []
    net.wait(3.0)
    assert net.told == [("B", Refused("A", ("f1",)))]


def test_publishers_that_did_not_hear_each_other_settle_when_they_do() -> None:
    net = Net()
    net.lost |= {("A", "B"), ("B", "A")}
    net.start("A", ["f0"])
    net.wait(1.0)
    net.start("B", ["f0"])
    net.wait(1.0)
    assert net.reports(Contested) == [Contested("A", "B", ("f0",))]
    net.lost.clear()
    net.wait(2.0)
    assert net.told == [("B", Refused("A", ("f0",)))]
    net.offer("A", "f0", b"1")
    assert net.got() == [("f0", 1, b"1")]


def test_a_flow_that_is_handed_over_keeps_its_numbers() -> None:
    net = Net(["f0", "f2"])
    net.start("A", ["f0", "f1"])
    net.start("B", ["f2"])
    net.wait(0.5)
    net.offer("A", "f0", b"1", b"2", b"3")
    net.from_sender("A", net.senders["A"].release(["f0"], net.now))
    net.from_sender("B", net.senders["B"].claim(["f0"], net.now))
    net.offer("A", "f0", b"4")  # until it is let go
    net.wait(2.0)
    assert net.told == [("A", Released(("f0",))), ("B", Claimed(("f0",)))]
    with pytest.raises(NotHeldError, match="was released"):
        net.senders["A"].offer("f0", b"x", net.now)
    net.offer("B", "f0", b"5", b"6")
    assert net.got() == [("f0", at, b"%d" % at) for at in range(1, 7)]
    assert net.reports(HandedOver, Missing, Gap, Contested) == [
        HandedOver("A", "B", ("f0",), anew=False)
    ]
    net.from_sender("B", net.senders["B"].release(["f0"], net.now))
    net.from_sender("A", net.senders["A"].claim(["f0"], net.now))
    net.wait(2.0)
    net.offer("A", "f0", b"7")
    assert net.got() == [("f0", 7, b"7")]


def test_what_is_missing_at_a_hand_over_is_reported_to_the_number() -> None:
    net = Net(["f0"])
    net.start("A", ["f0"])
    net.start("B", [])
    net.wait(0.5)
    net.offer("A", "f0", b"1", b"2")
    net.lost |= {("A", "r"), ("r", "A")}
    net.offer("A", "f0", b"3", b"4")
    net.from_sender("A", net.senders["A"].release(["f0"], net.now))
    net.from_sender("B", net.senders["B"].claim(["f0"], net.now))
    net.wait(2.0)
    net.offer("B", "f0", b"5")
    net.crash("A")
    net.wait(8.0)
    net.offer("B", "f0", b"6")
    assert net.got() == [("f0", at, b"%d" % at) for at in (1, 2, 5, 6)]
    assert net.reports(Missing, HandedOver, Gone) == [
        Gone("A", 1, ("f0",)),
        HandedOver("A", "B", ("f0",), anew=False),
        Missing("B", 1, "f0", 3, 4),
    ]


def test_a_publisher_that_leaves_says_which_messages_were_its_last() -> None:
    net = Net(["f0", "f1"])
    net.start("A", ["f0", "f1"])
    net.start("B", ["f2"])
    net.wait(0.5)
    net.offer("A", "f0", b"1", b"2")
    net.lost.add(("A", "r"))
    net.offer("A", "f0", b"3")
    net.senders["A"]._streams[1].window._max_packets = 1  # it cannot be repaired
    net.offer("A", "f1", b"1")
    net.lost.clear()
    net.from_sender("A", net.senders["A"].leave(net.now))
    net.wait(1.0)
    net.crash("A")
    net.wait(8.0)
    assert net.got() == [("f0", 1, b"1"), ("f0", 2, b"2"), ("f1", 1, b"1")]
    assert net.reports(Missing, Left, Gone) == [Left("A", 1), Missing("A", 1, "f0", 3, 3)]


def test_a_flow_of_a_publisher_that_left_goes_on_with_another_that_asks_in_time() -> None:
    net = Net(["f0"])
    net.start("A", ["f0"])
    net.start("B", [])
    net.wait(0.5)
    net.offer("A", "f0", b"1")
    net.from_sender("A", net.senders["A"].leave(net.now))
    net.from_sender("B", net.senders["B"].claim(["f0"], net.now))
    net.wait(1.0)
    net.crash("A")
    net.offer("B", "f0", b"2")
    assert net.got() == [("f0", 1, b"1"), ("f0", 2, b"2")]


def test_numbers_that_were_given_out_twice_are_not_taken_for_the_same() -> None:
    """C goes on behind A, and does not know that B had the flow in between and crashed."""
    net = Net(["f0"])
    net.start("A", ["f0"])
    net.start("B", [])
    net.wait(0.5)
    net.offer("A", "f0", b"1", b"2")
    net.from_sender("A", net.senders["A"].release(["f0"], net.now))
    net.from_sender("B", net.senders["B"].claim(["f0"], net.now))
    net.wait(2.0)
    net.offer("B", "f0", b"3 of B", b"4 of B")
    net.crash("B")
    net.wait(8.0)
    net.start("C", [])
    net.wait(1.0)
    net.from_sender("C", net.senders["C"].claim(["f0"], net.now))
    net.wait(2.0)
    net.offer("C", "f0", b"3 of C")
    assert [payload for _, _, payload in net.got()] == [
        b"1", b"2", b"3 of B", b"4 of B", b"3 of C",
    ]  # fmt: skip
    assert net.reports(HandedOver) == [
        HandedOver("A", "B", ("f0",), anew=False), HandedOver("B", "C", ("f0",), anew=True),
    ]  # fmt: skip


def test_a_claim_that_waits_for_the_start_does_not_keep_the_timer_ringing() -> None:
    """B knows A, which crashes before it answers: nothing is decided until A is silent."""
    net = Net()
    net.start("A", ["f0"])
    net.wait(0.5)
    params = replace(PARAMS, claim_wait=0.5)
    sender = SenderMachine(PLAN, 7, name="B", params=params, flows=["f1"])
    net.senders["B"] = sender
    net.from_sender("B", sender.start(net.now))
    net.crash("A")
    net.from_sender("B", sender.claim(["f0"], net.now))
    rings, now = 0, net.now
    at: float | None = net.now
    while at is not None and at < now + 8.0:
        actions = sender.on_timer("wake", max(at, net.now))
        net.now = max(at, net.now)
        times = [action.at for action in actions if isinstance(action, SetTimer)]
        at = times[-1] if times else None
        net.from_sender("B", actions)
        rings += 1
        assert rings < 1_000
    assert sender.sends("f0") or net.told


def test_a_flow_that_is_claimed_again_is_not_mistaken_for_what_it_was() -> None:
    """The receiver hears nothing of the release, and repairs packets from before it afterwards."""
    net = Net(["f0", "f1"], silent_after=60.0)
    net.start("A", ["f0", "f1"])
    net.start("B", [])
    net.wait(0.5)
    net.offer("A", "f0", b"1", b"2")
    net.lost |= {("A", "r"), ("r", "A")}
    net.offer("A", "f0", b"3")
    net.from_sender("A", net.senders["A"].release(["f0"], net.now))
    net.wait(1.0)
    net.from_sender("A", net.senders["A"].claim(["f0"], net.now))
    net.wait(1.0)
    assert net.told == [("A", Released(("f0",))), ("A", Claimed(("f0",)))]
    for stream in net.senders["A"]._streams:  # the journal is lost for good
        if stream.number == 0:
            stream.window.clear()
    net.lost.clear()
    net.wait(3.0)
    net.offer("A", "f0", b"4")
    net.wait(1.0)
    came = [payload for flow, _, payload in net.got() if flow == "f0"]
    assert came in ([b"1", b"2", b"4"], [b"1", b"2", b"3", b"4"])
    told = net.reports(Missing, Gap, HandedOver)
    assert HandedOver("A", "A", ("f0",), anew=True) in told
    assert b"3" in came or any(isinstance(report, Gap | Missing) for report in told)


def test_a_publisher_that_starts_waits_until_another_has_let_its_flow_go() -> None:
    net = Net(["f0"])
    net.start("A", ["f0"])
    net.wait(0.5)
    net.offer("A", "f0", b"1")
    net.from_sender("A", net.senders["A"].release(["f0"], net.now))
    net.start("B", ["f0"])
    net.offer("B", "f0", b"of B")
    net.offer("A", "f0", b"2")
    net.wait(1.5)
    assert [payload for _, _, payload in net.got()] == [b"1", b"2", b"of B"]
    assert net.reports(Contested) == []
    assert net.told == [("A", Released(("f0",)))]
