"""Subscribers that move between brokers, and monitors that want everything and move too.

A monitor covers every other subscription at its broker; when it moves away, they all surface. The
paper has a distributed game in mind: brokers hold parts of a world, and players walk through it.

Reference: Chen et al., Congestion avoidance with selective filter aggregation, section V-F.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distributary.model import Box, Filter, Schema, Topology
from distributary.workloads.workflows import (
    LINK_DELAY,
    Event,
    Subscription,
    WorkflowsParams,
    draw_events,
    range_filter,
)

__all__ = [
    "BrokerMove",
    "Roaming",
    "RoamingParams",
    "region_of",
    "roaming",
    "tier_of",
    "tiered_topology",
]

_FANOUT = (4, 3, 3)


# --- the network ---------------------------------------------------------------------------------


def tiered_topology() -> Topology:
    """Four regions below one core broker, as in Fig. 11: 53 brokers in four tiers.

    The text lacks the drawing and mentions only one core broker, tiers and four regions. Here the
    core has one broker per region below it, each of those has three, and each of these three more,
    so that the network is about as large as the paper's other one. A broker's name is its path, as
    in "region-2.3.1".
    """
    links: dict[tuple[str, str], float] = {}
    tier = ["core"]
    for n in _FANOUT:
        below = [
            (parent, f"region-{at + 1}" if parent == "core" else f"{parent}.{at + 1}")
            for parent in tier
            for at in range(n)
        ]
        links |= dict.fromkeys(below, LINK_DELAY)
        tier = [child for _, child in below]
    return Topology(links)


def region_of(broker: str) -> str | None:
    """The head broker of a broker's region; None for the core."""
    return None if broker == "core" else broker.split(".")[0]


def tier_of(broker: str) -> int:
    """The number of links between a broker and the core."""
    return 0 if broker == "core" else 1 + broker.count(".")


# --- who is where, and when they move ------------------------------------------------------------


class BrokerMove(NamedTuple):
    """A subscriber moves to another broker, `at` seconds after the start."""

    at: float
    client: str
    broker: str


@dataclass(frozen=True, slots=True)
class RoamingParams:
    """The parameters; by default those of section V-F with only monitors moving.

    Subscribers want a range of the values of one workflow, `narrowest` to `widest` wide; no range
    contains another, so that only monitors cover other subscriptions.
    """

    subscribers: int = 5_000
    publishers: int = 40
    duration: float = 6 * 3600.0
    seconds_between_monitors: float = 120.0
    moves_per_minute: float = 0.0
    workflows: int = 100
    narrowest: float = 0.05
    widest: float = 0.2

    def __post_init__(self) -> None:
        if min(self.subscribers, self.publishers, self.workflows) < 1:
            raise ValueError("there must be at least 1 subscriber, 1 publisher and 1 workflow")
        if not (self.duration >= 0 and self.seconds_between_monitors > 0):
            raise ValueError("seconds_between_monitors must be above 0 and duration at least 0")
        if not 0 <= self.moves_per_minute < float("inf"):
            raise ValueError(f"moves_per_minute must be at least 0, not {self.moves_per_minute}")
        if not 0 < self.narrowest <= self.widest < 1:
            raise ValueError("parameters must satisfy 0 < narrowest <= widest < 1")


@dataclass(frozen=True, slots=True, eq=False)
class Roaming:
    """Clients with their initial brokers, and all moves by time."""

    params: RoamingParams
    schema: Schema
    topology: Topology
    subscriptions: tuple[Subscription, ...]
    monitors: tuple[Subscription, ...]
    publishers: tuple[tuple[str, str], ...]
    moves: tuple[BrokerMove, ...]

    def events(self, n: int, rng: np.random.Generator) -> list[Event]:
        """n random events, as keys of the schema."""
        return draw_events(n, self.params.workflows, 1, rng)


def roaming(params: RoamingParams, rng: np.random.Generator) -> Roaming:
    """Draw initial brokers (anywhere but the core), and moves within each client's region."""
    topology, schema = tiered_topology(), WorkflowsParams().schema
    regions: dict[str, list[str]] = {}
    for broker in topology.brokers:
        if (region := region_of(broker)) is not None:
            regions.setdefault(region, []).append(broker)
    everywhere = [broker for brokers in regions.values() for broker in brokers]
    filters = _draw_filters(schema, params, rng)
    width = len(str(params.subscribers))
    subscriptions = tuple(
        (f"subscriber-{at + 1:0{width}}", everywhere[rng.integers(len(everywhere))], filter)
        for at, filter in enumerate(filters)
    )
    monitors = tuple(
        (f"monitor-{at + 1}", brokers[rng.integers(len(brokers))], Filter(schema, (Box(()),)))
        for at, brokers in enumerate(regions.values())
    )
    publishers = tuple(
        (f"publisher-{at + 1:02}", everywhere[rng.integers(len(everywhere))])
        for at in range(params.publishers)
    )
    moves = [
        *_draw_moves(monitors, params.seconds_between_monitors, params.duration, regions, rng),
        *(
            _draw_moves(subscriptions, 60 / params.moves_per_minute, params.duration, regions, rng)
            if params.moves_per_minute
            else ()
        ),
    ]
    moves.sort(key=lambda move: move.at)
    return Roaming(params, schema, topology, subscriptions, monitors, publishers, tuple(moves))


def _draw_filters(schema: Schema, params: RoamingParams, rng: np.random.Generator) -> list[Filter]:
    """One filter per subscriber; the ranges of a workflow start and end in the same order."""
    made = []
    workflow = np.arange(params.subscribers) % params.workflows
    for number in range(min(params.workflows, params.subscribers)):
        n = int((workflow == number).sum())
        width = rng.uniform(params.narrowest, params.widest, n)
        start = rng.random(n) * (1 - width)
        ranges = zip(np.sort(start).tolist(), np.sort(start + width).tolist(), strict=True)
        made += [range_filter(schema, number, [low], [high]) for low, high in ranges]
    return [made[at] for at in rng.permutation(len(made))]


def _draw_moves(
    clients: tuple[Subscription, ...],
    seconds_between: float,
    duration: float,
    regions: dict[str, list[str]],
    rng: np.random.Generator,
) -> list[BrokerMove]:
    """Move a random client every `seconds_between` seconds."""
    here = {client: broker for client, broker, _ in clients}
    names = list(here)
    moves = []
    for turn in range(int(duration / seconds_between)):
        client = names[rng.integers(len(names))]
        region = region_of(here[client])
        assert region is not None
        others = [broker for broker in regions[region] if broker != here[client]]
        here[client] = others[rng.integers(len(others))]
        moves.append(BrokerMove((turn + 1) * seconds_between, client, here[client]))
    return moves
