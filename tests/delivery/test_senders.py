"""Which sender a receiver believes: forged and recorded packets, clocks that step back, rivals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distributary.delivery import (
    Gap,
    Missing,
    NeedPlan,
    ReceiverMachine,
    ReceiverParams,
    Restarted,
    Rival,
    SenderMachine,
    SenderParams,
)
from distributary.delivery.authentication import Authenticator
from distributary.delivery.routes import publisher_number
from distributary.delivery.wire import (
    Announcement,
    Header,
    PacketKind,
    decode_header,
    encode_announcement,
)
from distributary.machines import Send
from tests.delivery.machines import KEY, delivered, simple_plan

PLAN = simple_plan([0, 0], [0])
PARAMS = SenderParams(messages_per_packet=1, grace=0.2, max_age=0.0)
STEP = 0.05
LARGEST = 2**63 - 1


class Net:
    """Senders at addresses and one receiver; everything arrives at once."""

    def __init__(self, key: bytes | None = None, **params: float) -> None:
        settings = ReceiverParams(**params)  # type: ignore[arg-type]
        self.receiver = ReceiverMachine(
            "r", None, rng=np.random.default_rng(1), params=settings, key=key
        )
        self.key = key
        self.senders: dict[str, SenderMachine] = {}
        self.now = 0.0
        self.seen: list[object] = []
        self.sent: list[tuple[str, bytes]] = []  # what each address sent to all
        self.from_receiver(self.receiver.learn_plan(PLAN, 0.0))
        self.from_receiver(self.receiver.start(0.0))

    def start(self, address: str, incarnation: int) -> SenderMachine:
        sender = SenderMachine(PLAN, incarnation, params=PARAMS, key=self.key)
        self.senders[address] = sender
        self.from_sender(address, sender.start(self.now))
        return sender

    def stop(self, address: str) -> None:
        del self.senders[address]

    def offer(self, address: str, messages: int) -> None:
        for at in range(messages):
            self.from_sender(address, self.senders[address].offer(f"f{at % 2}", b"x", self.now))

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            for address, sender in list(self.senders.items()):
                self.from_sender(address, sender.on_timer("wake", self.now))
            self.from_receiver(self.receiver.on_timer("wake", self.now))

    def arrive(self, packet: bytes, source: str) -> None:
        """A packet for all, from there."""
        self.from_receiver(self.receiver.on_packet(packet, self.now, source))

    def from_sender(self, address: str, actions: Iterable[object]) -> None:
        for action in actions:
            if isinstance(action, Send):
                if action.to != "r":
                    self.sent.append((address, action.message))
                self.arrive(action.message, address)

    def from_receiver(self, actions: Iterable[object]) -> None:
        for action in actions:
            self.seen.append(action)
            if isinstance(action, Send) and action.to in self.senders:
                sender = self.senders[action.to]
                self.from_sender(action.to, sender.on_message("r", action.message, self.now))

    def got(self) -> list[tuple[str, int]]:
        """Flow and number of what was delivered since the last time."""
        found = [(flow, number) for flow, number, _ in delivered(self.seen)]
        self.seen = [action for action in self.seen if not delivered([action])]
        return found

    def reports(self) -> list[object]:
        return [a for a in self.seen if isinstance(a, Gap | Missing | NeedPlan | Restarted | Rival)]


def all_of(messages: int, first: int = 1) -> list[tuple[str, int]]:
    return [(f"f{at % 2}", first + at // 2) for at in range(messages)]


def forged(incarnation: int, sequence: int, announced: Announcement) -> bytes:
    header = Header(
        PacketKind.ANNOUNCEMENT,
        publisher=publisher_number("publisher"),
        incarnation=incarnation,
        sequence=sequence,
    )
    return Authenticator().encode_packet(header, encode_announcement(announced))


numbers = st.integers(1, LARGEST) | st.sampled_from([1, 99, 100, 101, LARGEST])
versions = st.integers(0, 2**32 - 1) | st.integers(0, 3)


@st.composite
def announcements(draw: st.DrawFn) -> Announcement:
    current, following = sorted(draw(st.lists(versions, min_size=2, max_size=2)))
    if following == current:
        following = 0
    prints = st.integers(0, 2**64 - 1)
    last = draw(numbers) - 1
    return Announcement(
        current,
        following,
        draw(prints),
        draw(prints),
        blocks=2 ** draw(st.integers(0, 20)),
        record=draw(numbers),
        journal_first=draw(st.integers(1, last + 1)),
        journal_last=last,
        publisher="publisher",
    )


@given(st.lists(st.tuples(numbers, numbers, announcements()), max_size=40), st.booleans())
@example([(LARGEST, 1, Announcement(1, 0, 7, 0, publisher="publisher"))], False)
def test_announcements_of_nobody_change_nothing(
    forgeries: list[tuple[int, int, Announcement]], by_many: bool
) -> None:
    """Whoever they name, a receiver goes on with the sender that answers."""
    net = Net()
    net.start("true", 100)
    net.wait(1.0)
    net.offer("true", 4)
    assert net.got() == all_of(4)
    before = net.receiver.version
    for at, (incarnation, sequence, announced) in enumerate(forgeries):
        net.arrive(forged(incarnation, sequence, announced), f"liar {at if by_many else 0}")
        net.offer("true", 2)
        assert net.got() == all_of(2, 3 + at)
    net.wait(3.0)
    assert net.receiver.incarnations["publisher"] == 100
    assert net.receiver.version == before
    assert net.reports() == []
    assert len(next(iter(net.receiver._publishers)).senders._rivals) <= 16


def test_a_receiver_that_hears_a_forgery_first_turns_to_the_sender_that_answers() -> None:
    net = Net()
    net.arrive(forged(LARGEST, 1, Announcement(1, 0, 7, 0, publisher="publisher")), "liar")
    assert net.receiver.incarnations["publisher"] == LARGEST
    net.start("true", 100)
    net.wait(0.5)
    net.offer("true", 10)
    assert net.got() == all_of(10)
    assert net.receiver.incarnations["publisher"] == 100


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("new", [99, 1, 101, LARGEST])
def test_a_sender_that_starts_again_is_followed_whatever_its_clock_says(
    new: int, key: bytes | None
) -> None:
    net = Net(key)
    net.start("old", 100)
    net.wait(1.0)
    net.offer("old", 200)
    assert net.got() == all_of(200)
    net.stop("old")
    net.start("new", new)
    net.wait(0.2)
    net.offer("new", 200)  # as soon as it can
    net.wait(1.0)
    assert sorted(net.got()) == sorted(all_of(200))
    told = [report for report in net.reports() if not isinstance(report, Rival)]
    assert told == [Restarted("publisher", 100, new)]


@pytest.mark.parametrize("key", [None, KEY])
def test_of_two_senders_that_answer_the_later_one_is_followed_and_the_other_reported(
    key: bytes | None,
) -> None:
    net = Net(key)
    net.start("one", 100)
    net.wait(1.0)
    net.start("other", 50)
    net.wait(5.0)
    assert net.receiver.incarnations["publisher"] == 100
    assert net.reports() == [Rival("publisher", 100, 50, "other")]
    assert net.senders["other"].statistics.outranked > 0
    net.offer("one", 10)
    assert net.got() == all_of(10)
    net.start("third", 150)
    net.wait(1.0)
    assert net.receiver.incarnations["publisher"] == 150
    assert Restarted("publisher", 100, 150) in net.reports()


@pytest.mark.parametrize("during", [0, 7, 400])
@pytest.mark.parametrize("window", [16_384, 100])
def test_a_receiver_that_was_fooled_finds_back_and_gets_everything_once(
    during: int, window: int
) -> None:
    """An impostor that answers is believed without a key, but only for as long as it does."""
    net = Net()
    true = net.start("true", 100)
    for stream in true._streams:
        stream.window._max_packets = window
    net.wait(1.0)
    net.offer("true", 10)
    assert net.got() == all_of(10)
    net.start("impostor", LARGEST)
    net.wait(0.1)
    assert net.receiver.incarnations["publisher"] == LARGEST
    net.offer("true", during)
    net.stop("impostor")
    net.wait(2.0)
    assert net.receiver.incarnations["publisher"] == 100
    net.offer("true", 10)
    net.wait(2.0)
    got = net.got()
    missing = [
        (report.flow, number)
        for report in net.reports()
        if isinstance(report, Missing)
        for number in range(report.first, report.last + 1)
    ]
    assert sorted(got + missing) == sorted(all_of(during + 10, 6))
    assert len(missing) == max(0, during - window)


@pytest.mark.parametrize("key", [None, KEY])
def test_recorded_packets_of_a_sender_before_bring_nothing_back(key: bytes | None) -> None:
    net = Net(key)
    net.start("old", 50)
    net.wait(1.0)
    net.offer("old", 10)
    net.stop("old")
    recorded = [packet for _, packet in net.sent]
    net.start("new", 100)
    net.wait(1.0)
    net.got()
    for turn in range(20):
        for packet in recorded:
            net.arrive(packet, "old")
        net.wait(0.2)
        net.offer("new", 2)
        assert net.got() == all_of(2, 1 + turn)
    assert net.receiver.incarnations["publisher"] == 100
    assert net.reports() == [Restarted("publisher", 50, 100)]


def test_a_forged_number_of_the_senders_own_announcements_is_found_out() -> None:
    """Even one that comes from the sender's own address does not make a receiver deaf for good."""
    net = Net()
    sender = net.start("true", 100)
    net.wait(1.0)
    net.offer("true", 4)
    lie = Announcement(6, 0, 12345, 0, 1 << 20, 2**62, 2**61, 2**62, "publisher")
    net.arrive(forged(100, LARGEST, lie), "true")
    assert net.receiver.version == 6
    net.wait(6.0)
    net.offer("true", 10)
    net.wait(1.0)
    assert net.receiver.version == sender.version
    assert net.got() == all_of(14)


def test_an_answer_is_no_longer_than_its_question_and_says_the_number_back() -> None:
    net = Net()
    net.start("true", 100)
    questions = [a.message for a in net.seen if isinstance(a, Send) and a.to == "true"]
    (question,) = [q for q in questions if decode_header(q).sequence]
    (answer,) = net.senders["true"].on_message("r", question, net.now)
    assert isinstance(answer, Send)
    assert answer.to == "r"
    assert len(answer.message) <= len(question)
    header = decode_header(answer.message)
    assert (header.kind, header.incarnation) == (PacketKind.REPLY, 100)
    assert header.sequence == decode_header(question).sequence


def test_answers_that_nobody_asked_for_are_counted_and_dropped() -> None:
    net = Net()
    net.start("true", 100)
    net.wait(1.0)
    before = net.receiver.statistics
    for incarnation in (100, 200):
        header = Header(
            PacketKind.REPLY,
            publisher=publisher_number("publisher"),
            incarnation=incarnation,
            sequence=77,
        )
        packet = Authenticator().encode_packet(header, b"")
        assert net.receiver.on_stranger(packet, "liar", net.now) == []
    assert net.receiver.on_stranger(b"", "liar", net.now) == []
    assert net.receiver.statistics.strangers == before.strangers + 3
    assert net.receiver.incarnations["publisher"] == 100
