"""Runs protocols in virtual time: delays, loss, queues, faults, and a record of the run."""

from distributary.simulation.clock import Clock
from distributary.simulation.engine import Simulation
from distributary.simulation.network import Link, VirtualNetwork
from distributary.simulation.node import Service, price_work
from distributary.simulation.record import SimulationRecord

__all__ = [
    "Clock",
    "Link",
    "Service",
    "Simulation",
    "SimulationRecord",
    "VirtualNetwork",
    "price_work",
]
