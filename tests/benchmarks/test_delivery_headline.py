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
    FLAT,
    FLOODING,
    HASH,
    HIERARCHICAL,
    Results,
    Settings,
    describe,
)
from benchmarks.delivery_replay import Recording, record
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary import planning
from distributary.cost import plan_loads
from distributary.delivery import CONTROL_GROUP, Messages, ReceiverMachine, group_name
from distributary.delivery.udp.calibration import (
    Calibration,
    CalibrationParams,
    FittedLine,
    FittedPrice,
)
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
    "looking_seconds": 0.1,
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


def make_traffic(demand: Demand, plan: Plan, messages: int, rate: float) -> Traffic:
    drawn = np.random.default_rng(1).choice(
        len(plan.flows), messages, p=demand.rate / demand.rate.sum()
    )
    recording = record(
        plan, drawn, rate, messages_per_packet=32, message_bytes=24, packet_size=1_400
    )
    return Traffic(plan, "", recording, np.bincount(drawn, minlength=len(plan.flows)))


def hear(machine: ReceiverMachine, recording: Recording, groups: set[str]) -> tuple[int, int]:
    """Give a receiver all packets of its groups; messages delivered, and packets given."""
    actions = []
    for packet in recording.announcements:
        actions += machine.on_packet(packet, 0.0, SOURCE)
    given, end = 0, 0
    for length, place in zip(recording.lengths.tolist(), recording.group_of.tolist(), strict=True):
        begin, end = end, end + length
        if recording.groups[place] in groups:
            given += recording.groups[place] != CONTROL_GROUP
            actions += machine.on_packet(recording.buffer[begin:end].tobytes(), 0.0, SOURCE)
    return sum(len(action) for action in actions if isinstance(action, Messages)), given


@given(st.integers(0, 100), st.sampled_from([1, 3, 5]), st.sampled_from([1e3, 1e5, 1e7]))
@settings(max_examples=10, deadline=None)
def test_replayed_packets_hold_each_message_of_a_receivers_flows_once(
    seed: int, groups: int, rate: float
) -> None:
    demand = draw_floor(seed)
    plan = hash_plan(demand, groups, 3 * groups)
    traffic = make_traffic(demand, plan, 2_000, rate)
    at = seed % len(plan.receivers)
    flows = demand.interest.flows_of(at).astype(np.int64)
    share = traffic.find_share(flows)
    machine = ReceiverMachine(
        plan.receivers[at],
        [plan.flows[flow] for flow in flows.tolist()],
        rng=np.random.default_rng(0),
    )
    machine.learn_plan(plan, 0.0)
    machine.start(0.0)
    joined = {group_name(group) for group in plan.groups_for(plan.receivers[at])}
    delivered, packets = hear(machine, traffic.recording, joined | {CONTROL_GROUP})
    assert len(joined) == share.groups
    assert packets == share.packets
    assert delivered == share.wanted
    assert delivered + machine.statistics.unwanted_messages == share.accepted


@given(st.integers(0, 100), st.sampled_from([(1, 1), (4, 4), (4, 20)]))
@settings(max_examples=10, deadline=None)
def test_a_receivers_share_is_what_the_cost_model_counts(seed: int, size: tuple[int, int]) -> None:
    demand = draw_floor(seed)
    plan = hash_plan(demand, *size)
    traffic = make_traffic(demand, plan, 500, 1e6)
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


def make_results(flat_cpu: float, hierarchical_cpu: float) -> Results:
    def observe(cpu: float, received: int, accepted: int) -> list[Observation]:
        return [Observation(cpu, 1.0, 1.0, 1_000_000, received, accepted, 20_000)] * 3

    demand = draw_floor(0)
    sizes = {FLOODING: (1, 1), HASH: (4, 20), FLAT: (4, 4), HIERARCHICAL: (4, 20)}
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
            FLOODING: observe(0.2, 1_000_000, 1_000_000),
            HASH: observe(0.1, 800_000, 100_000),
            FLAT: observe(flat_cpu, 300_000, 300_000),
            HIERARCHICAL: observe(hierarchical_cpu, 300_000, 50_000),
        },
        dict.fromkeys(sizes, 8.0),
        prices,
        nothing=0.001,
        looking=0.02,
        repeated=0,
    )


@pytest.mark.parametrize(
    ("flat", "hierarchical", "says"),
    [
        (0.1, 0.08, "The second level on top saves 10.0% of flooding's CPU, or 20% of flat's"),
        (0.08, 0.1, "The second level on top costs 10.0% of flooding's CPU, or 25% of flat's"),
    ],
)
def test_the_page_says_what_the_second_level_saves_or_costs(
    flat: float, hierarchical: float, says: str
) -> None:
    page = describe(Settings(), make_results(flat, hierarchical)).markdown()
    assert says in page
    assert "saves at most 33% of filtering" in page  # beta is half of alpha


def test_shares_of_the_prediction_are_those_of_the_cost_model() -> None:
    results = make_results(0.1, 0.08)
    # Flooding: 1e6 alpha + 1e6 beta = 0.15 s; flat: 0.3 of that; hierarchical: 0.03 + 0.0025.
    assert results.of_flooding(Results.filtering, FLAT) == pytest.approx(0.3)
    assert results.of_flooding(Results.filtering, HIERARCHICAL) == pytest.approx(0.0325 / 0.15)
    assert results.of_flooding(Results.predicted, FLAT) == pytest.approx(0.065 / 0.17)
    assert results.of_flooding(Results.beyond_looking, FLAT) == pytest.approx(0.08 / 0.18)


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
    assert [row[0] for row in section["rows"]] == [FLOODING, HASH, FLAT, HIERARCHICAL]
    assert section["rows"][0][3] == "0.0%"  # flooding: nothing is not joined
    assert section["rows"][2][4] == "0.0%"  # flat: the first filter drops nothing
    assert "The second level on top" in section["remarks"]
