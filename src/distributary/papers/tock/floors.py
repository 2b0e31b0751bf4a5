"""The trading floors of the paper's figures, and their key numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from distributary.cost import filtering_cost
from distributary.model import Demand, FloatArray, Interest, Rates
from distributary.papers.wording import percent
from distributary.planning import Request, plan
from distributary.workloads import TradingFloor, trading_floor

__all__ = [
    "FLOOR",
    "OURS",
    "PRINTED",
    "READING",
    "PrintedNumber",
    "compare_saving",
    "draw_floor",
    "price_ours",
    "vital_signs",
]

FLOOR = TradingFloor()
OURS = "best"
PATIENCE = 60.0  # times the budget: the amount of work shall stop the search, not the clock

READING = (
    "Section 5.1 leaves open how rates compare across markets. Here a market's size, its "
    "interest and its busiest symbol's rate all fall as 1/i, and users draw symbols without "
    "replacement: of the readings tried, this one reproduces the paper's own figures."
)


@dataclass(frozen=True, slots=True)
class PrintedNumber:
    """A number printed in the paper, and what the independent implementation found."""

    says: str
    value: float
    digits: int  # after the decimal point
    source: str
    independent: str  # over 40 floors
    unit: str = ""

    def format(self, value: float) -> str:
        """Format a value like the printed number."""
        return f"{value:.{self.digits}f}{self.unit}"


PRINTED: Mapping[str, PrintedNumber] = {
    "symbols_mean": PrintedNumber("symbols per user, mean", 68.85, 2, "section 5.1", "67.2 ± 1.1"),
    "symbols_max": PrintedNumber("symbols per user, most", 102, 0, "section 5.1", "102"),
    "symbols_min": PrintedNumber("symbols per user, fewest", 15, 0, "section 5.1", "15.3"),
    "unicast_copies": PrintedNumber("copies under unicast", 10.1, 1, "section 5.3", "10.0 ± 0.26"),
    "flooding_goodput": PrintedNumber("goodput of flooding", 2, 0, "section 5.3", "2.0 %", " %"),
}


def draw_floor(seed: int, run: int) -> tuple[Interest, Rates, int]:
    """The floor with this number, the same in every figure, and a seed for its solvers."""
    rng = np.random.default_rng([seed, run])
    interest, rates = trading_floor(FLOOR, rng)
    return interest, rates, int(rng.integers(2**32))


def vital_signs(interest: Interest, rates: Rates) -> dict[str, float]:
    """The numbers that the paper prints about its floor, for ours; keys as in `PRINTED`."""
    symbols = np.diff(interest.receiver_offsets)
    demand = Demand.of(interest, rates)
    copies = float(demand.wanted_rate.sum() / demand.rate.sum())
    return {
        "symbols_mean": float(symbols.mean()),
        "symbols_max": float(symbols.max()),
        "symbols_min": float(symbols.min()),
        "unicast_copies": copies,
        "flooding_goodput": 100 * copies / len(interest.receivers),
    }


def price_ours(demand: Demand, request: Request) -> float:
    """Cx/Cf of the plan that our own planner finds for a request."""
    found = plan(demand, request.replace(algorithm=OURS, patience=PATIENCE)).plan
    return filtering_cost(found, demand, request.linear_prices).relative_excess


def compare_saving(ours: FloatArray, theirs: FloatArray) -> str:
    """By how much ours is lower on average, or higher."""
    saved = 1 - float(ours.mean() / theirs.mean())
    return f"{percent(abs(saved))} {'lower' if saved >= 0 else '**higher**'}"
