"""Fig. 12: monitors that want everything move, alone or with all other subscribers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from distributary.papers.chen.mobile import (
    DEARER,
    PUBLISH_EVERY,
    TIERS,
    UNDER_WAY,
    MobileOutcome,
)
from distributary.papers.chen.runs import (
    ACTIVE,
    COMPARED,
    OURS,
    SELECTIVE,
    SPARSE_WORKFLOWS,
    mobile_case,
    mobile_results,
)
from distributary.papers.chen.telling import COLOURS, LABELS, PRICED, draw_queues, share
from distributary.papers.drawing import Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Cell, Claim, Figure
from distributary.papers.wording import NOTHING, join_words, table
from distributary.planning import Progress, silent

__all__ = ["fig12"]

MONITORS, ALL, OVERLAP, SPARSE = "monitors move", "all move", "monitors overlap", "sparse events"
LITTLE, HARDLY = 0.01, 0.5
INDEPENDENT_QUEUES = {(MONITORS, ACTIVE): "over 47,000", (MONITORS, SELECTIVE): "1"}
PAPER_QUEUES = {
    (MONITORS, ACTIVE): "large and growing",
    (MONITORS, SELECTIVE): "virtually none",
    (ALL, ACTIVE): "large and growing",
    (ALL, SELECTIVE): "virtually none",
}

Runs = Mapping[tuple[str, str], MobileOutcome]  # (setting, policy) -> outcome


def fig12(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """The core's queue, tables and publications by tier while subscribers move."""
    cases = {
        **{(MONITORS, p): mobile_case(p, quick=quick, seed=seed) for p in COMPARED},
        **{(ALL, p): mobile_case(p, quick=quick, seed=seed, all_move=True) for p in COMPARED},
        (OVERLAP, ACTIVE): mobile_case(ACTIVE, quick=quick, seed=seed, overlap=True),
        **{
            (SPARSE, p): mobile_case(p, quick=quick, seed=seed, workflows=SPARSE_WORKFLOWS)
            for p in (SELECTIVE, OURS)
        },
    }
    outcomes = mobile_results(list(cases.values()), progress)
    found = {key: outcomes[each] for key, each in cases.items()}
    first = cases[MONITORS, ACTIVE].roaming
    return Figure(
        name="chen-fig12",
        title="Subscribers that move",
        source="Chen et al. (2011), Fig. 12 and section V-F",
        shown=(
            f"{first.subscribers:,} subscribers in four regions, and in each a monitor that wants "
            f"everything. Every 2 minutes a monitor moves within its region, for "
            f"{first.duration / 3600:g} h; in the second case "
            f"{cases[ALL, ACTIVE].roaming.moves_per_minute:g} others a minute move as well. The "
            "queue is that of the one core broker; tables are averages of all brokers, traffic is "
            "the average of a tier's brokers, with the core as tier 0."
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
            *_tier_claims(found),
        ),
        notes=_notes(found),
        quick=quick,
        seed=seed,
    )


def _rows(setting: str, policy: str, found: MobileOutcome) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, Cell, Cell]] = [
        ("core_queue", float(time), int(n))
        for time, n in zip(found.times, found.queue.at(found.times), strict=True)
    ]
    rows += [
        ("table_boxes", float(time), float(n))
        for time, n in zip(found.times, found.tables, strict=True)
    ]
    for tier in range(TIERS):
        rows.append(("publications_per_broker", tier, found.publications[tier]))
        rows.append(("unwanted_per_broker", tier, found.unwanted[tier]))
    rows.append(("longest_core_queue", "all", found.queue.longest))
    rows.append(("triggered", "core", found.triggered))
    rows.append(("false_positive_share", "all", found.false_positives()))
    return [(setting, policy, *row) for row in rows]


# --- reporting -----------------------------------------------------------------------------------


def _comparison(found: Runs) -> str:
    return table(
        (
            "",
            "ours, longest core queue",
            "paper",
            "independent",
            "ours, queue at the end",
            "ours, mean table",
            "ours, triggered at the core",
            "ours, false positives",
        ),
        (
            (
                f"{setting}, {LABELS[policy]}",
                f"{each.queue.longest:,}",
                PAPER_QUEUES.get((setting, policy), NOTHING),
                INDEPENDENT_QUEUES.get((setting, policy), NOTHING),
                f"{each.waiting:,}",
                f"{each.tables.mean():,.0f}",
                f"{each.triggered:,}",
                share(each.false_positives()),
            )
            for (setting, policy), each in found.items()
        ),
    )


def _growing_claim(found: Runs) -> Claim:
    active = found[MONITORS, ACTIVE]
    half, end = active.queue.at(active.times[[len(active.times) // 2, -1]]).tolist()
    return Claim(
        "under active covering the core's queue is long and goes on growing",
        "section V-F, Fig. 12(a)",
        f"{half:,} messages half-way, {end:,} at the end",
        end > half > 0,
    )


def _none_claim(found: Runs) -> Claim:
    longest = {p: found[MONITORS, p].queue.longest for p in (ACTIVE, SELECTIVE)}
    return Claim(
        "under selective pruning there is virtually no congestion",
        "section V-F, Fig. 12(a)",
        f"at most {longest[SELECTIVE]:,} waiting, against {longest[ACTIVE]:,}",
        longest[SELECTIVE] <= LITTLE * longest[ACTIVE],
    )


def _all_claim(found: Runs) -> Claim:
    alone, together = (
        {p: found[setting, p].queue.longest for p in (ACTIVE, SELECTIVE)}
        for setting in (MONITORS, ALL)
    )
    change = together[ACTIVE] / alone[ACTIVE] - 1
    return Claim(
        "that all others move, too, makes no significant difference",
        "section V-F, Fig. 12(b)",
        f"active covering's longest queue is {together[ACTIVE]:,} instead of {alone[ACTIVE]:,}, "
        f"selective pruning's {together[SELECTIVE]:,} instead of {alone[SELECTIVE]:,}",
        abs(change) <= HARDLY and together[SELECTIVE] <= LITTLE * together[ACTIVE],
    )


def _table_claim(found: Runs) -> Claim:
    words, smaller = [], []
    for setting in (MONITORS, ALL):
        active, selective = (found[setting, p].tables for p in (ACTIVE, SELECTIVE))
        words.append(
            f"{setting}: {selective.mean():,.0f} ± {selective.std():,.0f} boxes against "
            f"{active.mean():,.0f} ± {active.std():,.0f}"
        )
        smaller.append(
            selective.mean() <= HARDLY * active.mean() and selective.std() < active.std()
        )
    return Claim(
        "tables are much smaller and steadier under selective pruning",
        "section V-F, Fig. 12(c) and (d)",
        "; ".join(words),
        all(smaller),
    )


def _tier_claims(found: Runs) -> tuple[Claim, Claim]:
    traffic = found[MONITORS, SELECTIVE].publications
    unwanted = found[MONITORS, SELECTIVE].unwanted
    return (
        Claim(
            "upper tiers carry more publications, and selective pruning adds some",
            "section V-F, Fig. 12(e)",
            f"{join_words([f'{n:,.0f}' for n in traffic])} from the core down, "
            f"{share(found[MONITORS, SELECTIVE].false_positives())} of them for nobody",
            bool(traffic[0] >= traffic[1] >= traffic[2] >= traffic[3] and sum(unwanted) > 0),
        ),
        Claim(
            "false positives are carried mostly by the lower tiers",
            "section V-F, Fig. 12(f)",
            f"{join_words([f'{n:,.1f}' for n in unwanted])} per broker from the core down",
            sum(unwanted[TIERS // 2 :]) > sum(unwanted[: TIERS // 2]),
        ),
    )


def _notes(found: Runs) -> tuple[str, ...]:
    ours, theirs = found[MONITORS, OURS], found[MONITORS, SELECTIVE]
    return (
        PRICED,
        f"Prices are those of the other figures, and each box is {DEARER:g} times as dear because "
        "subscriptions are as much fewer. Two things were chosen so that active covering "
        f"congests as in the paper: a move takes a monitor {UNDER_WAY:g} s, and an event is "
        f"published every {PUBLISH_EVERY:g} s, in all regions together.",
        "A move follows the text: the subscription ends at the old broker and begins at the new "
        f"one afterwards. Where monitors overlap, subscribing first and leaving {UNDER_WAY:g} s "
        f"later, active covering's longest queue is {found[OVERLAP, ACTIVE].queue.longest:,}: the "
        "new subscription at once hides what the old one hid. So the congestion of this section "
        "can be avoided without a new policy.",
        "The paper does not say what subscribers want. Here 20 workflows make about 30 of 5,000 "
        "want each event, so that in every region somebody else wants nearly all that its "
        "monitor wants. With 100 workflows about 6 want it; then selective pruning takes "
        "monitors back up to the core, and its queue reaches "
        f"{found[SPARSE, SELECTIVE].queue.longest:,} there, ours "
        f"{found[SPARSE, OURS].queue.longest:,}.",
        f"Ours keeps the queue at {ours.queue.longest:,} at most and false positives at "
        f"{share(ours.false_positives())}; selective pruning {theirs.queue.longest:,} and "
        f"{share(theirs.false_positives())}. Its tables have {ours.tables.mean():,.0f} boxes on "
        f"average, selective pruning's {theirs.tables.mean():,.0f}.",
        "Only the shape of the drawing of the network is known from the text: tiers, four regions, "
        "one core broker. Ours has 1, 4, 12 and 36 brokers.",
    )


# --- drawing -------------------------------------------------------------------------------------


def _chart(found: Runs) -> str:
    def paint(sheet: Sheet) -> None:
        queue_a, table_c, traffic, queue_b, table_d, wasted = sheet.panels
        for setting, queue, sizes, marks in (
            (MONITORS, queue_a, table_c, ("(a)", "(c)")),
            (ALL, queue_b, table_d, ("(b)", "(d)")),
        ):
            of = {policy: found[setting, policy] for policy in COMPARED}
            times = of[ACTIVE].times
            queues = {policy: each.queue for policy, each in of.items()}
            draw_queues(queue, times, queues, f"{marks[0]} core queue, {setting}")
            for policy, each in of.items():
                sizes.plot(times / 60, each.tables, color=COLOURS[policy], linewidth=1.3)
            sizes.set(xlabel="minutes", ylim=(0, None), xlim=(0, times[-1] / 60))
            sizes.set_title(f"{marks[1]} boxes in a table, {setting}")
        for at, policy in enumerate(COMPARED):
            each = found[MONITORS, policy]
            x = np.arange(TIERS) + (at - 1) * 0.27
            traffic.bar(x, each.publications, 0.25, color=COLOURS[policy])
            wasted.bar(x, each.unwanted, 0.25, color=COLOURS[policy])
        for axes, title in (
            (traffic, "(e) publications per broker"),
            (wasted, "(f) of these unwanted"),
        ):
            axes.set_xticks(range(TIERS), ["core", "tier 1", "tier 2", "tier 3"])
            axes.grid(visible=False, axis="x")
            axes.set_title(title)
        draw_legend(sheet)

    return draw_chart("chen-fig12", "Moving subscribers", (12, 6.8), paint, shape=(2, 3))
