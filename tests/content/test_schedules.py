"""Thousands of seeded runs: clients come, go, move and publish at any moment, under any policy."""

from __future__ import annotations

import numpy as np
import pytest

from distributary.content import (
    COVERING_POLICIES,
    AdvertiseRequest,
    Detach,
    SubscribeRequest,
    UnadvertiseRequest,
    UnsubscribeRequest,
)
from tests.content.worlds import EVENTS, World, random_box, random_tree
from tests.shrinking import checked

POLICIES = tuple(COVERING_POLICIES)


def run_schedule(seed: int, policy: str | None = None, steps: int | None = None) -> World:
    """One run; an `AssertionError` says what went wrong and how to run it again."""
    rng = np.random.default_rng([seed, 6])
    drawn = POLICIES[int(rng.integers(len(POLICIES)))]
    name = drawn if policy is None else policy
    world = World(
        COVERING_POLICIES[name],
        random_tree(rng, int(rng.integers(2, 9))),
        rng,
        service=float(rng.choice([0.0, 0.02, 0.3])),
    )
    n_steps, homes = int(rng.integers(20, 120)), homes_for(world, rng)
    play(world, rng, n_steps if steps is None else min(steps, n_steps), homes)
    world.run()
    problems = [*world.watch.problems(), *world.table_problems()]
    again = f"run_schedule({seed}, {name!r}, {steps})"
    assert world.watch.under_way == 0, again
    assert not problems, f"{again}: {problems[0]} and {len(problems) - 1} more"
    return world


def homes_for(world: World, rng: np.random.Generator) -> dict[str, str]:
    """Some clients, each with a broker."""
    brokers = world.topology.brokers
    return {f"c{at}": str(rng.choice(brokers)) for at in range(int(rng.integers(3, 9)))}


def play(
    world: World,
    rng: np.random.Generator,
    n_steps: int,
    homes: dict[str, str],
    first: int = 0,
    *,
    moves: bool = True,
) -> None:
    """Clients do things, one after the other, now close together and now far apart."""
    clients = list(homes)
    hurry = float(rng.choice([0.01, 0.3, 3.0]))
    for number in range(first, first + n_steps):
        client = clients[int(rng.integers(len(clients)))]
        what = rng.random()
        wishes, promises = list(world.watch.wishes), list(world.watch.promises)
        if what < 0.1 or not promises:
            world.say(homes[client], AdvertiseRequest(client, number, random_box(rng)))
        elif what < 0.3:
            world.say(homes[client], SubscribeRequest(client, number, random_box(rng)))
        elif what < 0.42 and wishes:
            broker, client, gone = wishes[int(rng.integers(len(wishes)))]
            world.say(broker, UnsubscribeRequest(client, gone))
        elif what < 0.45 and len(promises) > 1:
            broker, client, gone = promises[int(rng.integers(len(promises)))]
            world.say(broker, UnadvertiseRequest(client, gone))
        elif what < 0.48 and moves:
            move(world, rng, client, homes)
        else:
            broker, client, promise = promises[int(rng.integers(len(promises)))]
            filter = world.watch.promises[broker, client, promise].filter
            events = [event for event in EVENTS if filter.matches(event)]
            for _ in range(int(rng.integers(1, 4))):
                keys = events[int(rng.integers(len(events)))]
                world.publish(broker, client, promise, keys)
        world.run(float(rng.exponential(hurry)) if rng.random() < 0.9 else 30.0)


def move(world: World, rng: np.random.Generator, client: str, homes: dict[str, str]) -> None:
    """A client subscribes to the same again at another broker, and leaves its old one."""
    home = homes[client]
    mine = {
        number: wish.filter
        for (broker, who, number), wish in world.watch.wishes.items()
        if (broker, who) == (home, client)
    }
    homes[client] = str(rng.choice([each for each in world.topology.brokers if each != home]))
    for number, filter in mine.items():
        world.say(homes[client], SubscribeRequest(client, number, filter))
    world.say(home, Detach(client), after=float(rng.choice([0.0, 0.1, 2.0])))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(25))
def test_each_event_reaches_exactly_those_who_want_it(seed: int, policy: str) -> None:
    checked(run_schedule, seed, policy)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_a_thousand_schedules(policy: str) -> None:
    for seed in range(1_000, 2_000):
        checked(run_schedule, seed, policy)


def test_a_failing_schedule_is_shown_at_its_shortest() -> None:
    def fails_from_step_7_on(seed: int, steps: int | None = None) -> None:
        assert steps is not None, f"schedule {seed}"
        assert steps < 7, f"schedule {seed}, {steps} steps"

    with pytest.raises(AssertionError, match="schedule 3, 7 steps"):
        checked(fails_from_step_7_on, 3)
