"""Advertisements end when everything published under them is delivered, also after restarts."""

from __future__ import annotations

import numpy as np
import pytest

from distributary.content import COVERING_POLICIES
from distributary.content.events import ContentEvent
from distributary.content.link_queue import LinkLimits, LinkQueue
from distributary.content.messages import Barrier, Name, Publication
from tests.content.processes import Network

ALL = (0, 6)


def three_brokers() -> Network:
    """The brokers a, b and c in a row; ann at c wants everything, bob at a publishes."""
    world = Network(
        COVERING_POLICIES["merging"], [("a", "b"), ("b", "c")], np.random.default_rng(0)
    )
    world.run(5.0)
    ann, _ = world.add_application("ann", "c"), world.add_application("bob", "a")
    world.run(2.0)
    ann.subscribe(ALL, ALL)
    world.run(5.0)
    return world


def got(world: Network) -> list[tuple[str, int]]:
    (sub,) = world.applications["ann"].subs.values()
    return sub.got


@pytest.mark.parametrize("middle_has_it", [False, True])
def test_what_was_published_under_an_advertisement_that_ends_survives_a_restart(
    middle_has_it: bool,
) -> None:
    world = three_brokers()
    bob = world.applications["bob"]
    world.crash("c")  # no other broker knows who wants what is published now
    if not middle_has_it:
        world.part(("a", "b"))
    bob.publish(1, 1)
    bob.publish(2, 2)
    world.run(2.0)
    bob.advertise()  # replaces the one that the broker made by itself, which ends
    world.run(2.0)
    assert len(world.processes["a"].host.broker.core.ending) == 1
    world.crash("a")
    world.start("a")
    world.parted.clear()
    world.run(10.0)
    assert got(world) == []
    world.start("c")
    world.settle()
    assert got(world) == [("bob", 0), ("bob", 1)]
    assert world.find_leftovers() == []
    assert not world.processes["a"].host.broker.core.ending


def test_what_a_broker_keeps_for_another_arrives_although_its_publishers_broker_is_taken_out() -> (
    None
):
    world = three_brokers()
    bob, eve = world.applications["bob"], world.add_application("eve", "b")
    world.run(2.0)
    bob.publish(0, 0)
    world.run(5.0)
    world.part(("b", "c"))
    for each in (eve, bob):  # what b sends at once, and what has to wait
        for _ in range(3):
            each.publish(1, 1)
        world.run(5.0)
    del world.links["a", "b"]
    world.processes["b"].call(world.processes["b"].host.remove_link, "a")
    world.run(5.0)
    world.parted.clear()
    world.run(20.0)
    assert got(world) == [
        ("bob", 0),
        *(("eve", number) for number in range(3)),
        *(("bob", number) for number in range(1, 4)),
    ]


def test_a_neighbour_that_has_not_passed_a_barrier_gets_what_waits_for_it_after_a_restart() -> None:
    new, old = Name("a", 1), Name("a", 2)
    first, second = (
        Publication(ContentEvent(1, (1, 1), 0.0), name, 5, 0.0, 0) for name in (new, old)
    )
    queue = LinkQueue(LinkLimits())
    queue.add(first, sure=False)
    queue.add(second, sure=False)
    barrier = Barrier(Name("a", 3), (new,), None)
    queue.restart([barrier], [])
    assert [*queue.take()] == [(barrier, True), (first, True), (second, False)]
