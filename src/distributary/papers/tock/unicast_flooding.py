"""Section 5.3: the cost of unicast and flooding, over many trading floors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from distributary.model import FloatArray
from distributary.papers.drawing import COLOURS, INK, QUIET, Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.tock.floors import PRINTED, READING, PrintedNumber, draw_floor, vital_signs
from distributary.papers.wording import percent, table
from distributary.planning import Progress, Step, silent

__all__ = ["unicast_flooding"]

RUNS, QUICK_RUNS = 40, 5
AROUND = 0.25  # the axes span this share of the paper's number both ways


def unicast_flooding(
    *, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent
) -> Figure:
    """Copies under unicast, goodput under flooding and symbols per user, floor by floor."""
    runs = QUICK_RUNS if quick else RUNS
    signs = _signs(runs, seed, progress)
    return Figure(
        name="tock-unicast-flooding",
        title="Unicast, flooding and portfolio sizes on many floors",
        source="Tock et al. (2005), sections 5.1 and 5.3",
        shown=(
            f"{runs} trading floors drawn independently, one point each, beside the number that "
            f"the paper prints for its one floor. Every axis spans {percent(AROUND)} of that "
            "number in both directions."
        ),
        columns=("floor", *signs),
        rows=tuple((run, *(float(signs[key][run]) for key in signs)) for run in range(runs)),
        chart=_chart(signs),
        comparison=_comparison(signs, runs),
        claims=tuple(_claim(PRINTED[key], signs[key]) for key in signs),
        notes=(
            READING,
            "Copies are the average number of times that unicast sends a message; goodput is the "
            "wanted share of what flooding delivers. Flows that nobody follows are left out of "
            "both.",
            "A number counts as reproduced if it is within two standard deviations of ours over "
            "the floors, or rounds to the same.",
        ),
        own=(
            "Nothing is planned here. [tock-outliers](tock-outliers.md) has ours between the two, "
            "with each message sent once and a goodput several times that of flooding, and what a "
            "little unicast adds."
        ),
        quick=quick,
        seed=seed,
    )


def _signs(runs: int, seed: int, progress: Progress) -> dict[str, FloatArray]:
    signs = {key: np.empty(runs) for key in PRINTED}
    for run in range(runs):
        progress(Step("floors", run, runs))
        interest, rates, _ = draw_floor(seed, run)
        for key_, value in vital_signs(interest, rates).items():
            signs[key_][run] = value
    progress(Step("floors", runs, runs))
    return signs


def _comparison(signs: Mapping[str, FloatArray], runs: int) -> str:
    return table(
        ("number", f"ours ({runs} floors)", "paper (1 floor)", "where", "independent (40 floors)"),
        (
            (
                PRINTED[key].says,
                _spread(PRINTED[key], found),
                PRINTED[key].format(PRINTED[key].value),
                PRINTED[key].source,
                PRINTED[key].independent,
            )
            for key, found in signs.items()
        ),
    )


def _spread(printed: PrintedNumber, found: FloatArray) -> str:
    return f"{found.mean():.2f} ± {found.std(ddof=1):.2f}{printed.unit}"


def _claim(printed: PrintedNumber, found: FloatArray) -> Claim:
    mean, deviation = float(found.mean()), float(found.std(ddof=1))
    same_rounded = printed.format(mean) == printed.format(printed.value)
    return Claim(
        f"{printed.says}: {printed.format(printed.value)}",
        printed.source,
        _spread(printed, found),
        same_rounded or abs(mean - printed.value) <= 2 * deviation,
    )


def _chart(signs: Mapping[str, FloatArray]) -> str:
    titles = {
        "symbols_mean": "symbols per user,\nmean",
        "symbols_max": "symbols per user,\nmost",
        "symbols_min": "symbols per user,\nfewest",
        "unicast_copies": "copies of a message\nunder unicast",
        "flooding_goodput": "goodput of\nflooding, %",
    }

    def paint(sheet: Sheet) -> None:
        every = sheet.panels
        for axes, (name, found) in zip(every, signs.items(), strict=True):
            printed = PRINTED[name].value
            axes.plot(range(1, len(found) + 1), found, "o", color=COLOURS["GF"], label="ours")
            axes.axhline(float(found.mean()), color=QUIET, linewidth=1, label="our mean")
            axes.axhline(
                PRINTED[name].value, color=INK, linewidth=1.4, dashes=(4, 2), label="paper"
            )
            axes.set(xlabel="floor", ylim=(printed * (1 - AROUND), printed * (1 + AROUND)))
            axes.set_title(titles[name])
        draw_legend(sheet)

    return draw_chart(
        "tock-unicast-flooding",
        "Unicast, flooding and portfolio sizes",
        (9, 3.4),
        paint,
        shape=(1, len(signs)),
    )
