"""Protocols in virtual time: delays, loss, queues, faults, and a record of what happened."""

from distributary.simulation.clock import Clock
from distributary.simulation.engine import Simulation
from distributary.simulation.network import Link, Network
from distributary.simulation.node import Service, priced
from distributary.simulation.record import Record

__all__ = ["Clock", "Link", "Network", "Record", "Service", "Simulation", "priced"]
