"""Generators of who-wants-what: each paper's own, and a day of logs around any of them."""

from distributary.workloads.day import Day, publication_log, spoiled, subscription_log
from distributary.workloads.trading_floor import TradingFloor, trading_floor
from distributary.workloads.two_class import TwoClass, two_class

__all__ = [
    "Day",
    "TradingFloor",
    "TwoClass",
    "publication_log",
    "spoiled",
    "subscription_log",
    "trading_floor",
    "two_class",
]
