"""Fig. 10: subscriptions that cover one another are near one another."""

from __future__ import annotations

from collections.abc import Mapping

from distributary.model import FloatArray
from distributary.papers.chen.choices import CLUSTERED
from distributary.papers.chen.repeats import Repeated
from distributary.papers.chen.runs import ACTIVE, COMPARED, OURS, SELECTIVE, cases, results
from distributary.papers.chen.telling import (
    CHOICE,
    LABELS,
    LATER,
    NEARLY,
    PRICED,
    QUANTITIES,
    READING,
    delay_rows,
    draw_bars,
    draw_queues,
    explain_words,
    name_seeds,
    numbers,
    samples,
    seconds,
    share,
    times_as,
)
from distributary.papers.drawing import Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, table
from distributary.planning import Progress, silent

__all__ = ["fig10"]

SHOWN, EVERY = 4_000.0, 25.0  # seconds after the first unsubscription; from point to point
FAST, SAVED, NONE = 0.03, 0.82, 0.01
SUBSTANTIAL = 1 / 3
MUCH_WORSE = 1.5  # times as long a queue
LATE = 4_000.0  # seconds
DELAYS = {"active": ("2,000 s", "706 s"), "selective": ("0.05 s", "0.19 s")}
TABLES = {"active": "7,300", "selective": "1,200"}

Runs = Mapping[str, Repeated]


def fig10(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Delays, tables and queues where a root's children are in the same cluster."""
    wanted = {p: cases(p, quick=quick, seed=seed, full=CLUSTERED) for p in COMPARED}
    spread = {p: cases(p, quick=quick, seed=seed) for p in COMPARED}
    found, anywhere = results(progress, wanted, spread)
    times = samples(SHOWN, EVERY)
    first = wanted[ACTIVE][0]
    return Figure(
        name="chen-fig10",
        title="Subscriptions that cover one another are neighbours",
        source="Chen et al. (2011), Fig. 10 and section V-E",
        shown=(
            f"{first.unsubscriptions} of {first.workflows.subscriptions:,} subscriptions end; a "
            "root and its children are on the edge brokers of the same inner broker. Active "
            "covering, the paper's selective pruning, and our merging. "
            f"{name_seeds(quick, seed)}"
        ),
        columns=("policy", *QUANTITIES),
        rows=tuple(
            (policy, *row) for policy, each in found.items() for row in numbers(each, times)
        ),
        chart=_chart(found, times),
        comparison=_comparison(found, anywhere),
        claims=(
            _delay_claim(found),
            *_table_claims(found),
            _worse_claim(found, anywhere),
            _late_claim(found[ACTIVE]),
            _queue_claim(found),
            _less_claim(found, anywhere),
        ),
        own=_tell_ours(found),
        notes=(
            PRICED,
            CHOICE,
            READING,
            explain_words(
                {
                    "less than 3 %": "as it says; seconds are not judged, since time is modelled",
                    "substantially smaller": f"by at least {share(SUBSTANTIAL)}",
                    "82 % smaller": f"at least {share(SAVED - NEARLY)}, on average",
                    "much worse": f"a queue at least {MUCH_WORSE:g} times as long",
                    "no congestion": f"a queue of at most {share(NONE)} of active covering's",
                }
            ),
            LATER.format("active covering alone"),
            "The drawing that shows which brokers form a cluster is not in the text.",
            "The paper contradicts itself: 50 ms is not about 3 % of 2,000 s but 0.0025 %.",
        ),
        quick=quick,
        seed=seed,
    )


def _comparison(found: Runs, anywhere: Runs) -> str:
    rows = delay_rows(found, DELAYS)
    for policy, each in found.items():
        ours = f"{each.core_table:,.0f}"
        rows.append((f"core table, {LABELS[policy]}", ours, TABLES.get(policy, NOTHING), NOTHING))
    for policy, each in found.items():
        ours = f"{each.table('E'):,.0f}"
        rows.append((f"table at E, {LABELS[policy]}", ours, NOTHING, NOTHING))
    for policy, each in found.items():
        ours = f"{each.core_queue:,} ({anywhere[policy].core_queue:,} if spread)"
        rows.append((f"longest core queue, {LABELS[policy]}", ours, NOTHING, NOTHING))
    for policy, each in found.items():
        ours = share(each.false_positives())
        rows.append((f"false positives, {LABELS[policy]}", ours, NOTHING, NOTHING))
    return table(("", "ours", "paper", "independent"), rows)


def _tell_ours(found: Runs) -> str:
    ours, theirs, active = (found[policy] for policy in (OURS, SELECTIVE, ACTIVE))
    return (
        f"Merging's core tables have {ours.core_table:,.0f} boxes, "
        f"{share(1 - ours.core_table / active.core_table)} fewer than active covering's; selective "
        f"pruning's have {theirs.core_table:,.0f}. Its longest core queue is {ours.core_queue:,} "
        f"against {theirs.core_queue:,}, its probes take {seconds(ours.delay)} against "
        f"{seconds(theirs.delay)}, and its false positives are {share(ours.false_positives())} "
        f"against {share(theirs.false_positives())}."
    )


def _delay_claim(found: Runs) -> Claim:
    active, selective = found[ACTIVE].delay, found[SELECTIVE].delay
    return Claim(
        "publications take 2,000 s under active covering, and less than 3 % of that, about 50 ms, "
        "under selective pruning",
        "section V-E, Fig. 10(a)",
        f"{seconds(active)} against {seconds(selective)}, "
        f"{times_as(active / selective)} times as long",
        selective < FAST * active,
    )


def _table_claims(found: Runs) -> tuple[Claim, Claim]:
    mean = {policy: found[policy].core_table for policy in (ACTIVE, SELECTIVE)}
    saved = 1 - mean[SELECTIVE] / mean[ACTIVE]
    at_e = 1 - found[SELECTIVE].table("E") / found[ACTIVE].table("E")
    return (
        Claim(
            "core tables are substantially smaller under selective pruning",
            "section V-E, Fig. 10(b)",
            f"{mean[SELECTIVE]:,.0f} boxes against {mean[ACTIVE]:,.0f}",
            saved >= SUBSTANTIAL,
        ),
        Claim(
            "they are 82 % smaller",
            "section V-E, Fig. 10(b)",
            f"{share(saved)} smaller on average, {share(at_e)} at E",
            saved >= SAVED - NEARLY,
        ),
    )


def _worse_claim(found: Runs, anywhere: Runs) -> Claim:
    clustered, spread = found[ACTIVE].core_queue, anywhere[ACTIVE].core_queue
    return Claim(
        "active covering performs much worse when subscriptions are clustered",
        "section V-E, Fig. 10(c)",
        f"{clustered:,} messages wait at most, {spread:,} if they are spread",
        clustered >= MUCH_WORSE * spread,
    )


def _late_claim(active: Repeated) -> Claim:
    peak = active.peak(samples(2 * LATE, EVERY))
    return Claim(
        "under active covering bursts begin to drop only after 4,000 s",
        "section V-E, Fig. 10(c)",
        f"most messages wait after {peak:,.0f} s",
        peak >= LATE,
    )


def _queue_claim(found: Runs) -> Claim:
    longest = {policy: found[policy].core_queue for policy in (ACTIVE, SELECTIVE)}
    return Claim(
        "selective pruning has no congestion",
        "section V-E, Fig. 10(c)",
        f"{longest[SELECTIVE]:,} messages wait at most, against {longest[ACTIVE]:,}",
        longest[SELECTIVE] <= NONE * longest[ACTIVE],
    )


def _less_claim(found: Runs, anywhere: Runs) -> Claim:
    longest = {name: each[SELECTIVE].core_queue for name, each in _both(found, anywhere)}
    return Claim(
        "selective pruning gains from clusters: its queues are shorter than without them",
        "section V-E, Figs. 7(e) and 10(c)",
        f"{longest['clustered']:,} messages at most, {longest['spread']:,} without",
        longest["clustered"] < longest["spread"],
    )


def _both(found: Runs, anywhere: Runs) -> tuple[tuple[str, Runs], ...]:
    return ("clustered", found), ("spread", anywhere)


def _chart(found: Runs, times: FloatArray) -> str:
    def paint(sheet: Sheet) -> None:
        delays, tables, queues = sheet.panels
        draw_bars(delays, {p: each.delay for p, each in found.items()}, "(a) delay, s", log=True)
        sizes = {p: each.core_table for p, each in found.items()}
        draw_bars(tables, sizes, "(b) boxes in a core table")
        for axes in (delays, tables):
            axes.set_xticks([])
        shown = {policy: each.queue(times) for policy, each in found.items()}
        draw_queues(queues, times, shown, "(c) longest core queue")
        draw_legend(sheet, at=2)

    return draw_chart("chen-fig10", "Clustered subscriptions", (9, 3.8), paint, shape=(1, 3))
