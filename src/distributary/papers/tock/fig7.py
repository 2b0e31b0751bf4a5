"""Fig. 7: the four two-level algorithms against one another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from distributary.cost import FilteringPrices, filtering_cost
from distributary.model import Demand, FloatArray
from distributary.papers.drawing import Sheet, draw_chart, draw_curves, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.tock.floors import READING, draw_floor
from distributary.papers.wording import NOTHING, join_words, percent, span, table
from distributary.planning import Progress, Request, Step, plan, silent

__all__ = ["fig7"]

ALGORITHMS = ("SF", "GF", "IT", "RRA")
GROUPS = 50
PRICES = FilteringPrices(1.0, 1.0)
SESSIONS = (50, 75, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)
QUICK_SESSIONS = (100, 500, 1000)
RUNS, QUICK_RUNS = 5, 1
AXIS = (0.14, 0.32)  # Fig. 7's own
FEW, MANY = 100, 500  # sessions that count as few and many
SMALL = 0.05  # the largest difference that counts as small; above it, clear
INDEPENDENT: Mapping[int, Mapping[str, float]] = {  # mean of 3 floors
    50: {"SF": 0.305, "GF": 0.305, "IT": 0.305, "RRA": 0.292},
    100: {"SF": 0.266, "GF": 0.268, "IT": 0.248, "RRA": 0.254},
    500: {"SF": 0.212, "GF": 0.188, "IT": 0.181, "RRA": 0.180},
    1000: {"SF": 0.193, "GF": 0.169, "IT": 0.163, "RRA": 0.162},
}

Costs = Mapping[int, Mapping[str, FloatArray]]  # sessions -> algorithm -> Cx/Cf of each floor


def fig7(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """The relative filtering cost of SF, GF, IT and RRA at 50 groups."""
    runs = QUICK_RUNS if quick else RUNS
    cost = _costs(QUICK_SESSIONS if quick else SESSIONS, runs, seed, progress)
    return Figure(
        name="tock-fig7",
        title="Four algorithms for two levels",
        source="Tock et al. (2005), Fig. 7 and section 5.5",
        shown=(
            f"Relative filtering cost Cx/Cf (0 is perfect, 1 is flooding) at {GROUPS} groups and "
            f"α = β = {PRICES.alpha:g}, against the number of sessions; means over {runs} "
            f"floor{'s' if runs > 1 else ''}. All four start from the same random placement."
        ),
        columns=("sessions", "algorithm", "floors", "relative_cost", "lowest", "highest"),
        rows=tuple(
            (n, a, runs, float(found.mean()), float(found.min()), float(found.max()))
            for n, by_algorithm in cost.items()
            for a, found in by_algorithm.items()
        ),
        chart=_chart(cost),
        comparison=_comparison(cost, runs),
        claims=(
            _few_claim(cost),
            _groups_first_claim(cost),
            _best_claim(cost),
            _minor_claim(cost),
            _range_claim(cost),
        ),
        notes=(
            READING,
            "IT runs 4 rounds; RRA scatters 10 % of the flows, then 0.8 times as many each round "
            "down to 0.5 %: both as in section 5.5.",
            "With one session per group IT has nothing to alternate between, so it equals GF.",
            "The paper prints no numbers for this figure, only its axes and the order of the "
            f"curves. A difference of up to {percent(SMALL)} counts as small, a larger one as "
            "clear.",
        ),
        quick=quick,
        seed=seed,
    )


def _costs(sessions: tuple[int, ...], runs: int, seed: int, progress: Progress) -> Costs:
    cost = {n: {a: np.empty(runs) for a in ALGORITHMS} for n in sessions}
    for run in range(runs):
        interest, rates, start = draw_floor(seed, run)
        demand = Demand.of(interest, rates)
        for at, n in enumerate(sessions):
            progress(Step("plans", run * len(sessions) + at, runs * len(sessions)))
            for algorithm, found in cost[n].items():
                request = Request(GROUPS, n, algorithm=algorithm, prices=PRICES, seed=start)
                solution = plan(demand, request)
                found[run] = filtering_cost(solution.plan, demand, PRICES).relative_excess
    progress(Step("plans", runs * len(sessions), runs * len(sessions)))
    return cost


def _mean(cost: Costs, sessions: int, algorithm: str) -> float:
    return float(cost[sessions][algorithm].mean())


def _comparison(cost: Costs, runs: int) -> str:
    rows = [
        (
            f"{n:,} sessions, {algorithm}",
            f"{_mean(cost, n, algorithm):.3f}",
            NOTHING,
            f"{INDEPENDENT[n][algorithm]:.3f}",
        )
        for n in cost
        if n in INDEPENDENT
        for algorithm in ALGORITHMS
    ]
    values = [_mean(cost, n, algorithm) for n in cost for algorithm in ALGORITHMS]
    theirs = [value for by_algorithm in INDEPENDENT.values() for value in by_algorithm.values()]
    rows.append(("all points", _range(values), _range(AXIS, 2) + " (axis)", _range(theirs)))
    return table(("Cx/Cf", f"ours ({runs} floors)", "paper", "independent (3 floors)"), rows)


def _range(values: list[float] | tuple[float, ...], digits: int = 3) -> str:
    return span(f"{min(values):.{digits}f}", f"{max(values):.{digits}f}")


def _few_claim(cost: Costs) -> Claim:
    few = [n for n in cost if n <= FEW]
    means = {n: [_mean(cost, n, algorithm) for algorithm in ALGORITHMS] for n in few}
    apart = {n: 1 - min(means[n]) / max(means[n]) for n in few}
    words = [f"{percent(apart[n])} at {n}" for n in few]
    return Claim(
        "with few sessions there is hardly any difference between the four",
        "section 5.5",
        f"the best is below the worst by {join_words(words)} sessions",
        max(apart.values()) <= SMALL,
    )


def _groups_first_claim(cost: Costs) -> Claim:
    many = [n for n in cost if n >= MANY]
    saved = [1 - _mean(cost, n, "GF") / _mean(cost, n, "SF") for n in many]
    return Claim(
        "with many sessions GF is clearly better than SF",
        "section 5.5",
        f"{span(percent(min(saved)), percent(max(saved)))} lower from {MANY} sessions on",
        min(saved) > SMALL,
    )


def _best_claim(cost: Costs) -> Claim:
    lost = [
        f"{n:,}"
        for n in cost
        if n > GROUPS
        and max(_mean(cost, n, a) for a in ("IT", "RRA"))
        >= min(_mean(cost, n, a) for a in ("SF", "GF"))
    ]
    return Claim(
        "IT and RRA are the best",
        "section 5.5",
        f"not both at {join_words(lost)} sessions"
        if lost
        else f"both, wherever sessions > {GROUPS}",
        not lost,
    )


def _minor_claim(cost: Costs) -> Claim:
    above = [_mean(cost, n, "RRA") / _mean(cost, n, "IT") - 1 for n in cost if n > GROUPS]
    low, high = (percent(end, signed=True) for end in (min(above), max(above)))
    return Claim(
        "IT and RRA differ little",
        "section 5.5",
        f"RRA against IT, where sessions > {GROUPS}: {span(low, high)}",
        max(abs(difference) for difference in above) <= SMALL,
    )


def _range_claim(cost: Costs) -> Claim:
    values = [_mean(cost, n, algorithm) for n in cost for algorithm in ALGORITHMS]
    low, high = AXIS
    return Claim(
        f"all values lie between {low:g} and {high:g}",
        "Fig. 7",
        _range(values),
        low <= min(values) and max(values) <= high,
    )


def _chart(cost: Costs) -> str:
    def paint(sheet: Sheet) -> None:
        (axes,) = sheet.panels
        means = {a: np.array([_mean(cost, n, a) for n in cost]) for a in ALGORITHMS}
        draw_curves(axes, list(cost), means)
        axes.set(xlabel="sessions", ylabel="Cx/Cf, relative filtering cost")
        axes.set(xlim=(0, 1020), ylim=AXIS)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        draw_legend(sheet)

    return draw_chart("tock-fig7", "Relative filtering cost at 50 groups", (7.5, 5), paint)
