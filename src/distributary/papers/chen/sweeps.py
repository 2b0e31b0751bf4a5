"""Figs. 8 and 9: more unsubscriptions, and higher covering degrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from distributary.model import FloatArray
from distributary.papers.chen.network import CongestionCase
from distributary.papers.chen.repeats import Repeated
from distributary.papers.chen.runs import (
    ACTIVE,
    COMPARED,
    OURS,
    SELECTIVE,
    case,
    cases,
    results,
)
from distributary.papers.chen.telling import (
    CHOICE,
    COLOURS,
    FLAT,
    LABELS,
    LATER,
    PRICED,
    QUANTITIES,
    READING,
    draw_queues,
    explain_words,
    flat,
    name_seeds,
    numbers,
    samples,
    seconds,
    share,
    times_as,
)
from distributary.papers.drawing import Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, join_words, table
from distributary.planning import Progress, silent
from distributary.workloads.workflows import WorkflowsParams

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["fig8", "fig9"]

SHOWN, EVERY = 4_000.0, 40.0  # seconds after the first unsubscription; from point to point
UNSUBSCRIPTIONS = (100, 200, 300)
DEGREES = (10, 30, 50)
SHORT, MUCH_SHORTER = 250, 0.1  # messages; a share
QUICKLY = 10  # times, from the least to the most
MINOR = 0.25  # of active covering's longest queue at a degree of 30
HOUR = 3_600.0
FEW_WAIT = 10  # messages
FAST = 2  # times as long as under selective pruning
# For each: the paper's delays, active and selective, and the independent implementation's.
DELAYS_8 = {
    100: (("20 ms", "0.6 s"), ("20 ms", "0.33 s")),
    200: (("over 1,200 s", "502 s"), ("the same", "0.33 s")),
    300: (("2,000 s", "955 s"), ("the same", "0.33 s")),
}
DELAYS_9 = {
    10: ((NOTHING, "35 s"), (NOTHING, "0.33 s to 0.36 s")),
    30: ((NOTHING, "916 s"), (NOTHING, "0.33 s to 0.36 s")),
    50: ((NOTHING, "1,637 s"), (NOTHING, "0.33 s to 0.36 s")),
}
GROWTH = {
    "quickly": f"more than {QUICKLY} times, from the least to the most",
    "stay the same": f"the longest are at most {FLAT:g} times the shortest",
}
AGAINST_ITSELF = (
    "The paper contradicts itself: for 300 unsubscriptions at a covering degree of 30 active "
    "covering delays probes by 4,400 s in Fig. 7 and by 2,000 s here; and its text says that "
    '1,200 s and 2,000 s belong to "100 and 300" unsubscriptions, where 200 and 300 is meant.'
)

Curves = Mapping[int, Mapping[str, Repeated]]  # varied parameter -> policy -> outcome


def fig8(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Delays and queues after 100, 200 and 300 unsubscriptions."""
    found = _run_sweep(
        UNSUBSCRIPTIONS,
        lambda n, policy: cases(policy, quick=quick, seed=seed, unsubscriptions=n),
        progress,
    )
    times = samples(SHOWN, EVERY)
    scale = case(ACTIVE, quick=quick, seed=seed).scale
    return Figure(
        name="chen-fig8",
        title="More and more unsubscriptions",
        source="Chen et al. (2011), Fig. 8 and section V-C",
        shown=(
            f"Probe delays and the longest core queue after "
            f"{join_words([f'{scale * n:.0f}' for n in UNSUBSCRIPTIONS])} unsubscriptions within "
            "150 s, under active covering, the paper's selective pruning, and our merging. "
            f"{name_seeds(quick, seed)}"
        ),
        columns=("unsubscriptions", "policy", *QUANTITIES),
        rows=_rows(found, times),
        chart=_chart("chen-fig8", "unsubscriptions", found, times),
        comparison=_comparison(found, "unsubscriptions", DELAYS_8),
        claims=(
            _growth_claim(found, "unsubscriptions", "section V-C, Fig. 8(a)"),
            _few_claim(found),
            _flat_claim(found, "number of unsubscriptions", "section V-C, Fig. 8(a)"),
            _shorter_claim(found),
        ),
        own=_tell_ours(found, "unsubscriptions"),
        notes=(
            PRICED,
            CHOICE,
            READING,
            explain_words(
                {
                    **GROWTH,
                    "both deliver fast": f"active covering takes at most {FAST} times as long as "
                    "selective pruning",
                    "much better": f"queues of at most {share(MUCH_SHORTER)} of active covering's",
                }
            ),
            AGAINST_ITSELF,
        ),
        quick=quick,
        seed=seed,
    )


def fig9(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Delays, tables and queues where roots cover 10, 30 and 50 others."""
    found = _run_sweep(
        DEGREES,
        lambda n, policy: cases(policy, quick=quick, seed=seed, full=WorkflowsParams(degree=n)),
        progress,
    )
    times = samples(SHOWN, EVERY)
    first = case(ACTIVE, quick=quick, seed=seed)
    return Figure(
        name="chen-fig9",
        title="Roots that cover more and more",
        source="Chen et al. (2011), Fig. 9 and section V-D",
        shown=(
            f"Probe delays, core tables and the longest core queue after {first.unsubscriptions} "
            f"of {first.workflows.subscriptions:,} subscriptions have ended, where an "
            f"unsubscription makes new roots of {join_words([str(n) for n in DEGREES])} others, "
            "under active covering, the paper's selective pruning, and our merging. "
            f"{name_seeds(quick, seed)}"
        ),
        columns=("degree", "policy", *QUANTITIES),
        rows=_rows(found, times),
        chart=_chart("chen-fig9", "covering degree", found, times),
        comparison=_comparison(found, "covering degree", DELAYS_9),
        claims=(
            _sensitive_claim(found),
            _growth_claim(found, "covering degree", "section V-D, Fig. 9(a)"),
            _flat_claim(found, "covering degree", "section V-D, Fig. 9(a)"),
            *_table_claims(found),
            _minor_claim(found),
            _growing_claim(found, times),
            _short_claim(found),
        ),
        own=_tell_ours(found, "others for each root"),
        notes=(
            PRICED,
            CHOICE,
            READING,
            explain_words(
                {
                    "sensitive to": f"the longest are more than {FLAT:g} times the shortest",
                    **GROWTH,
                    "minor": f"queues of at most {share(MINOR)} of active covering's longest where "
                    "roots cover 30 others",
                    "short-lived": f"at most {FEW_WAIT} messages wait an hour after the first "
                    "unsubscription",
                    "still grow": "most messages wait at the hour or later, by the times shown",
                }
            ),
            LATER.format("sensitivity, minor congestion and queues that still grow"),
            'The text has "sensitive to" for the delays; that they grow quickly is what it says of '
            "Fig. 8.",
            "The number of subscriptions stays the same, so there are fewer roots if each covers "
            "more.",
        ),
        quick=quick,
        seed=seed,
    )


# --- measuring -----------------------------------------------------------------------------------


def _run_sweep(
    values: Sequence[int],
    of: Callable[[int, str], Sequence[CongestionCase]],
    progress: Progress,
) -> dict[int, dict[str, Repeated]]:
    wanted = {(n, policy): of(n, policy) for n in values for policy in COMPARED}
    (found,) = results(progress, wanted)
    return {n: {policy: found[n, policy] for policy in COMPARED} for n in values}


def _rows(found: Curves, times: FloatArray) -> tuple[tuple[str | int | float, ...], ...]:
    return tuple(
        (n, policy, *row)
        for n, by_policy in found.items()
        for policy, each in by_policy.items()
        for row in numbers(each, times)
    )


def _delays(found: Curves, policy: str) -> list[float]:
    return [by_policy[policy].delay for by_policy in found.values()]


# --- reporting -----------------------------------------------------------------------------------


def _comparison(
    found: Curves, what: str, theirs: Mapping[int, tuple[tuple[str, str], tuple[str, str]]]
) -> str:
    rows = []
    for n, by_policy in found.items():
        said = dict(zip((ACTIVE, SELECTIVE), theirs[n], strict=True))
        for policy, each in by_policy.items():
            paper, independent = said.get(policy, (NOTHING, NOTHING))
            sizes = f"{each.core_queue:,}", f"{each.core_table:,.0f}"
            wasted = share(each.false_positives()), share(each.dead_ends())
            name = f"{what} {n}, {LABELS[policy]}"
            rows.append((name, seconds(each.delay), paper, independent, *sizes, *wasted))
    columns = ("", "ours, delay", "paper", "independent")
    more = (
        "ours, longest core queue",
        "ours, core table",
        "ours, false positives",
        "dead ends alone",
    )
    return table((*columns, *more), rows)


def _sensitive_claim(found: Curves) -> Claim:
    delays = _delays(found, ACTIVE)
    return Claim(
        "delays under active covering are sensitive to the covering degree",
        "section V-D, Fig. 9(a)",
        f"{seconds(min(delays))} to {seconds(max(delays))}",
        not flat(delays),
    )


def _minor_claim(found: Curves) -> Claim:
    least, middle = sorted(found)[:2]
    longest = {policy: found[least][policy].core_queue for policy in (ACTIVE, SELECTIVE)}
    left = {p: float(found[least][p].queue(np.array([HOUR]))[0]) for p in longest}
    return Claim(
        f"at a covering degree of {least} congestion is minor and short-lived under both",
        "section V-D",
        f"{longest[ACTIVE]:,} and {longest[SELECTIVE]:,} messages at most, against "
        f"{found[middle][ACTIVE].core_queue:,} under active covering at {middle}; "
        f"{left[ACTIVE]:,.0f} and {left[SELECTIVE]:,.0f} after an hour",
        all(longest[p] <= MINOR * found[middle][ACTIVE].core_queue for p in longest)
        and all(left[p] <= FEW_WAIT for p in left),
    )


def _growing_claim(found: Curves, times: FloatArray) -> Claim:
    most = max(found)
    peak = found[most][ACTIVE].peak(times)
    return Claim(
        f"at a covering degree of {most} queues still grow under active covering an hour into the "
        "experiment",
        "section V-D, Fig. 9(c)",
        f"most messages wait after {peak / 60:.0f} minutes",
        peak >= HOUR,
    )


def _growth_claim(found: Curves, what: str, source: str) -> Claim:
    delays = _delays(found, ACTIVE)
    return Claim(
        f"under active covering delays grow quickly with the {what}",
        source,
        f"{join_words([seconds(each) for each in delays])} at "
        f"{join_words([str(n) for n in found])}",
        delays == sorted(delays) and delays[-1] > QUICKLY * delays[0],
    )


def _few_claim(found: Curves) -> Claim:
    first = min(found)
    active, selective = (_delays(found, policy)[0] for policy in (ACTIVE, SELECTIVE))
    return Claim(
        f"with {first} unsubscriptions both policies deliver fast",
        "section V-C, Fig. 8(a)",
        f"in {seconds(active)} and {seconds(selective)}",
        active <= FAST * selective,
    )


def _flat_claim(found: Curves, what: str, source: str) -> Claim:
    delays = _delays(found, SELECTIVE)
    return Claim(
        f"under selective pruning they stay the same, whatever the {what}",
        source,
        f"{join_words([seconds(each) for each in delays])} at "
        f"{join_words([str(n) for n in found])}",
        flat(delays),
    )


def _longest(found: Curves, policy: str) -> int:
    return max(by_policy[policy].core_queue for by_policy in found.values())


def _shorter_claim(found: Curves) -> Claim:
    active, selective = (_longest(found, policy) for policy in (ACTIVE, SELECTIVE))
    return Claim(
        "selective pruning is much better at avoiding long queues",
        "section V-C, Fig. 8(b) to (d)",
        f"{selective:,} messages at most, against {active:,}",
        selective <= MUCH_SHORTER * active,
    )


def _short_claim(found: Curves) -> Claim:
    active, selective = (_longest(found, policy) for policy in (ACTIVE, SELECTIVE))
    return Claim(
        f"queues stay below {SHORT} messages under selective pruning, whatever the covering degree",
        "section V-D, Fig. 9(d)",
        f"{selective:,} messages at most, against {active:,} under active covering",
        selective < SHORT,
    )


def _table_claims(found: Curves) -> tuple[Claim, Claim]:
    tables = {
        policy: [by_policy[policy].core_table for by_policy in found.values()]
        for policy in (ACTIVE, SELECTIVE)
    }
    at = join_words([str(n) for n in found])
    words = {p: join_words([f"{each:,.0f}" for each in tables[p]]) for p in tables}
    return (
        Claim(
            "core tables after the unsubscriptions grow with the covering degree under active "
            "covering",
            "section V-D, Fig. 9(b)",
            f"{words[ACTIVE]} at {at}",
            tables[ACTIVE] == sorted(tables[ACTIVE]),
        ),
        Claim(
            "they become smaller under selective pruning",
            "section V-D, Fig. 9(b)",
            f"{words[SELECTIVE]} at {at}",
            tables[SELECTIVE] == sorted(tables[SELECTIVE], reverse=True),
        ),
    )


def _tell_ours(found: Curves, what: str) -> str:
    """By how much merging is better, or where it is not, at each value of the parameter."""
    parts = []
    for n, by_policy in found.items():
        ours, theirs = by_policy[OURS], by_policy[SELECTIVE]
        parts.append(
            f"At {n} {what}, merging's longest core queue is {ours.core_queue:,} where selective "
            f"pruning's is {theirs.core_queue:,} ({_compare(theirs.core_queue, ours.core_queue)}), "
            f"probes take {seconds(ours.delay)} against {seconds(theirs.delay)}, core tables have "
            f"{ours.core_table:,.0f} boxes against {theirs.core_table:,.0f}, and false positives "
            f"are {share(ours.false_positives())} against {share(theirs.false_positives())}."
        )
    return "\n".join(f"- {part}" for part in parts)


def _compare(theirs: float, ours: float) -> str:
    if ours < theirs:
        return f"{times_as(theirs / max(ours, 1))} times as long"
    return "no longer" if ours == theirs else "ours is longer"


# --- drawing -------------------------------------------------------------------------------------


def _chart(name: str, what: str, found: Curves, times: FloatArray) -> str:
    def paint(sheet: Sheet) -> None:
        top, queues = sheet.panels[:3], sheet.panels[3:]
        for policy in COMPARED:
            _paint_curves(top, found, policy)
        delays, tables, wasted = top
        delays.set_yscale("log")
        delays.set_title("delay of probes, s")
        tables.set_title("boxes in a core table")
        wasted.set_title("false positives, %")
        for axes in top:
            axes.set(xlabel=what, xticks=list(found))
        for axes, (n, by_policy) in zip(queues, found.items(), strict=True):
            shown = {policy: each.queue(times) for policy, each in by_policy.items()}
            draw_queues(axes, times, shown, f"core queue, {what} {n}")
            axes.set_ylim(top=1.5 * _longest(found, ACTIVE))
        draw_legend(sheet)

    return draw_chart(name, f"Delays and queues by {what}", (9, 6.2), paint, shape=(2, 3))


def _paint_curves(panels: Sequence[Axes], found: Curves, policy: str) -> None:
    """Delays, tables and false positives of one policy against the varied parameter."""
    delays, tables, wasted = panels
    x, colour = list(found), COLOURS[policy]
    each = [by_policy[policy] for by_policy in found.values()]
    low, high = np.array([one.spread for one in each]).T
    delays.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    delays.plot(x, _delays(found, policy), "o-", color=colour, label=LABELS[policy])
    for axes, values in (
        (tables, [one.core_table for one in each]),
        (wasted, [100 * one.false_positives() for one in each]),
    ):
        axes.plot(x, values, "o-", color=colour)
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.1 * max(values)))
