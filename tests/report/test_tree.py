from __future__ import annotations

import numpy as np
import pytest

from distributary.cost import plan_loads
from distributary.model import Demand, Interest, Plan
from distributary.report.deliveries import plan_deliveries, wasted_shares
from distributary.report.tree import MOST_FLOWS, Tree, plan_tree
from tests.report import cases


def tree_of(plan: Plan, demand: Demand) -> Tree:
    loads = plan_loads(plan, demand)
    deliveries = plan_deliveries(plan, demand)
    return plan_tree(
        plan, demand, loads, deliveries, wasted_shares(plan, demand, loads, deliveries)
    )


def wide(flows: int, sessions: int, groups: int) -> tuple[Plan, Demand]:
    interest = Interest.from_codes(
        ["r"],
        [f"f{i:06d}" for i in range(flows)],
        np.zeros(flows, np.int32),
        np.arange(flows, dtype=np.int32),
    )
    demand = Demand(interest, 1.0 + np.arange(flows) % 97)
    placements = [(flow, flow % sessions) for flow in range(flows)]
    return cases.plan_of(demand, placements, [s % groups for s in range(sessions)]), demand


def test_small_plan_is_drawn_whole() -> None:
    report = cases.small()
    tree = tree_of(report.plan, report.demand)
    assert tree.left_out == ""
    trace = tree.chart["data"][0]
    assert dict(zip(trace["ids"], trace["parents"], strict=True)) == {
        "plan": "",
        **{"g0": "plan", "g1": "plan", "s0": "g0", "s1": "g0", "s2": "g1"},
        **{"s0/0": "s0", "s0/1": "s0", "s1/2": "s1", "s2/3": "s2", "s2/4": "s2"},
    }


@pytest.mark.parametrize(
    ("flows", "sessions", "groups"), [(9_000, 60, 5), (9_000, 4_000, 5), (9_000, 4_000, 900)]
)
def test_large_plan_is_capped_says_so_and_keeps_its_total_rate(
    flows: int, sessions: int, groups: int
) -> None:
    plan, demand = wide(flows, sessions, groups)
    tree = tree_of(plan, demand)
    trace = tree.chart["data"][0]
    assert len(trace["ids"]) <= 2 * MOST_FLOWS
    assert "heaviest of 9,000 flows" in tree.left_out
    assert sum(trace["values"]) == pytest.approx(demand.rate.sum(), rel=1e-4)
    assert any("more" in label for label in trace["labels"])


def test_every_node_has_its_parent_and_an_id_of_its_own() -> None:
    plan, demand = wide(9_000, 4_000, 900)
    trace = tree_of(plan, demand).chart["data"][0]
    assert len(set(trace["ids"])) == len(trace["ids"])
    assert set(trace["parents"]) <= {"", *trace["ids"]}
