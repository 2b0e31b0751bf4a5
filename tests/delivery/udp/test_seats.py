"""Publishers and receivers of a control plane, which is in the test's own process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distributary.delivery.udp import NetworkOptions, Publisher, Receiver
from distributary.delivery.udp.seated import EMPTY_PLAN, join_network
from tests.delivery.machines import simple_plan
from tests.delivery.udp.namespace import Worker, working
from tests.delivery.udp.seats import ELSEWHERE, HeldControl


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    yield from working()


def test_a_flow_is_there_as_soon_as_a_version_carries_it(worker: Worker) -> None:
    worker.run("a_flow_is_there_as_soon_as_a_version_carries_it")


def test_a_publisher_that_joins_later_begins_with_the_plan_in_force(worker: Worker) -> None:
    worker.run("a_publisher_that_joins_later_begins_with_the_plan_in_force")


def test_the_same_plan_again_is_a_version_too(worker: Worker) -> None:
    worker.run("the_same_plan_again_is_a_version_too")


def test_groups_are_where_the_control_plane_says(worker: Worker) -> None:
    worker.run("groups_are_where_the_control_plane_says")


def test_a_member_goes_by_a_plan_or_by_a_control_plane() -> None:
    plan = simple_plan([0], [0])
    for given in ({}, {"plan": plan, "control": HeldControl()}):
        with pytest.raises(ValueError, match="a plan or by a control plane"):
            Publisher(**given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a plan or by a control plane"):
        Receiver(plan, control=HeldControl(), name="r")


def test_a_member_keeps_its_own_settings_but_for_the_groups() -> None:
    own = NetworkOptions(interface="eth7", ttl=9, largest_packet=1_500)
    joined = join_network(own, ELSEWHERE)
    assert (joined.groups, joined.ttl) == (ELSEWHERE.groups, 0)
    assert (joined.interface, joined.largest_packet) == ("eth7", 1_500)
    assert join_network(None, ELSEWHERE) == ELSEWHERE
    assert join_network(NetworkOptions(), ELSEWHERE).interface == "lo"


def test_a_publisher_without_a_plan_carries_nothing() -> None:
    assert not EMPTY_PLAN.flows
    assert not len(EMPTY_PLAN.placement_flow)
