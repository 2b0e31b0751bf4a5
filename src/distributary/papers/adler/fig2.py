"""Fig. 2: seven algorithms on instances small enough to solve exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

from distributary.model import FloatArray
from distributary.papers.adler.instances import (
    ACTIVE,
    CHANCE,
    EXACT,
    HEURISTICS,
    MERGES,
    OURS,
    draw_instance,
    price_algorithm,
    price_ours,
)
from distributary.papers.drawing import QUIET, Sheet, draw_chart, draw_dots, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import join_words, percent, span, table
from distributary.planning import Progress, Step, silent
from distributary.workloads import TwoClass

__all__ = ["fig2"]

Hits = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often one algorithm does as well as another, or nearly so."""

    algorithm: str
    best: str
    near: bool
    paper: int  # section 5.2.1, out of 50 instances
    independent: float  # a share of 1,000 instances

    @property
    def says(self) -> str:
        """The agreement in words."""
        closeness = f"within {percent(CLOSE)} of" if self.near else "as good as"
        return f"{self.algorithm} {closeness} {self.best}"

    def hits(self, cost: Mapping[str, FloatArray]) -> Hits:
        """Whether it holds, by instance. Costs are sums of integer rates, so exact."""
        allowed = 1 + CLOSE if self.near else 1
        return np.asarray(cost[self.algorithm] <= allowed * cost[self.best])


PARAMS = TwoClass()
GROUPS = 3
CLOSE = 0.05
BATCH = 50  # the paper's number of instances
LEAST_CHANCE = 0.05
BUDGET_S = 0.05  # for ours: the instances are tiny
INDEPENDENT = 1000
INSTANCES, QUICK_INSTANCES = 1000, 30
AGREEMENTS = (
    Agreement("FBM", "OCC", near=False, paper=29, independent=0.46),
    Agreement("FBM", "OCC", near=True, paper=46, independent=0.89),
    Agreement("UBM", "OCA", near=False, paper=5, independent=0.13),
    Agreement("UBM", "OCA", near=True, paper=31, independent=0.45),
    Agreement("OCC", "OCA", near=False, paper=18, independent=0.38),
    Agreement("OCC", "OCA", near=True, paper=42, independent=0.84),
)
INDEPENDENT_RATIOS = {
    "OCA": 0.977,
    "FBM": 1.018,
    "UBM": 1.039,
    "RRE": 1.30,
    "RSE": 1.38,
    "RAN": 1.46,
}


def fig2(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Every algorithm's cost against C_inf, and how often the heuristics find the optimum."""
    n = QUICK_INSTANCES if quick else INSTANCES
    bound, cost = _costs(n, seed, progress)
    hits = {agreement: agreement.hits(cost) for agreement in AGREEMENTS}
    ratio = {a: float((cost[a] / cost["OCC"]).mean()) for a in cost}
    return Figure(
        name="adler-fig2",
        title="Seven algorithms against the lower bound",
        source="Adler et al. (2001), Fig. 2 and section 5.2.1",
        shown=(
            f"{n:,} random instances of {PARAMS.flows} flows, {PARAMS.receivers} users and "
            f"{GROUPS} groups; the chart shows the first {min(n, BATCH)}, the tables count all. "
            "Marks above one another belong to one instance and show its cost under each "
            "algorithm, divided by C∞, the cost with a group for every flow. OCC is the proven "
            "optimum with each flow in one group, OCA the proven optimum when flows may be in "
            "several."
        ),
        columns=("instance", "c_inf", *(a.lower() for a in cost)),
        rows=tuple((i, float(bound[i]), *(float(cost[a][i]) for a in cost)) for i in range(n)),
        chart=_chart(bound[:BATCH], {a: cost[a][:BATCH] for a in cost}),
        comparison="\n\n".join((_agreement_table(hits, n), _ratio_table(ratio, n))),
        claims=(*(_agreement_claim(a, hits[a]) for a in hits), _distance_claim(ratio)),
        notes=(
            ACTIVE,
            "With only two rates, merging costs the same for many pairs of groups. FBM takes the "
            "first pair in a fixed order; another order gives other counts.",
            f"A count of the paper is reproduced if {BATCH} instances with our share show that "
            "count, or a more distant one, with a probability of at least "
            f"{percent(LEAST_CHANCE)}.",
        ),
        own=_own_words(cost),
        quick=quick,
        seed=seed,
    )


def _costs(n: int, seed: int, progress: Progress) -> tuple[FloatArray, dict[str, FloatArray]]:
    """C_inf and each algorithm's cost, by instance."""
    bound = np.empty(n)
    cost = {algorithm: np.empty(n) for algorithm in (*HEURISTICS, *EXACT, OURS)}
    for instance in range(n):
        progress(Step("instances", instance, n))
        demand, start = draw_instance(PARAMS, seed, instance)
        for algorithm, costs in cost.items():
            channel = (
                price_ours(demand, GROUPS, start, budget_s=BUDGET_S)
                if algorithm == OURS
                else price_algorithm(demand, algorithm, GROUPS, start)
            )
            costs[instance], bound[instance] = channel.cost, channel.lower_bound
    progress(Step("instances", n, n))
    return bound, cost


def _agreement_table(hits: Mapping[Agreement, Hits], n: int) -> str:
    return table(
        (
            "share of instances",
            f"ours ({n:,})",
            f"ours, batches of {BATCH}",
            f"paper ({BATCH})",
            "chance of that",
            f"independent ({INDEPENDENT:,})",
        ),
        (
            (
                agreement.says,
                percent(float(found.mean())),
                _batches(found),
                percent(agreement.paper / BATCH),
                percent(_chance(agreement.paper, float(found.mean()))),
                percent(agreement.independent),
            )
            for agreement, found in hits.items()
        ),
    )


def _ratio_table(ratio: Mapping[str, float], n: int) -> str:
    return table(
        ("mean cost over OCC's", f"ours ({n:,})", "paper", f"independent ({INDEPENDENT:,})"),
        (
            (algorithm, f"{ratio[algorithm]:.3f}", "not printed", f"{independent:.3f}")
            for algorithm, independent in INDEPENDENT_RATIOS.items()
        ),
    )


def _batches(hits: Hits) -> str:
    """The lowest and the highest share among samples of the paper's size."""
    n = len(hits) // BATCH
    if n == 0:
        return "too few"
    shares = hits[: n * BATCH].reshape(n, BATCH).mean(axis=1)
    return span(percent(float(shares.min())), percent(float(shares.max())))


def _agreement_claim(agreement: Agreement, hits: Hits) -> Claim:
    theirs, ours = agreement.paper / BATCH, float(hits.mean())
    chance = _chance(agreement.paper, ours)
    holds = chance >= LEAST_CHANCE
    missed = (
        f", so {percent(theirs)} is {'not reached' if ours < theirs else 'passed'} "
        f"(a chance of {percent(chance)} in {BATCH} instances)"
    )
    return Claim(
        f"{agreement.says} in {percent(theirs)} of the instances",
        "section 5.2.1",
        percent(ours) + ("" if holds else missed),
        holds,
    )


def _chance(count: int, share: float) -> float:
    """The probability that a sample of the paper's size shows its count or a more distant one."""
    further = range(count, BATCH + 1) if count > share * BATCH else range(count + 1)
    return sum(comb(BATCH, k) * share**k * (1 - share) ** (BATCH - k) for k in further)


def _distance_claim(ratio: Mapping[str, float]) -> Claim:
    above = [f"{algorithm} {percent(ratio[algorithm] - 1)}" for algorithm in CHANCE + MERGES]
    return Claim(
        "random placement, even balanced, comes nowhere near the optimum; merging does",
        "section 5.2.1",
        f"mean cost above OCC's: {join_words(above)}",
        all(ratio[a] > 1 + CLOSE for a in CHANCE) and all(ratio[a] < 1 + CLOSE for a in MERGES),
    )


def _own_words(cost: Mapping[str, FloatArray]) -> str:
    optimal = percent(float((cost[OURS] <= cost["OCC"]).mean()))
    merged = percent(float((cost["FBM"] <= cost["OCC"]).mean()))
    return (
        f"`{OURS}`, which like FBM puts each flow in one group, finds OCC's proven optimum in "
        f"{optimal} of the instances, where FBM finds it in {merged}. OCA, which may send a flow "
        "in several groups, remains below both."
    )


def _chart(bound: FloatArray, cost: Mapping[str, FloatArray]) -> str:
    def paint(sheet: Sheet) -> None:
        (axes,) = sheet.panels
        end = 1.03 * float(bound.max())
        axes.plot([0, end], [0, end], color=QUIET, linewidth=1, label="C = C∞")
        for algorithm in (*CHANCE, *MERGES, *EXACT, OURS):
            draw_dots(axes, algorithm, bound, cost[algorithm])
        axes.set(xlim=(0, end), ylim=(0, None))
        axes.set(xlabel="C∞, the cost with a group for every flow", ylabel="cost C")
        draw_legend(sheet)

    return draw_chart("adler-fig2", "Seven algorithms against the lower bound", (7.5, 5.2), paint)
