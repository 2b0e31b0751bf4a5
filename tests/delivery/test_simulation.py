"""The same machines with hundreds of receivers in virtual time."""

from __future__ import annotations

import numpy as np

from distributary.delivery import ReceiverMachine, ReceiverParams, SenderMachine, SenderParams
from distributary.delivery.simulation import (
    Faults,
    LearnPlan,
    MessageOffer,
    MulticastNetwork,
    ReceiverNode,
    SenderNode,
)
from distributary.machines.virtual import Link, Simulation
from tests.delivery.plans import random_plan

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
