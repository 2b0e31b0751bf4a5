"""Two lines: the first copy of a packet counts, each fills the other's gaps, and one will do."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.delivery import PacketBatch, ReceiverMachine, SenderMachine, SenderParams
from distributary.delivery.simulation import (
    Faults,
    LearnPlan,
    MessageOffer,
    MulticastNetwork,
    ReceiverNode,
    SenderNode,
)
from distributary.delivery.wire import PacketKind
from distributary.machines.virtual import Link, Simulation
from tests.delivery.line_schedules import run_interest_line_schedule, run_line_schedule
from tests.delivery.machines import delivered, introduce, receiver_of, sends, simple_plan, wake

PLAN = simple_plan([0, 0, 1], [0, 1])
A, B = 0, 1


def start_pair(**params: float) -> tuple[SenderMachine, ReceiverMachine]:
    """A sender of single messages, and a receiver that heard both lines at the start."""
    sender = SenderMachine(
        PLAN, 5, params=SenderParams(grace=1.0, messages_per_packet=1, announce_every=1e6)
    )
    receiver = receiver_of(PLAN, ["f0"], **params)
    for packet in sends(sender.start(0.0)):
        for line in (A, B):
            receiver.on_packet(packet, 0.9, line=line)
    introduce(sender, receiver, 0.95)
    sender.on_timer("wake", 1.0)
    return sender, receiver


def offer_messages(sender: SenderMachine, n: int) -> list[bytes]:
    found = [p for k in range(n) for p in sends(sender.offer("f0", b"%d" % k, 1.0))]
    return [packet for packet in found if packet[3] == PacketKind.DATA]


def test_the_first_copy_is_delivered_and_the_other_is_no_duplicate() -> None:
    sender, receiver = start_pair()
    for at, packet in enumerate(offer_messages(sender, 3)):
        assert delivered(receiver.on_packet(packet, 1.0, line=A)) == [("f0", at + 1, b"%d" % at)]
        assert delivered(receiver.on_packet(packet, 1.1, line=B)) == []
    a, b = receiver.line_statistics(3.1)
    assert (a.line, a.packets, a.first_copies, a.copies, a.filled_gaps) == ("A", 4, 3, 0, 0)
    assert (b.line, b.packets, b.first_copies, b.copies, b.filled_gaps) == ("B", 4, 0, 4, 0)
    assert b.silent_seconds == pytest.approx(2.0)
    assert receiver.statistics.duplicates == 0


def test_a_copy_by_unicast_or_on_the_only_line_is_a_duplicate() -> None:
    sender, receiver = start_pair()
    (packet,) = offer_messages(sender, 1)
    receiver.on_packet(packet, 1.0)
    receiver.on_packet(packet, 1.0)
    assert receiver.statistics.duplicates == 1
    assert [line.first_copies for line in receiver.line_statistics(1.0)] == [0, 0]


def test_the_other_line_fills_a_gap_before_anybody_is_asked() -> None:
    sender, receiver = start_pair(back_off=0.01, line_wait=0.5)
    one, two, three = offer_messages(sender, 3)
    receiver.on_packet(one, 1.0, line=A)
    at = wake(receiver.on_packet(three, 1.0, line=A))
    assert at is not None
    assert 1.5 <= at <= 1.51
    receiver.on_packet(one, 1.4, line=B)
    filled = receiver.on_packet(two, 1.4, line=B)
    assert delivered(filled) == [("f0", 2, b"1"), ("f0", 3, b"2")]
    assert not sends(receiver.on_timer("wake", at))
    assert receiver.statistics.naks == receiver.statistics.missing_ranges == 0
    a, b = receiver.line_statistics(2.0)
    assert (a.filled_gaps, b.filled_gaps, b.first_copies) == (0, 1, 1)


def test_what_both_lines_lost_is_asked_for_after_the_wait() -> None:
    sender, receiver = start_pair(back_off=0.01, line_wait=0.5)
    one, _, three = offer_messages(sender, 3)
    for line in (A, B):
        receiver.on_packet(one, 1.0, line=line)
    at = wake(receiver.on_packet(three, 1.0, line=B))
    receiver.on_packet(three, 1.0, line=A)
    assert at is not None
    (nak,) = sends(receiver.on_timer("wake", at))
    (repair,) = (p for p in sends(sender.on_message("r", nak, at)) if p[3] == PacketKind.REPAIR)
    assert len(delivered(receiver.on_packet(repair, at, line=A))) == 2
    assert [line.filled_gaps for line in receiver.line_statistics(2.0)] == [0, 0]


def test_a_gap_does_not_wait_for_a_line_that_is_silent() -> None:
    sender, receiver = start_pair(back_off=0.01, line_wait=0.5, line_silence=1.0)
    one, _, three = offer_messages(sender, 3)
    receiver.on_packet(one, 2.5, line=A)
    at = wake(receiver.on_packet(three, 2.5, line=A))
    assert at is not None
    assert at <= 2.51


def test_a_heartbeat_on_one_line_leaves_the_last_packet_to_the_other() -> None:
    sender, receiver = start_pair(back_off=0.01, line_wait=0.5)
    (packet,) = offer_messages(sender, 1)
    beats = [p for p in sends(sender.on_timer("wake", 2.0)) if p[3] == PacketKind.HEARTBEAT]
    actions = [action for beat in beats for action in receiver.on_packet(beat, 1.1, line=B)]
    assert 1.6 <= (wake(actions) or 0.0) <= 1.61
    assert delivered(receiver.on_packet(packet, 1.2, line=A)) == [("f0", 1, b"0")]
    assert receiver.line_statistics(2.0)[A].filled_gaps == 1


Copies = list[tuple[int, int]]  # line, packet


@given(
    copies=st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 11)), max_size=60),
    batch=st.integers(1, 7),
)
def test_any_mixture_of_two_lines_delivers_each_message_once_and_in_order(
    copies: Copies, batch: int
) -> None:
    """One by one with the plain filters, and in batches of one line with the compiled ones."""
    sender, plain = start_pair()
    packets = offer_messages(sender, 12)
    _, compiled = start_pair()
    got: list[list[tuple[str, int, bytes]]] = [[], []]
    runs: list[tuple[int, list[bytes]]] = []
    for line, at in [*copies, *((A, at) for at in range(12))]:
        got[0] += delivered(plain.on_packet(packets[at], 1.0, line=line))
        if not runs or runs[-1][0] != line or len(runs[-1][1]) == batch:
            runs.append((line, []))
        runs[-1][1].append(packets[at])
    for line, run in runs:
        lengths = np.array([len(packet) for packet in run], np.int64)
        places = np.cumsum(lengths) - lengths
        found = PacketBatch(np.frombuffer(b"".join(run), np.uint8), places, lengths)
        got[1] += delivered(compiled.on_packets(found, 1.0, line=line))
    assert got[0] == got[1] == [("f0", k + 1, b"%d" % k) for k in range(12)]
    assert plain.line_statistics(2.0) == compiled.line_statistics(2.0)
    assert sum(line.first_copies for line in plain.line_statistics(2.0)) == 12
    assert plain.statistics.duplicates == 0


# --- in virtual time -----------------------------------------------------------------------------


def simulate_lines(
    loss: float,
    cuts: list[tuple[float, float, int]],
    *,
    batch: float = 0.0,
    line_delay: float = 0.0,
) -> tuple[SenderNode, ReceiverNode, list[bytes]]:
    """Publish 1,500 messages in 15 s while lines are cut; what came, in order."""
    rng = np.random.default_rng(1)
    link = Link(0.001, 0.001, loss)
    network = MulticastNetwork(link, Faults(), rng, pairs=True, line_delay=line_delay)
    simulation = Simulation(network)
    sender = SenderNode(SenderMachine(PLAN, 5, params=SenderParams(grace=0.5)), network)
    machine = ReceiverMachine("r", ["f0", "f2"], rng=np.random.default_rng(2))
    receiver = ReceiverNode(machine, network, batch)
    simulation.add("sender", sender)
    simulation.add("r", receiver)
    simulation.post(0.0, "r", LearnPlan(PLAN), sender="caller")
    for name in ("r", "sender"):
        simulation.post(0.0, name, "start", sender="caller")
    for at in range(1_500):
        offered = MessageOffer(("f0", "f2")[at % 2], b"%d" % at)
        simulation.post(1.0 + at * 0.01, "sender", offered, sender="caller")
    for begin, end, line in cuts:
        simulation.clock.at(begin, lambda line=line: network.cut_lines.add(line))
        simulation.clock.at(end, lambda line=line: network.cut_lines.discard(line))
    simulation.run(until=20.0)
    return sender, receiver, [found[-1].payload for found in simulation.record.delivered]


@pytest.mark.parametrize("line", [A, B])
@pytest.mark.parametrize("batch", [0.0, 0.005])
@pytest.mark.parametrize("line_delay", [0.0, 0.015])
def test_one_line_cut_for_ten_seconds_loses_nothing_and_costs_no_repair(
    line: int, batch: float, line_delay: float
) -> None:
    sender, receiver, got = simulate_lines(
        0.0, [(3.0, 13.0, line)], batch=batch, line_delay=line_delay
    )
    assert sorted(map(int, got)) == list(range(1_500))
    assert sender.machine.statistics.repairs == 0
    assert receiver.machine.statistics.naks == receiver.machine.statistics.duplicates == 0
    cut, other = (receiver.machine.line_statistics(20.0)[at] for at in (line, 1 - line))
    assert other.first_copies >= 1_000 / 2  # two messages may share a packet
    assert cut.packets < other.packets


def test_two_lossy_lines_need_few_repairs() -> None:
    sender, receiver, got = simulate_lines(0.05, [], line_delay=0.03)
    assert sorted(map(int, got)) == list(range(1_500))
    filled = sum(line.filled_gaps for line in receiver.machine.line_statistics(20.0))
    assert filled > 30
    assert sender.machine.statistics.repairs < filled / 3


def test_both_lines_cut_is_repaired_as_with_one_line() -> None:
    sender, receiver, got = simulate_lines(0.0, [(3.0, 4.0, A), (3.0, 4.0, B)])
    assert sorted(map(int, got)) == list(range(1_500))
    assert sender.machine.statistics.repairs > 0
    assert receiver.machine.statistics.gaps == 0


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_schedules_on_two_lines(first: int) -> None:
    for seed in range(first, first + 20):
        run_line_schedule(seed)


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_schedules_on_two_lines_in_which_interest_changes(first: int) -> None:
    for seed in range(first, first + 20):
        run_interest_line_schedule(seed)


def test_schedules_on_two_lines_reach_what_they_are_for() -> None:
    total: Counter[str] = Counter()
    for seed in range(60, 80):
        total += run_line_schedule(seed)
    for what in ("delivered", "missing", "filled gaps", "copies", "first on A", "first on B"):
        assert total[what] > 0, what


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 3_000, 250))
def test_thousands_of_schedules_on_two_lines(first: int) -> None:
    for seed in range(first, first + 250):
        run_line_schedule(seed)
        run_interest_line_schedule(seed)
