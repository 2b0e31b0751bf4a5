"""Figures 5 to 8: operating cost over time, while users join or change their interests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from distributary.papers.drawing import INK, QUIET, Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.milo.algorithms import AlgorithmOutcome, CostChange, Outcomes
from distributary.papers.milo.readings import (
    CLUSTERED,
    DECISIONS,
    MESSAGES,
    OURS_NOTE,
    SHIFTED,
    TIMES,
)
from distributary.papers.milo.runs import (
    FULL,
    QUICK,
    ClusteringCase,
    Scale,
    outcomes,
)
from distributary.papers.milo.world import DAYS, INTERVALS_PER_DAY
from distributary.papers.wording import NOTHING, join_words, percent, table
from distributary.planning import Progress, silent
from distributary.topics.rounds import CostSample

__all__ = [
    "Panel",
    "Panels",
    "compare_with_ours",
    "fig5",
    "fig6",
    "fig7",
    "fig8",
    "panel_chart",
    "panel_rows",
    "tell_changes",
]

ORDER = ("Infrequent", "Average", "Frequent")
LOOKS = {
    "Scribe": (INK, "-"),
    "Tamara": ("#2f74c0", "-"),
    "Tamara+": ("#2f74c0", ":"),
    "static": ("#cf8417", "-"),
    "our policy": ("#2a9179", "-"),
    "our policy+": ("#2a9179", ":"),
}
COLUMNS = ("panel", "algorithm", "day", "scribe", "maintenance", "dissemination", "overhead")
GROWN, CHANGED = ("Tamara", "ours"), ("static", "Tamara", "ours")
FEW_SEEDS = 3  # where the paper has no numbers, in no table either
CLUSTERED_SHIFT = "shift to other clusters"
UNIFORM_NOTE = "Uniform interests: every user wants every topic with the same probability."
ALL_CASES_NOTE = (
    'Section 5.2 has Tamara+ lower than Scribe "in all cases"; that is read as at every moment of '
    "every curve. Read as each of the three models, at the end, it holds."
)
MERGED, MERGED_SOONER = 0.02, 0.03  # of Scribe's cost
SHORT_NOTE = (
    "In the run of one day a channel surveys every 24 intervals, since once a day would be a "
    "single survey."
)


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a figure: the runs of all algorithms."""

    title: str
    outcomes: Mapping[str, AlgorithmOutcome]
    per_day: float = INTERVALS_PER_DAY  # intervals
    seeds: int = 1  # of which the outcomes are the means

    def final(self, name: str) -> float:
        """The final OC relative to Scribe's."""
        return self.outcomes[name].change.cost

    def total(self, name: str, at: CostSample) -> float:
        """OC plus overhead."""
        return at.cost + at.overhead


Panels = tuple[Panel, ...]


def fig5(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Two months of growth under three models of event frequency."""
    scale = QUICK if quick else FULL
    cases = {f"{m} events": _growth_cases(m, scale, seed, scale.seeds) for m in ORDER}
    panels = _panels(cases, progress)
    claims = (
        _lower_claim(panels),
        _throughout_claim(panels),
        _merged_claim(panels, MERGED),
        _order_claim(panels),
    )
    return _figure(
        _Heading("milo-fig5", "Cost while users come, for three models of events", "Fig. 5"),
        panels,
        claims,
        (CLUSTERED, TIMES, DECISIONS, MESSAGES, OURS_NOTE, ALL_CASES_NOTE, explain_merged(MERGED)),
        quick,
        seed,
    )


def fig6(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """The same requests in two weeks and in one day."""
    base = QUICK if quick else FULL
    scales = {name: replace(base, days=DAYS[name]) for name in ("two weeks", "one day")}
    seeds = min(base.seeds, FEW_SEEDS)
    cases = {n: _growth_cases("Average", each, seed, seeds) for n, each in scales.items()}
    panels = _panels(cases, progress)
    claims = (
        _lower_claim(panels),
        _merged_claim(panels[:1], MERGED_SOONER),
        _starts_claim(panels[1]),
    )
    merged = explain_merged(MERGED_SOONER)
    notes = (CLUSTERED, TIMES, SHORT_NOTE, DECISIONS, MESSAGES, OURS_NOTE, merged)
    return _figure(
        _Heading("milo-fig6", "Cost while users come faster", "Fig. 6"),
        panels,
        claims,
        notes,
        quick,
        seed,
    )


def fig7(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Uniform interests: growth, and a shift from clusters to none."""
    scale = QUICK if quick else FULL
    uniform = replace(scale, world=replace(scale.world, uniform=True))
    seeds = min(scale.seeds, FEW_SEEDS)
    cases = {
        "(a) growth, uniform": _growth_cases("Average", uniform, seed, seeds),
        "(b) shift to uniform": _shift_cases("Average", scale, seed, seeds, uniform=True),
        CLUSTERED_SHIFT: [
            replace(case, algorithms=("static", "Tamara"))
            for case in _shift_cases("Average", scale, seed, seeds)
        ],
    }
    *panels, clustered = _panels(cases, progress)
    notes = (UNIFORM_NOTE, SHIFTED, TIMES, DECISIONS, MESSAGES, OURS_NOTE)
    return _figure(
        _Heading("milo-fig7", "Cost where interests have no clusters", "Fig. 7"),
        tuple(panels),
        (_lower_claim(tuple(panels)), _less_significant_claim(panels[1], clustered)),
        notes,
        quick,
        seed,
    )


def fig8(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Two months in which all interests change."""
    scale = QUICK if quick else FULL
    cases = {f"{m} events": _shift_cases(m, scale, seed, scale.seeds) for m in ORDER}
    panels = _panels(cases, progress)
    claims = (
        _lower_claim(panels),
        _merged_claim(panels, MERGED),
        _adapts_claim(panels),
        _bump_claim(panels),
        _stable_claim(panels),
    )
    return _figure(
        _Heading("milo-fig8", "Cost while interests shift", "Fig. 8"),
        panels,
        claims,
        (CLUSTERED, SHIFTED, TIMES, DECISIONS, MESSAGES, OURS_NOTE, explain_merged(MERGED)),
        quick,
        seed,
    )


# --- measuring -----------------------------------------------------------------------------------

Cases = Sequence[ClusteringCase]  # of one panel: the same with other seeds


def _growth_cases(model: str, scale: Scale, seed: int, seeds: int) -> Cases:
    return [ClusteringCase(model, scale, seed + at, GROWN) for at in range(seeds)]


def _shift_cases(
    model: str, scale: Scale, seed: int, seeds: int, *, uniform: bool = False
) -> Cases:
    return [
        ClusteringCase(model, scale, seed + at, CHANGED, shifts=True, uniform=uniform)
        for at in range(seeds)
    ]


def _panels(cases: Mapping[str, Cases], progress: Progress) -> Panels:
    found = iter(outcomes([case for each in cases.values() for case in each], progress))
    return tuple(
        Panel(title, _average([next(found) for _ in each]), seeds=len(each))
        for title, each in cases.items()
    )


def _average(runs: Sequence[Outcomes]) -> Outcomes:
    """The mean curves and final changes of runs that were sampled at the same times."""
    return {
        name: replace(
            runs[0][name],
            moments=tuple(
                CostSample.mean(each)
                for each in zip(*(run[name].moments for run in runs), strict=True)
            ),
            change=CostChange.mean([run[name].change for run in runs]),
        )
        for name in runs[0]
    }


# --- reporting -----------------------------------------------------------------------------------


class _Heading(NamedTuple):
    name: str
    title: str
    where: str


def _figure(
    heading: _Heading,
    panels: Panels,
    claims: tuple[Claim, ...],
    notes: tuple[str, ...],
    quick: bool,
    seed: int,
) -> Figure:
    world = (QUICK if quick else FULL).world
    name, title, where = heading
    seeds = panels[0].seeds
    runs = "one run" if seeds == 1 else f"means of {seeds} seeds"
    return Figure(
        name=name,
        title=title,
        source=f"Milo et al. (2007), {where} and section 5.2",
        shown=(
            f"Messages per maintenance interval over time; {world.users:,} users, {world.topics} "
            f"topics, {runs}. Dotted: including all messages that clustering itself needs."
        ),
        columns=COLUMNS,
        rows=panel_rows(panels),
        chart=panel_chart(name, title, panels),
        comparison=comparison(panels),
        claims=claims,
        notes=(*notes, "The paper prints no numbers for this figure, only curves."),
        quick=quick,
        seed=seed,
        own=compare_with_ours(panels),
    )


def compare_with_ours(panels: Panels) -> str:
    """By how much the OC of our policy is below that of Tamara, with the overhead of both."""
    found = []
    for panel in panels:
        change = (1 + panel.final("ours")) / (1 + panel.final("Tamara")) - 1
        own, theirs = (panel.outcomes[name].change.overhead for name in ("ours", "Tamara"))
        found.append((panel.title, change, own, theirs))
    return tell_changes(found)


def tell_changes(found: Sequence[tuple[str, float, float, float]]) -> str:
    """Where ours is better than Tamara, and where it is not.

    Each is a setting, the change of the OC from Tamara to ours, our overhead and Tamara's.
    """
    below: list[str] = []
    same: list[str] = []
    above: list[str] = []
    dearer: list[str] = []
    for title, change, own, theirs in found:
        by, overheads = percent(abs(change), 1), (percent(own, 2), percent(theirs, 2))
        words = f"overhead {overheads[0]} of Scribe's cost, Tamara's {overheads[1]}"
        if by == percent(0, 1):
            same.append(f"{title} ({words})")
        else:
            (below if change < 0 else above).append(f"{title} (by {by}; {words})")
        if own > theirs and overheads[0] != overheads[1]:
            dearer.append(title)
    parts = [
        f"{place} {join_words(words)}"
        for place, words in (
            ("below Tamara's for", below),
            ("the same as Tamara's for", same),
            ("above Tamara's, which is worse, for", above),
        )
        if words
    ]
    more = f" Our overhead is more than Tamara's for {join_words(dearer)}." if dearer else ""
    return f"At the end the OC of our policy is {'; '.join(parts)}.{more}"


def comparison(panels: Panels) -> str:
    """The final OC against Scribe, and the overhead, of each panel."""
    return table(
        (
            "at the end",
            "ours, OC against Scribe",
            "ours, overhead of Scribe's cost",
            "paper",
            "independent",
        ),
        (
            (
                f"{panel.title}, {'our policy' if name == 'ours' else name}",
                percent(outcome.change.cost, 1, signed=True),
                percent(outcome.change.overhead, 2),
                "curve",
                NOTHING,
            )
            for panel in panels
            for name, outcome in panel.outcomes.items()
        ),
    )


def panel_rows(panels: Panels) -> tuple[tuple[str | int | float, ...], ...]:
    """Every moment of every run, as rows."""
    return tuple(
        (
            panel.title,
            name,
            m.time / panel.per_day,
            m.scribe,
            m.maintenance,
            m.dissemination,
            m.overhead,
        )
        for panel in panels
        for name, outcome in panel.outcomes.items()
        for m in outcome.moments
    )


def _lower_claim(panels: Panels) -> Claim:
    words = [f"{p.title} {percent(p.final('Tamara'), 1, signed=True)}" for p in panels]
    return Claim(
        "Tamara costs less than Scribe in the end",
        "section 5.2",
        join_words(words),
        all(panel.final("Tamara") < 0 for panel in panels),
    )


def _throughout_claim(panels: Panels) -> Claim:
    """At every point of the curves but the empty start."""
    words, holds = [], True
    for panel in panels:
        moments = panel.outcomes["Tamara"].moments[1:]
        above = [m.time / panel.per_day for m in moments if m.cost + m.overhead >= m.scribe]
        most = max((m.cost + m.overhead) / m.scribe for m in moments)
        until = f", not below up to day {max(above):g}" if above else ""
        words.append(f"{panel.title} at most {percent(most, 1)}{until}")
        holds = holds and not above
    return Claim(
        "Tamara+ is below Scribe at all times",
        "section 5.2",
        f"of Scribe's cost: {join_words(words)}",
        holds,
    )


def _less_significant_claim(uniform: Panel, clustered: Panel) -> Claim:
    gaps = [panel.final("Tamara") - panel.final("static") for panel in (uniform, clustered)]
    return Claim(
        "adapting gains less where the new interests are uniform than where they have clusters",
        "section 5.2",
        f"{100 * gaps[0]:+.1f} points against {100 * gaps[1]:+.1f} points with clusters",
        gaps[1] < gaps[0] < 0,
    )


def _stable_claim(panels: Panels) -> Claim:
    words, holds = [], True
    for panel in panels:
        costs = [m.scribe for m in panel.outcomes["Tamara"].moments]
        words.append(f"{panel.title} within {percent(max(costs) / min(costs) - 1, 1)}")
        holds = holds and max(costs) < 1.05 * min(costs)
    return Claim("the cost of Scribe is stable", "section 5.2", join_words(words), holds)


def explain_merged(bound: float) -> str:
    """How a claim's words were judged."""
    return (
        f"Curves *practically merge* if the overhead is less than {percent(bound, 0)} of Scribe's "
        "cost over the run."
    )


def _merged_claim(panels: Panels, bound: float) -> Claim:
    shares = [panel.outcomes["Tamara"].change.overhead for panel in panels]
    return Claim(
        "the curves of Tamara and Tamara+ practically merge",
        "section 5.2",
        f"overhead at most {percent(max(shares), 2)} of Scribe's cost",
        max(shares) < bound,
    )


def _order_claim(panels: Panels) -> Claim:
    finals = [panel.final("Tamara") for panel in panels]
    return Claim(
        "the gain grows as events get rarer",
        "section 5.2",
        join_words([f"{p.title} {percent(p.final('Tamara'), 1, signed=True)}" for p in panels]),
        finals == sorted(finals),
    )


def _starts_claim(panel: Panel) -> Claim:
    moments = panel.outcomes["Tamara"].moments[1:]
    above = [m.time / INTERVALS_PER_DAY for m in moments if m.cost + m.overhead > m.scribe]
    last = max(above, default=0.0)
    end = moments[-1].time / INTERVALS_PER_DAY
    return Claim(
        "in one day Tamara+ is above Scribe only at the beginning",
        "section 5.2",
        f"above it up to {percent(last / end)} of the day" if above else "never above it",
        last < 0.5 * end,
    )


def _adapts_claim(panels: Panels) -> Claim:
    gaps = [panel.final("Tamara") - panel.final("static") for panel in panels]
    return Claim(
        "adapting is better than keeping the clusters",
        "section 5.2",
        join_words([f"{p.title} {100 * g:+.1f} points" for p, g in zip(panels, gaps, strict=True)]),
        max(gaps) < 0,
    )


def _bump_claim(panels: Panels) -> Claim:
    words, holds = [], True
    for panel in panels:
        costs = np.array([m.cost for m in panel.outcomes["Tamara"].moments])
        rise, fall = costs.max() / costs[0] - 1, costs[-1] / costs.max() - 1
        words.append(
            f"{panel.title} {percent(rise, signed=True)}, then {percent(fall, signed=True)}"
        )
        holds = holds and rise > 0 and fall < -0.01
    return Claim(
        "Tamara's cost rises a little as interests begin to shift, and falls again",
        "section 5.2",
        join_words(words),
        holds,
    )


def panel_chart(name: str, title: str, panels: Panels, *, rows: int = 1) -> str:
    """Draw the panels row by row, with all lines in each."""

    def paint(sheet: Sheet) -> None:
        for axes, panel in zip(sheet.panels, panels, strict=True):
            first = next(iter(panel.outcomes.values())).moments
            days = [m.time / panel.per_day for m in first]
            lines = {"Scribe": [m.scribe for m in first]}
            for algorithm, outcome in panel.outcomes.items():
                label = "our policy" if algorithm == "ours" else algorithm
                lines[label] = [m.cost for m in outcome.moments]
                if algorithm != "static":
                    lines[f"{label}+"] = [m.cost + m.overhead for m in outcome.moments]
            for label, y in lines.items():
                colour, style = LOOKS[label]
                wide = 3.0 if label == "Tamara" else 1.4  # it shows where ours is as low
                axes.plot(days, np.array(y) / 1e3, style, color=colour, label=label, linewidth=wide)
            axes.set(title=panel.title, xlabel="days", ylim=(0, None), xlim=(0, None))
        for axes in sheet.panels[:: len(panels) // rows]:
            axes.set_ylabel("thousand messages per interval")
        sheet.panels[0].tick_params(colors=QUIET, labelcolor=INK)
        most = max(panels, key=lambda panel: len(panel.outcomes))
        draw_legend(sheet, at=panels.index(most))

    columns = len(panels) // rows
    size = (3.0 * columns + 0.4, 3.0 * rows + 0.9)
    return draw_chart(name, title, size, paint, shape=(rows, columns))
