"""The benchmark of what a plan saves a receiver: its traffic, its counts and its sentences."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.delivery_alone import Observation, Traffic
from benchmarks.delivery_headline import (
    EQUAL,
    FLAT,
    FLOODING,
    HASH,
    PRICED,
    Results,
    Settings,
    describe,
)
from benchmarks.delivery_replay import Recording, record
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary import planning
from distributary.cost import plan_loads
from distributary.delivery import (
    Messages,
    ReceiverMachine,
    SenderMachine,
    group_name,
)
from distributary.delivery.udp.calibration import (
    Calibration,
    CalibrationParams,
    FittedLine,
    FittedPrice,
)
from distributary.machines.actions import Send
from distributary.model import Demand, Plan
from distributary.workloads import TradingFloor, trading_floor
from tests.delivery.udp.namespace import ROOT, in_namespace, why_no_namespace

FLOOR = TradingFloor(symbols=400, receivers=20, share_of_market=0.05)
SOURCE = "udp://127.0.0.1:9"
TOY = {
    "symbols": 400,
    "receivers": 20,
    "groups": 4,
    "sessions": 20,
    "budget_s": 0.2,
    "measured": 1,
    "messages": 10_000,
    "most_rate": 20_000.0,  # all of it fits into a socket's buffer: none can be lost
    "probes": 0,  # which would depend on time
    "factors": [8, 40],
    "calibration_rounds": 1,
    "calibration_seconds": 0.05,
    "calibration_packets": 1_000.0,
}


def draw_floor(seed: int) -> Demand:
    return Demand.of(*trading_floor(FLOOR, np.random.default_rng(seed)))


def hash_plan(demand: Demand, groups: int, sessions: int) -> Plan:
    request = planning.Request(groups=groups, sessions=sessions, algorithm="hash")
    return planning.plan(demand, request).plan


def make_traffic(demand: Demand, plan: Plan, messages: int, rate: float, joined: bool) -> Traffic:
    drawn = np.random.default_rng(1).choice(
        len(plan.flows), messages, p=demand.rate / demand.rate.sum()
    )
    recording = record(
        plan,
        drawn,
        rate,
        messages_per_packet=32,
        message_bytes=24,
        packet_size=1_400,
        joined=joined,
    )
    return Traffic("", recording, np.bincount(drawn, minlength=len(plan.flows)))


def introduce(machine: ReceiverMachine, recording: Recording) -> None:
    """Have a receiver and a sender before its first packet talk until both are silent."""
    sender = SenderMachine(recording.plan, recording.incarnation, params=recording.params)
    waiting = [*sender.start(0.0), *sender.on_timer("wake", 1.0)]
    answers = machine.start(1.0)
    for now in range(2, 200):
        for action in waiting:
            if isinstance(action, Send):
                answers += machine.on_packet(action.message, float(now), SOURCE)
        waiting = []
        for answer in answers:
            if isinstance(answer, Send):
                waiting += sender.on_message("udp://127.0.0.1:8", answer.message, float(now))
        waiting += sender.on_timer("wake", now + 0.5)
        answers = list(machine.on_timer("wake", now + 0.5))
        if len(machine.following) == len(machine.flows) and not any(
            isinstance(answer, Send) for answer in answers
        ):
            return
    raise AssertionError("the receiver does not learn where its flows travel")


def hear(machine: ReceiverMachine, recording: Recording, groups: set[str]) -> tuple[int, int]:
    """Give a receiver all packets of its groups; messages delivered, and packets given."""
    actions = []
    given, end = 0, 0
    for length, place in zip(recording.lengths.tolist(), recording.group_of.tolist(), strict=True):
        begin, end = end, end + length
        if recording.groups[place] in groups:
            given += 1
            actions += machine.on_packet(recording.buffer[begin:end].tobytes(), 1e3, SOURCE)
    return sum(len(action) for action in actions if isinstance(action, Messages)), given


@given(
    st.integers(0, 100), st.sampled_from([1, 3, 5]), st.sampled_from([1e3, 1e5, 1e7]), st.booleans()
)
@settings(max_examples=10, deadline=None)
def test_replayed_packets_hold_each_message_of_a_receivers_flows_once(
    seed: int, groups: int, rate: float, joined: bool
) -> None:
    demand = draw_floor(seed)
    plan = hash_plan(demand, groups, 3 * groups)
    traffic = make_traffic(demand, plan, 2_000, rate, joined)
    at = seed % len(plan.receivers)
    flows = demand.interest.flows_of(at).astype(np.int64)
    share = traffic.find_share(flows)
    machine = ReceiverMachine(
        plan.receivers[at],
        [plan.flows[flow] for flow in flows.tolist()],
        rng=np.random.default_rng(0),
    )
    introduce(machine, traffic.recording)
    own_groups = {group_name(group) for group in plan.groups_for(plan.receivers[at])}
    delivered, packets = hear(machine, traffic.recording, own_groups)
    assert len(own_groups) == share.groups
    assert packets == share.packets
    assert delivered == share.wanted
    assert delivered + machine.statistics.unwanted_messages == share.accepted
    assert not machine.statistics.missing_ranges


@given(st.integers(0, 100), st.sampled_from([1, 4]), st.sampled_from([1e4, 1e6]))
@settings(max_examples=10, deadline=None)
def test_joined_packets_of_a_piece_have_one_group_and_one_length(
    seed: int, groups: int, rate: float
) -> None:
    demand = draw_floor(seed)
    plan = hash_plan(demand, groups, 2 * groups)
    recording = make_traffic(demand, plan, 2_000, rate, True).recording
    ends = [*recording.pieces.tolist()[1:], len(recording.lengths)]
    assert recording.bursts[-1][1] == len(recording.pieces)
    for begin, end in zip(recording.pieces.tolist(), ends, strict=True):
        assert 0 < end - begin <= 64
        assert len(set(recording.lengths[begin:end].tolist())) == 1
        assert len(set(recording.group_of[begin:end].tolist())) == 1


@given(st.integers(0, 100), st.sampled_from([(1, 1), (4, 4), (4, 20)]))
@settings(max_examples=10, deadline=None)
def test_a_receivers_share_is_what_the_cost_model_counts(seed: int, size: tuple[int, int]) -> None:
    demand = draw_floor(seed)
    plan = hash_plan(demand, *size)
    traffic = make_traffic(demand, plan, 500, 1e6, True)
    traffic = replace(traffic, counts=traffic.counts + 1)  # a demand has no rate of 0
    loads = plan_loads(plan, Demand(demand.interest, traffic.counts.astype(np.float64)))
    for at in range(len(plan.receivers)):
        share = traffic.find_share(demand.interest.flows_of(at).astype(np.int64))
        found = (share.received, share.accepted, share.wanted, share.groups)
        assert found == (
            loads.received[at],
            loads.accepted[at],
            loads.wanted[at],
            loads.receiver_groups[at],
        )


def make_results(flat_cpu: float, priced_cpu: float) -> Results:
    def observe(cpu: float, received: int, accepted: int, groups: int) -> list[Observation]:
        return [Observation(cpu, 1.0, 1.0, 1_000_000, received, accepted, 20_000, groups)] * 3

    demand = draw_floor(0)
    sizes = {FLOODING: (1, 1), HASH: (4, 20), FLAT: (4, 4), EQUAL: (4, 20), PRICED: (4, 20)}
    prices = Calibration(
        CalibrationParams(),
        (),
        (FittedPrice(8, 1e-7, 5e-8, 0.02, 1.0),),
        FittedLine(1e-7, 0.0, 1.0),
        FittedLine(5e-8, 0.0, 1.0),
    )
    return Results(
        {name: hash_plan(demand, *size) for name, size in sizes.items()},
        {
            FLOODING: observe(0.2, 1_000_000, 1_000_000, 1),
            HASH: observe(0.1, 800_000, 100_000, 10**6),
            FLAT: observe(flat_cpu, 300_000, 300_000, 2),
            EQUAL: observe(0.09, 300_000, 40_000, 2),
            PRICED: observe(priced_cpu, 300_000, 50_000, 2),
        },
        dict.fromkeys(sizes, 8.0),
        prices,
        repeated=0,
        busy=0.5,
    )


@pytest.mark.parametrize(
    ("flat", "priced", "says"),
    [
        (0.1, 0.08, "measured prices it saves 10.0% of flooding's CPU, or 20% of flat's"),
        (0.08, 0.1, "measured prices it costs 10.0% of flooding's CPU, or 25% of flat's"),
    ],
)
def test_the_page_says_what_the_second_level_saves_or_costs(
    flat: float, priced: float, says: str
) -> None:
    page = describe(Settings(), make_results(flat, priced)).markdown()
    assert says in page
    assert "could save 33% of filtering at most" in page  # beta is half of alpha


def test_shares_of_the_prediction_are_those_of_the_cost_model() -> None:
    results = make_results(0.1, 0.08)
    # Flooding: 1e6 alpha + 1e6 beta = 0.15 s; flat: 0.3 of that; hierarchical: 0.03 + 0.0025.
    assert results.of_flooding(Results.filtering, FLAT) == pytest.approx(0.3)
    assert results.of_flooding(Results.filtering, PRICED) == pytest.approx(0.0325 / 0.15)
    assert results.of_flooding(Results.predicted, FLAT) == pytest.approx(0.065 / 0.17)
    assert results.of_flooding(Results.beyond_looking, FLAT) == pytest.approx(0.08 / 0.18)


def test_looking_is_paid_for_each_socket() -> None:
    results = make_results(0.1, 0.08)
    assert results.looking_of(FLAT) == [0.02] * 3
    assert min(results.looking_of(HASH)) > 0.02


@pytest.mark.slow
def test_a_toy_floor_is_measured_in_a_namespace() -> None:
    reason = why_no_namespace()
    if reason is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "benchmarks.delivery_headline", json.dumps(TOY)]
    done = subprocess.run(
        in_namespace(command), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    section = json.loads(done.stdout)
    assert [row[0] for row in section["rows"]] == [FLOODING, HASH, FLAT, EQUAL, PRICED]
    assert section["rows"][0][2].endswith("(100.0%)")  # flooding: everything is looked at
    assert section["rows"][2][3] == "0 (0.0%)"  # flat: stage 1 drops nothing
    assert "What the second level buys" in section["remarks"]
