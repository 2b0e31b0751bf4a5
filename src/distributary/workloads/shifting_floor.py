"""A trading floor whose interests shift: themes come up, desks follow them, trade moves into them.

Every desk watches symbols of its own all day. Besides, some themes are in the news at a time, each
a few symbols that belong together only for as long as it lasts; a desk follows some of them, and
most of the trade is in their symbols. When a theme ends, another comes up, and its followers choose
anew. So which symbols the same desks want, and which of them are busy, changes all the time: a plan
that was right a few minutes ago no longer is. Desks leave the floor, and come back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from distributary.model import FloatArray, Rates

__all__ = ["FloorScene", "ShiftingFloor", "shifting_floor"]

_SPREAD = 0.5  # a theme lasts between half of the mean and one and a half times that
_COMES_BACK = 0.5  # the chance that a desk that is away comes back with the next scene


@dataclass(frozen=True, slots=True)
class ShiftingFloor:
    """The parameters. Rates are in messages per second, `theme_s` is in seconds."""

    symbols: int = 120
    desks: int = 8
    exchanges: int = 2
    watched_by_desk: int = 15  # symbols that a desk wants all day
    themes: int = 4  # at a time
    symbols_by_theme: int = 12
    themes_by_desk: int = 2
    theme_s: float = 240.0  # how long a theme lasts, on average
    rate: float = 400.0  # of all symbols together
    busy_share: float = 0.8  # of the rate, in the symbols of themes
    leaves: float = 0.05  # the chance that a desk leaves the floor at a change

    def __post_init__(self) -> None:
        counts = (self.desks, self.exchanges, self.themes, self.symbols_by_theme)
        if min(*counts, self.watched_by_desk, self.themes_by_desk) < 1:
            raise ValueError("a floor needs at least one of everything")
        if (self.themes + 1) * self.symbols_by_theme > self.symbols:
            raise ValueError(
                f"{self.symbols} symbols are too few for {self.themes} themes with "
                f"{self.symbols_by_theme} each, and one that comes up"
            )
        if self.watched_by_desk > self.symbols or self.themes_by_desk > self.themes:
            raise ValueError("a desk cannot want more symbols or themes than there are")
        if self.exchanges > self.symbols:
            raise ValueError(f"{self.symbols} symbols cannot be on {self.exchanges} exchanges")
        if not (0 < self.theme_s < math.inf and 0 < self.rate < math.inf):
            raise ValueError("the rate and the time that a theme lasts must be numbers above 0")
        if not (0 < self.busy_share < 1 and 0 <= self.leaves < 1):
            raise ValueError("shares and chances must be between 0 and 1")


@dataclass(frozen=True, slots=True, eq=False)
class FloorScene:
    """The floor from a moment on, until the next scene.

    `wanted` has the desks that are there; `rates` has all symbols. `exchanges` says which symbols
    each exchange publishes, and is the same in all scenes.
    """

    at: float  # seconds since the first scene
    wanted: Mapping[str, frozenset[str]]
    rates: Rates
    exchanges: Mapping[str, tuple[str, ...]]


def shifting_floor(params: ShiftingFloor, rng: np.random.Generator) -> Iterator[FloorScene]:
    """Draw scenes, one after the other, for as long as they are asked for."""
    return _Floor(params, rng).play()


class _Floor:
    def __init__(self, params: ShiftingFloor, rng: np.random.Generator) -> None:
        self._params, self._rng = params, rng
        names = _number_names("x", params.exchanges)
        of = np.sort(np.arange(params.symbols) % params.exchanges)
        ranks = _number_names("", params.symbols)
        self._symbols = [f"{names[of[i]]}-{rank}" for i, rank in enumerate(ranks)]
        self._exchanges = {
            name: tuple(self._symbols[i] for i in np.flatnonzero(of == number))
            for number, name in enumerate(names)
        }
        self._desks = _number_names("desk-", params.desks)
        self._watched = self._deal_symbols()
        # Symbols differ by a factor of ten or so, as on real floors, in and out of themes.
        self._popularity: FloatArray = rng.lognormal(0.0, 0.8, params.symbols)
        self._themes: list[frozenset[int]] = []
        self._ends = np.empty(0)
        self._followed: dict[str, list[int]] = {}  # by desk, as numbers of themes
        self._away: set[str] = set()

    def play(self) -> Iterator[FloorScene]:
        params, at = self._params, 0.0
        for _ in range(params.themes):
            self._themes.append(self._draw_theme())
        # Those that are there at the start end at even distances, so that the first soon does.
        self._ends = params.theme_s * np.arange(1, params.themes + 1) / params.themes
        for desk in self._desks:
            self._followed[desk] = self._choose_themes([])
        while True:
            yield self._describe(at)
            number = int(self._ends.argmin())
            at = float(self._ends[number])
            self._replace_theme(number, at)
            self._come_and_go()

    def _deal_symbols(self) -> dict[str, frozenset[int]]:
        """Deal symbols to desks like cards, with a new deck when one is used up."""
        cards: list[int] = []
        watched = {}
        for desk in self._desks:
            hand: list[int] = []
            while len(hand) < self._params.watched_by_desk:
                if not cards:
                    left = np.setdiff1d(np.arange(self._params.symbols), hand)
                    cards = self._rng.permutation(left).tolist()
                hand.append(cards.pop())
            watched[desk] = frozenset(hand)
        return watched

    def _draw_theme(self) -> frozenset[int]:
        """Symbols that are in no theme now, from anywhere on the floor."""
        taken = frozenset().union(*self._themes)
        free = [symbol for symbol in range(self._params.symbols) if symbol not in taken]
        drawn = self._rng.choice(free, self._params.symbols_by_theme, replace=False)
        return frozenset(drawn.tolist())

    def _choose_themes(self, kept: list[int]) -> list[int]:
        """Add themes to those that a desk keeps, until it follows enough."""
        others = [number for number in range(len(self._themes)) if number not in kept]
        more = self._params.themes_by_desk - len(kept)
        return [*kept, *self._rng.choice(others, more, replace=False).tolist()]

    def _replace_theme(self, number: int, at: float) -> None:
        self._themes[number] = self._draw_theme()
        spread = _SPREAD * (2 * self._rng.random() - 1)
        self._ends[number] = at + self._params.theme_s * (1 + spread)
        for desk in self._desks:
            if number in self._followed[desk]:
                kept = [theme for theme in self._followed[desk] if theme != number]
                self._followed[desk] = self._choose_themes(kept)

    def _come_and_go(self) -> None:
        for desk in self._desks:
            chance = self._rng.random()
            if desk in self._away:
                if chance < _COMES_BACK:
                    self._away.remove(desk)
            elif chance < self._params.leaves and len(self._away) < len(self._desks) - 1:
                self._away.add(desk)

    def _describe(self, at: float) -> FloorScene:
        wanted = {}
        for desk in self._desks:
            if desk not in self._away:
                themes = (self._themes[number] for number in self._followed[desk])
                symbols = self._watched[desk].union(*themes)
                wanted[desk] = frozenset(self._symbols[symbol] for symbol in symbols)
        return FloorScene(at, wanted, self._rate_symbols(), self._exchanges)

    def _rate_symbols(self) -> Rates:
        """Share the rate out: the busy part among the symbols of themes."""
        params = self._params
        is_busy = np.zeros(params.symbols, bool)
        is_busy[[*frozenset().union(*self._themes)]] = True
        busy = params.rate * params.busy_share
        rate = np.where(is_busy, self._popularity, 0) * (busy / self._popularity[is_busy].sum())
        quiet = np.where(is_busy, 0, self._popularity)
        rate += quiet * ((params.rate - busy) / quiet.sum())
        return Rates(tuple(self._symbols), rate)


def _number_names(stem: str, count: int) -> list[str]:
    """Names whose order is that of their numbers."""
    width = len(str(count))
    return [f"{stem}{number:0{width}}" for number in range(1, count + 1)]
