"""A two-level plan that can be changed flow by flow, with exact prices."""

from __future__ import annotations

from itertools import count

import numpy as np

from distributary.cost import FilteringPrices
from distributary.model import FloatArray, IndexArray, IntArray
from distributary.planning._anneal_kernels import (
    MovePrices,
    descend,
    draw_moves,
    regroup,
    sweep,
)
from distributary.planning._state_kernels import Level, State, apply_moves, count_two_levels
from distributary.planning.hierarchy import Maps
from distributary.planning.things import Things

__all__ = ["BITS", "TwoLevel", "settle"]

BITS = 52  # of a cost; doubles represent such whole numbers exactly


class TwoLevel:
    """The maps of a plan and the state that prices it, updated together.

    The rates of `things` must be whole numbers whose costs fit `BITS` bits. Kernels take `state`;
    those that change it keep all its parts consistent.
    """

    def __init__(
        self, things: Things, maps: Maps, prices: FilteringPrices, n_groups: int | None = None
    ) -> None:
        n_sessions = len(maps.group)
        n_groups = n_groups or int(maps.group.max()) + 1
        self.things = things
        self.prices = prices
        self.state = State(
            things.offsets,
            things.members,
            things.weight.astype(np.float64),
            maps.session.copy(),
            maps.group.copy(),
            _empty_level(things.n_receivers, n_sessions),
            _empty_level(things.n_receivers, n_groups),
        )
        self._nowhere = np.full(len(things), -1, np.int32)
        count_two_levels(self.state)

    @property
    def maps(self) -> Maps:
        """The current maps."""
        return Maps(self.state.session.copy(), self.state.group.copy())

    @property
    def n_sessions(self) -> int:
        """The number of sessions, including empty ones."""
        return len(self.state.group)

    @property
    def received(self) -> float:
        """The intake of all receivers from the groups they join: exact."""
        return float(self.state.groups.audience @ self.state.groups.total)

    @property
    def accepted(self) -> float:
        """The intake of all receivers from the sessions they subscribe to: exact."""
        return float(self.state.sessions.audience @ self.state.sessions.total)

    @property
    def work(self) -> float:
        """Cw, in the whole-number rates of the things."""
        return self.prices.work(self.received, self.accepted)

    def sweep(self, order: IntArray, chance: FloatArray, temperature: float) -> None:
        """Redraw the session of every flow, one after the other."""
        sweep(order, chance, self.prices.alpha, self.prices.beta, temperature, self.state)

    def regroup(self, chance: FloatArray, temperature: float) -> int:
        """Redraw every session's group; return how many moved."""
        return int(regroup(chance, self.prices.alpha, temperature, self.state))

    def descend(
        self, toll: float = 0.0, home: IndexArray | None = None, passes: int | None = None
    ) -> None:
        """Move flows and sessions as long as a single move lowers the cost.

        It stops after `passes` passes at the latest. If flows have homes, being elsewhere costs a
        toll and sessions keep their groups.
        """
        everybody = np.arange(len(self.things))
        still = np.zeros(len(self.state.group))
        for _ in count() if passes is None else range(passes):
            moved = self.descend_once(everybody, toll, home)
            if home is None:
                moved += self.regroup(still, 0.0)
            if not moved:
                return

    def descend_once(
        self, flows: IntArray, toll: float = 0.0, home: IndexArray | None = None
    ) -> int:
        """Ask each of the flows once for a cheaper session; return how many moved."""
        return int(descend(flows, self.move_prices(toll, home), self.state))

    def move_prices(self, toll: float = 0.0, home: IndexArray | None = None) -> MovePrices:
        """What moves cost, as kernels take it."""
        own = self._nowhere if home is None else home
        return MovePrices(self.prices.alpha, self.prices.beta, toll, own)

    def gains(self) -> tuple[FloatArray, IndexArray]:
        """For each flow, the saving in its cheapest session, and which session that is."""
        order = np.arange(len(self.things))
        target = np.empty(len(order), np.int32)
        self._draw(order, np.zeros(len(order)), target, 0.0)
        before = self.work
        saved = np.zeros(len(order))
        for flow in np.flatnonzero(target != self.state.session):
            one, back = order[flow : flow + 1], self.state.session[flow : flow + 1].copy()
            apply_moves(one, target[flow : flow + 1], self.state)
            saved[flow] = before - self.work
            apply_moves(one, back, self.state)
        return saved, target

    def _draw(
        self, chosen: IntArray, chance: FloatArray, target: IndexArray, temperature: float
    ) -> None:
        draw_moves(chosen, chance, self.move_prices(), temperature, self.state, target)


def settle(
    things: Things,
    start: Maps,
    home: IndexArray,
    prices: FilteringPrices,
    passes: int | None = None,
) -> Maps:
    """Put every new flow, whose home is -1, in its cheapest session.

    Repeats until no new flow gains from a move, or for `passes` passes.
    """
    state = TwoLevel(things, start, prices)
    newcomers = np.flatnonzero(home < 0)
    for _ in count() if passes is None else range(passes):
        if not state.descend_once(newcomers):
            break
    return state.maps


def _empty_level(n_receivers: int, n_channels: int) -> Level:
    return Level(
        np.zeros((n_receivers, n_channels), np.int32),
        np.zeros((n_receivers, n_channels), np.uint8),
        np.zeros(n_channels),
        np.zeros(n_channels),
    )
