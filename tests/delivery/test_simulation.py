"""The same machines with hundreds of receivers in virtual time, and thousands."""

from __future__ import annotations

import numpy as np
import pytest

from distributary.delivery import (
    ReceiverMachine,
    ReceiverParams,
    SenderMachine,
    SenderParams,
    wanted_flows,
)
from distributary.delivery.simulation import (
    Faults,
    LearnPlan,
    MessageOffer,
    MulticastNetwork,
    PlanChange,
    ReceiverNode,
    SenderNode,
)
from distributary.machines.virtual import Link, Simulation
from tests.delivery.plans import move_flows, random_plan

RECEIVERS = 200


def build(
    link: Link, faults: Faults, seed: int, *, key: bytes | None = None
) -> tuple[Simulation, MulticastNetwork, SenderNode, dict[str, ReceiverNode]]:
    """A sender and many receivers that want the same two flows, all of them ready."""
    rng = np.random.default_rng(seed)
    wanted = {f"r{at:03d}": ["f0", "f1"] for at in range(RECEIVERS)}
    plan = random_plan(wanted, rng, unicast=False)
    network = MulticastNetwork(link, faults, rng)
    simulation = Simulation(network)
    params = SenderParams(messages_per_packet=1, heartbeat_min=0.05)
    sender = SenderNode(SenderMachine(plan, 1, params=params, key=key), network)
    simulation.add("sender", sender)
    simulation.post(0.0, "sender", "start", sender="caller")
    nodes = {}
    for number, (name, flows) in enumerate(wanted.items()):
        machine = ReceiverMachine(
            name,
            flows,
            rng=np.random.default_rng([seed, number]),
            params=ReceiverParams(receivers=RECEIVERS, back_off=0.05, repair_wait=0.05),
            key=key,
        )
        nodes[name] = ReceiverNode(machine, network)
        simulation.add(name, nodes[name])
        simulation.post(0.0, name, LearnPlan(plan), sender="caller")
        simulation.post(0.0, name, "start", sender="caller")
    return simulation, network, sender, nodes


def offer(simulation: Simulation, messages: int, begin: float) -> None:
    for number in range(messages):
        message = MessageOffer(f"f{number % 2}", b"%d" % number)
        simulation.post(begin + number * 0.01, "sender", message, sender="caller")


def check_complete(simulation: Simulation, nodes: dict[str, ReceiverNode], messages: int) -> None:
    got: dict[str, list[bytes]] = {name: [] for name in nodes}
    for _, node, _, _, message in simulation.record.delivered:
        got[node].append(message.payload)
    for payloads in got.values():
        for flow in range(2):
            expected = [b"%d" % n for n in range(flow, messages, 2)]
            assert [p for p in payloads if int(p) % 2 == flow] == expected


def test_hundreds_of_receivers_get_everything_through_loss() -> None:
    simulation, _, sender, nodes = build(Link(0.002, 0.002, 0.1), Faults(doubled=0.02), seed=1)
    offer(simulation, 60, 1.0)
    simulation.run(until=8.0)
    check_complete(simulation, nodes, 60)
    assert sender.machine.statistics.repairs > 0


def test_one_loss_for_all_is_asked_for_by_few() -> None:
    """The repair that the first NAK brings is there before most others have asked."""
    simulation, network, sender, nodes = build(Link(0.001), Faults(), seed=2)
    offer(simulation, 40, 1.0)
    simulation.clock.at(1.095, lambda: network.cut("all", list(nodes)))
    simulation.clock.at(1.105, lambda: network.heal("all"))
    simulation.run(until=5.0)
    check_complete(simulation, nodes, 40)
    assert 1 <= sender.machine.statistics.naks <= RECEIVERS // 5
    assert sender.machine.statistics.repairs <= 5


def test_one_receiver_that_gets_nothing_stops_nobody() -> None:
    simulation, network, _, nodes = build(Link(0.001), Faults(), seed=3)
    simulation.clock.at(0.9, lambda: network.cut("alone", ["r007"]))
    offer(simulation, 40, 1.0)
    simulation.run(until=3.0)
    others = {name: node for name, node in nodes.items() if name != "r007"}
    assert nodes["r007"].machine.statistics.messages == 0
    assert all(node.machine.statistics.messages == 40 for node in others.values())
    network.heal("alone")
    simulation.run(until=8.0)
    check_complete(simulation, nodes, 40)


def start_together(
    receivers: int, flows: int, loss: float
) -> tuple[SenderNode, list[ReceiverNode]]:
    """Receivers that start at once, without a plan, beside a publisher that has long been there."""
    rng = np.random.default_rng(4)
    names = [f"flow {at}" for at in range(flows)]
    plan = random_plan({"planned": names}, rng, unicast=False)
    network = MulticastNetwork(Link(0.001, 0.001, loss), Faults(), rng)
    simulation = Simulation(network)
    sender = SenderNode(SenderMachine(plan, 1), network)
    simulation.add("sender", sender)
    simulation.post(0.0, "sender", "start", sender="caller")
    nodes = []
    for at in range(receivers):
        wanted = [names[k] for k in rng.choice(flows, 5, replace=False)]
        params = ReceiverParams(receivers=receivers, back_off=0.05)
        machine = ReceiverMachine(f"r{at}", wanted, rng=np.random.default_rng(at), params=params)
        nodes.append(ReceiverNode(machine, network))
        simulation.add(f"r{at}", nodes[-1])
        simulation.post(10.0, f"r{at}", "start", sender="caller")
    simulation.run(until=15.0)
    return sender, nodes


@pytest.mark.parametrize(
    ("receivers", "flows"),
    [(200, 500), pytest.param(5_000, 1_000, marks=pytest.mark.slow)],
)
def test_receivers_that_start_together_cost_about_one_copy_of_the_directory(
    receivers: int, flows: int
) -> None:
    sender, nodes = start_together(receivers, flows, loss=0.0)
    assert all(len(node.machine.following) == 5 for node in nodes)
    log = sender.machine._log
    copy = sum(len(log.bodies_of(block)) for block in range(log.blocks))
    found = sender.machine.statistics
    assert found.directory_packets <= 2 * copy
    assert found.announcements <= 80  # one a second, and once in the hold-off time on request
    assert found.lookups <= 5 * receivers


def test_receivers_that_start_together_find_their_flows_through_loss() -> None:
    sender, nodes = start_together(200, 500, loss=0.2)
    assert all(len(node.machine.following) == 5 for node in nodes)
    log = sender.machine._log
    copy = sum(len(log.bodies_of(block)) for block in range(log.blocks))
    assert sender.machine.statistics.directory_packets <= 12 * copy


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_receivers_that_start_together_are_told_what_the_plan_brings(loss: float) -> None:
    """They have neither a plan nor names of flows, and follow the next plan too."""
    rng = np.random.default_rng(5)
    names = [f"flow {at}" for at in range(300)]
    wanted = {f"r{at}": [names[k] for k in rng.choice(300, 100)] for at in range(40)}
    plans = [random_plan(wanted, rng, unicast=False) for _ in range(2)]
    network = MulticastNetwork(Link(0.001, 0.001, loss), Faults(), rng)
    simulation = Simulation(network)
    sender = SenderNode(SenderMachine(plans[0], 1), network)
    simulation.add("sender", sender)
    simulation.post(0.0, "sender", "start", sender="caller")
    nodes = []
    for at, name in enumerate(wanted):
        machine = ReceiverMachine(name, None, rng=np.random.default_rng(at))
        nodes.append(ReceiverNode(machine, network))
        simulation.add(name, nodes[-1])
        simulation.post(2.0, name, "start", sender="caller")
    for plan, until in zip(plans, (8.0, 16.0), strict=True):
        simulation.run(until=until)
        for node in nodes:
            assert node.machine.following == tuple(sorted(wanted_flows(plan, node.machine.name)))
        simulation.post(until, "sender", PlanChange(plans[1]), sender="caller")
    found = sender.machine.statistics
    if not loss:  # each portion once, in parts, for each plan
        assert found.portion_packets <= 2 * 40 * 4
    assert found.portion_packets <= 8 * found.inquiries


@pytest.mark.parametrize("seed", range(3))
def test_a_change_has_nothing_repaired_where_nothing_is_lost(seed: int) -> None:
    """Nor is anything asked for but where a new stream stands."""
    rng = np.random.default_rng(seed)
    flows = [f"f{at}" for at in range(12)]
    wanted = {f"r{at}": [f for f in flows if rng.random() < 0.5] or flows[:1] for at in range(6)}
    plans = [random_plan(wanted, rng)]
    for _ in range(6):
        plans.append(move_flows(plans[-1], wanted, rng))
    network = MulticastNetwork(Link(0.001), Faults(), rng)
    simulation = Simulation(network)
    sender = SenderNode(SenderMachine(plans[0], 1, params=SenderParams(grace=0.2)), network)
    simulation.add("sender", sender)
    nodes = []
    for at, (name, found) in enumerate(wanted.items()):
        machine = ReceiverMachine(name, found, rng=np.random.default_rng(at))
        nodes.append(ReceiverNode(machine, network, batch=0.002 if at % 2 else 0.0))
        simulation.add(name, nodes[-1])
        simulation.post(0.0, name, "start", sender="caller")
    simulation.post(0.0, "sender", "start", sender="caller")
    for at, plan in enumerate(plans[1:]):
        simulation.post(1.0 + 0.4 * at, "sender", PlanChange(plan), sender="caller")
    for number in range(2_000):
        message = MessageOffer(flows[number % 12], b"%d" % number)
        simulation.post(0.5 + 0.0018 * number, "sender", message, sender="caller")
    simulation.run(until=8.0)
    assert sender.machine.version == len(plans)
    assert sender.machine.statistics.repairs == 0
    assert not [note for node in nodes for note in node.notes]
    got: dict[str, list[bytes]] = {name: [] for name in wanted}
    for _, node, _, _, message in simulation.record.delivered:
        got[node].append(message.payload)
    for name, found in wanted.items():
        expected = {b"%d" % n for n in range(2_000) if flows[n % 12] in found}
        assert len(got[name]) == len(expected)
        assert set(got[name]) == expected
