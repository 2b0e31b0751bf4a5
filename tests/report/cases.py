"""Small demands and plans that a report must cope with."""

from __future__ import annotations

import numpy as np

from distributary.cost import ChannelPrices, FilteringPrices, evaluate
from distributary.model import Demand, Interest, Plan, Rates
from distributary.planning import Compared, CurvePoint
from distributary.report import Report

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "a&b\"c'd $title ${title} %{label}",
    "\u202eأسهم\u2028株",
)


def demand_of(pairs: dict[str, str], rates: dict[str, float] | None = None) -> Demand:
    """{'anna': 'AB'} is a receiver that wants the flows A and B; flow rates are 1, 2, 3, ..."""
    interest = Interest.from_pairs(
        (receiver, flow) for receiver, flows in pairs.items() for flow in flows
    )
    listed = rates or {flow: 1.0 + index for index, flow in enumerate(interest.flows)}
    return Demand.of(interest, Rates.from_mapping(listed))


def plan_of(
    demand: Demand,
    placements: list[tuple[int, int]],
    groups: list[int],
    *,
    subscriptions: list[tuple[int, int]] | None = None,
) -> Plan:
    """A plan from (flow, session) pairs; by default each receiver subscribes to all it needs."""
    interest = demand.interest
    if subscriptions is None:
        subscriptions = sorted(
            {(int(j), session) for flow, session in placements for j in interest.receivers_of(flow)}
        )
    flow, session = np.array(sorted(placements), np.int32).reshape(-1, 2).T
    receiver, subscribed = np.array(subscriptions, np.int32).reshape(-1, 2).T
    return Plan(
        interest.receivers,
        interest.flows,
        flow,
        session,
        np.array(groups, np.int32),
        receiver,
        subscribed,
    )


def report_of(demand: Demand, plan: Plan, **more: object) -> Report:
    """A report with a comparison and a curve, at prices that are not 1."""
    prices = FilteringPrices(0.5, 1.5), ChannelPrices(1.0, 2.0)
    given: dict[str, object] = {
        "title": "a small plan",
        "seed": 42,
        "seconds": 0.0042,
        "comparison": (Compared("another", 3, 2, 0.75, 30.0, 40.0, 10.0, 1.5),),
        "curve": (CurvePoint(1, 2, 1.0), CurvePoint(2, 4, 0.5), CurvePoint(40, 80, 0.25)),
        "parameters": {"budget": "30 s"},
        "command": "distributary plan --groups 2",
        **more,
    }
    return Report(
        demand=demand,
        plan=plan,
        evaluation=evaluate(plan, demand, *prices),
        algorithm="ours",
        filtering_prices=prices[0],
        channel_prices=prices[1],
        **given,  # type: ignore[arg-type]
    )


def small() -> Report:
    demand = demand_of({"anna": "ABC", "ben": "BC", "cleo": "DE", "dora": "E"})
    return report_of(demand, plan_of(demand, [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2)], [0, 0, 1]))


def single() -> Report:
    demand = demand_of({"anna": "A"})
    return report_of(demand, plan_of(demand, [(0, 0)], [0]), comparison=(), curve=())


def perfect() -> Report:
    """A group for every flow."""
    demand = demand_of({"anna": "A", "ben": "B"})
    return report_of(demand, plan_of(demand, [(0, 0), (1, 1)], [0, 1]))


def flooded() -> Report:
    """One session in one group."""
    demand = demand_of({"anna": "A", "ben": "B"})
    return report_of(demand, plan_of(demand, [(0, 0), (1, 0)], [0]))


def duplicated() -> Report:
    demand = demand_of({"anna": "AB", "ben": "BC"})
    placements = [(0, 0), (1, 0), (1, 1), (2, 1)]
    return report_of(demand, plan_of(demand, placements, [0, 1], subscriptions=[(0, 0), (1, 1)]))


def invalid() -> Report:
    """Flow C travels nowhere, ben subscribes to nothing, session 1 and group 1 are empty."""
    demand = demand_of({"anna": "AB", "ben": "BC"})
    return report_of(demand, plan_of(demand, [(0, 0), (1, 0)], [0, 2], subscriptions=[(0, 0)]))


def silent() -> Report:
    """Nothing is carried and nobody listens."""
    demand = demand_of({"anna": "A"})
    return report_of(demand, plan_of(demand, [], [0], subscriptions=[]))


def hostile() -> Report:
    pairs = [(receiver, flow) for receiver in HOSTILE for flow in HOSTILE]
    interest = Interest.from_pairs(pairs)
    demand = Demand(interest, np.ones(len(interest.flows)))
    # The last session is nobody's, so a problem is named too.
    plan = plan_of(demand, [(0, 0), (1, 0), (2, 1)], [0, 0])
    return report_of(
        demand,
        plan,
        title=HOSTILE[0],
        parameters={HOSTILE[0]: HOSTILE[1]},
        command=HOSTILE[1],
        comparison=(Compared(HOSTILE[0], 1, 1, 0.5, 1.0, 1.0, 1.0),),
    )
