"""Compiles the kernels that many tests use, or finds them compiled."""

from __future__ import annotations

import pyarrow as pa

from distributary.matching import Matcher, event_schema, parse_filter
from distributary.model import Constraints, Demand, Interest, Rates
from distributary.planning import Request, plan


def compile_kernels() -> None:
    """Plan with each algorithm that has kernels of its own, and match a few events."""
    pairs = [("ann", "a"), ("ann", "b"), ("bob", "b"), ("bob", "c")]
    rates = Rates.from_mapping({"a": 1.0, "b": 2.0, "c": 3.0})
    demand = Demand.of(Interest.from_pairs(pairs), rates)
    apart = Constraints(apart=(frozenset("ab"),))
    for algorithm in ("optimal", "optimal-shared"):
        plan(demand, Request(2, algorithm=algorithm))
    plan(demand, Request(2, 3, algorithm="best", budget_s=0.001, constraints=apart, max_sent=2.0))
    events = pa.table({"symbol": ["IBM", "SAP"], "qty": [1, 2]})
    schema = event_schema(events.schema)
    matcher = Matcher(schema, [parse_filter("symbol = 'IBM' AND qty < 5", schema)])
    matcher.match_table(events)
    matcher.count_table(events)
