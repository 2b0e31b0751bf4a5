"""Fig. 3: the value of more groups, in four settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from distributary.model import FloatArray
from distributary.papers.adler.instances import (
    ACTIVE,
    BEYOND_CHANCE,
    BUDGET_S,
    HEURISTICS,
    OURS,
    QUICK_BUDGET_S,
    begin_at,
    draw_instance,
    lead,
    price_algorithm,
    price_ours,
    rescale,
    saved,
)
from distributary.papers.drawing import Sheet, draw_chart, draw_curves, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import join_words, percent, table
from distributary.planning import Progress, Step, silent
from distributary.workloads import TwoClass

__all__ = ["fig3"]

SETTINGS: Mapping[str, TwoClass] = {  # section 5.2.2
    "a": TwoClass(100, 100, 0.1, 10, 1, 0.2, 0.4, 0.05),
    "b": TwoClass(100, 100, 0.1, 10, 1, 0.2, 0.7, 0.1),
    "c": TwoClass(100, 100, 0.05, 30, 1, 0.2, 0.4, 0.05),
    "d": TwoClass(100, 100, 0.05, 30, 1, 0.2, 0.7, 0.1),
}
DENSE = ("b", "d")
LEVEL_AND_STEEP = (("a", "c"), ("b", "d"))  # the same interest; rates are less equal in the second
GROUPS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)
TABLED = (2, 5, 10, 20, 50, 100)
AXIS = 10  # groups at which the figure is taken to begin
INSTANCES, QUICK_INSTANCES = 100, 5  # the paper: 100
OUR_GROUPS, QUICK_OUR_GROUPS = (2, 5, 10, 20, 50), (20,)
OUR_INSTANCES, QUICK_OUR_INSTANCES = 10, 2  # the first ones
NOT_MUCH = 0.1  # the largest gain that counts as not much better
INDEPENDENT_UBM_WINS: Mapping[str, tuple[int, ...]] = {"a": (5,), "c": (2, 3, 4, 5)}

# setting -> algorithm -> overhead, instances x GROUPS
Overhead = Mapping[str, Mapping[str, FloatArray]]
# setting -> number of groups -> overhead of ours, by instance
Ours = Mapping[str, Mapping[int, FloatArray]]


def fig3(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """The overhead C - C_inf of the five heuristics against the number of groups."""
    n = QUICK_INSTANCES if quick else INSTANCES
    overhead = _overhead(n, seed, progress)
    ours = _ours(quick, seed, begin_at(progress, len(SETTINGS) * n))
    return Figure(
        name="adler-fig3",
        title="Overhead against the number of groups",
        source="Adler et al. (2001), Fig. 3 and section 5.2.2",
        shown=(
            f"The cost beyond C∞, the cost with a group for every flow, as the mean of {n} random "
            "instances of 100 flows and 100 users. Every number of groups and every algorithm "
            "sees the same instances."
        ),
        columns=("setting", "groups", "algorithm", "instances", "overhead"),
        rows=tuple(
            (setting, k, algorithm, n, float(found[:, at].mean()))
            for setting, algorithms in overhead.items()
            for at, k in enumerate(GROUPS)
            for algorithm, found in algorithms.items()
        )
        + tuple(
            (setting, k, OURS, len(found), float(found.mean()))
            for setting, by_groups in ours.items()
            for k, found in by_groups.items()
        ),
        chart=_chart(overhead, ours),
        comparison="\n\n".join((_overhead_table(overhead), _winner_table(overhead))),
        claims=(
            _falling_claim(overhead),
            _best_claim(overhead),
            _few_and_sparse_claim(overhead),
            _unequal_rates_claim(overhead),
            _dense_claim(overhead),
            _hardly_better_claim(overhead),
            _rates_over_sizes_claim(overhead),
        ),
        notes=(
            ACTIVE,
            "With as many groups as flows, FBM, RSE and RRE give each flow its own group and "
            "cost no more than C∞. RAN still puts some flows together by chance, and UBM sends a "
            "flow once for every group it is in.",
            BEYOND_CHANCE,
            f"The text does not say where the figure's axis begins. We take {AXIS} groups, a tenth "
            "of the flows, because section 5.2.2 says both that FBM is better than UBM in all four "
            "settings and that UBM does well with few groups and sparse interest; on an axis from "
            "1 group the two contradict each other. What happens below is stated beside the "
            "verdict.",
            f"*Few groups* are therefore {AXIS} in every claim about them; *not much better* is "
            f"read as saving {percent(NOT_MUCH)} at most.",
            "The paper prints no numbers for this figure, so its sentences are checked instead.",
        ),
        own=_own_words(overhead, ours),
        quick=quick,
        seed=seed,
    )


def _overhead(n: int, seed: int, progress: Progress) -> Overhead:
    overhead = {s: {a: np.empty((n, len(GROUPS))) for a in HEURISTICS} for s in SETTINGS}
    for place, (setting, params) in enumerate(SETTINGS.items()):
        for instance in range(n):
            progress(Step("instances", place * n + instance, len(SETTINGS) * n))
            demand, start = draw_instance(params, seed, instance)
            for algorithm, found in overhead[setting].items():
                found[instance] = [
                    price_algorithm(demand, algorithm, k, start).overhead for k in GROUPS
                ]
    progress(Step("instances", len(SETTINGS) * n, len(SETTINGS) * n))
    return overhead


def _ours(quick: bool, seed: int, progress: Progress) -> Ours:
    n = QUICK_OUR_INSTANCES if quick else OUR_INSTANCES
    groups = QUICK_OUR_GROUPS if quick else OUR_GROUPS
    budget_s = QUICK_BUDGET_S if quick else BUDGET_S
    ours = {setting: {k: np.empty(n) for k in groups} for setting in SETTINGS}
    for place, (setting, params) in enumerate(SETTINGS.items()):
        for instance in range(n):
            progress(Step("instances", place * n + instance, len(SETTINGS) * n))
            demand, start = draw_instance(params, seed, instance)
            for k in groups:
                channel = price_ours(demand, k, start, budget_s=budget_s)
                ours[setting][k][instance] = channel.overhead
    progress(Step("instances", len(SETTINGS) * n, len(SETTINGS) * n))
    return ours


def _wins(
    overhead: Overhead, setting: str, winner: str, loser: str, errors: float = 2
) -> list[int]:
    """The numbers of groups at which one is ahead by more than `errors` standard errors."""
    ahead = lead(overhead[setting][winner], overhead[setting][loser])
    return [GROUPS[at] for at in np.flatnonzero(ahead > errors)]


def _overhead_table(overhead: Overhead) -> str:
    return table(
        ("ours, mean overhead", *(f"{k} groups" for k in TABLED)),
        (
            (f"({s}) {a}", *(f"{found[:, GROUPS.index(k)].mean():,.0f}" for k in TABLED))
            for s, algorithms in overhead.items()
            for a, found in algorithms.items()
        ),
    )


def _winner_table(overhead: Overhead) -> str:
    return table(
        ("groups at which UBM beats FBM", "ours", "ours, beyond chance", "paper", "independent"),
        (
            (
                f"({setting})",
                _groups(_wins(overhead, setting, "UBM", "FBM", errors=0)),
                _groups(_wins(overhead, setting, "UBM", "FBM")),
                "nowhere",
                _groups(INDEPENDENT_UBM_WINS.get(setting, ())),
            )
            for setting in SETTINGS
        ),
    )


def _groups(found: Sequence[int]) -> str:
    return join_words([str(k) for k in found])


def _falling_claim(overhead: Overhead) -> Claim:
    rises = [
        f"({s}) from {before} to {after} groups"
        for s in SETTINGS
        for (before, after), step in zip(
            pairwise(GROUPS), np.diff(overhead[s]["FBM"].mean(axis=0)), strict=True
        )
        if step >= 0
    ]
    return Claim(
        "FBM's overhead falls with every group added",
        "section 5.2.2",
        f"does not fall: {join_words(rises)}"
        if rises
        else "falls at every step, in all four settings",
        not rises,
    )


def _best_claim(overhead: Overhead) -> Claim:
    def beaten(shown: Callable[[int], bool]) -> list[str]:
        return [
            f"({s}) by {rival} at {_groups(wins)} groups"
            for s in SETTINGS
            for rival in HEURISTICS
            if rival != "FBM"
            and (wins := [k for k in _wins(overhead, s, rival, "FBM") if shown(k)])
        ]

    on_axis, before = beaten(lambda k: k >= AXIS), beaten(lambda k: k < AXIS)
    return Claim(
        "FBM beats UBM and the random placements in all four settings",
        "section 5.2.2",
        f"from {AXIS} groups on "
        + (f"beaten in {join_words(on_axis)}" if on_axis else "never beaten beyond chance")
        + (f"; with fewer beaten in {join_words(before)}" if before else ""),
        not on_axis,
    )


def _few_and_sparse_claim(overhead: Overhead) -> Claim:
    wins = {s: _wins(overhead, s, "UBM", "FBM") for s in SETTINGS}
    return Claim(
        "UBM does well only with few groups and sparse interest, (a) and (c)",
        "section 5.2.2",
        "ahead of FBM in " + join_words([f"({s}) at {_groups(k)} groups" for s, k in wins.items()]),
        all(bool(wins[s]) != (s in DENSE) for s in SETTINGS)
        and max((k for found in wins.values() for k in found), default=0) <= AXIS,
    )


def _unequal_rates_claim(overhead: Overhead) -> Claim:
    share = {s: _mean(overhead, s, "FBM", AXIS) / _mean(overhead, s, "RAN", AXIS) for s in SETTINGS}
    return Claim(
        "the less equal the rates, the more FBM gains even with few groups",
        "section 5.2.2",
        f"FBM's overhead over RAN's at {AXIS} groups: "
        + join_words([f"({s}) {share[s]:.2f}" for s in SETTINGS]),
        all(share[steep] < share[level] for level, steep in LEVEL_AND_STEEP),
    )


def _mean(overhead: Overhead, setting: str, algorithm: str, groups: int) -> float:
    return float(overhead[setting][algorithm][:, GROUPS.index(groups)].mean())


def _dense_claim(overhead: Overhead) -> Claim:
    means = {s: overhead[s]["UBM"].mean(axis=0) for s in SETTINGS}
    rise = {s: float(means[s][-1] / means[s].min() - 1) for s in SETTINGS}
    words = [
        f"({s}) lowest at {GROUPS[int(np.argmin(means[s]))]} groups, then +{percent(rise[s])}"
        for s in SETTINGS
    ]
    return Claim(
        "where interest is dense, (b) and (d), UBM's overhead rises again with more groups",
        "section 5.2.2",
        "; ".join(words),
        all(rise[s] > 0 for s in DENSE),
    )


def _hardly_better_claim(overhead: Overhead) -> Claim:
    def most_saved(k: int) -> float:
        return max(
            1 - _mean(overhead, s, a, k) / _mean(overhead, s, "RAN", k)
            for s in SETTINGS
            for a in ("RSE", "RRE")
        )

    saved = [f"{percent(most_saved(k))} at {k} groups" for k in (AXIS, 5, 20)]
    return Claim(
        "with few groups RSE and RRE do not do much better than RAN",
        "section 5.2.2",
        f"they save at most {join_words(saved)}",
        most_saved(AXIS) <= NOT_MUCH,
    )


def _rates_over_sizes_claim(overhead: Overhead) -> Claim:
    worse = [
        f"({s}) at {_groups(lost)} groups"
        for s in SETTINGS
        if (lost := _wins(overhead, s, "RSE", "RRE"))
    ]
    return Claim(
        "RRE is better than RSE throughout",
        "section 5.2.2",
        f"worse in {join_words(worse)}; nowhere else" if worse else "never worse beyond chance",
        not worse,
    )


def _own_words(overhead: Overhead, ours: Ours) -> str:
    def row(setting: str) -> tuple[str, ...]:
        merged = overhead[setting]["FBM"]
        return (
            f"({setting})",
            *(
                saved(found, merged[: len(found), GROUPS.index(k)])
                for k, found in ours[setting].items()
            ),
        )

    groups = next(iter(ours.values()))
    n = len(next(iter(groups.values())))
    return (
        f"`{OURS}` with a second to search, on the first {n} instances of each setting: its "
        "overhead against FBM's on the same ones, which is how the chart draws it.\n\n"
        + table(("overhead against FBM's", *(f"{k} groups" for k in groups)), map(row, SETTINGS))
    )


def _chart(overhead: Overhead, ours: Ours) -> str:
    def paint(sheet: Sheet) -> None:
        every = sheet.panels
        for axes, (setting, params) in zip(every, SETTINGS.items(), strict=True):
            title = (
                f"({setting})  {percent(params.fast_share)} of flows at rate "
                f"{params.fast_rate:g}, interest {params.want_popular:g}/{params.want_unpopular:g}"
            )
            means = {a: found.mean(axis=0) for a, found in overhead[setting].items()}
            draw_curves(axes, GROUPS, means, title)
            merged = overhead[setting]["FBM"]
            own = [rescale(found, merged[:, GROUPS.index(k)]) for k, found in ours[setting].items()]
            draw_curves(axes, list(ours[setting]), {OURS: np.array(own)}, title)
            axes.set(xlim=(0, 101), ylim=(0, None), xlabel="groups", ylabel="overhead C − C∞")
            axes.yaxis.set_major_formatter("{x:,.0f}")
        draw_legend(sheet)

    return draw_chart(
        "adler-fig3", "Overhead against the number of groups", (9, 7), paint, shape=(2, 2)
    )
