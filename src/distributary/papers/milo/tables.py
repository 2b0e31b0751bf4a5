"""Tables 2 and 3: the final savings and costs of clusters against plain Scribe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from distributary.papers.drawing import QUIET, Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.milo.readings import (
    CLUSTERED,
    DECISIONS,
    HELPERS,
    OURS_NOTE,
    SHIFTED,
    TABLES,
)
from distributary.papers.milo.runs import FULL, QUICK, ClusteringCase, CostChange, Scale, outcomes
from distributary.papers.milo.world import MODELS
from distributary.papers.wording import NOTHING, join_words, percent, table
from distributary.planning import Progress, silent

__all__ = ["table2", "table3"]

Triple = tuple[float, float, float]
Found = Mapping[tuple[str, str], Sequence[CostChange]]  # (model, algorithm) -> by seed
Both = tuple[Found, Found]  # by the paper's count, and with Scribe's helper peers

# MC, DC and OC against Scribe in percent: as printed, and by an independent implementation.
PAPER2: Mapping[tuple[str, str], Triple] = {
    ("Average", "Tamara"): (-78.75, 45.45, -63.73),
    ("Average", "K-means"): (-53.75, 9.1, -46.15),
    ("Frequent", "Tamara"): (-73.75, 15.62, -48.21),
    ("Frequent", "K-means"): (-65.0, 9.3, -43.75),
    ("Infrequent", "Tamara"): (-88.75, 150.0, -77.38),
    ("Infrequent", "K-means"): (-65.0, 0.0, -61.9),
}
INDEPENDENT2: Mapping[tuple[str, str], Triple] = {
    ("Average", "Tamara"): (-77.6, 29.1, -63.1),
    ("Average", "K-means"): (-64.6, 9.9, -54.5),
    ("Frequent", "Tamara"): (-75.4, 13.6, -49.1),
    ("Frequent", "K-means"): (-64.6, 9.9, -42.7),
    ("Infrequent", "Tamara"): (-86.1, 143.0, -77.2),
    ("Infrequent", "K-means"): (-64.6, 9.9, -61.7),
}
PAPER3: Mapping[tuple[str, str], Triple] = {
    ("Average", "static"): (-55.0, 141.66, -29.34),
    ("Average", "Tamara"): (-70.0, 100.0, -47.82),
    ("Average", "K-means"): (-63.75, 8.33, -54.34),
    ("Frequent", "static"): (-25.0, 39.4, -6.2),
    ("Frequent", "Tamara"): (-67.5, 30.3, -38.9),
    ("Frequent", "K-means"): (-62.5, 12.12, -40.7),
    ("Infrequent", "static"): (-63.75, 200.0, -51.2),
    ("Infrequent", "Tamara"): (-96.25, 275.0, -78.57),
    ("Infrequent", "K-means"): (-65.0, 0.0, -61.9),
}
INDEPENDENT3: Mapping[tuple[str, str], Triple] = {
    ("Average", "static"): (-53.0, 155.0, -24.8),
    ("Average", "Tamara"): (-67.4, 82.0, -47.2),
    ("Average", "K-means"): (-65.4, 9.9, -55.2),
    ("Frequent", "static"): (-23.0, 36.0, -5.7),
    ("Frequent", "Tamara"): (-65.8, 22.0, -40.0),
    ("Infrequent", "static"): (-63.9, 265.0, -51.0),
    ("Infrequent", "Tamara"): (-86.0, 245.0, -73.0),
}
COLOURS = {"static": "#cf8417", "Tamara": "#2f74c0", "K-means": "#8b9299", "ours": "#2a9179"}
TREE_SEEDS = 2
NEAR = 5.0  # percentage points of OC; the printed shares come from small rounded numbers


def table2(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """A system that grows from empty: Tamara, K-means and ours against Scribe."""
    scale = QUICK if quick else FULL
    found, trees = _measure(_cases(scale, seed, ("Tamara", "K-means", "ours")), progress)
    decided = _measure_on_trees(scale, seed, progress)
    return Figure(
        name="milo-table2",
        title="Clusters of a growing system against plain Scribe",
        source="Milo et al. (2007), Table 2 and section 5.2",
        shown=_describe(scale, "join an empty system"),
        columns=_COLUMNS,
        rows=_rows(found),
        chart=_chart("milo-table2", found, PAPER2),
        comparison="\n\n".join(
            (
                _table(found, PAPER2, INDEPENDENT2),
                _gains(found),
                _on_trees(found, trees, decided),
            )
        ),
        claims=(
            _beats_claim(found, "Tamara", "K-means", "Table 2"),
            _rarer_claim(found),
            *_near_claims(found, PAPER2, "Table 2"),
            _overhead_claim(found),
        ),
        notes=(CLUSTERED, DECISIONS, TABLES, OURS_NOTE, HELPERS),
        quick=quick,
        seed=seed,
    )


def table3(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """All interests change: static clusters, Tamara, K-means and ours."""
    scale = QUICK if quick else FULL
    algorithms = ("static", "Tamara", "K-means", "ours")
    found, trees = _measure(_cases(scale, seed, algorithms, shifts=True), progress)
    decided = _measure_on_trees(scale, seed, progress, shifts=True)
    return Figure(
        name="milo-table3",
        title="Clusters after all interests have changed",
        source="Milo et al. (2007), Table 3 and section 5.2",
        shown=_describe(
            scale, "replace all their interests, starting from clusters that fit the old ones"
        ),
        columns=_COLUMNS,
        rows=_rows(found),
        chart=_chart("milo-table3", found, PAPER3),
        comparison="\n\n".join(
            (
                _table(found, PAPER3, INDEPENDENT3),
                _gains(found),
                _on_trees(found, trees, decided),
            )
        ),
        claims=(
            _beats_claim(found, "Tamara", "static", "Table 3"),
            *_near_claims(found, PAPER3, "Table 3"),
            _overhead_claim(found),
        ),
        notes=(CLUSTERED, SHIFTED, DECISIONS, TABLES, OURS_NOTE, HELPERS),
        quick=quick,
        seed=seed,
    )


_COLUMNS = ("model", "algorithm", "seed", "maintenance", "dissemination", "cost", "overhead")


def _measure(cases: Sequence[ClusteringCase], progress: Progress) -> Both:
    found: dict[tuple[str, str], list[CostChange]] = {}
    trees: dict[tuple[str, str], list[CostChange]] = {}
    for case, outcome in zip(cases, outcomes(cases, progress), strict=True):
        for name, each in outcome.items():
            found.setdefault((case.model, name), []).append(each.change)
            trees.setdefault((case.model, name), []).append(each.on_trees)
    return found, trees


def _cases(
    scale: Scale, seed: int, algorithms: tuple[str, ...], *, shifts: bool = False
) -> list[ClusteringCase]:
    return [
        ClusteringCase(model, scale, seed + at, algorithms, shifts=shifts)
        for model in MODELS
        for at in range(scale.seeds)
    ]


def _measure_on_trees(
    scale: Scale, seed: int, progress: Progress, *, shifts: bool = False
) -> Found:
    """Tamara and ours deciding by, and priced with, helper peers; a few seeds."""
    few = replace(scale, seeds=min(scale.seeds, TREE_SEEDS))
    cases = _cases(few, seed, ("Tamara", "ours"), shifts=shifts)
    return _measure([replace(case, trees=True, scale=scale) for case in cases], progress)[1]


def _describe(scale: Scale, what: str) -> str:
    world = scale.world
    return (
        f"{world.users:,} users {what}: {world.topics} topics, {scale.days} days, a maintenance "
        f"interval of six minutes. Costs at the end against those of plain Scribe, in percent; "
        f"means of {scale.seeds} seeds."
    )


def _rows(found: Found) -> tuple[tuple[str | int | float, ...], ...]:
    return tuple(
        (model, name, at, c.maintenance, c.dissemination, c.cost, c.overhead)
        for (model, name), changes in found.items()
        for at, c in enumerate(changes)
    )


def _points(change: CostChange) -> Triple:
    return 100 * change.maintenance, 100 * change.dissemination, 100 * change.cost


def _format_triple(triple: Triple | None) -> str:
    return " / ".join(f"{value:+.1f}" for value in triple) if triple else NOTHING


def _table(
    found: Found,
    paper: Mapping[tuple[str, str], Triple],
    independent: Mapping[tuple[str, str], Triple],
) -> str:
    return table(
        ("MC / DC / OC, %", "ours", "OC of single seeds", "paper", "independent"),
        (
            (
                f"{model}, {'our policy' if name == 'ours' else name}",
                _format_triple(_points(CostChange.mean(changes))),
                f"{100 * min(c.cost for c in changes):+.1f} to "
                f"{100 * max(c.cost for c in changes):+.1f}",
                _format_triple(paper.get((model, name))),
                _format_triple(independent.get((model, name))),
            )
            for (model, name), changes in found.items()
        ),
    )


def _gains(found: Found) -> str:
    """Our policy against Tamara: OC and overhead."""
    rows = []
    for model in MODELS:
        tamara, own = (CostChange.mean(found[model, name]) for name in ("Tamara", "ours"))
        kmeans = CostChange.mean(found[model, "K-means"])
        rows.append(
            (
                model,
                percent((1 + own.cost) / (1 + tamara.cost) - 1, 1, signed=True),
                percent((1 + own.cost) / (1 + kmeans.cost) - 1, 1, signed=True),
                percent(own.overhead, 2),
                percent(tamara.overhead, 2),
            )
        )
    header = ("our policy", "OC against Tamara", "OC against K-means", "overhead, of Scribe's cost")
    return table((*header, "Tamara's overhead"), rows)


def _on_trees(found: Found, trees: Found, decided: Found) -> str:
    """The costs including the helper peers of real trees."""

    def cost(changes: Sequence[CostChange] | None) -> str:
        return percent(CostChange.mean(changes).cost, 1, signed=True) if changes else NOTHING

    seeds = len(next(iter(decided.values())))
    return table(
        (
            "OC with helper peers in the bill",
            "the same clusters, without them",
            "the same clusters, with them",
            f"clusters made for that bill, {seeds} seeds" if seeds > 1 else "made for that bill",
        ),
        (
            (
                f"{model}, {'our policy' if name == 'ours' else name}",
                cost(changes),
                cost(trees[model, name]),
                cost(decided.get((model, name))),
            )
            for (model, name), changes in found.items()
        ),
    )


def _beats_claim(found: Found, better: str, worse: str, where: str) -> Claim:
    gaps = {m: _oc(found, m, better) - _oc(found, m, worse) for m in MODELS}
    words = [f"{m} {100 * gap:+.1f} points" for m, gap in gaps.items()]
    says = (
        f"{better} costs less than {worse if worse != 'static' else 'clusters left as they were'}"
    )
    return Claim(f"{says}, in every model", where, join_words(words), max(gaps.values()) < 0)


def _oc(found: Found, model: str, name: str) -> float:
    return CostChange.mean(found[model, name]).cost


def _rarer_claim(found: Found) -> Claim:
    costs = [_oc(found, model, "Tamara") for model in ("Frequent", "Average", "Infrequent")]
    return Claim(
        "the rarer the events, the more Tamara saves",
        "section 5.2",
        f"OC {join_words([percent(cost, 1, signed=True) for cost in costs])} from frequent to rare",
        costs == sorted(costs, reverse=True),
    )


def _near_claims(found: Found, paper: Mapping[tuple[str, str], Triple], where: str) -> list[Claim]:
    claims = []
    for (model, name), (_, _, printed) in paper.items():
        own = 100 * _oc(found, model, name)
        claims.append(
            Claim(
                f"{model}: the OC of {name} is {printed:+.1f} % of Scribe's",
                where,
                f"{own:+.1f} %",
                abs(own - printed) <= NEAR,
            )
        )
    return claims


def _overhead_claim(found: Found) -> Claim:
    shares = [CostChange.mean(found[model, "Tamara"]).overhead for model in MODELS]
    return Claim(
        "the messages that Tamara itself needs are negligible",
        "section 5.2",
        f"at most {percent(max(shares), 2)} of Scribe's cost over the run",
        max(shares) < 0.02,
    )


def _chart(name: str, found: Found, paper: Mapping[tuple[str, str], Triple]) -> str:
    algorithms = list(dict.fromkeys(algorithm for _, algorithm in found))
    width = 0.8 / len(algorithms)

    def paint(sheet: Sheet) -> None:
        (axes,) = sheet.panels
        for at, algorithm in enumerate(algorithms):
            x = np.arange(len(MODELS)) + (at - (len(algorithms) - 1) / 2) * width
            y = [100 * (1 + _oc(found, model, algorithm)) for model in MODELS]
            label = "our policy" if algorithm == "ours" else algorithm
            axes.bar(x, y, width * 0.92, color=COLOURS[algorithm], label=label)
            printed = [paper.get((model, algorithm)) for model in MODELS]
            dots = [100 + p[2] if p else np.nan for p in printed]
            axes.plot(x, dots, "D", color="white", markeredgecolor="#22272e", markersize=5)
        axes.plot([], [], "D", color="white", markeredgecolor="#22272e", label="paper")
        axes.axhline(100, color=QUIET, linewidth=1)
        axes.set_xticks(range(len(MODELS)), [f"{model} events" for model in MODELS])
        axes.set(ylabel="OC, % of plain Scribe", ylim=(0, 105))
        draw_legend(sheet)

    return draw_chart(name, "Cost against plain Scribe", (7.5, 4.4), paint)
