"""Section 5.2.3: more flows than users, and more users than flows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from distributary.model import FloatArray
from distributary.papers.adler.fig4 import GROUPS_SHARE, PARAMS
from distributary.papers.adler.instances import (
    ACTIVE,
    BEYOND_CHANCE,
    BUDGET_S,
    HEURISTICS,
    OURS,
    QUICK_BUDGET_S,
    draw_instance,
    lead,
    price_algorithm,
    price_ours,
    saved,
)
from distributary.papers.drawing import Sheet, draw_chart, draw_curves, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, join_words, percent, table
from distributary.planning import Progress, Step, silent

__all__ = ["asymmetric"]

Shape = tuple[int, int]  # flows, users

LONG, SHORT = 1000, (200, 400, 600, 800)
FEW_USERS: tuple[Shape, ...] = tuple((LONG, users) for users in SHORT)
FEW_FLOWS: tuple[Shape, ...] = tuple((flows, LONG) for flows in SHORT)
QUICK_FEW_USERS: tuple[Shape, ...] = ((300, 60), (300, 240))
QUICK_FEW_FLOWS: tuple[Shape, ...] = ((60, 300), (240, 300))
INSTANCES, QUICK_INSTANCES = 10, 4
MUCH_SMALLER = 0.5  # users over flows, at most
INDEPENDENT: Mapping[Shape, Mapping[str, float]] = {  # one run
    (1000, 200): {"FBM": 2.90, "UBM": 2.32},
    (1000, 400): {"FBM": 3.10, "UBM": 3.03},
}

Ratios = Mapping[Shape, Mapping[str, FloatArray]]  # C/C_inf by algorithm and instance


def asymmetric(
    *, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent
) -> Figure:
    """C/C_inf where there are far more flows than users, or far fewer."""
    shapes = (*QUICK_FEW_USERS, *QUICK_FEW_FLOWS) if quick else (*FEW_USERS, *FEW_FLOWS)
    ratio = _ratios(shapes, quick, seed, progress)
    n = QUICK_INSTANCES if quick else INSTANCES
    return Figure(
        name="adler-asymmetric",
        title="More flows than users, and more users than flows",
        source="Adler et al. (2001), section 5.2.3 and section 6",
        shown=(
            f"On the left {shapes[0][0]:,} flows and a growing number of users, on the right "
            f"{shapes[-1][1]:,} users and a growing number of flows; {percent(GROUPS_SHARE)} as "
            "many groups as flows, everything else as in Fig. 4. The cost is divided by C∞, the "
            f"cost with a group for every flow. Means of {n} instances."
        ),
        columns=("flows", "users", "groups", "algorithm", "instances", "cost_over_c_inf"),
        rows=tuple(
            (flows, users, _groups(flows), a, len(found), float(found.mean()))
            for (flows, users), by_algorithm in ratio.items()
            for a, found in by_algorithm.items()
        ),
        chart=_chart(ratio),
        comparison=_table(ratio),
        claims=(_only_few_users_claim(ratio), _can_win_claim(ratio), _best_claim(ratio)),
        notes=(
            ACTIVE,
            "The paper keeps this experiment's numbers for a report that we do not have: it "
            "states the ranges of flows and users, and the outcome in words. Groups and all "
            "other parameters are taken from Fig. 4.",
            f"*Much smaller* is read as at most {percent(MUCH_SMALLER)} as many.",
            BEYOND_CHANCE,
        ),
        own=_own_words(ratio),
        quick=quick,
        seed=seed,
    )


def _groups(flows: int) -> int:
    return round(GROUPS_SHARE * flows)


def _ratios(shapes: tuple[Shape, ...], quick: bool, seed: int, progress: Progress) -> Ratios:
    n = QUICK_INSTANCES if quick else INSTANCES
    budget_s = QUICK_BUDGET_S if quick else BUDGET_S
    ratio = {shape: {a: np.empty(n) for a in (*HEURISTICS, OURS)} for shape in shapes}
    todo = [(shape, instance) for shape in shapes for instance in range(n)]
    for done, ((flows, users), instance) in enumerate(todo):
        progress(Step("instances", done, len(todo)))
        params = replace(PARAMS, flows=flows, receivers=users)
        demand, start = draw_instance(params, seed, flows, users, instance)
        for algorithm, found in ratio[flows, users].items():
            channel = (
                price_ours(demand, _groups(flows), start, budget_s=budget_s)
                if algorithm == OURS
                else price_algorithm(demand, algorithm, _groups(flows), start)
            )
            found[instance] = channel.cost / channel.lower_bound
    progress(Step("instances", len(todo), len(todo)))
    return ratio


def _name(shape: Shape) -> str:
    return f"{shape[0]:,} flows x {shape[1]:,} users"


def _table(ratio: Ratios) -> str:
    def independent(shape: Shape) -> str:
        known = INDEPENDENT.get(shape, {})
        return join_words([f"{a} {value:.2f}" for a, value in known.items()], NOTHING)

    return table(
        ("ours, C/C∞", *HEURISTICS, f"`{OURS}`", "paper", "independent, FBM and UBM"),
        (
            (
                _name(shape),
                *(f"{found[a].mean():.2f}" for a in (*HEURISTICS, OURS)),
                "not printed",
                independent(shape),
            )
            for shape, found in ratio.items()
        ),
    )


def _user_merge_wins(ratio: Ratios) -> list[Shape]:
    return [shape for shape, found in ratio.items() if lead(found["UBM"], found["FBM"]) > 2]


def _much_fewer_users(shape: Shape) -> bool:
    flows, users = shape
    return users <= MUCH_SMALLER * flows


def _only_few_users_claim(ratio: Ratios) -> Claim:
    wins = _user_merge_wins(ratio)
    return Claim(
        "UBM is better than FBM only where users are far fewer than flows",
        "sections 5.2.3 and 6",
        f"UBM is ahead beyond chance at {join_words([_name(shape) for shape in wins])}",
        all(_much_fewer_users(shape) for shape in wins),
    )


def _can_win_claim(ratio: Ratios) -> Claim:
    shape = min(ratio, key=lambda shape: shape[1] / shape[0])
    found = {a: float(ratio[shape][a].mean()) for a in ("UBM", "FBM")}
    return Claim(
        "UBM can be better than FBM",
        "section 5.2.3",
        f"{found['UBM']:.2f} against {found['FBM']:.2f} at {_name(shape)}",
        shape in _user_merge_wins(ratio),
    )


def _best_claim(ratio: Ratios) -> Claim:
    beaten = [
        f"by {rival} at {_name(shape)}"
        for shape, found in ratio.items()
        for rival in HEURISTICS
        if rival != "FBM" and not _much_fewer_users(shape) and lead(found[rival], found["FBM"]) > 2
    ]
    return Claim(
        "in all other cases FBM is the best of the five",
        "section 5.2.3",
        f"beaten {join_words(beaten)}" if beaten else "never beaten beyond chance",
        not beaten,
    )


def _own_words(ratio: Ratios) -> str:
    def against(rival: str) -> str:
        words = [
            f"{saved(found[OURS], found[rival])} at {_name(shape)}"
            for shape, found in ratio.items()
        ]
        return join_words(words)

    return (
        f"`{OURS}` with a second to search puts each flow in one group, as FBM does. Against FBM "
        f"on the same instances it costs {against('FBM')}. Against UBM it costs "
        f"{against('UBM')}. UBM sends a flow once for every group that wants it; where users are "
        "very few that is the better idea, and a plan of ours with copies (`--max-sent`) or by "
        "unicast is what to compare with it."
    )


def _chart(ratio: Ratios) -> str:
    flows = max(flows for flows, _ in ratio)
    sides = (
        ([shape for shape in ratio if shape[0] == flows and shape[1] < flows], 1, "users"),
        ([shape for shape in ratio if shape[1] == flows and shape[0] < flows], 0, "flows"),
    )

    def paint(sheet: Sheet) -> None:
        for axes, (shapes, at, word) in zip(sheet.panels, sides, strict=True):
            lines = {
                a: np.array([ratio[shape][a].mean() for shape in shapes])
                for a in (*HEURISTICS, OURS)
            }
            other = "flows" if word == "users" else "users"
            draw_curves(axes, [shape[at] for shape in shapes], lines, f"{flows:,} {other}")
            axes.set(xlabel=word, ylabel="C/C∞", xlim=(0, None), ylim=(0, None))
        draw_legend(sheet)

    return draw_chart(
        "adler-asymmetric",
        "More flows than users, and more users than flows",
        (9, 4.2),
        paint,
        shape=(1, 2),
    )
