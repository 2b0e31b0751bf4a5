"""Fig. 12: monitors that want everything move, alone or with all other subscribers."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

import numpy as np

from distributary.model import FloatArray
from distributary.papers.chen.choices import TO_WARM_UP
from distributary.papers.chen.mobile import (
    DEARER,
    PUBLISH_EVERY,
    TIERS,
    UNDER_WAY,
    MobileOutcome,
)
from distributary.papers.chen.repeats import RepeatedMoves
from distributary.papers.chen.runs import (
    ACTIVE,
    COMPARED,
    OURS,
    SELECTIVE,
    SPARSE_WORKFLOWS,
    mobile_case,
    mobile_cases,
    mobile_results,
)
from distributary.papers.chen.telling import (
    CHOICE,
    COLOURS,
    LABELS,
    PRICED,
    draw_queues,
    explain_words,
    name_seeds,
    share,
)
from distributary.papers.drawing import QUIET, Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Cell, Claim, Figure
from distributary.papers.wording import NOTHING, join_words, table
from distributary.planning import Progress, silent

__all__ = ["fig12"]

MONITORS, ALL, OVERLAP, SPARSE = "monitors move", "all move", "monitors overlap", "sparse events"
LITTLE = 0.01  # of active covering's queue
SMALL_CHANGE, MUCH_SMALLER = 0.5, 0.5
BY_TIER = ("publications", "unneeded", "dead_ends")
INDEPENDENT_QUEUES = {(MONITORS, ACTIVE): "over 47,000", (MONITORS, SELECTIVE): "1"}
PAPER_QUEUES = {
    (MONITORS, ACTIVE): "large and growing",
    (MONITORS, SELECTIVE): "virtually none",
    (ALL, ACTIVE): "large and growing",
    (ALL, SELECTIVE): "virtually none",
}

Runs = Mapping[tuple[str, str], RepeatedMoves]  # by setting and policy


def fig12(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """The core's queue, tables and publications by tier while subscribers move."""
    wanted = {
        **{(MONITORS, p): mobile_cases(p, quick=quick, seed=seed) for p in COMPARED},
        **{(ALL, p): mobile_cases(p, quick=quick, seed=seed, all_move=True) for p in COMPARED},
        (OVERLAP, ACTIVE): (mobile_case(ACTIVE, quick=quick, seed=seed, overlap=True),),
        **{
            (SPARSE, p): (mobile_case(p, quick=quick, seed=seed, workflows=SPARSE_WORKFLOWS),)
            for p in (SELECTIVE, OURS)
        },
    }
    found = mobile_results(wanted, progress)
    first = wanted[MONITORS, ACTIVE][0].roaming
    return Figure(
        name="chen-fig12",
        title="Subscribers that move",
        source="Chen et al. (2011), Fig. 12 and section V-F",
        shown=(
            f"{first.subscribers:,} subscribers in four regions, and in each a monitor that wants "
            f"everything. Every 2 minutes a monitor moves within its region, for "
            f"{first.duration / 3600:g} h; in the second case "
            f"{wanted[ALL, ACTIVE][0].roaming.moves_per_minute:g} others a minute move as well. "
            "The queue is that of the one core broker; tables are averages of all brokers, without "
            "the entries of a broker's own clients; traffic is the average of a tier's brokers, "
            f"with the core as tier 0. {name_seeds(quick, seed)} Overlapping monitors and sparse "
            "events were run with the first seed only."
        ),
        columns=("setting", "policy", "quantity", "at", "value"),
        rows=tuple(row for (setting, p), each in found.items() for row in _rows(setting, p, each)),
        chart=_chart(found),
        comparison=_comparison(found),
        claims=(
            _growing_claim(found),
            _none_claim(found),
            _all_claim(found),
            _table_claim(found),
            _movement_claim(found),
            *_tier_claims(found),
        ),
        own=_tell_ours(found),
        notes=_notes(found),
        quick=quick,
        seed=seed,
    )


def _rows(setting: str, policy: str, found: RepeatedMoves) -> list[tuple[Cell, ...]]:
    times = found.times.tolist()
    rows: list[tuple[Cell, Cell, Cell]] = []
    for quantity, values in (
        ("core_queue", found.queue(found.times)),
        ("table_boxes", found.tables),
        ("transit_boxes", found.transit),
    ):
        rows += [(quantity, time, n) for time, n in zip(times, values.tolist(), strict=True)]
    for tier, (all_, unneeded, ends) in enumerate(
        zip(*(found.by_tier(attrgetter(name)) for name in BY_TIER), strict=True)
    ):
        rows.append(("publications_per_broker", tier, all_))
        rows.append(("unneeded_per_broker", tier, unneeded))
        rows.append(("dead_ends_per_broker", tier, ends))
    rows.append(("longest_core_queue", "all", found.longest))
    rows.append(("triggered", "core", found.triggered))
    rows.append(("false_positive_share", "all", found.false_positives()))
    rows.append(("dead_end_share", "all", found.dead_ends()))
    return [(setting, policy, *row) for row in rows]


# --- reporting -----------------------------------------------------------------------------------


def _comparison(found: Runs) -> str:
    warm = found[MONITORS, ACTIVE].warm
    queues = table(
        (
            "",
            "ours, longest core queue",
            "paper",
            "independent",
            "ours, queue at the end",
            "ours, triggered at the core",
            "ours, false positives",
            "dead ends alone",
        ),
        (
            (
                f"{setting}, {LABELS[policy]}",
                f"{each.longest:,}",
                PAPER_QUEUES.get((setting, policy), NOTHING),
                INDEPENDENT_QUEUES.get((setting, policy), NOTHING),
                f"{each.waiting:,}",
                f"{each.triggered:,}",
                share(each.false_positives()),
                share(each.dead_ends()),
            )
            for (setting, policy), each in found.items()
        ),
    )
    tables = table(
        (
            "boxes in a table, mean ± deviation over time",
            f"transit, from minute {warm / 60:.0f} on",
            "transit, from the start",
            f"all, from minute {warm / 60:.0f} on",
            "all, from the start",
        ),
        (
            (
                f"{setting}, {LABELS[policy]}",
                *(
                    _level(each, kind, since)
                    for kind in ("transit", "tables")
                    for since in (warm, 0)
                ),
            )
            for (setting, policy), each in found.items()
        ),
    )
    return f"{queues}\n\n{tables}"


def _level(found: RepeatedMoves, kind: str, since: float) -> str:
    mean, deviation = found.level(attrgetter(kind), since)
    return f"{mean:,.0f} ± {deviation:,.1f}"


def _growing_claim(found: Runs) -> Claim:
    active = found[MONITORS, ACTIVE]
    half, end = active.queue(active.times[[len(active.times) // 2, -1]]).tolist()
    return Claim(
        "under active covering the core's queue is long and goes on growing",
        "section V-F, Fig. 12(a)",
        f"{half:,.0f} messages half-way, {end:,.0f} at the end",
        end > half > 0,
    )


def _none_claim(found: Runs) -> Claim:
    longest = {p: found[MONITORS, p].longest for p in (ACTIVE, SELECTIVE)}
    return Claim(
        "under selective pruning there is virtually no congestion",
        "section V-F, Fig. 12(a)",
        f"at most {longest[SELECTIVE]:,} waiting, against {longest[ACTIVE]:,}",
        longest[SELECTIVE] <= LITTLE * longest[ACTIVE],
    )


def _all_claim(found: Runs) -> Claim:
    alone, together = (
        {p: found[setting, p].longest for p in (ACTIVE, SELECTIVE)} for setting in (MONITORS, ALL)
    )
    change = together[ACTIVE] / alone[ACTIVE] - 1
    return Claim(
        "that all others move, too, makes no significant difference",
        "section V-F, Fig. 12(b)",
        f"active covering's longest queue is {together[ACTIVE]:,} instead of {alone[ACTIVE]:,}, "
        f"selective pruning's {together[SELECTIVE]:,} instead of {alone[SELECTIVE]:,}",
        abs(change) <= SMALL_CHANGE and together[SELECTIVE] <= LITTLE * together[ACTIVE],
    )


def _table_claim(found: Runs) -> Claim:
    words, smaller = [], []
    for setting in (MONITORS, ALL):
        (active, wobble), (selective, steady) = (
            found[setting, p].level(_transit, found[setting, p].warm) for p in (ACTIVE, SELECTIVE)
        )
        words.append(
            f"{setting}: {selective:,.0f} ± {steady:,.1f} boxes against {active:,.0f} ± "
            f"{wobble:,.1f}"
        )
        smaller.append(selective <= MUCH_SMALLER * active and steady < wobble)
    return Claim(
        "after a few movements tables are much smaller and steadier under selective pruning",
        "section V-F, Fig. 12(c) and (d)",
        "; ".join(words),
        all(smaller),
    )


def _movement_claim(found: Runs) -> Claim:
    selective = found[ALL, SELECTIVE]
    late, _ = selective.level(_transit, selective.warm)
    still = float(selective.transit[0])
    return Claim(
        "with selective pruning, tables can be smaller with movement than without",
        "section V-F",
        f"{late:,.0f} boxes after the first moves, {still:,.0f} before any",
        late < still,
    )


def _transit(outcome: MobileOutcome) -> FloatArray:
    return outcome.transit


def _tier_claims(found: Runs) -> tuple[Claim, Claim]:
    selective = found[MONITORS, SELECTIVE]
    traffic, unneeded = (selective.by_tier(attrgetter(name)) for name in BY_TIER[:2])
    return (
        Claim(
            "upper tiers carry more publications, and selective pruning adds some",
            "section V-F, Fig. 12(e)",
            f"{join_words([f'{n:,.0f}' for n in traffic])} from the core down, "
            f"{share(selective.false_positives())} of them for nobody",
            traffic == sorted(traffic, reverse=True) and sum(unneeded) > 0,
        ),
        Claim(
            "false positives are carried mostly by the lower tiers",
            "section V-F, Fig. 12(f)",
            f"{join_words([f'{n:,.1f}' for n in unneeded])} per broker from the core down",
            sum(unneeded[TIERS // 2 :]) > sum(unneeded[: TIERS // 2]),
        ),
    )


def _tell_ours(found: Runs) -> str:
    parts = []
    for setting in (MONITORS, ALL, SPARSE):
        ours, theirs = found[setting, OURS], found[setting, SELECTIVE]
        mine, its = (each.level(_transit, each.warm)[0] for each in (ours, theirs))
        parts.append(
            f"- {setting}: merging's longest core queue is {ours.longest:,}, selective pruning's "
            f"{theirs.longest:,}; its tables have {mine:,.0f} transit boxes against {its:,.0f}; "
            f"its false positives are {share(ours.false_positives())} against "
            f"{share(theirs.false_positives())}."
        )
    return "\n".join(parts)


def _notes(found: Runs) -> tuple[str, ...]:
    return (
        PRICED,
        CHOICE,
        explain_words(
            {
                "virtually no congestion": f"a queue of at most {share(LITTLE)} of active "
                "covering's",
                "no significant difference": "active covering's longest queue changes by at most "
                f"{share(SMALL_CHANGE)}, and selective pruning still has virtually no congestion",
                "much smaller": f"at most {share(MUCH_SMALLER)} of the boxes",
                "steadier": "a smaller deviation over time",
                "goes on growing": "more wait at the end than half-way",
                "mostly by the lower tiers": "by a broker of each of the two lower tiers, taken "
                "together, more than by one of each of the two upper ones",
            }
        ),
        f"Prices are those of the other figures, and each box is {DEARER:g} times as dear because "
        "subscriptions are as much fewer. Two more were set by their outcome, so that active "
        f"covering congests as in the paper: a move takes a monitor {UNDER_WAY:g} s, and an event "
        f"is published every {PUBLISH_EVERY:g} s, in all regions together.",
        f"Tables are judged once monitors have moved {TO_WARM_UP} times, on entries that came from "
        "other brokers: a broker's own clients are in its table under every policy.",
        "A move follows the text: the subscription ends at the old broker and begins at the new "
        f"one afterwards. Where monitors overlap, subscribing first and leaving {UNDER_WAY:g} s "
        f"later, active covering's longest queue is {found[OVERLAP, ACTIVE].longest:,}: the "
        "new subscription at once hides what the old one hid. So the congestion of this section "
        "can be avoided without a new policy.",
        "The paper does not say what subscribers want. Here 20 workflows make about 30 of 5,000 "
        "want each event, so that in every region somebody else wants nearly all that its "
        "monitor wants. With 100 workflows about 6 want it; then selective pruning takes "
        "monitors back up to the core, and its queue reaches "
        f"{found[SPARSE, SELECTIVE].longest:,} there, ours {found[SPARSE, OURS].longest:,}.",
        "Only the shape of the drawing of the network is known from the text: tiers, four regions, "
        "one core broker. Ours has 1, 4, 12 and 36 brokers.",
    )


# --- drawing -------------------------------------------------------------------------------------


def _chart(found: Runs) -> str:
    def paint(sheet: Sheet) -> None:
        queue_a, queue_b, table_c, table_d, traffic, wasted = sheet.panels
        for setting, queue, sizes, marks in (
            (MONITORS, queue_a, table_c, ("(a)", "(c)")),
            (ALL, queue_b, table_d, ("(b)", "(d)")),
        ):
            of = {policy: found[setting, policy] for policy in COMPARED}
            times = of[ACTIVE].times
            queues = {policy: each.queue(times) for policy, each in of.items()}
            draw_queues(queue, times, queues, f"{marks[0]} core queue, {setting}")
            for policy, each in of.items():
                sizes.plot(times / 60, each.transit, color=COLOURS[policy], linewidth=1.3)
            sizes.axvline(of[ACTIVE].warm / 60, color=QUIET, linewidth=0.8, linestyle=":")
            sizes.set(xlabel="minutes", ylim=(0, None), xlim=(0, times[-1] / 60))
            sizes.set_title(f"{marks[1]} transit boxes, {setting}")
        for at, policy in enumerate(COMPARED):
            each = found[MONITORS, policy]
            x = np.arange(TIERS) + (at - 1) * 0.27
            for axes, name in ((traffic, "publications"), (wasted, "unneeded")):
                axes.bar(x, each.by_tier(attrgetter(name)), 0.25, color=COLOURS[policy])
        for axes, title in (
            (traffic, "(e) publications per broker"),
            (wasted, "(f) of these for nobody"),
        ):
            axes.set_xticks(range(TIERS), ["core", "tier 1", "tier 2", "tier 3"])
            axes.grid(visible=False, axis="x")
            axes.set_title(title)
        draw_legend(sheet)

    return draw_chart("chen-fig12", "Moving subscribers", (9, 9), paint, shape=(3, 2))
