"""Networks of content brokers tried out under each policy."""

from __future__ import annotations

import numpy as np
import pytest

from distributary.content import COVERING_POLICIES
from distributary.content.rehearsal import (
    Ending,
    RehearsalEvent,
    RehearsalOutcome,
    RehearsalSubscription,
    RehearsalWorkload,
    rehearse,
)
from distributary.model import Topology
from tests.content.worlds import EVENTS, SCHEMA, random_box

TREE = Topology({("a", "b"): 0.001, ("b", "c"): 0.002, ("b", "d"): 0.001, ("d", "e"): 0.001})


def world(seed: int) -> tuple[list[RehearsalSubscription], list[RehearsalEvent]]:
    rng = np.random.default_rng(seed)
    wishes = [
        RehearsalSubscription(f"client {at}", str(rng.choice(TREE.brokers)), random_box(rng))
        for at in range(60)
    ]
    places = rng.integers(len(EVENTS), size=200).tolist()
    return wishes, [RehearsalEvent(str(rng.choice(["a", "e"])), EVENTS[place]) for place in places]


def try_policy(policy: str, seed: int, ending: Ending | None = None) -> RehearsalOutcome:
    wishes, events = world(seed)
    workload = RehearsalWorkload(TREE, SCHEMA, wishes, events, 100.0, ending or Ending())
    return rehearse(workload, COVERING_POLICIES[policy])


@pytest.mark.parametrize("policy", COVERING_POLICIES)
def test_every_policy_delivers_to_each_client_what_it_wants(policy: str) -> None:
    for seed in range(3):
        wishes, events = world(seed)
        wanted = sum(wish.filter.matches(event.keys) for wish in wishes for event in events)
        assert try_policy(policy, seed).deliveries == wanted


def test_covering_makes_tables_smaller_and_nothing_is_sent_in_vain() -> None:
    none, active = try_policy("none", 1), try_policy("active", 1)
    assert active.all_tables < none.all_tables
    assert active.unwanted == none.unwanted == 0.0


def test_an_ending_triggers_statements_and_merging_fewer_of_them() -> None:
    ending = Ending(range(30), within=0.1)
    active, merging = try_policy("active", 2, ending), try_policy("merging", 2, ending)
    assert active.triggered > merging.triggered > 0
    assert try_policy("active", 2).triggered == 0


def test_the_same_seed_gives_the_same_outcome() -> None:
    assert try_policy("merging", 3, Ending([1, 2, 3])) == try_policy(
        "merging", 3, Ending([1, 2, 3])
    )


def test_an_overlay_with_a_cycle_is_refused() -> None:
    ring = Topology({("a", "b"): 1.0, ("b", "c"): 1.0, ("a", "c"): 1.0})
    with pytest.raises(ValueError, match="have a cycle"):
        rehearse(RehearsalWorkload(ring, SCHEMA, [], [], 1.0), COVERING_POLICIES["none"])
