"""Runs protocols in virtual time: delays, loss, queues, faults, and a record of the run."""

from distributary.machines.virtual.clock import Clock
from distributary.machines.virtual.engine import Simulation
from distributary.machines.virtual.network import Link, VirtualNetwork
from distributary.machines.virtual.node import Service, price_work
from distributary.machines.virtual.record import SimulationRecord

__all__ = [
    "Clock",
    "Link",
    "Service",
    "Simulation",
    "SimulationRecord",
    "VirtualNetwork",
    "price_work",
]
