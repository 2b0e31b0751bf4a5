from __future__ import annotations

import numpy as np
import pytest

from distributary.model import Demand, Interest, Plan, plan_problems
from distributary.report.deliveries import plan_deliveries, wasted_shares
from tests.report import cases


def random_plan(seed: int) -> tuple[Demand, Plan]:
    """Flows in up to two sessions, and subscriptions that may leave pairs unserved."""
    rng = np.random.default_rng(seed)
    interest = Interest.from_pairs(
        (f"r{rng.integers(6)}", f"f{rng.integers(9)}") for _ in range(20)
    )
    demand = Demand(interest, rng.integers(1, 9, len(interest.flows)).astype(np.float64))
    placements = {
        (flow, int(session))
        for flow in range(len(interest.flows))
        for session in rng.integers(4, size=2)
    }
    subscriptions = {
        (receiver, int(session))
        for receiver in range(len(interest.receivers))
        for session in rng.integers(4, size=3)
    }
    plan = cases.plan_of(
        demand, sorted(placements), [0, 1, 1, 2], subscriptions=sorted(subscriptions)
    )
    return demand, plan


@pytest.mark.parametrize("seed", range(10))
def test_deliveries_match_a_plain_count(seed: int) -> None:
    demand, plan = random_plan(seed)
    interest = demand.interest
    placements = list(
        zip(plan.placement_flow.tolist(), plan.placement_session.tolist(), strict=True)
    )
    subscriptions = set(
        zip(plan.subscription_receiver.tolist(), plan.subscription_session.tolist(), strict=True)
    )
    pairs = [(int(j), k) for k in range(len(interest.flows)) for j in interest.receivers_of(k)]
    served = [
        any((j, session) in subscriptions for flow, session in placements if flow == k)
        for j, k in pairs
    ]
    deliveries = plan_deliveries(plan, demand)
    assert deliveries.pair_served.tolist() == served
    assert deliveries.placement_audience.tolist() == [
        sum((int(j), session) in subscriptions for j in interest.receivers_of(flow))
        for flow, session in placements
    ]
    delivered = np.zeros(len(interest.receivers))
    for (j, k), got in zip(pairs, served, strict=True):
        delivered[j] += demand.rate[k] * got
    assert deliveries.delivered == pytest.approx(delivered)
    unserved = any("not served" in problem for problem in plan_problems(plan, interest))
    assert unserved == (not all(served))


def test_wasted_shares_of_a_plan_by_hand() -> None:
    report = cases.small()
    loads = report.evaluation.loads
    deliveries = plan_deliveries(report.plan, report.demand)
    wasted = wasted_shares(report.plan, report.demand, loads, deliveries)
    # Group 0 carries A=1 B=2 C=3 to anna, who wants all, and ben, who does not want A.
    # Group 1 carries D=4 E=5 to cleo, who wants both, and dora, who does not want D.
    assert wasted.group == pytest.approx([1 / 12, 4 / 18])
    assert wasted.session == pytest.approx([1 / 6, 0, 4 / 18])
    assert wasted.placement == pytest.approx([1 / 2, 0, 0, 1 / 2, 0])
    assert wasted.overall == pytest.approx(1 - report.evaluation.goodput)
