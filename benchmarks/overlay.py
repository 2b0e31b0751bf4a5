"""Thousands of overlay peers that join, leave and crash while others subscribe and publish."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from benchmarks.measure import Section, shown_seconds
from distributary.topics.overlay.messages import LostEvents
from distributary.topics.overlay.simulation import OverlayNetwork

SIZES = (1_000, 2_000, 5_000)
GROUPS, SUBSCRIBERS = 10, 50
CHURN = 0.1  # share of all peers that are replaced, half of them by a crash
DURATION = 600.0  # seconds, of churn and of publishing
REPAIR = 400.0  # seconds: silence is noticed after 90, then trees are repaired in steps
EVENTS = 20  # of each group
_MAINTENANCE = ("keep-alive", "tree-keep-alive")


@dataclass
class World:
    """A network under churn, and what its subscribers should have received."""

    network: OverlayNetwork
    rng: np.random.Generator
    stays: list[str]  # peers that are never replaced: subscribers and publishers
    goes: list[str]
    subscribers: dict[str, list[str]] = field(default_factory=dict)  # by group
    said: Counter[str] = field(default_factory=Counter)

    def replace_one(self, number: int) -> None:
        """Replace a peer, which leaves or crashes, by a new one."""
        name = self.goes.pop(int(self.rng.integers(len(self.goes))))
        (self.network.crash if number % 2 else self.network.leave)(name)
        through = [str(each) for each in self.rng.choice(self.stays, 2)]
        self.network.join(f"new{number}", through)

    def say(self, group: str) -> None:
        """Publish from a peer that stays."""
        self.said[group] += 1
        publisher = self.stays[int(self.rng.integers(len(self.stays)))]
        self.network.publish(publisher, group, self.said[group])


def churn() -> Section:
    """The messages that a ring of this many peers sends, and the speed of the simulation."""
    rows = [_row(n) for n in SIZES]
    return Section(
        "Overlay: thousands of peers with churn",
        f"Pastry and Scribe as state machines: {GROUPS} groups of {SUBSCRIBERS} subscribers, "
        f"{EVENTS} events to each while {CHURN:.0%} of all peers are replaced within "
        f"{DURATION / 60:.0f} virtual minutes, half of them by a crash. Every subscriber got "
        "every event of its group exactly once, despite all crashes (asserted). Keep-alives of "
        "peers and of trees are sent every 30 s.",
        [
            "peers",
            "replaced",
            "messages",
            "keep-alives per peer and minute",
            "tree keep-alives per peer and minute",
            "messages per event and subscriber",
            "peers of a tree per subscriber",
            "happenings",
            "wall",
            "happenings / s",
        ],
        rows,
    )


def _row(n: int) -> list[str]:
    began = time.perf_counter()
    world = _build_world(n)
    happened = _run_churn(world)
    _check(world)
    wall = time.perf_counter() - began
    sent = world.network.count_messages()
    minutes = world.network.simulation.clock.now / 60
    events = sum(world.said.values())
    trees = [len(world.network.tree(group)) / SUBSCRIBERS for group in world.subscribers]
    return [
        f"{n:,}",
        f"{round(CHURN * n):,}",
        f"{sum(sent.values()):,}",
        *(f"{sent[kind] / n / minutes:.1f}" for kind in _MAINTENANCE),
        f"{sent['event'] / events / SUBSCRIBERS:.2f}",
        f"{np.mean(trees):.2f}",
        f"{happened:,}",
        shown_seconds(wall),
        f"{happened / wall:,.0f}",
    ]


def _build_world(n: int) -> World:
    rng = np.random.default_rng(n)
    names = [f"p{at}" for at in range(n)]
    network = OverlayNetwork.build_converged(names, rng)
    staying = GROUPS * SUBSCRIBERS
    world = World(network, rng, names[:staying], names[staying:])
    for at in range(GROUPS):
        group = f"group{at}"
        chosen = [str(each) for each in rng.choice(world.stays, SUBSCRIBERS, replace=False)]
        world.subscribers[group] = chosen
        network.create(chosen[0], group)
        network.run(1.0)
        for name in chosen:
            network.subscribe(name, group)
    network.run(60.0)
    return world


def _run_churn(world: World) -> int:
    """Replace peers and publish, both spread over the time; return the number of events."""
    replaced = round(CHURN * len(world.network.peers))
    steps = [("replace", at) for at in range(replaced)]
    steps += [("say", at) for at in range(GROUPS * EVENTS)]
    world.rng.shuffle(steps)
    happened = 0
    for what, number in steps:
        number = int(number)
        if what == "replace":
            world.replace_one(number)
        else:
            world.say(f"group{number % GROUPS}")
        happened += world.network.run(DURATION / len(steps))
    return happened + world.network.run(REPAIR)


def _check(world: World) -> None:
    for found in world.network.simulation.record.delivered:
        assert not isinstance(found[4], LostEvents), found
    for group, names in world.subscribers.items():
        received = world.network.collect_received(group)
        for name in names:
            stream = received[name]
            numbers = [each.sequence for each in stream]
            assert numbers == list(range(numbers[0], numbers[0] + EVENTS)), (group, name, numbers)
            events = {each.publication.payload for each in stream}
            assert events == set(range(1, EVENTS + 1)), (group, name)


SECTIONS = {"overlay_churn": churn}
