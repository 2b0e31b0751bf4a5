"""Send flows in several sessions, so that each receiver can take them from the cheapest one.

Tock et al. (2005) and Adler et al. (2001) mention duplication, but of their heuristics only
user-merge uses it. Here each *part* of a flow (a session and the receivers that take the flow from
it) is a thing of its own, so that the two-level cost stays exact. Annealing moves whole parts and
single receivers; parts of a flow that meet in a session become one. The rate sent never exceeds the
limit. Near the limit each copy is charged a fee, so that only the most valuable copies remain.

Copies save work in two ways. In a plan that sends each flow once, they save a little where a
receiver is in a session only for a minor flow. A group of their own (a *home*) for receivers with
similar interests saves far more, but also costs far more: homes win only with a limit of several
times the rate of sending each flow once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from distributary.cost import FilteringPrices
from distributary.model import Demand, IndexArray, IntArray, Plan, distinct
from distributary.planning._duplication_kernels import CopyPrices, Sources, redraw_sources
from distributary.planning.hierarchy import Maps, sessions_in_groups
from distributary.planning.kmeans import kmeans, random_start
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.things import Things
from distributary.planning.two_level import TwoLevel

__all__ = ["MOST_SENT", "Copying", "Duplicated", "duplicate", "place_parts"]

HOTTEST, COLDEST = 0.05, 0.01  # temperatures, in units of the mean cost of a flow
SWEEPS_PER_REGROUP = 5
MOST_SWEEPS = 400
MOST_DESCENTS = 50  # passes; with fractional prices, rounding could make them cycle
FIRST_FEE, DEAREST_FEE = 0.1, 10.0  # in units of the mean cost of a sent message
FEE_STEP = 1.1
MOST_SENT = 1e6  # multiple of sending each flow once


@dataclass(frozen=True, slots=True, eq=False)
class Duplicated:
    """Flows in parts: `flow` is the flow of each part, `maps` its session and group.

    The parts of a flow are in different sessions; each receiver of the flow belongs to one part.
    """

    flow: IntArray
    things: Things
    maps: Maps

    @property
    def sent(self) -> int:
        """The total rate of all copies, in whole-number rates."""
        return int(self.things.weight.sum())

    def work(self, prices: FilteringPrices) -> float:
        """Cw in whole-number rates, exactly."""
        return self.maps.work(self.things, prices)


@dataclass(frozen=True, slots=True, eq=False)
class Copying:
    """How flows may be sent again.

    `max_sent` limits the rate sent, as a multiple of sending each flow once. `homes` (receiver ->
    cluster, no more clusters than groups) proposes which receivers could share a group of their
    own. The budget is converted into work by the speed of the reference machine, as in `best`.
    """

    max_sent: float
    homes: IndexArray | None = None
    budget_s: float = 10.0

    def __post_init__(self) -> None:
        if not 1 <= self.max_sent <= MOST_SENT:
            raise ValueError(
                f"max_sent must be a number from 1 to {MOST_SENT:g}, not {self.max_sent:g}"
            )


def duplicate(
    things: Things,
    maps: Maps,
    prices: FilteringPrices,
    copying: Copying,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> Duplicated:
    """Send flows again where that saves receivers most; the result is never worse than `maps`."""
    homes = copying.homes
    if homes is not None and homes.max() > maps.group.max():
        raise ValueError(f"{homes.max() + 1} homes for {maps.group.max() + 1} groups")
    limit = float(math.floor(copying.max_sent * int(things.weight.sum())))
    source = np.repeat(maps.session, np.diff(things.offsets))
    found = _Sources(things, source, maps.group, prices, limit)
    begin = found.duplicated
    found.descend()
    if homes is not None:
        settled = _with_homes(things, maps, prices, limit, homes, rng)
        settled.descend()
        found = min(found, settled, key=lambda state: state.work)
    best, least = found.duplicated, found.work
    sweeps = _sweeps_within(copying.budget_s, things, len(maps.group))
    for sweep in range(sweeps):
        found.cool(sweep / max(1, sweeps - 1), sweep % SWEEPS_PER_REGROUP == 0, rng)
        progress(Step("duplicating", sweep + 1, sweeps, least))
    found.descend()
    if found.work < least:
        best = found.duplicated
    return best if best.work(prices) < begin.work(prices) else begin


def place_parts(demand: Demand, duplicated: Duplicated) -> Plan:
    """Make the plan in which each receiver subscribes to the sessions of its parts."""
    interest = demand.interest
    maps, parts = duplicated.maps.compact(), duplicated.things
    n_sessions = len(maps.group)
    placed = np.sort(duplicated.flow * n_sessions + maps.session)
    subscribed = distinct(
        parts.members.astype(np.int64) * n_sessions
        + np.repeat(maps.session, np.diff(parts.offsets))
    )
    return Plan(
        receivers=interest.receivers,
        flows=interest.flows,
        placement_flow=(placed // n_sessions).astype(np.int32),
        placement_session=(placed % n_sessions).astype(np.int32),
        session_group=maps.group,
        subscription_receiver=(subscribed // n_sessions).astype(np.int32),
        subscription_session=(subscribed % n_sessions).astype(np.int32),
    )


class _Sources:
    """The session that each receiver takes each of its flows from, and the state that prices it."""

    def __init__(
        self,
        things: Things,
        source: IndexArray,
        group: IndexArray,
        prices: FilteringPrices,
        limit: float,
    ) -> None:
        self._things, self._prices, self._limit = things, prices, limit
        self._weight = things.weight.astype(np.float64)
        self._source = source.astype(np.int32)
        _, parts, session = _parts(things, self._source, len(group))
        self._state = TwoLevel(parts, Maps(session, group), prices)
        self._group: IndexArray = self._state.state.group
        self._sent = np.array([float(parts.weight.sum())])
        self._unit = self._state.work / len(things)
        self._message = self._state.work / float(self._sent[0])
        self._fee = FIRST_FEE * self._message

    @property
    def work(self) -> float:
        """Cw, in the whole-number rates of the things."""
        return self._state.work

    @property
    def duplicated(self) -> Duplicated:
        """The current parts."""
        flow, parts, session = _parts(self._things, self._source, len(self._group))
        return Duplicated(flow, parts, Maps(session, self._group.copy()))

    def cool(self, cooled: float, with_groups: bool, rng: np.random.Generator) -> None:
        """Redraw every part and every receiver once; `cooled` goes from 0 (hot) to 1 (cold)."""
        temperature = self._unit * HOTTEST * (COLDEST / HOTTEST) ** cooled
        order, chance = rng.permutation(len(self._things)), rng.random(2 * len(self._source))
        self._redraw(order, chance, self._fee, temperature)
        if with_groups:
            self._state.regroup(rng.random(len(self._group)), temperature)
        full = float(self._sent[0]) + self._weight.mean() > self._limit
        fee = self._fee * FEE_STEP if full else self._fee / FEE_STEP
        self._fee = min(fee, DEAREST_FEE * self._message)

    def descend(self) -> None:
        """Make single moves of parts and receivers as long as one of them lowers the cost."""
        order, never = np.arange(len(self._things)), np.zeros(2 * len(self._source))
        still = np.zeros(len(self._group))
        for _ in range(MOST_DESCENTS):
            moved = self._redraw(order, never, 0.0, 0.0)
            if not moved + self._state.regroup(still, 0.0):
                return

    def _redraw(self, order: IntArray, chance: Any, fee: float, temperature: float) -> int:
        things, inner = self._things, self._state.state
        sources = Sources(
            things.offsets, things.members, self._weight, self._source, self._sent,
            inner.group, inner.sessions, inner.groups,
        )  # fmt: skip
        prices = CopyPrices(self._prices.alpha, self._prices.beta, fee, self._limit, temperature)
        return int(redraw_sources(order, chance, prices, sources))


def _parts(things: Things, label: IndexArray, n_labels: int) -> tuple[IntArray, Things, IndexArray]:
    """Split the pairs of each flow by label; return flow, thing and label of each part."""
    owner = np.repeat(np.arange(len(things)), np.diff(things.offsets))
    key = owner * n_labels + label
    order = np.argsort(key, kind="stable")
    parts, sizes = np.unique(key, return_counts=True)
    flow = parts // n_labels
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    split = Things(things.n_receivers, offsets, things.members[order], things.weight[flow])
    return flow, split, (parts % n_labels).astype(np.int32)


def _with_homes(
    things: Things,
    maps: Maps,
    prices: FilteringPrices,
    limit: float,
    homes: IndexArray,
    rng: np.random.Generator,
) -> _Sources:
    """Give groups of their own to the clusters that gain most; other receivers share the rest."""
    n_groups = int(maps.group.max()) + 1
    label = _homes_within(things, maps, prices, limit, homes)
    n_homes = int(label.max())  # 0 is for receivers without a home
    flow, parts, owner = _parts(things, label[things.members], n_homes + 1)
    group = (n_groups - owner).astype(np.int32)
    rest = np.flatnonzero(owner == 0)
    if len(rest):
        n_shared = min(n_groups - n_homes, len(rest))
        group[rest] = kmeans(parts.subset(rest), random_start(len(rest), n_shared, rng), n_shared)
    settled = sessions_in_groups(parts, group, len(maps.group), n_groups, rng)
    pairs = np.repeat(flow, np.diff(parts.offsets)) * things.n_receivers + parts.members
    source = np.repeat(settled.session, np.diff(parts.offsets))[np.argsort(pairs)]
    return _Sources(things, source, settled.group, prices, limit)


def _homes_within(
    things: Things, maps: Maps, prices: FilteringPrices, limit: float, homes: IndexArray
) -> IndexArray:
    """Choose homes by saving per rate sent again, within the limit.

    Returns each receiver's home, counted from 1, or 0 for none.
    """
    n_clusters = int(homes.max()) + 1
    state = TwoLevel(things, maps, prices).state
    accepted = state.sessions.present @ state.sessions.total
    received = state.groups.present @ state.groups.total
    paid = np.bincount(homes, prices.beta * accepted + prices.alpha * received)
    flow, parts, cluster = _parts(things, homes[things.members], n_clusters)
    alone = np.bincount(flow)[flow] == 1
    rate = np.bincount(cluster, parts.weight, n_clusters)
    again = rate - np.bincount(cluster, parts.weight * alone, n_clusters)
    saved = paid - (prices.alpha + prices.beta) * np.bincount(homes) * rate
    label = np.zeros(n_clusters, np.int32)
    room = limit - float(things.weight.sum())
    for c in np.argsort(-saved / np.maximum(again, 1.0), kind="stable"):
        if again[c] <= room:
            room -= again[c]
            label[c] = label.max() + 1
    return label[homes]


def _sweeps_within(budget_s: float, things: Things, n_sessions: int) -> int:
    nanoseconds = 50_000 + len(things.members) * (400 + 3.0 * n_sessions)
    return max(1, min(MOST_SWEEPS, int(min(budget_s, 1e9) * 1e9 / nanoseconds)))
