"""A running plan that names itself. `test_following` compares its costs with an evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from distributary.errors import PlanError
from distributary.model import Plan
from distributary.pipeline.tallied_plan import TalliedPlan
from distributary.planning import Size

RECEIVERS, FLOWS = ("ann", "bob"), ("a", "b", "c")


def completed_plan() -> TalliedPlan:
    """Ann wants a and b, bob c: two circles, each with a session of its own."""
    running = TalliedPlan(Size(2, 2), FLOWS)
    receiver, flow = np.array([0, 0, 1], np.int32), np.array([0, 1, 2], np.int32)
    nothing = np.empty(0, np.int32)
    running.change(receiver, flow, nothing, nothing)
    return running


def name(running: TalliedPlan) -> Plan:
    receivers, flows = np.arange(2, dtype=np.int32), np.arange(3, dtype=np.int32)
    return running.name_plan(receivers, RECEIVERS, flows, FLOWS)


def test_a_plan_that_serves_everybody_is_named() -> None:
    plan = name(completed_plan())
    assert (plan.receivers, plan.flows) == (RECEIVERS, FLOWS)
    carried = plan.placement_session.tolist()
    heard = zip(
        plan.subscription_receiver.tolist(), plan.subscription_session.tolist(), strict=True
    )
    assert carried[0] == carried[1] != carried[2]
    assert sorted(heard) == [(0, carried[0]), (1, carried[2])]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("in_session", "wanted pairs are not served"),
        ("in_group", "wanted pairs are not served"),
        ("session_members", "subscriptions were not counted"),
        ("session_flows", "does not carry the flows"),
    ],
)
def test_tallies_that_do_not_agree_are_no_plan(table: str, problem: str) -> None:
    running = completed_plan()
    counts = getattr(running._seats, table)
    counts[np.unravel_index(counts.argmax(), counts.shape)] += 1
    with pytest.raises(PlanError, match=problem):
        name(running)
