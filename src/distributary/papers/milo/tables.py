"""Tables 2 and 3: the final savings and costs of clusters against plain Scribe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distributary.papers.drawing import INK, QUIET, Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.milo.algorithms import CostChange
from distributary.papers.milo.other_readings import (
    READINGS,
    Spread,
    Triple,
    format_triple,
    measure_readings,
    measure_starts,
    points,
    tabulate_readings,
    tabulate_starts,
)
from distributary.papers.milo.readings import (
    CLUSTERED,
    DECISIONS,
    HELPERS,
    MESSAGES,
    OURS_NOTE,
    SHIFTED,
    TABLES,
)
from distributary.papers.milo.runs import FULL, QUICK, ClusteringCase, Scale, outcomes
from distributary.papers.milo.world import MODELS
from distributary.papers.wording import NOTHING, join_words, percent, table
from distributary.planning import Progress, silent

__all__ = ["table2", "table3"]

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
TREE_SEEDS = 1
READING_SEEDS = 3  # for other readings
STARTS, QUICK_STARTS = 20, 5  # of K-means per seed
SLIGHTLY = 10.0  # points of OC: at most this much is slightly worse
NEAR = 5.0  # percentage points of OC; the printed shares come from small rounded numbers


def table2(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """A system that grows from empty: Tamara, K-means and ours against Scribe."""
    scale = QUICK if quick else FULL
    cases = _cases(scale, seed, ("Tamara", "K-means", "ours"))
    run = _measure_all(cases, progress)
    return Figure(
        name="milo-table2",
        title="Clusters of a growing system against plain Scribe",
        source="Milo et al. (2007), Table 2 and section 5.2",
        shown=_describe(scale, "join an empty system"),
        columns=_COLUMNS,
        rows=_rows(run.found),
        chart=_chart("milo-table2", run, PAPER2),
        comparison=_compare(run, PAPER2, INDEPENDENT2),
        claims=(
            _beats_kmeans_claim(run),
            _rarer_claim(run.found),
            *_near_claims(run, PAPER2, "Table 2"),
            _tradeoff_claim(run.found),
            _overhead_claim(run.found),
        ),
        notes=(CLUSTERED, DECISIONS, MESSAGES, TABLES, OURS_NOTE, HELPERS),
        quick=quick,
        seed=seed,
        own=_own(run),
    )


def table3(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """All interests change: static clusters, Tamara, K-means and ours."""
    scale = QUICK if quick else FULL
    cases = _cases(scale, seed, ("static", "Tamara", "K-means", "ours"), shifts=True)
    run = _measure_all(cases, progress)
    return Figure(
        name="milo-table3",
        title="Clusters after all interests have changed",
        source="Milo et al. (2007), Table 3 and section 5.2",
        shown=_describe(
            scale, "replace all their interests, starting from clusters that fit the old ones"
        ),
        columns=_COLUMNS,
        rows=_rows(run.found),
        chart=_chart("milo-table3", run, PAPER3),
        comparison=_compare(run, PAPER3, INDEPENDENT3),
        claims=(
            _beats_static_claim(run.found),
            *_near_claims(run, PAPER3, "Table 3"),
            _sometimes_worse_claim(run),
            _magnitude_claim(run.found),
            _overhead_claim(run.found),
        ),
        notes=(CLUSTERED, SHIFTED, DECISIONS, MESSAGES, TABLES, OURS_NOTE, HELPERS),
        quick=quick,
        seed=seed,
        own=_own(run),
    )


_COLUMNS = ("model", "algorithm", "seed", "maintenance", "dissemination", "cost", "overhead")


@dataclass(frozen=True, slots=True)
class _Run:
    """All that is measured for one table."""

    found: Found
    trees: Found  # the same clusters, with Scribe's helper peers in the bill
    decided: Found  # clusters made for that bill
    read: Found  # Tamara by model and other reading
    starts: Mapping[str, Spread]  # single starts of K-means by model


def _measure_all(cases: Sequence[ClusteringCase], progress: Progress) -> _Run:
    every = [
        *cases,
        *(
            replace(case, algorithms=("Tamara",), reading=reading)
            for reading in READINGS.values()
            for case in _first_seeds(cases, READING_SEEDS)
        ),
        *_on_tree_prices(cases),
    ]
    outcomes(every, progress)  # all at once for one report of progress; below they are known
    found, trees = _measure(cases)
    starts = measure_starts(cases, STARTS if cases[0].scale is FULL else QUICK_STARTS)
    decided = _measure(_on_tree_prices(cases))[1]
    read = measure_readings(_first_seeds(cases, READING_SEEDS), silent)
    return _Run(found, trees, decided, read, starts)


def _measure(cases: Sequence[ClusteringCase]) -> Both:
    found: dict[tuple[str, str], list[CostChange]] = {}
    trees: dict[tuple[str, str], list[CostChange]] = {}
    for case, outcome in zip(cases, outcomes(cases, silent), strict=True):
        for name, each in outcome.items():
            found.setdefault((case.model, name), []).append(each.change)
            trees.setdefault((case.model, name), []).append(each.on_trees)
    return found, trees


def _on_tree_prices(cases: Sequence[ClusteringCase]) -> list[ClusteringCase]:
    """Tamara and ours deciding by, and priced with, helper peers; a few seeds."""
    few = _first_seeds(cases, TREE_SEEDS)
    return [replace(case, algorithms=("Tamara", "ours"), trees=True) for case in few]


def _first_seeds(cases: Sequence[ClusteringCase], n: int) -> list[ClusteringCase]:
    first = min(case.seed for case in cases)
    return [case for case in cases if case.seed < first + n]


def _cases(
    scale: Scale, seed: int, algorithms: tuple[str, ...], *, shifts: bool = False
) -> list[ClusteringCase]:
    return [
        ClusteringCase(model, scale, seed + at, algorithms, shifts=shifts)
        for model in MODELS
        for at in range(scale.seeds)
    ]


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


def _compare(
    run: _Run,
    paper: Mapping[tuple[str, str], Triple],
    independent: Mapping[tuple[str, str], Triple],
) -> str:
    tamara, best = (
        {model: run.found[model, name] for model in MODELS} for name in ("Tamara", "K-means")
    )
    parts = (
        _table(run.found, paper, independent),
        tabulate_starts(run.starts, best, paper),
        tabulate_readings(
            run.read, {m: tamara[m][:READING_SEEDS] for m in MODELS}, paper, READING_SEEDS
        ),
        _on_trees(run.found, run.trees, run.decided),
    )
    return "\n\n".join(parts)


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
                format_triple(points(CostChange.mean(changes))),
                f"{100 * min(c.cost for c in changes):+.1f} to "
                f"{100 * max(c.cost for c in changes):+.1f}",
                format_triple(paper.get((model, name))),
                format_triple(independent.get((model, name))),
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


def _own(run: _Run) -> str:
    gains = [
        (1 + _oc(run.found, m, "ours")) / (1 + _oc(run.found, m, "Tamara")) - 1 for m in MODELS
    ]
    words = [f"{m} {percent(g, 1, signed=True)}" for m, g in zip(MODELS, gains, strict=True)]
    says = f"The OC of our policy against that of Tamara: {join_words(words)}."
    bills = []
    for model in MODELS:
        own, theirs = (
            min(CostChange.mean(each[model, name]).cost for each in (run.trees, run.decided))
            for name in ("ours", "Tamara")
        )
        bills.append(f"{model} {percent((1 + own) / (1 + theirs) - 1, 1, signed=True)}")
    tree = f"With helper peers in the bill, the better of two each: {join_words(bills)}."
    return f"{says} {tree}\n\n{_gains(run.found)}"


def _beats_static_claim(found: Found) -> Claim:
    gaps = {m: _oc(found, m, "Tamara") - _oc(found, m, "static") for m in MODELS}
    return Claim(
        "Tamara costs less than clusters left as they were, in every model",
        "Table 3",
        join_words([f"{m} {100 * gap:+.1f} points" for m, gap in gaps.items()]),
        max(gaps.values()) < 0,
    )


def _against_starts(run: _Run) -> dict[str, float]:
    """Tamara's OC less the median of single starts of K-means, in points."""
    return {m: 100 * _oc(run.found, m, "Tamara") - run.starts[m].median[2] for m in MODELS}


def _describe_against_starts(run: _Run) -> str:
    """Tamara against single starts of K-means, and against the best of three."""
    best = {m: 100 * (_oc(run.found, m, "Tamara") - _oc(run.found, m, "K-means")) for m in MODELS}
    gaps = _against_starts(run)
    return join_words(
        [f"{m} {gap:+.1f} points (best of three starts {best[m]:+.1f})" for m, gap in gaps.items()]
    )


def _beats_kmeans_claim(run: _Run) -> Claim:
    return Claim(
        "Tamara costs less than K-means, in every model",
        "Table 2",
        _describe_against_starts(run),
        max(_against_starts(run).values()) < 0,
    )


def _sometimes_worse_claim(run: _Run) -> Claim:
    gaps = _against_starts(run)
    worse = [gap for gap in gaps.values() if gap > 0]
    return Claim(
        "after the shift Tamara is sometimes slightly worse than K-means",
        "section 5.2",
        _describe_against_starts(run),
        0 < len(worse) < len(gaps) and max(worse) <= SLIGHTLY,
    )


def _magnitude_claim(found: Found) -> Claim:
    factors = {m: 1 / (1 + _oc(found, m, "Tamara")) for m in MODELS}
    printed = max(100 / (100 + cost) for *_, cost in (*PAPER2.values(), *PAPER3.values()))
    words = [f"{m} {factor:.1f} times" for m, factor in factors.items()]
    return Claim(
        "Tamara improves the performance by an order of magnitude",
        "abstract",
        f"{join_words(words)}; the best that the paper prints is {printed:.1f} times",
        max(factors.values()) >= 10,
    )


def _tradeoff_claim(found: Found) -> Claim:
    means = {m: CostChange.mean(found[m, "Tamara"]) for m in MODELS}
    words = [
        f"{m} {percent(c.maintenance, 1, signed=True)} and "
        f"{percent(c.dissemination, 1, signed=True)}"
        for m, c in means.items()
    ]
    return Claim(
        "clustering greatly reduces maintenance, and events cost more to disseminate",
        "section 5.2",
        f"MC and DC of Tamara: {', '.join(words)}",
        all(c.maintenance < -0.5 and c.dissemination > 0 for c in means.values()),
    )


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


def _near_claims(run: _Run, paper: Mapping[tuple[str, str], Triple], where: str) -> list[Claim]:
    claims = []
    for (model, name), (_, _, printed) in paper.items():
        own = 100 * _oc(run.found, model, name)
        if name == "K-means":
            spread = run.starts[model]
            low, high = spread.middle
            holds = low <= printed <= high
            words = (
                f"single starts: median {spread.median[2]:+.1f} %, the middle 90 % from {low:+.1f} "
                f"to {high:+.1f} % (best of three {own:+.1f} %)"
            )
        else:
            words, holds = f"{own:+.1f} %", abs(own - printed) <= NEAR
        claims.append(
            Claim(f"{model}: the OC of {name} is {printed:+.1f} % of Scribe's", where, words, holds)
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


def _chart(name: str, run: _Run, paper: Mapping[tuple[str, str], Triple]) -> str:
    found = run.found
    algorithms = list(dict.fromkeys(algorithm for _, algorithm in found))
    width = 0.8 / len(algorithms)

    def paint(sheet: Sheet) -> None:
        (axes,) = sheet.panels
        for at, algorithm in enumerate(algorithms):
            x = np.arange(len(MODELS)) + (at - (len(algorithms) - 1) / 2) * width
            y = [100 * (1 + _oc(found, model, algorithm)) for model in MODELS]
            label = {"ours": "our policy", "K-means": "K-means, best of 3"}.get(
                algorithm, algorithm
            )
            axes.bar(x, y, width * 0.92, color=COLOURS[algorithm], label=label)
            if algorithm == "K-means":
                middle = np.array([run.starts[model].middle for model in MODELS]).T + 100
                axes.vlines(x, *middle, color=INK, linewidth=1.2, label="90 % of its starts")
            printed = [paper.get((model, algorithm)) for model in MODELS]
            dots = [100 + p[2] if p else np.nan for p in printed]
            axes.plot(x, dots, "D", color="white", markeredgecolor="#22272e", markersize=5)
        axes.plot([], [], "D", color="white", markeredgecolor="#22272e", label="paper")
        axes.axhline(100, color=QUIET, linewidth=1)
        axes.set_xticks(range(len(MODELS)), [f"{model} events" for model in MODELS])
        axes.set(ylabel="OC, % of plain Scribe", ylim=(0, 105))
        draw_legend(sheet)

    return draw_chart(name, "Cost against plain Scribe", (8.0, 4.4), paint)
