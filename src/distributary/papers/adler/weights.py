"""Section 2.2's weights: w1 for what is received, w2 for what is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from distributary.cost import ChannelPrices
from distributary.model import FloatArray
from distributary.papers.adler.fig3 import DENSE, SETTINGS
from distributary.papers.adler.instances import (
    ACTIVE,
    BEYOND_CHANCE,
    BUDGET_S,
    OURS,
    QUICK_BUDGET_S,
    draw_instance,
    lead,
    price_algorithm,
    price_ours,
    saved,
)
from distributary.papers.drawing import COLOURS, Sheet, draw_chart, draw_curves
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, join_words, percent, table
from distributary.planning import Progress, Step, silent

__all__ = ["weights"]

WEIGHTS = (1.0, 0.99, 0.95, 0.9, 0.75, 0.5, 0.25)  # w1; w2 is the rest
QUICK_WEIGHTS = (1.0, 0.5)
GROUPS = (5, 10, 20, 50, 100)
SHOWN = 20  # groups on the right of the chart
ALGORITHMS = ("FBM", "UBM")
EQUAL = 0.5
INSTANCES, QUICK_INSTANCES = 10, 3

# w1 -> setting -> algorithm -> overhead over C_inf, instances x GROUPS
Overheads = Mapping[float, Mapping[str, Mapping[str, FloatArray]]]
Ours = Mapping[float, Mapping[str, FloatArray]]  # w1 -> setting -> the same at SHOWN groups


def weights(
    *, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent
) -> Figure:
    """Overhead of both merges as sending counts more and more."""
    chosen = QUICK_WEIGHTS if quick else WEIGHTS
    n = QUICK_INSTANCES if quick else INSTANCES
    budget_s = QUICK_BUDGET_S if quick else BUDGET_S
    found, ours = _run(chosen, n, budget_s, seed, progress)
    return Figure(
        name="adler-weights",
        title="What receiving and sending cost, weighed differently",
        source="Adler et al. (2001), sections 2.2, 3 and 5.2.2",
        shown=(
            "The overhead over C∞ in the two settings of Fig. 3 with dense interest, 100 flows "
            "and 100 users. w1 is the weight of what is received, w2 = 1 - w1 that of what is "
            "sent; the paper's figures have w1 = w2 and one of its proofs w2 = 0. On the left "
            "UBM against the number of groups for some weights, in setting (b); on the right all "
            f"three against w1 at {SHOWN} groups. Means of {n} instances."
        ),
        columns=("w1", "setting", "groups", "algorithm", "instances", "overhead_over_c_inf"),
        rows=tuple(
            (w1, s, k, a, n, float(by[:, at].mean()))
            for w1, settings in found.items()
            for s, algorithms in settings.items()
            for a, by in algorithms.items()
            for at, k in enumerate(GROUPS)
        )
        + tuple(
            (w1, s, SHOWN, OURS, len(by), float(by.mean()))
            for w1, settings in ours.items()
            for s, by in settings.items()
        ),
        chart=_chart(found, ours),
        comparison=_table(found, ours),
        claims=(_why_it_rises_claim(found), _best_claim(found)),
        notes=(
            ACTIVE,
            "The paper varies neither weight, so there are no numbers of its own to set beside "
            "these. It does explain UBM's rise with more groups by what is sent, and that can be "
            "tested by letting sending cost nothing.",
            "FBM and `best` put each flow in one group: what they send is the same whatever the "
            "weights. UBM chooses its merges by both.",
            BEYOND_CHANCE,
        ),
        own=_own_words(found, ours),
        quick=quick,
        seed=seed,
    )


def _run(
    chosen: tuple[float, ...], n: int, budget_s: float, seed: int, progress: Progress
) -> tuple[Overheads, Ours]:
    found = {
        w1: {s: {a: np.empty((n, len(GROUPS))) for a in ALGORITHMS} for s in DENSE} for w1 in chosen
    }
    ours = {w1: {s: np.empty(n) for s in DENSE} for w1 in chosen}
    todo = [(w1, setting) for w1 in chosen for setting in DENSE]
    for done, (w1, setting) in enumerate(todo):
        progress(Step("weights", done, len(todo)))
        prices = ChannelPrices(received=w1, sent=1 - w1)
        for instance in range(n):
            demand, start = draw_instance(SETTINGS[setting], seed, instance)
            for algorithm in ALGORITHMS:
                for at, k in enumerate(GROUPS):
                    cost = price_algorithm(demand, algorithm, k, start, prices)
                    by = found[w1][setting][algorithm]
                    by[instance, at] = cost.overhead / cost.lower_bound
            cost = price_ours(demand, SHOWN, start, prices, budget_s=budget_s)
            ours[w1][setting][instance] = cost.overhead / cost.lower_bound
    progress(Step("weights", len(todo), len(todo)))
    return found, ours


def _at_shown(found: Overheads, w1: float, setting: str, algorithm: str) -> FloatArray:
    by: FloatArray = found[w1][setting][algorithm][:, GROUPS.index(SHOWN)]
    return by


def _table(found: Overheads, ours: Ours) -> str:
    def row(w1: float, s: str) -> tuple[str, ...]:
        means = [float(_at_shown(found, w1, s, a).mean()) for a in ALGORITHMS]
        return (
            f"w1 {w1:g}, ({s})",
            *(percent(mean) for mean in means),
            percent(float(ours[w1][s].mean())),
            "not printed",
            NOTHING,
        )

    header = (f"ours, overhead at {SHOWN} groups", *ALGORITHMS, f"`{OURS}`", "paper", "independent")
    return table(header, (row(w1, s) for w1 in found for s in DENSE))


def _rise(found: Overheads, w1: float, setting: str) -> float:
    """How far UBM's overhead rises again above its lowest, as a share of C_inf."""
    means = found[w1][setting]["UBM"].mean(axis=0)
    return float(means[-1] - means.min())


def _why_it_rises_claim(found: Overheads) -> Claim:
    free = {s: _rise(found, 1.0, s) for s in DENSE}
    equal = {s: _rise(found, EQUAL, s) for s in DENSE}
    words = [
        f"({s}) by {percent(equal[s])} of C∞ with w1 = w2, by {percent(free[s])} if sending is free"
        for s in DENSE
    ]
    return Claim(
        "UBM's overhead rises again with more groups because of what is sent",
        "section 5.2.2",
        f"rises {join_words(words)}",
        all(equal[s] > 0 and free[s] <= 0 for s in DENSE),
    )


def _best_claim(found: Overheads) -> Claim:
    beaten = [
        f"({s}) at {join_words([str(GROUPS[at]) for at in wins])} groups"
        for s in DENSE
        if len(wins := np.flatnonzero(lead(found[EQUAL][s]["UBM"], found[EQUAL][s]["FBM"]) > 2))
    ]
    return Claim(
        "with w1 = w2 and dense interest FBM is better than UBM",
        "section 5.2.2",
        f"beaten in {join_words(beaten)}" if beaten else "never beaten beyond chance",
        not beaten,
    )


def _own_words(found: Overheads, ours: Ours) -> str:
    def words(w1: float) -> str:
        each = [
            f"({s}) {saved(own, _at_shown(found, w1, s, 'FBM'))} than FBM and "
            f"{saved(own, _at_shown(found, w1, s, 'UBM'))} than UBM"
            for s, own in ours[w1].items()
        ]
        return f"w1 = {w1:g}: {join_words(each)}"

    return (
        f"The overhead of `{OURS}` with a second to search, on the same instances at {SHOWN} "
        f"groups: {'; '.join(words(w1) for w1 in (1.0, EQUAL))}."
    )


def _chart(found: Overheads, ours: Ours) -> str:
    drawn = [w1 for w1 in found if w1 in (1.0, 0.95, EQUAL)]
    styles: tuple[Literal["solid", "dashed", "dotted"], ...] = ("solid", "dashed", "dotted")

    def paint(sheet: Sheet) -> None:
        left, right = sheet.panels
        for w1, style in zip(drawn, styles, strict=False):
            means = found[w1]["b"]["UBM"].mean(axis=0)
            left.plot(
                GROUPS, means, color=COLOURS["UBM"], linestyle=style, label=f"UBM, w1 = {w1:g}"
            )
        left.set_title("(b), dense interest")
        left.set(xlabel="groups", ylabel="overhead / C∞", ylim=(0, None))
        left.legend()
        for setting, style in zip(DENSE, styles, strict=False):
            lines = {
                a: np.array([_at_shown(found, w, setting, a).mean() for w in found])
                for a in ALGORITHMS
            }
            lines[OURS] = np.array([ours[w][setting].mean() for w in found])
            draw_curves(right, list(found), lines)
            for line in right.lines[-len(lines) :]:
                line.set_linestyle(style)
        right.set(xlabel="w1, the weight of what is received", ylim=(0, None))
        right.set_title(f"{SHOWN} groups; (b) solid, (d) dashed", loc="left")
        handles, labels = right.get_legend_handles_labels()
        right.legend(handles[:3], labels[:3])

    return draw_chart(
        "adler-weights", "What receiving and sending cost", (9, 4.2), paint, shape=(1, 2)
    )
