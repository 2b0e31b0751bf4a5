"""Fig. 7: the four two-level algorithms against one another, and ours.

The paper draws 50 groups, and says in section 5.5 that the same holds at 10, 20 and 100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from distributary.cost import FilteringPrices, filtering_cost
from distributary.model import Demand, FloatArray
from distributary.papers.drawing import Sheet, draw_chart, draw_curves, draw_legend, draw_stars
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.tock.floors import (
    OURS,
    READING,
    compare_saving,
    draw_floor,
    price_ours,
)
from distributary.papers.wording import NOTHING, join_words, percent, span, table
from distributary.planning import Progress, Request, Step, plan, silent

__all__ = ["fig7"]

ALGORITHMS = ("SF", "GF", "IT", "RRA")
GROUPS = 50  # of the paper's figure
OTHER_GROUPS, QUICK_OTHER_GROUPS = (10, 20, 100), (20,)  # of its last sentence
PRICES = FilteringPrices(1.0, 1.0)
SESSIONS = (50, 75, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)
QUICK_SESSIONS = (100, 500, 1000)
OTHER_SESSIONS = (200, 500, 1000)  # besides one and two for each group
RUNS, QUICK_RUNS = 5, 1
OTHER_RUNS = 3  # floors, at the other numbers of groups
OUR_SESSIONS, QUICK_OUR_SESSIONS = (100, 500, 1000), (500,)
OUR_RUNS = 2  # floors, the first ones
OUR_BUDGET_S, QUICK_OUR_BUDGET_S = 5.0, 0.5
AXIS = (0.14, 0.32)  # Fig. 7's own
FEW_EACH, MANY = 2, 500  # sessions that count as few, for each group, and as many
SMALL = 0.05  # the largest difference that counts as small; above it, clear
INDEPENDENT: Mapping[int, Mapping[str, float]] = {  # at 50 groups, mean of 3 floors
    50: {"SF": 0.305, "GF": 0.305, "IT": 0.305, "RRA": 0.292},
    100: {"SF": 0.266, "GF": 0.268, "IT": 0.248, "RRA": 0.254},
    500: {"SF": 0.212, "GF": 0.188, "IT": 0.181, "RRA": 0.180},
    1000: {"SF": 0.193, "GF": 0.169, "IT": 0.163, "RRA": 0.162},
}

# sessions -> algorithm -> Cx/Cf of each floor
Costs = Mapping[int, Mapping[str, FloatArray]]


def fig7(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """The relative filtering cost of SF, GF, IT and RRA, and of ours."""
    plans = _Plans(quick, seed, progress)
    cost, others, ours = plans.cost, plans.others, plans.ours
    runs = QUICK_RUNS if quick else RUNS
    return Figure(
        name="tock-fig7",
        title="Four algorithms for two levels",
        source="Tock et al. (2005), Fig. 7 and section 5.5",
        shown=(
            f"Relative filtering cost Cx/Cf (0 is perfect, 1 is flooding) at α = β = "
            f"{PRICES.alpha:g} against the number of sessions: at {GROUPS} groups, the paper's "
            f"figure, means over {runs} floor{'s' if runs > 1 else ''}; and at "
            f"{join_words([str(g) for g in others])}, of which it says that the same holds. The "
            "four start from the same random placement. Stars are ours."
        ),
        columns=("groups", "sessions", "algorithm", "floors", "relative_cost", "lowest", "highest"),
        rows=tuple(
            (groups, n, a, len(found), float(found.mean()), float(found.min()), float(found.max()))
            for groups, costs in ((GROUPS, cost), *others.items(), *ours.items())
            for n, by_algorithm in costs.items()
            for a, found in by_algorithm.items()
        ),
        chart=_chart(cost, others, ours),
        comparison="\n\n".join((_comparison(cost, runs), _other_table(others))),
        claims=(
            _few_claim({GROUPS: cost}),
            _groups_first_claim({GROUPS: cost}),
            _best_claim({GROUPS: cost}),
            _minor_claim({GROUPS: cost}),
            _range_claim(cost),
            _few_claim(others),
            _groups_first_claim(others),
            _best_claim(others),
            _minor_claim(others),
        ),
        notes=(
            READING,
            "IT runs 4 rounds; RRA scatters 10 % of the flows, then 0.8 times as many each round "
            "down to 0.5 %: both as in section 5.5.",
            "With one session per group IT has nothing to alternate between, so it equals GF.",
            "The paper prints no numbers for this figure, only its axes and the order of the "
            f"curves. A difference of up to {percent(SMALL)} counts as small, a larger one as "
            f"clear; up to {FEW_EACH} sessions for each group count as few, {MANY} and more as "
            "many.",
            "Section 5.5 ends with the sentence that the relation between the algorithms was the "
            "same at 10, 20 and 100 groups. Its four parts are judged there one by one, by the "
            "rules that were set for 50 groups, before any of these plans was made.",
        ),
        own=_own_words({GROUPS: cost, **others}, ours, quick),
        quick=quick,
        seed=seed,
    )


class _Plans:
    """Plans everything, floor by floor."""

    def __init__(self, quick: bool, seed: int, progress: Progress) -> None:
        self._seed, self._progress, self._done = seed, progress, 0
        others = QUICK_OTHER_GROUPS if quick else OTHER_GROUPS
        sizes = {
            GROUPS: (QUICK_SESSIONS if quick else SESSIONS, QUICK_RUNS if quick else RUNS),
            **{g: (_other_sessions(g), QUICK_RUNS if quick else OTHER_RUNS) for g in others},
        }
        our_sizes = {
            GROUPS: QUICK_OUR_SESSIONS if quick else OUR_SESSIONS,
            **({} if quick else dict.fromkeys(others, OUR_SESSIONS[-1:])),
        }
        our_runs = QUICK_RUNS if quick else OUR_RUNS
        self._total = sum(len(n) * runs for n, runs in sizes.values())
        self._total += sum(map(len, our_sizes.values())) * our_runs
        found = {g: self._costs(g, n, runs) for g, (n, runs) in sizes.items()}
        self.cost = found[GROUPS]
        self.others = {g: found[g] for g in others}
        budget_s = QUICK_OUR_BUDGET_S if quick else OUR_BUDGET_S
        self.ours = {g: self._our_costs(g, n, our_runs, budget_s) for g, n in our_sizes.items()}
        progress(Step("plans", self._total, self._total))

    def _costs(self, groups: int, sessions: Sequence[int], runs: int) -> Costs:
        cost = {n: {a: np.empty(runs) for a in ALGORITHMS} for n in sessions}
        for run in range(runs):
            interest, rates, start = draw_floor(self._seed, run)
            demand = Demand.of(interest, rates)
            for n in sessions:
                self._step()
                for algorithm, found in cost[n].items():
                    request = Request(groups, n, algorithm=algorithm, prices=PRICES, seed=start)
                    solution = plan(demand, request)
                    found[run] = filtering_cost(solution.plan, demand, PRICES).relative_excess
        return cost

    def _our_costs(self, groups: int, sessions: Sequence[int], runs: int, budget_s: float) -> Costs:
        cost = {n: {OURS: np.empty(runs)} for n in sessions}
        for run in range(runs):
            interest, rates, start = draw_floor(self._seed, run)
            demand = Demand.of(interest, rates)
            for n in sessions:
                self._step()
                request = Request(groups, n, prices=PRICES, seed=start, budget_s=budget_s)
                cost[n][OURS][run] = price_ours(demand, request)
        return cost

    def _step(self) -> None:
        self._progress(Step("plans", self._done, self._total))
        self._done += 1


def _other_sessions(groups: int) -> list[int]:
    return sorted({groups, FEW_EACH * groups, *OTHER_SESSIONS})


def _mean(cost: Costs, sessions: int, algorithm: str) -> float:
    return float(cost[sessions][algorithm].mean())


# --- reporting -----------------------------------------------------------------------------------


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
    header = (f"Cx/Cf at {GROUPS} groups", f"ours ({runs} floors)", "paper")
    return table((*header, "independent (3 floors)"), rows)


def _other_table(others: Mapping[int, Costs]) -> str:
    return table(
        ("ours, Cx/Cf", *ALGORITHMS),
        (
            (
                f"{groups} groups, {n:,} sessions",
                *(f"{_mean(cost, n, algorithm):.3f}" for algorithm in ALGORITHMS),
            )
            for groups, cost in others.items()
            for n in cost
        ),
    )


def _range(values: Sequence[float], digits: int = 3) -> str:
    return span(f"{min(values):.{digits}f}", f"{max(values):.{digits}f}")


def _where(costs: Mapping[int, Costs]) -> str:
    """How a claim on other groups than the paper's figure begins."""
    return "" if GROUPS in costs else f"at {join_words([str(g) for g in costs])} groups as well, "


def _few_claim(costs: Mapping[int, Costs]) -> Claim:
    apart = {
        (groups, n): 1 - min(means) / max(means)
        for groups, cost in costs.items()
        for n in cost
        if n <= FEW_EACH * groups
        for means in [[_mean(cost, n, algorithm) for algorithm in ALGORITHMS]]
    }
    words = [
        f"{percent(share)} at {n}" + ("" if GROUPS in costs else f" in {groups} groups")
        for (groups, n), share in apart.items()
    ]
    return Claim(
        f"{_where(costs)}with few sessions there is hardly any difference between the four",
        "section 5.5",
        f"the best is below the worst by {join_words(words)}{' sessions' * (GROUPS in costs)}",
        max(apart.values()) <= SMALL,
    )


def _groups_first_claim(costs: Mapping[int, Costs]) -> Claim:
    saved = {
        groups: [1 - _mean(cost, n, "GF") / _mean(cost, n, "SF") for n in cost if n >= MANY]
        for groups, cost in costs.items()
    }
    words = [
        f"{span(percent(min(found)), percent(max(found)))} lower"
        + ("" if GROUPS in costs else f" at {groups}")
        for groups, found in saved.items()
    ]
    return Claim(
        f"{_where(costs)}with many sessions GF is clearly better than SF",
        "section 5.5",
        f"{join_words(words)}, from {MANY} sessions on",
        min(map(min, saved.values())) > SMALL,
    )


def _best_claim(costs: Mapping[int, Costs]) -> Claim:
    lost = [
        f"{n:,} sessions in {groups} groups"
        for groups, cost in costs.items()
        for n in cost
        if n > groups
        and max(_mean(cost, n, a) for a in ("IT", "RRA"))
        >= min(_mean(cost, n, a) for a in ("SF", "GF"))
    ]
    more = GROUPS if GROUPS in costs else "groups"
    return Claim(
        f"{_where(costs)}IT and RRA are the best",
        "section 5.5",
        f"not both with {join_words(lost)}" if lost else f"both, wherever sessions > {more}",
        not lost,
    )


def _minor_claim(costs: Mapping[int, Costs]) -> Claim:
    above = {
        groups: [_mean(cost, n, "RRA") / _mean(cost, n, "IT") - 1 for n in cost if n > groups]
        for groups, cost in costs.items()
    }
    words = [
        span(percent(min(found), signed=True), percent(max(found), signed=True))
        + ("" if GROUPS in costs else f" at {groups}")
        for groups, found in above.items()
    ]
    more = GROUPS if GROUPS in costs else "groups"
    return Claim(
        f"{_where(costs)}IT and RRA differ little",
        "section 5.5",
        f"RRA against IT, where sessions > {more}: {join_words(words)}",
        max(abs(each) for found in above.values() for each in found) <= SMALL,
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


def _own_words(costs: Mapping[int, Costs], ours: Mapping[int, Costs], quick: bool) -> str:
    budget_s = QUICK_OUR_BUDGET_S if quick else OUR_BUDGET_S
    rows, saved = [], []
    for groups, own in ours.items():
        for n, by_algorithm in own.items():
            found = by_algorithm[OURS]
            theirs = {a: costs[groups][n][a][: len(found)] for a in ALGORITHMS}
            mean, least = min((float(each.mean()), a) for a, each in theirs.items())
            saved.append(1 - float(found.mean()) / mean)
            rows.append(
                (
                    f"{groups} groups, {n:,} sessions",
                    f"{found.mean():.4f}",
                    f"{least}, {mean:.4f}",
                    compare_saving(found, theirs[least]),
                )
            )
    floors = len(next(iter(ours[GROUPS].values()))[OURS])
    return "\n\n".join(
        (
            f"`{OURS}` with work for about {budget_s:g} s is "
            f"{span(percent(min(saved)), percent(max(saved)))} below the best of the paper's "
            f"four in relative filtering cost, on the same {floors} floor"
            f"{'s' if floors > 1 else ''}. The four stop by themselves, sooner; "
            "[the benchmarks](../benchmarks.md) give all the same time.",
            table(("Cx/Cf", OURS, "best of the four", f"{OURS} is"), rows),
        )
    )


def _chart(cost: Costs, others: Mapping[int, Costs], ours: Mapping[int, Costs]) -> str:
    every = sorted({GROUPS: cost, **others}.items())

    def paint(sheet: Sheet) -> None:
        for axes, (groups, found) in zip(sheet.panels, every, strict=False):
            means = {a: np.array([_mean(found, n, a) for n in found]) for a in ALGORITHMS}
            said = ", the paper's figure" if groups == GROUPS else ""
            draw_curves(axes, list(found), means, f"{groups} groups{said}")
            if own := ours.get(groups):
                stars = np.array([_mean(own, n, OURS) for n in own])
                draw_stars(axes, OURS, list(own), stars)
            axes.set(xlabel="sessions", ylabel="Cx/Cf")
            axes.set(xlim=(0, 1030))
            if groups == GROUPS:
                axes.set(ylim=(AXIS[0] - 0.01, AXIS[1]))
            axes.xaxis.set_major_formatter("{x:,.0f}")
        for axes in sheet.panels[len(every) :]:
            axes.set_visible(False)
        draw_legend(sheet, at=[groups for groups, _ in every].index(GROUPS))

    shape = (2, 2) if len(every) > 2 else (1, 2)
    size = (9, 3.6 * shape[0])
    return draw_chart("tock-fig7", "Relative filtering cost", size, paint, shape=shape)
