"""Fig. 6: the value of a second level: more sessions against more groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from distributary.cost import FilteringPrices, filtering_cost
from distributary.model import Demand
from distributary.papers.drawing import COLOURS, INK, MARKS, Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.tock.floors import OURS, READING, draw_floor, price_ours
from distributary.papers.wording import NOTHING, join_words, percent, table
from distributary.planning import Progress, Request, Step, plan, silent

__all__ = ["fig6"]

PRICES = (FilteringPrices(0.1, 1.9), FilteringPrices(1.0, 1.0), FilteringPrices(1.6, 0.4))
GROUPS = (10, 20, 50, 100)
SESSIONS = (10, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)
QUICK_SESSIONS = (10, 20, 50, 100, 400, 1000)
MOST = SESSIONS[-1]
RUNS, QUICK_RUNS = 3, 1
QUICK_OUR_GROUPS = (50,)
OUR_BUDGET_S, QUICK_OUR_BUDGET_S = 3.0, 0.5
TOP_OF_AXIS = 0.5  # the highest mark on the paper's axis
NEARLY = 0.9  # the share of what groups save that counts as almost as good
EXACT = 1e-9
INDEPENDENT_FLAT = {10: 0.514, 20: 0.441, 50: 0.302, 100: 0.206}  # sessions = groups
INDEPENDENT_MOST: Mapping[FilteringPrices, Mapping[int, float]] = {  # with 1,000 sessions
    PRICES[0]: {10: 0.065, 20: 0.055, 50: 0.048, 100: 0.040},
    PRICES[1]: {10: 0.277, 20: 0.238, 50: 0.169, 100: 0.118},
    PRICES[2]: {10: 0.419, 20: 0.360, 50: 0.249, 100: 0.171},
}
SHADES = {10: "#a9cbee", 20: "#6ba4de", 50: "#2f74c0", 100: "#164072"}

Curve = Mapping[tuple[int, int], float]  # (groups, sessions) -> mean Cx/Cf
# prices -> groups -> Cx/Cf of ours and of GF on the first floor, with the most sessions
Ours = Mapping[FilteringPrices, Mapping[int, tuple[float, float]]]


def fig6(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """The relative filtering cost of GF against sessions, for several groups and prices."""
    runs = QUICK_RUNS if quick else RUNS
    cost, ours = _costs(quick, runs, seed, progress)
    return Figure(
        name="tock-fig6",
        title="What more sessions save, and what more groups save",
        source="Tock et al. (2005), Fig. 6 and section 5.4",
        shown=(
            "GF's relative filtering cost Cx/Cf (0 is perfect, 1 is flooding) against the number "
            "of sessions. Circles have one session per group: no hierarchy. The flow filter is "
            f"the expensive one on the left, the session filter on the right. Means over {runs} "
            f"floor{'s' if runs > 1 else ''}. Stars are ours, `{OURS}` on the first floor."
        ),
        columns=("algorithm", "alpha", "beta", "groups", "sessions", "floors", "relative_cost"),
        rows=(
            *(
                ("GF", prices.alpha, prices.beta, groups, sessions, runs, value)
                for prices, curve in cost.items()
                for (groups, sessions), value in curve.items()
            ),
            *(
                (OURS, prices.alpha, prices.beta, groups, MOST, 1, own)
                for prices, by_groups in ours.items()
                for groups, (own, _) in by_groups.items()
            ),
        ),
        chart=_chart(cost, ours),
        comparison=_comparison(cost),
        claims=(
            _sessions_claim(cost),
            _groups_claim(cost),
            _flat_claim(cost),
            _worth_claim(cost),
            _order_claim(cost),
            _hierarchy_claim(cost[PRICES[1]]),
            _range_claim(cost),
        ),
        notes=(
            READING,
            "GF does not look at the prices, so all three panels price the same plans.",
            "The paper does not say how many sessions each group gets; here they are divided "
            "equally.",
            "The paper prints no numbers for this figure, only its axes. *Almost as good* is read "
            f"as {percent(NEARLY)} of the saving.",
        ),
        own=_own_words(ours, quick),
        quick=quick,
        seed=seed,
    )


def _costs(
    quick: bool, runs: int, seed: int, progress: Progress
) -> tuple[dict[FilteringPrices, dict[tuple[int, int], float]], Ours]:
    """Mean Cx/Cf of GF for the chosen groups, and with a session for every group; and of ours."""
    sessions = QUICK_SESSIONS if quick else SESSIONS
    shapes = sorted(
        {(g, s) for g in GROUPS for s in sessions if s >= g} | {(s, s) for s in sessions}
    )
    cost = {prices: dict.fromkeys(shapes, 0.0) for prices in PRICES}
    first: dict[tuple[FilteringPrices, int], float] = {}
    our_groups = QUICK_OUR_GROUPS if quick else GROUPS
    total = runs * len(shapes) + len(PRICES) * len(our_groups)
    for run in range(runs):
        interest, rates, start = draw_floor(seed, run)
        demand = Demand.of(interest, rates)
        for at, (groups, n) in enumerate(shapes):
            progress(Step("plans", run * len(shapes) + at, total))
            found = plan(demand, Request(groups, n, algorithm="GF", seed=start)).plan
            for prices, curve in cost.items():
                value = filtering_cost(found, demand, prices).relative_excess
                curve[groups, n] += value / runs
                if run == 0 and n == MOST:
                    first[prices, groups] = value

    def report(done: int) -> None:
        progress(Step("plans", runs * len(shapes) + done, total))

    return cost, _measure_ours(our_groups, first, quick, seed, report)


def _measure_ours(
    groups: Sequence[int],
    gf: Mapping[tuple[FilteringPrices, int], float],
    quick: bool,
    seed: int,
    report: Callable[[int], None],
) -> Ours:
    """Cx/Cf of ours, which looks at the prices, beside that of GF on the same floor."""
    interest, rates, start = draw_floor(seed, 0)
    demand = Demand.of(interest, rates)
    budget_s = QUICK_OUR_BUDGET_S if quick else OUR_BUDGET_S
    ours: dict[FilteringPrices, dict[int, tuple[float, float]]] = {p: {} for p in PRICES}
    todo = [(prices, g) for prices in PRICES for g in groups]
    for done, (prices, g) in enumerate(todo):
        report(done)
        request = Request(g, MOST, prices=prices, seed=start, budget_s=budget_s)
        ours[prices][g] = price_ours(demand, request), gf[prices, g]
    report(len(todo))
    return ours


def _own_words(ours: Ours, quick: bool) -> str:
    budget_s = QUICK_OUR_BUDGET_S if quick else OUR_BUDGET_S
    groups = list(ours[PRICES[0]])
    return "\n\n".join(
        (
            f"`{OURS}` looks at the prices, which GF does not. With {MOST:,} sessions and work for "
            f"about {budget_s:g} s, its Cx/Cf and how far that is below GF's on the first floor:",
            table(
                ("prices", *(f"{g} groups" for g in groups)),
                (
                    (
                        f"α = {prices.alpha:g}, β = {prices.beta:g}",
                        *(
                            f"{own:.4f}, {percent(1 - own / theirs)}"
                            for own, theirs in by_groups.values()
                        ),
                    )
                    for prices, by_groups in ours.items()
                ),
            ),
        )
    )


def _comparison(cost: Mapping[FilteringPrices, Curve]) -> str:
    flat = cost[PRICES[1]]
    rows = [
        (
            f"{g} groups, {g} sessions, any prices",
            f"{flat[g, g]:.3f}",
            NOTHING,
            f"{INDEPENDENT_FLAT[g]:.3f}",
        )
        for g in GROUPS
    ]
    rows += [
        (
            f"{g} groups, {MOST:,} sessions, α = {prices.alpha:g}, β = {prices.beta:g}",
            f"{cost[prices][g, MOST]:.3f}",
            NOTHING,
            f"{independent:.3f}",
        )
        for prices, by_groups in INDEPENDENT_MOST.items()
        for g, independent in by_groups.items()
    ]
    return table(("Cx/Cf", "ours", "paper (axis to 0.5)", "independent (3 floors)"), rows)


def _sessions_claim(cost: Mapping[FilteringPrices, Curve]) -> Claim:
    return _steps_claim(
        "for any number of groups, more sessions cost less",
        [
            (
                f"{g} groups from {a} to {b} sessions at α = {prices.alpha:g}",
                curve[g, b] - curve[g, a],
            )
            for prices, curve in cost.items()
            for g in GROUPS
            for a, b in pairwise(s for groups, s in curve if groups == g)
        ],
    )


def _groups_claim(cost: Mapping[FilteringPrices, Curve]) -> Claim:
    return _steps_claim(
        "for any number of sessions, more groups cost less",
        [
            (
                f"{s} sessions from {a} to {b} groups at α = {prices.alpha:g}",
                curve[b, s] - curve[a, s],
            )
            for prices, curve in cost.items()
            for s in sorted({s for _, s in curve})
            for a, b in pairwise(g for g in GROUPS if (g, s) in curve)
        ],
    )


def _steps_claim(says: str, steps: list[tuple[str, float]]) -> Claim:
    rises = [f"{where} (+{step:.4f})" for where, step in steps if step >= 0]
    return Claim(
        says,
        "section 5.4",
        f"true of {len(steps) - len(rises)} of {len(steps)} steps"
        + (f"; not for {join_words(rises)}" if rises else ""),
        not rises,
    )


def _flat_claim(cost: Mapping[FilteringPrices, Curve]) -> Claim:
    flat = [[value for (g, s), value in curve.items() if g == s] for curve in cost.values()]
    apart = float(np.ptp(np.array(flat), axis=0).max())
    return Claim(
        "with one session per group only α + β matters, so that curve is the same in all panels",
        "section 5.4",
        "it is" if apart < EXACT else f"up to {apart:.1g} apart",
        apart < EXACT,
    )


def _worth(curve: Curve) -> float:
    """The saving by the most sessions, over the saving by as many groups."""
    few = GROUPS[0]
    return (curve[few, few] - curve[few, MOST]) / (curve[few, few] - curve[MOST, MOST])


def _worth_claim(cost: Mapping[FilteringPrices, Curve]) -> Claim:
    worth = _worth(cost[PRICES[0]])
    return Claim(
        "where the flow filter is the dear one (left), sessions are almost as good as groups",
        "section 5.4",
        f"from {GROUPS[0]} to {MOST:,} sessions saves {percent(worth)} of what as many groups save",
        worth >= NEARLY,
    )


def _order_claim(cost: Mapping[FilteringPrices, Curve]) -> Claim:
    worth = [_worth(cost[prices]) for prices in PRICES]
    return Claim(
        "the dearer the session filter, the less sessions are worth",
        "section 5.4",
        f"{join_words([percent(share) for share in worth])} of what groups save, "
        "from left to right",
        worth == sorted(worth, reverse=True),
    )


def _hierarchy_claim(curve: Curve) -> Claim:
    saved = {g: 1 - curve[g, MOST] / curve[g, g] for g in GROUPS}
    words = [f"{percent(share)} at {g}" for g, share in saved.items()]
    return Claim(
        "at equal prices a second level saves a good part of the filtering",
        "section 5.4",
        f"{MOST:,} sessions instead of one per group save {join_words(words)} groups",
        min(saved.values()) > 0.25,
    )


def _range_claim(cost: Mapping[FilteringPrices, Curve]) -> Claim:
    values = [value for curve in cost.values() for value in curve.values()]
    return Claim(
        f"the highest of the axis's marks, every 0.1, is {TOP_OF_AXIS:g}",
        "Fig. 6",
        f"{min(values):.3f} to {max(values):.3f}",
        max(values) <= TOP_OF_AXIS + 0.05,  # half a mark
    )


def _chart(cost: Mapping[FilteringPrices, Curve], ours: Ours) -> str:
    def paint(sheet: Sheet) -> None:
        every = sheet.panels
        for axes, (prices, curve) in zip(every, cost.items(), strict=True):
            for g in GROUPS:
                points = [(s, value) for (groups, s), value in curve.items() if groups == g]
                axes.plot(*zip(*points, strict=True), color=SHADES[g], label=f"{g} groups")
            flat = [(s, value) for (groups, s), value in curve.items() if groups == s]
            axes.plot(
                *zip(*flat, strict=True),
                color=INK,
                linewidth=0.8,
                marker="o",
                markerfacecolor="white",
                label="groups = sessions",
            )
            for g, (own, _) in ours[prices].items():
                label = OURS if g == max(ours[prices]) else ""
                axes.plot(
                    MOST,
                    own,
                    MARKS[OURS],
                    color=SHADES[g],
                    markeredgecolor=COLOURS[OURS],
                    markersize=11,
                    label=label,
                )
            axes.set_title(f"α = {prices.alpha:g}, β = {prices.beta:g}")
            axes.set(xlabel="sessions", xlim=(0, MOST * 1.05), ylim=(0, 0.55))
            axes.xaxis.set_major_formatter("{x:,.0f}")
        every[0].set_ylabel("Cx/Cf, relative filtering cost")
        draw_legend(sheet)

    return draw_chart(
        "tock-fig6", "Relative filtering cost of GF", (9.5, 4.2), paint, shape=(1, len(cost))
    )
