"""The demands that the benchmarks use, all generated from seeds."""

from __future__ import annotations

import numpy as np

from distributary import Demand
from distributary.workloads import TradingFloor, TwoClass, trading_floor, two_class


def floor_demand(seed: int = 0, symbols: int = 20_000, receivers: int = 500) -> Demand:
    """Tock's trading floor."""
    params = TradingFloor(symbols=symbols, receivers=receivers)
    return Demand.of(*trading_floor(params, np.random.default_rng(seed)))


def two_class_demand(seed: int, size: int) -> Demand:
    """Adler's fast and slow, popular and unpopular flows; as many flows as receivers."""
    params = TwoClass(flows=size, receivers=size)
    return Demand.of(*two_class(params, np.random.default_rng(seed)))


def interest_matrix(demand: Demand) -> np.ndarray:
    """Flows x receivers, dense, for a general clustering library."""
    interest = demand.interest
    matrix = np.zeros((len(interest.flows), len(interest.receivers)), np.float32)
    matrix[interest.pair_flows(), interest.flow_receivers] = 1
    return matrix
