"""What the paper claims of Fig. 7, and whether it holds of our outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, pairwise

import numpy as np

from distributary.papers.chen.network import CORE
from distributary.papers.chen.repeats import Repeated
from distributary.papers.chen.runs import ACTIVE, LAZY, PACKING, SELECTIVE
from distributary.papers.chen.telling import (
    FLAT,
    INNER,
    LABELS,
    NEARLY,
    flat,
    most_remembered,
    seconds,
    share,
    times_as,
    way,
)
from distributary.papers.figure import Claim
from distributary.papers.wording import join_words

__all__ = ["WORDS", "make_claims"]

MUCH = 1_000  # the factor that counts as several orders of magnitude
HALF, FEW, SLIGHT, MUCH_LESS, NONE, STILL_LONG = 0.5, 0.005, 0.1, 0.25, 0.01, 0.5
COMPACT = 2_000  # boxes that count as about the paper's 1,000
PAPERS_POLICIES = (ACTIVE, LAZY, PACKING, SELECTIVE)
MOST_PACKS, MOST_REMEMBERED = 300, 14_000
WORDS = {
    "several orders of magnitude": f"more than {MUCH:,} times; seconds are not judged, since time "
    "is modelled",
    "only slightly": f"a queue of at most {share(SLIGHT)} of active covering's",
    "only slightly shorter": f"more than {share(STILL_LONG)} of the longest queue is left",
    "down to none": f"at E at most {share(NONE)} of those under active covering",
    "much fewer": f"at most {share(MUCH_LESS)}",
    "no significant difference": f"the most are at most {FLAT:g} times the least",
    "about 50 %": f"at least {share(HALF - NEARLY)}, on the average of the core brokers",
    "about 0.4 %": f"at most {share(FEW)}",
    "falls to half": f"to at most {share(HALF + NEARLY)} of that of the probes; seconds are not "
    "judged",
    "very compact": f"at most {COMPACT:,} boxes on the average of the core brokers",
    "smaller in the busier core, 0.01 %": "smaller than at inner brokers; the number is not judged",
}

Runs = Mapping[str, Repeated]


def make_claims(found: Runs, scale: float) -> tuple[Claim, ...]:
    """All claims; `scale` is that of the cases."""
    return (
        _delay_claim(found),
        _half_claim(found),
        _settled_claim(found[SELECTIVE]),
        _queue_claim(found),
        _hour_claim(found),
        _rising_claim(found),
        _falling_claim(found),
        _packing_claim(found[PACKING], scale),
        *_inner_claims(found),
        _property_claim(found[ACTIVE]),
        _table_claim(found),
        _compact_claim(found[ACTIVE], scale),
        _lazy_claim(found),
        *_false_positive_claims(found[SELECTIVE]),
        _memory_claim(found[SELECTIVE]),
    )


def _delay_claim(found: Runs) -> Claim:
    active, selective = found[ACTIVE].delay, found[SELECTIVE].delay
    return Claim(
        "publications take several orders of magnitude longer under active covering than under "
        "selective pruning: 4,400 s against 0.4 s",
        "section V-B, Fig. 7(a)",
        f"{seconds(active)} against {seconds(selective)}, "
        f"{times_as(active / selective)} times as long",
        active > MUCH * selective,
    )


def _half_claim(found: Runs) -> Claim:
    delays = {policy: found[policy].delay for policy in (ACTIVE, LAZY, PACKING)}
    return Claim(
        "lazy covering and packing deliver in less than half of active covering's time",
        "section V-B, Fig. 7(a)",
        f"{seconds(delays[LAZY])} and {seconds(delays[PACKING])} against {seconds(delays[ACTIVE])}",
        all(delays[policy] < HALF * delays[ACTIVE] for policy in (LAZY, PACKING)),
    )


def _settled_claim(selective: Repeated) -> Claim:
    return Claim(
        "under selective pruning congestion subsides quickly: the delay falls to half, from 0.4 s "
        "to 0.2 s",
        "section V-B, Fig. 7(a)",
        f"{seconds(selective.delay)} for the probes, {seconds(selective.settled)} at the end",
        selective.settled <= (HALF + NEARLY) * selective.delay,
    )


def _queue_claim(found: Runs) -> Claim:
    active, selective = found[ACTIVE].core_queue, found[SELECTIVE].core_queue
    return Claim(
        "queues of the core grow to thousands under active covering, and only slightly under "
        "selective pruning",
        "section V-B, Fig. 7(e)",
        f"up to {active:,} against {selective:,} messages",
        selective <= SLIGHT * active,
    )


def _hour_claim(found: Runs) -> Claim:
    left = {p: float(found[p].queue(np.array([3_600.0]))[0]) for p in (ACTIVE, LAZY)}
    longest = {policy: found[policy].core_queue for policy in left}
    return Claim(
        "an hour after the unsubscriptions active and lazy covering have made their queues only "
        "slightly shorter",
        "section V-B, Fig. 7(e)",
        f"{left[ACTIVE]:,.0f} of {longest[ACTIVE]:,} messages wait under active covering, "
        f"{left[LAZY]:,.0f} of {longest[LAZY]:,} under lazy",
        all(left[policy] > STILL_LONG * longest[policy] for policy in left),
    )


def _rising_claim(found: Runs) -> Claim:
    counts = {policy: found[policy].triggered_messages() for policy in (ACTIVE, LAZY)}
    return Claim(
        "messages triggered under active and lazy covering grow from core broker to core broker "
        "towards the publishers",
        "section V-B, Fig. 7(d)",
        "; ".join(f"{LABELS[policy]} {way(each)}" for policy, each in counts.items()),
        all(each == sorted(each) and each[-1] > each[0] for each in counts.values()),
    )


def _falling_claim(found: Runs) -> Claim:
    counts = found[SELECTIVE].triggered_messages()
    active = found[ACTIVE].triggered_messages()[-1]
    return Claim(
        "those under selective pruning become fewer towards the publishers, down to none",
        "section V-B, Fig. 7(d)",
        f"{way(counts)}, at E {share(counts[-1] / active)} of those under active covering",
        counts[-1] < counts[0] and counts[-1] <= NONE * active,
    )


def _packing_claim(packing: Repeated, scale: float) -> Claim:
    counts = packing.triggered_messages()
    return Claim(
        f"packing reduces them to fewer than {MOST_PACKS} messages",
        "section V-B, Fig. 7(d)",
        f"{way(counts)} messages, with {way(packing.triggered())} subscriptions in them",
        max(counts) < scale * MOST_PACKS,
    )


def _inner_claims(found: Runs) -> tuple[Claim, Claim]:
    core, inner = (
        {p: float(np.mean(found[p].triggered_messages(brokers))) for p in PAPERS_POLICIES}
        for brokers in (CORE, INNER)
    )
    words = [f"{LABELS[p]} {inner[p]:,.1f} against {core[p]:,.1f}" for p in PAPERS_POLICIES]
    return (
        Claim(
            "the other inner brokers get much fewer triggered messages than the core brokers, "
            "under all four policies",
            "section V-B",
            f"{join_words(words)} a broker",
            all(inner[p] <= MUCH_LESS * core[p] for p in PAPERS_POLICIES),
        ),
        Claim(
            "at those inner brokers there is no significant difference among the four",
            "section V-B",
            f"{min(inner.values()):,.1f} to {max(inner.values()):,.1f} a broker",
            flat(list(inner.values())),
        ),
    )


def _property_claim(active: Repeated) -> Claim:
    paths = [path for each in active.runs for path in each.similarity if path]
    rising = [all(a <= b for a, b in pairwise(path)) for path in paths]
    ends = [float(np.mean([path[at] for path in paths])) for at in (0, -1)] if paths else [0, 0]
    return Claim(
        "Property 3: from broker to broker on the way to a publisher, the similarity of a "
        "subscription and of what replaces it never falls",
        "section III-C",
        f"on {sum(rising)} of {len(paths)} paths; on average it grows from {share(ends[0])} at "
        f"the subscriber's broker to {share(ends[1])} at the publisher's",
        bool(paths) and all(rising) and any(a < b for a, b in chain(*map(pairwise, paths))),
    )


def _table_claim(found: Runs) -> Claim:
    active, selective = found[ACTIVE], found[SELECTIVE]
    return Claim(
        "selective pruning leaves the core brokers with tables about 50 % smaller than active "
        "covering",
        "sections I and V-B, Fig. 7(b)",
        f"on average {share(1 - selective.core_table / active.core_table)} smaller; "
        f"{share(1 - selective.table('E') / active.table('E'))} at E, where all subscriptions meet",
        selective.core_table <= (1 - HALF + NEARLY) * active.core_table,
    )


def _compact_claim(active: Repeated, scale: float) -> Claim:
    return Claim(
        "active covering's tables are very compact at the end: 1,000 entries for 30,000 "
        "subscriptions",
        "section V-B, Fig. 7(b)",
        f"{active.core_table:,.0f} boxes in a core broker's table",
        active.core_table <= scale * COMPACT,
    )


def _lazy_claim(found: Runs) -> Claim:
    lazy, active = found[LAZY].core_table, found[ACTIVE].core_table
    return Claim(
        "lazy covering has larger tables than active covering",
        "section V-B, Fig. 7(b)",
        f"{lazy:,.0f} boxes in a core broker's table against {active:,.0f}",
        lazy > active,
    )


def _false_positive_claims(selective: Repeated) -> tuple[Claim, Claim]:
    inside = selective.false_positives([*CORE, *INNER])
    core, inner = selective.false_positives(CORE), selective.false_positives(INNER)
    return (
        Claim(
            "false positives are no more than about 0.4 % of the publications at core and inner "
            "brokers",
            "section V-B, Fig. 7(c)",
            share(inside),
            inside <= FEW,
        ),
        Claim(
            "their share is smaller in the busier core, 0.01 %",
            "section V-B, Fig. 7(c)",
            f"{share(core)} at core brokers, {share(inner)} at inner ones",
            core < inner,
        ),
    )


def _memory_claim(selective: Repeated) -> Claim:
    most = max(most_remembered(each) for each in selective.runs)
    return Claim(
        f"the largest history has no more than about {MOST_REMEMBERED:,} entries",
        "section V-B",
        f"{most:,} at most",
        0 < most <= MOST_REMEMBERED,
    )
