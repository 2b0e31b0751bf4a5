"""Workload generators: those of the papers, quotes, a floor whose interests shift, and logs."""

from distributary.workloads.broker_trees import broker_trees, region_of
from distributary.workloads.content import ContentParams, ContentWorld, content_world, poisson_times
from distributary.workloads.day import DayParams, publication_log, spoil_rows, subscription_log
from distributary.workloads.quotes import QUOTE_SCHEMA, Quotes, quote_events, quote_filters
from distributary.workloads.roaming import (
    BrokerMove,
    Roaming,
    RoamingParams,
    roaming,
    tiered_topology,
)
from distributary.workloads.shifting_floor import FloorScene, ShiftingFloor, shifting_floor
from distributary.workloads.trading_floor import TradingFloor, trading_floor
from distributary.workloads.two_class import TwoClass, two_class
from distributary.workloads.workflows import (
    Workflows,
    WorkflowsParams,
    workflow_topology,
    workflows,
)

__all__ = [
    "QUOTE_SCHEMA",
    "BrokerMove",
    "ContentParams",
    "ContentWorld",
    "DayParams",
    "FloorScene",
    "Quotes",
    "Roaming",
    "RoamingParams",
    "ShiftingFloor",
    "TradingFloor",
    "TwoClass",
    "Workflows",
    "WorkflowsParams",
    "broker_trees",
    "content_world",
    "poisson_times",
    "publication_log",
    "quote_events",
    "quote_filters",
    "region_of",
    "roaming",
    "shifting_floor",
    "spoil_rows",
    "subscription_log",
    "tiered_topology",
    "trading_floor",
    "two_class",
    "workflow_topology",
    "workflows",
]
