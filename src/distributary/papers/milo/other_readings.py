"""What Tables 2 and 3 become under other readings of the paper: of Tamara, and of K-means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distributary.papers.milo.algorithms import CostChange, Reading
from distributary.papers.milo.runs import ClusteringCase, outcomes, single_starts
from distributary.papers.wording import NOTHING, table
from distributary.planning import Progress

__all__ = [
    "READINGS",
    "Spread",
    "Triple",
    "format_triple",
    "measure_readings",
    "measure_starts",
    "points",
    "tabulate_readings",
    "tabulate_starts",
]

Triple = tuple[float, float, float]  # MC, DC and OC against Scribe in percent
Printed = Mapping[tuple[str, str], Triple]

READINGS: Mapping[str, Reading] = {
    "topics removed only after unsubscriptions (3.1)": Reading(prunes=False),
    "surveys move all of a topic's subscribers (3.2)": Reading(adds=False),
    "no estimates when sizes fall": Reading(watches=False),
    "both: they move all, and falls do not matter": Reading(adds=False, watches=False),
}


def points(change: CostChange) -> Triple:
    """A change in percent."""
    return 100 * change.maintenance, 100 * change.dissemination, 100 * change.cost


def format_triple(triple: Triple | None) -> str:
    """As the paper's tables have it."""
    return " / ".join(f"{value:+.1f}" for value in triple) if triple else NOTHING


# --- Tamara --------------------------------------------------------------------------------------


def measure_readings(
    cases: Sequence[ClusteringCase], progress: Progress
) -> Mapping[tuple[str, str], Sequence[CostChange]]:
    """What Tamara gives in these cases, by model and reading."""
    names = [(reading, case) for reading in READINGS for case in cases]
    read = [replace(c, algorithms=("Tamara",), reading=READINGS[name]) for name, c in names]
    found: dict[tuple[str, str], list[CostChange]] = {}
    for (name, case), outcome in zip(names, outcomes(read, progress), strict=True):
        found.setdefault((case.model, name), []).append(outcome["Tamara"].change)
    return found


def tabulate_readings(
    found: Mapping[tuple[str, str], Sequence[CostChange]],
    shown: Mapping[str, Sequence[CostChange]],
    paper: Printed,
    seeds: int,
) -> str:
    """Tamara as it is read in the figures, by model, beside the other readings; same seeds."""
    return table(
        (f"Tamara, MC / DC / OC, %, {seeds} seeds", "as shown", *READINGS, "paper"),
        (
            (
                model,
                format_triple(points(CostChange.mean(changes))),
                *(format_triple(points(CostChange.mean(found[model, name]))) for name in READINGS),
                format_triple(paper.get((model, "Tamara"))),
            )
            for model, changes in shown.items()
        ),
    )


# --- K-means -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """What single starts of K-means gave, one row of MC, DC and OC in percent per start."""

    rows: tuple[Triple, ...]

    @property
    def median(self) -> Triple:
        """The median of each of the three."""
        maintenance, dissemination, cost = np.median(np.array(self.rows), axis=0)
        return float(maintenance), float(dissemination), float(cost)

    @property
    def middle(self) -> tuple[float, float]:
        """Between which OC the middle 90 % of the starts lie."""
        low, high = np.quantile([cost for *_, cost in self.rows], (0.05, 0.95))
        return float(low), float(high)

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest OC."""
        costs = [cost for *_, cost in self.rows]
        return min(costs), max(costs)


def measure_starts(cases: Sequence[ClusteringCase], starts: int) -> Mapping[str, Spread]:
    """Single starts of K-means in these cases, by model."""
    found: dict[str, list[Triple]] = {}
    for case in cases:
        found.setdefault(case.model, []).extend(map(points, single_starts(case, starts)))
    return {model: Spread(tuple(rows)) for model, rows in found.items()}


def tabulate_starts(
    spreads: Mapping[str, Spread], best: Mapping[str, Sequence[CostChange]], paper: Printed
) -> str:
    """Single starts of K-means by model, and the best of three."""
    return table(
        (
            "K-means",
            "single starts",
            "median MC / DC / OC, %",
            "OC of the middle 90 %",
            "OC of all",
            "best of three starts",
            "paper, one run",
        ),
        (
            (
                model,
                f"{len(spread.rows)}",
                format_triple(spread.median),
                "{:+.1f} to {:+.1f}".format(*spread.middle),
                "{:+.1f} to {:+.1f}".format(*spread.ends),
                format_triple(points(CostChange.mean(best[model]))),
                format_triple(paper.get((model, "K-means"))),
            )
            for model, spread in spreads.items()
        ),
    )
