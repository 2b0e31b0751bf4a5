"""Three brokers in a line, a publisher at one end, subscribers everywhere, a cut at the end.

Run it with `python -m tests.machines.virtual.example`; `example.txt` has what it prints.
"""

from __future__ import annotations

import numpy as np

from distributary.content import POLICIES, Broker, ContentEvent, PublishEvent, SubscribeRequest
from distributary.machines.virtual import Simulation, VirtualNetwork, price_work
from distributary.matching import parse_filter
from distributary.model import Attribute, AttributeKind, Schema, Topology
from tests.content.networks import Scan

SCHEMA = Schema(
    (Attribute("symbol", AttributeKind.TEXT), Attribute("price", AttributeKind.INTEGER))
)
LINE = Topology(
    {("Rome", "Paris"): 0.010, ("Paris", "Oslo"): 0.020},
    {"Anna": "Rome", "Bea": "Paris", "Carl": "Oslo"},
)
WANTED = {"Anna": "symbol = 'IBM'", "Bea": "price > 100", "Carl": "symbol = 'IBM' AND price > 100"}
EVENTS = [("IBM", 99), ("IBM", 101), ("HP", 102), ("HP", 42), ("IBM", 103)]


def main() -> None:
    network = VirtualNetwork.of(LINE, np.random.default_rng(0))
    simulation = Simulation(network)
    for name in LINE.brokers:
        policy = POLICIES["link-matching"](name, LINE, ["Rome"])
        broker = Broker(name, LINE, policy, Scan)
        simulation.add(name, broker, service=price_work(0.001, match=0.0001))
    for client, text in WANTED.items():
        subscribe = SubscribeRequest(client, 0, parse_filter(text, SCHEMA))
        simulation.post(0.0, LINE.clients[client], subscribe, sender=client)
    for number, (symbol, price) in enumerate(EVENTS):
        time = 1.0 + number
        event = ContentEvent(number, SCHEMA.keys({"symbol": symbol, "price": price}), time)
        simulation.post(time, "Rome", PublishEvent(event), sender="ticker")
    simulation.clock.at(4.5, lambda: network.cut("storm", ["Oslo"]))
    simulation.run()

    for time, node, client, delay, event in simulation.record.delivered:
        print(f"{time:.4f}  {node:5}  {client:4}  event {event.number}  after {delay * 1e3:.1f} ms")
    for row in simulation.record.traffic().to_pylist():
        print(f"{row['sender']:6} -> {row['receiver']:5}  {row['n']} {row['what']}")
    for row in simulation.record.work().to_pylist():
        print(f"{row['node']:5}  {row['kind']:6}  {row['units']:.0f}")


if __name__ == "__main__":
    main()
