"""Plans of flows that stand for filters, made without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from distributary.files import FlowFilters, write_flow_filters, write_plan
from distributary.model import Demand, Plan, Rates
from distributary.planning import Request, make_plan


def plan_content(table: FlowFilters) -> Plan:
    """A plan of the table's flows, in two groups."""
    interest = table.interest()
    rates = Rates.from_mapping(dict.fromkeys(interest.flows, 1.0))
    request = Request(groups=2, sessions=3, algorithm="hash")
    return make_plan(Demand.of(interest, rates), request).solution.plan


def save_content(table: FlowFilters, folder: Path) -> None:
    """Write `plan` and `content` as a run of the pipeline has them."""
    flows = [
        {"flow": flow, "filter": table.texts[at], "own": at in table.own[flow]}
        for flow, filters in table.flows.items()
        for at in filters
    ]
    owners = [
        {"receiver": name, "filter": table.texts[at]}
        for name, filters in table.owners.items()
        for at in filters
    ]
    write_flow_filters(
        table.schema,
        pa.Table.from_pylist(flows),
        pa.Table.from_pylist(owners),
        folder / "content",
    )
    write_plan(plan_content(table), {}, folder / "plan")
