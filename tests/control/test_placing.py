"""What comes to be wanted and no plan carries has a place within a second, and nothing moves."""

from __future__ import annotations

import pytest

from distributary.control import placement
from tests.control.desks import BAD, make_desks
from tests.control.plans import read_places
from tests.control.system import System

WITHIN = 1.0  # seconds


def placed_at(system: System, flow: str) -> float:
    """When a version came into force that carries a flow."""
    return next(each.at for each in system.store.accepted if flow in each.plan.flows)


@pytest.mark.parametrize("later", [0.0, 0.05, 0.45, 0.9])
def test_a_flow_that_no_plan_carries_is_placed_within_a_second(later: float) -> None:
    system = make_desks()
    before = read_places(system.plan)
    system.run(later)  # whatever the service does just then
    asked = system.now
    system.floor.want("new", frozenset({"PT"}), asked)
    system.run(WITHIN)
    assert system.force.kind == "placed"
    assert 0 <= placed_at(system, "PT") - asked <= WITHIN
    after = read_places(system.plan)
    assert {flow: after[flow] for flow in BAD} == before


def test_flows_that_come_without_a_pause_are_each_placed_within_a_second() -> None:
    """Versions follow each other in half a second at least; none waits for the stream to end."""
    system = make_desks()
    before, asked = read_places(system.plan), {}
    for number in range(100):
        name = f"new {number % 5}"
        known = system.floor.receivers.get(name)
        flow = f"N{number}"
        asked[flow] = system.now
        system.floor.want(name, (known.wants if known else frozenset()) | {flow}, system.now)
        system.run(0.07)
    system.run(WITHIN)
    late = {flow: placed_at(system, flow) - at for flow, at in asked.items()}
    assert max(late.values()) <= WITHIN
    assert system.force.version < 20  # they were placed together
    after = read_places(system.plan)
    assert {flow: after[flow] for flow in BAD} == before


def test_interest_that_the_plan_carries_already_makes_no_version() -> None:
    system = make_desks()
    system.floor.want("new", frozenset({"EUR", "AU"}), system.now)
    system.run(5)
    assert system.force.version == 1


def test_flows_that_came_and_went_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_SPARE_NAMES", 10)
    system = make_desks()
    before = read_places(system.plan)
    for number in range(60):
        system.floor.want("new", frozenset({f"N{number}"}), system.now)
        system.run(WITHIN)
    after = read_places(system.plan)
    assert {flow: after.pop(flow) for flow in BAD} == before
    assert len(after) <= 2
    kept = system.machine._keeper._placement._flows.listed
    assert len(kept) <= 2 * len(system.plan.flows) + 15
