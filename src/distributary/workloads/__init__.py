"""Generators of who-wants-what: each paper's own, and the shapes real feeds have."""

from distributary.workloads.trading_floor import TradingFloor, trading_floor
from distributary.workloads.two_class import TwoClass, two_class

__all__ = ["TradingFloor", "TwoClass", "trading_floor", "two_class"]
