"""A version that turns out worse is rolled back once, whatever happens to services meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from distributary.control.messages import PlanFetched
from distributary.control.requests import Pin
from tests.control.desks import BAD, GOOD, GOOD_PLAN, make_desks
from tests.control.plans import read_places
from tests.control.rollbacks import check_rollbacks
from tests.control.system import System
from tests.control.test_proposals import meet

WRITE = 0.05  # seconds that a write takes, so that a service may be killed between any two
JUDGED = 25.0  # seconds after which a version is judged, whoever takes over


def propose_worse() -> System:
    """A version has just come into force under which a receiver drops more than predicted."""
    system = make_desks()
    system.serve("one", delay=lambda: WRITE)
    system.run(5)
    system.propose(GOOD_PLAN)
    system.run(1)
    assert meet(read_places(system.plan)) == meet(GOOD)
    system.floor.receivers["fx"].besides = 200.0
    return system


@cache
def list_moments() -> list[float]:
    """Every second until the version is judged, and before and after each write then."""
    system = propose_worse()
    began = system.now
    system.run(JUDGED)
    rolled = system.force.at - began
    seconds = np.arange(0.5, JUDGED, 1.0)
    writes = np.arange(rolled - 1.25 * WRITE, rolled + 8 * WRITE, WRITE / 2)
    return [*seconds.tolist(), *writes.tolist()]


def kill(system: System) -> None:
    """Another service takes over."""
    system.serve("two", delay=lambda: WRITE)


def kill_twice(system: System) -> None:
    """The one that takes over is killed soon after."""
    kill(system)
    system.run(3 * WRITE)
    system.serve("three", delay=lambda: WRITE)


def cut(system: System) -> None:
    """The service loses the store for some time."""
    system.serving.cut()
    system.run(2)
    system.serving.heal()


@pytest.mark.parametrize("disturb", [kill, kill_twice, cut])
def test_it_is_rolled_back_once_whenever_a_service_fails(
    disturb: Callable[[System], None],
) -> None:
    for moment in list_moments():
        system = propose_worse()
        system.run(moment)
        disturb(system)
        system.run(2 * JUDGED)
        found = check_rollbacks(system.store.audit, system.store.accepted)
        assert found["rolled back by itself"] == 1, moment
        assert meet(read_places(system.plan)) == meet(BAD), moment
        assert (system.force.version, system.force.kind) == (3, "rolled back")


def test_what_was_measured_is_told_also_if_an_operator_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a successor fetches the plan of the version before, an operator moves a flow."""
    system = propose_worse()
    service, fetched = system.serve("two"), list[Any]()
    take = service._take
    monkeypatch.setattr(
        service,
        "_take",
        lambda message: (
            fetched.append(message) if isinstance(message, PlanFetched) else take(message)
        ),
    )
    system.run(JUDGED)
    assert fetched
    group = int(system.plan.session_group[read_places(system.plan)["EUR"]])
    system.order(Pin("EUR", 1 - group, "ann"))
    take(fetched.pop())
    system.run(1)
    (entry,) = system.entries("judged")
    assert (entry.version, entry.kind) == (2, "planned")
    assert entry.measured is not None
    assert (system.force.version, system.force.kind) == (3, "pinned")
    check_rollbacks(system.store.audit, system.store.accepted)


def test_it_is_rolled_back_once_or_kept_once_if_its_predecessor_is_lost() -> None:
    """Whoever has the plan of the version before in memory can go back without the store."""
    total = 0
    for moment in list_moments():
        system = propose_worse()
        before = system.entries("in force")[0].plan
        system.run(moment)
        kill(system)
        if before != system.force.plan:
            del system.store.plans[before]
        system.run(2 * JUDGED)
        found = check_rollbacks(system.store.audit, system.store.accepted)
        assert found["rolled back by itself"] + found["kept"] == 1, moment
        assert system.force.version == 2 + found["rolled back by itself"], moment
        assert bool(system.alarms("version not rolled back")) == bool(found["kept"]), moment
        total += found["kept"]
    assert total > 10
