"""Latencies: the histogram, the publisher's clock, and what a receiver says of both."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distributary.delivery import (
    LatencyStatistics,
    PacketBatch,
    ReceiverMachine,
    ReceiverParams,
    SenderMachine,
    SenderParams,
    wanted_flows,
)
from distributary.delivery import _latency_kernels as kernels
from distributary.delivery import _latency_reference as reference
from distributary.delivery.clock import ClockEstimate, PublisherClock
from distributary.delivery.latency import Latencies, find_quantile
from distributary.delivery.sender import SenderAction
from distributary.delivery.simulation import (
    Faults,
    MessageOffer,
    MulticastNetwork,
    ReceiverNode,
    SenderNode,
)
from distributary.delivery.wire import PacketKind, decode_header
from distributary.machines.virtual import Link, Simulation
from tests.delivery.machines import introduce, receiver_of, sends, simple_plan

NOW = 1_800_000_000_000_000_000  # ns since 1970
LONGEST = 2**kernels.LONGEST_BITS
nanoseconds = st.integers(0, 200) | st.integers(0, LONGEST - 1) | st.integers(0, 5_000_000)


def histogram_of(latencies: list[int]) -> np.ndarray:
    found = np.zeros(kernels.WIDTH, np.int64)
    for latency in latencies:
        reference.record_latency(found, NOW, NOW - latency)
    return found


# --- the histogram -------------------------------------------------------------------------------


@given(st.lists(nanoseconds, min_size=1, max_size=300), st.integers(0, 100))
@example([LONGEST - 1], 100)
def test_quantiles_are_within_a_128th_of_the_exact_ones(latencies: list[int], percent: int) -> None:
    found = find_quantile(histogram_of(latencies), percent)
    exact = sorted(latencies)[max(0, -(-len(latencies) * percent // 100) - 1)]
    assert found is not None
    assert abs(found - exact) <= exact / 128
    assert found <= max(latencies)


def test_of_no_latencies_there_is_no_quantile() -> None:
    assert find_quantile(histogram_of([]), 50) is None


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**62), 2**62),
            st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
        )
        | nanoseconds.map(lambda latency: (NOW, NOW - latency))
        | st.integers(1, 2**62).map(lambda early: (NOW, NOW + early)),
        max_size=50,
    )
)
@example([(NOW, NOW - LONGEST), (NOW, NOW - LONGEST + 1), (NOW, NOW), (NOW, NOW + 1)])
def test_compiled_and_plain_histograms_agree(packets: list[tuple[int, int]]) -> None:
    plain, compiled = np.zeros((2, kernels.WIDTH), np.int64)
    for received, sent in packets:
        reference.record_latency(plain, received, sent)
        kernels.record_latency(compiled, received, np.uint64(sent))
    assert (plain == compiled).all()
    assert plain[: kernels.LARGEST].sum() == len(packets)  # each is counted once


# --- the publisher's clock -----------------------------------------------------------------------


def clock_of(every: float = 60.0) -> PublisherClock:
    return PublisherClock(every, np.random.default_rng(0))


ways = st.floats(0, 2.0, allow_nan=False)


@given(st.lists(st.tuples(ways, ways, ways), min_size=1, max_size=12), st.floats(-1e6, 1e6))
def test_the_true_offset_is_within_the_uncertainty(
    trips: list[tuple[float, float, float]], ahead: float
) -> None:
    """Whatever the ways there and back take, and however late the reply is read."""
    clock, now, offset = clock_of(), 5.0, round(ahead * 1e9)
    for nonce, (there, back, late) in enumerate(trips, start=1):
        asked, answered, came = now, now + there, now + there + back
        now = came + late
        sent, stamp = (NOW + round(at * 1e9) for at in (answered, came))
        clock.take_reply(nonce, sent + offset, stamp, asked, now)
        found = clock.estimate(now)
        assert found is not None
        assert abs(found.offset - offset) <= found.uncertainty + 10  # rounding of times
        recent = trips[max(0, nonce - 8) : nonce]
        least = min(sum(trip) for trip in recent) / 2
        drift = 15e-6 * sum(map(sum, recent))
        assert least * 1e9 - 10 <= found.uncertainty <= (least + drift) * 1e9 + 10
        now += 1e-9


def test_an_estimate_ages() -> None:
    clock = clock_of()
    clock.take_reply(1, NOW, NOW, 10.0, 10.001)
    assert clock.estimate(10.001) == ClockEstimate(500_000, 500_000)
    aged = clock.estimate(110.001)
    assert aged is not None
    assert aged.uncertainty == 500_000 + 1_500_000  # 15 us a second
    clock.take_reply(2, NOW, NOW, 110.0, 110.002)  # a longer round trip, but a new one
    assert clock.estimate(110.002) == ClockEstimate(1_000_000, 1_000_000)


@pytest.mark.parametrize(
    ("sent", "received", "asked"),
    [
        (0, NOW, 1.0),
        (2**63, NOW, 1.0),
        (2**64 - 1, NOW, 1.0),
        (NOW, 0, 1.0),
        (NOW, NOW, 3.0),
        (2**63 - 1, NOW, 1.0),
    ],
    ids=["unsaid", "2^63", "2^64", "no stamp", "before it was asked", "far future"],
)
def test_replies_without_a_possible_time_say_nothing(
    sent: int, received: int, asked: float
) -> None:
    clock = clock_of()
    clock.take_reply(1, sent, received, asked, 2.0)
    assert clock.estimate(2.0) is None


def test_a_reply_counts_once() -> None:
    clock = clock_of()
    clock.take_reply(1, NOW, NOW, 1.0, 1.1)
    before = clock.estimate(1.1)
    for _ in range(10):
        clock.take_reply(1, NOW, NOW, 1.0, 9.0)
    assert clock.estimate(1.1) == before


def test_a_publisher_is_asked_more_and_more_rarely() -> None:
    clock, now, asked = clock_of(), 0.0, 0
    clock.begin(now)
    while clock.ask_at < 3_600.0:
        now, asked = clock.ask_at, asked + 1
        clock.note_asked(now)
    assert 3_600 / 60 * 0.8 < asked < 3_600 / 60 * 1.25 + 7


# --- corrections ---------------------------------------------------------------------------------


def test_a_clock_that_may_be_the_same_corrects_nothing() -> None:
    latencies = Latencies(1)
    latencies.take_stamp(NOW)
    latencies.record(0, 1, NOW - 700)
    latencies.correct(0, ClockEstimate(-900, 1_000))
    latencies.record(0, 1, NOW - 700)
    found = latencies.make_statistics(0, "p", None)
    assert (found.packets, found.uncorrected, found.corrected) == (2, 0, False)
    assert found.largest_seconds == 700e-9


def test_what_was_measured_before_the_first_correction_is_dropped_and_counted() -> None:
    latencies = Latencies(2)
    latencies.take_stamp(NOW)
    for sent in (0, NOW + 5_000, NOW - 100, NOW - LONGEST):
        latencies.record(1, 1, sent)
        latencies.record(1, 2, sent)
    clock = ClockEstimate(9_000, 1_000)
    latencies.correct(1, clock)
    latencies.record(1, 1, NOW + 5_000)
    found = latencies.make_statistics(1, "p", clock)
    assert (found.packets, found.repairs, found.largest_seconds) == (1, 0, 4_000e-9)
    assert (found.unsaid, found.uncorrected) == (2, 6)
    assert (found.negative, found.absurd) == (0, 0)
    assert (found.corrected, found.clock_offset_seconds) == (True, 9_000e-9)
    assert latencies.make_statistics(0, "q", None).packets == 0
    latencies.begin(1)
    assert latencies.make_statistics(1, "p", None).uncorrected == 0


# --- a receiver ----------------------------------------------------------------------------------


def start_pair() -> tuple[SenderMachine, ReceiverMachine]:
    """A sender of single messages whose clock stands still, and a receiver that follows it."""
    params = SenderParams(grace=1.0, messages_per_packet=1, announce_every=1e6)
    plan = simple_plan([0], [0])
    sender = SenderMachine(plan, 5, params=params, wall_clock=lambda: NOW)
    receiver = receiver_of(plan, ["f0"])
    for packet in sends(sender.start(0.0)):
        receiver.on_packet(packet, 0.0)
    introduce(sender, receiver, 0.5)
    sender.on_timer("wake", 1.0)
    return sender, receiver


def send_numbers(sender: SenderMachine, n: int) -> list[bytes]:
    """The packets of so many messages, one in each."""
    packets = [
        packet
        for number in range(n)
        for packet in sends(sender.offer("f0", b"%d" % number, 1.2))
        if packet[3] == PacketKind.DATA
    ]
    assert len(packets) == n
    return packets


@pytest.mark.parametrize("batched", [False, True], ids=["one by one", "batch"])
def test_absurd_send_times_are_counted_apart(batched: bool) -> None:
    times = [0, 1, NOW + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, NOW - 1_000, NOW - 3_000]
    sender, receiver = start_pair()
    packets = [
        packet[:32] + times[at].to_bytes(8, "little") + packet[40:]
        for at, packet in enumerate(send_numbers(sender, 9))
    ]
    if batched:
        lengths = np.array([len(packet) for packet in packets])
        buffer = np.frombuffer(b"".join(packets), np.uint8)
        batch = PacketBatch(buffer, np.cumsum(lengths) - lengths, lengths)
        receiver.on_packets(batch, 1.2, stamps=np.full(9, NOW))
    else:
        for packet in packets:
            receiver.on_packet(packet, 1.2, stamp=NOW)
    assert receiver.statistics.messages == 9
    (found,) = receiver.latency_statistics(0.2)
    assert found == LatencyStatistics(
        "publisher", 2, 1_004e-9, 2_992e-9, 3_000e-9, 0, None, None, None,
        unsaid=1, negative=3, absurd=3, uncorrected=0, corrected=False,
        clock_offset_seconds=None, clock_uncertainty_seconds=None,
    )  # fmt: skip


def test_without_stamps_nothing_is_measured_and_nobody_is_asked() -> None:
    sender, receiver = start_pair()
    for packet in send_numbers(sender, 3):
        receiver.on_packet(packet, 1.2)
    assert receiver.statistics.messages == 3
    assert receiver.latency_statistics(1.2) == ()
    assert not sends(receiver.on_timer("wake", 100.0))


def test_copies_and_repairs_for_others_are_not_measured_again() -> None:
    sender, receiver = start_pair()
    packets = send_numbers(sender, 4)
    repair = bytes([*packets[1][:3], 2, *packets[1][4:]])
    for packet, at in zip(
        [packets[0], packets[0], packets[2], repair, packets[1], repair, packets[3]],
        range(1, 8),
        strict=True,
    ):
        receiver.on_packet(packet, 1.2, stamp=NOW + at * 10_000_000)
    (found,) = receiver.latency_statistics(0.2)
    assert (found.packets, found.repairs) == (3, 1)
    assert found.largest_seconds == 0.07
    assert found.repair_largest_seconds == 0.04


def test_another_incarnation_is_measured_anew() -> None:
    """It may run on another host, with another clock."""
    sender, receiver = start_pair()
    for packet in send_numbers(sender, 3):
        receiver.on_packet(packet, 1.2, stamp=NOW + 1_000)
    (found,) = receiver.latency_statistics(1.2)
    assert found.packets == 3
    again = SenderMachine(simple_plan([0], [0]), 6, wall_clock=lambda: NOW)
    for packet in sends(again.start(2.0)):
        receiver.on_packet(packet, 2.0, stamp=NOW)
    assert receiver.incarnations == {"publisher": 6}
    (found,) = receiver.latency_statistics(2.0)
    assert (found.packets, found.clock_offset_seconds) == (0, None)


# --- in virtual time -----------------------------------------------------------------------------


class CountingSender(SenderMachine):
    """Counts the requests for a reply."""

    asked = 0

    def on_message(self, sender: str, message: bytes, now: float) -> list[SenderAction]:
        header = decode_header(message)
        self.asked += header.kind == PacketKind.REQUEST and header.sequence > 0
        return super().on_message(sender, message, now)


def simulate(
    ahead: float, link: Link, *, batch: float = 0.0, until: float = 20.0
) -> tuple[LatencyStatistics, int]:
    """A publisher whose clock is `ahead`, and a receiver: its latencies, after 400 messages."""
    rng = np.random.default_rng(3)
    network = MulticastNetwork(link, Faults(), rng)
    simulation = Simulation(network)
    plan = simple_plan([0], [0])
    sender = SenderNode(
        counted := CountingSender(
            plan,
            1,
            params=SenderParams(messages_per_packet=1, heartbeat_min=0.05),
            wall_clock=lambda: NOW + round((simulation.clock.now + ahead) * 1e9),
        ),
        network,
    )
    machine = ReceiverMachine(
        "r", wanted_flows(plan, "r"), rng=np.random.default_rng(4), params=ReceiverParams()
    )
    receiver = ReceiverNode(
        machine, network, batch=batch, wall_clock=lambda now: NOW + round(now * 1e9)
    )
    simulation.add("sender", sender)
    simulation.add("r", receiver)
    for name in ("sender", "r"):
        simulation.post(0.0, name, "start", sender="caller")
    for number in range(400):
        message = MessageOffer("f0", b"%d" % number)
        simulation.post(1.0 + number * 0.01, "sender", message, sender="caller")
    simulation.run(until=until)
    assert machine.statistics.messages == 400
    (found,) = machine.latency_statistics(until)
    return found, counted.asked


@pytest.mark.parametrize("ahead", [3.0, -3.0, 1e7, -1e7])
@pytest.mark.parametrize("batch", [0.0, 0.003], ids=["one by one", "batches"])
def test_a_clock_that_is_off_is_found_and_corrected(ahead: float, batch: float) -> None:
    found, _ = simulate(ahead, Link(0.002, 0.001), batch=batch)
    assert found.corrected
    assert found.clock_offset_seconds is not None
    assert found.clock_uncertainty_seconds is not None
    assert found.median_seconds is not None
    assert found.p99_seconds is not None
    assert found.largest_seconds is not None
    assert abs(found.clock_offset_seconds - ahead) <= found.clock_uncertainty_seconds
    assert found.clock_uncertainty_seconds < 0.0095  # two ways, a batch, and 15 us a second
    wrong = found.clock_uncertainty_seconds
    assert 0.002 - wrong <= found.median_seconds <= 0.003 + wrong
    assert found.median_seconds <= found.p99_seconds <= found.largest_seconds <= 0.003 + wrong
    assert found.packets + found.uncorrected + found.negative == 400
    assert found.uncorrected < 10  # only what came within the first round trip
    assert found.repairs == found.absurd == found.unsaid == 0


def test_the_same_clock_is_left_alone() -> None:
    found, _ = simulate(0.0, Link(0.002, 0.001))
    assert not found.corrected
    assert found.uncorrected == found.negative == found.absurd == 0
    assert found.packets == 400
    assert found.median_seconds is not None
    assert found.largest_seconds is not None
    assert 0.002 * (1 - 1 / 128) <= found.median_seconds <= found.largest_seconds <= 0.003 + 1e-6


def test_repairs_are_counted_apart_and_include_the_repair() -> None:
    found, _ = simulate(3.0, Link(0.002, 0.001, 0.2))
    assert found.repairs > 20
    assert found.packets + found.repairs + found.uncorrected + found.negative == 400
    assert found.largest_seconds is not None
    assert found.repair_median_seconds is not None
    assert found.repair_median_seconds > 0.006  # the way of the packet, of a NAK and of the repair
    assert found.largest_seconds < 0.01


def test_a_publisher_is_asked_for_its_time_about_once_a_minute() -> None:
    _, at_first = simulate(3.0, Link(0.001), until=60.0)
    _, later = simulate(3.0, Link(0.001), until=660.0)
    assert 5 <= at_first <= 8
    assert 7 <= later - at_first <= 14
