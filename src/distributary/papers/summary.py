"""The five papers on one page: what each claims, what we found, and what ours adds.

The sentences about the papers are written here; what we found is read from the figures' pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distributary.papers.figure import Claim
from distributary.papers.wording import join_words

__all__ = ["PAPERS", "PaperInBrief", "describe_papers"]

HEADING = "# Five papers in a hurry"


@dataclass(frozen=True, slots=True)
class PaperInBrief:
    """A paper's main claim in a sentence, and where our answer to it stands.

    `found` names figures and how the claims begin whose outcome is quoted, one that does not hold
    among them; `ours` names the figures whose pages say best what ours adds.
    """

    paper: str
    title: str
    claims: str
    found: tuple[tuple[str, str], ...]
    ours: tuple[str, ...]
    in_product: str


PAPERS = (
    PaperInBrief(
        "Adler et al. (2001)",
        "Channelization: which flows share a multicast group",
        "Merging, step by step, the two groups of flows that cost least together (FBM) comes close "
        "to the best assignment, and stays as good as the problem grows.",
        (
            ("adler-fig2", "FBM within 5 % of OCC"),
            ("adler-fig4", "FBM's C/C∞ stays the same"),
            ("adler-fig2", "UBM within 5 % of OCA"),
        ),
        ("adler-fig2",),
        "`plan`, and every algorithm of the paper by name",
    ),
    PaperInBrief(
        "Tock et al. (2005)",
        "Flows, sessions and groups, with two filters",
        "A second level, sessions inside groups, saves a good part of what receivers filter away, "
        "and iterating between the levels finds the best plans.",
        (
            ("tock-fig6", "at equal prices a second level saves"),
            ("tock-fig7", "IT and RRA are the best"),
            ("tock-fig5", "alpha and beta are about equal"),
        ),
        ("tock-fig7", "tock-outliers"),
        "`plan --sessions`, `publish` and `receive`",
    ),
    PaperInBrief(
        "Milo et al. (2007)",
        "Tamara: topics with the same subscribers share a channel",
        "Topics that find each other by surveys, without a coordinator, form clusters that cost "
        "much less than a tree for each topic, at negligible cost of their own.",
        (
            ("milo-table2", "the rarer the events, the more Tamara saves"),
            ("milo-table2", "the messages that Tamara itself needs are negligible"),
            ("milo-fig5", "Tamara+ is below Scribe at all times"),
        ),
        ("milo-fig5", "milo-fig8"),
        "`topics serve`, `topics peer`, `pipeline topics`",
    ),
    PaperInBrief(
        "Banavar et al. (1999)",
        "Link matching: a broker decides only along which links an event goes",
        "Brokers that match just far enough to choose links bear far higher rates than flooding, "
        "with no more work over a few hops than one full match.",
        (
            ("banavar-load", "link matching bears much higher publish rates"),
            ("banavar-steps", "without factoring: at 10,000 subscriptions link matching"),
            ("banavar-steps", "with factoring: at 10,000 subscriptions link matching over up to"),
        ),
        ("banavar-steps",),
        "`match`, `broker serve`",
    ),
    PaperInBrief(
        "Chen et al. (2011)",
        "Selective pruning: covering without congestion when broad subscriptions end",
        "If only brokers near the subscriber drop a broad subscription, its end no longer floods "
        "the network with what it had covered, and publications stay fast.",
        (
            ("chen-fig7", "publications take several orders of magnitude longer"),
            ("chen-fig8", "selective pruning is much better at avoiding long queues"),
            ("chen-fig7", "selective pruning leaves the core brokers with tables about 50 %"),
        ),
        ("chen-fig7",),
        "`broker serve --policy merging`",
    ),
)


def describe_papers(
    claims: Mapping[str, Sequence[Claim]], own: Mapping[str, str], counts: Mapping[str, str]
) -> str:
    """The page, from the claims and our own words of each figure by name, and counts by paper."""
    sections = [
        HEADING,
        "What we found is copied from the [figures' pages](README.md), which have the readings, "
        "the misses and the charts. In italics is what the paper claims, in brackets what came out "
        "here.",
    ]
    for brief in PAPERS:
        found = [
            (figure, claim)
            for figure, begins in brief.found
            for claim in claims.get(figure, ())
            if claim.says.startswith(begins)
        ]
        if not found:
            continue
        sections += [
            f"## {brief.title}",
            f"{brief.paper}. Here: {brief.in_product}.",
            f"- **Claims.** {brief.claims}",
            f"- **We found.** {_tell_outcome(counts[brief.paper], found)}",
        ]
        added = [
            f"{own[figure]} ([{figure}]({figure}.md))" for figure in brief.ours if figure in own
        ]
        if added:
            sections.append(f"- **Ours.** {' '.join(added)}")
    text = "\n\n".join(sections) + "\n"
    for item in ("We found", "Ours"):  # one list
        text = text.replace(f"\n\n- **{item}", f"\n- **{item}")
    return text


def _tell_outcome(count: str, found: Sequence[tuple[str, Claim]]) -> str:
    """One sentence: how many claims hold, and what became of those that are quoted."""
    parts = [count]
    for word, holds in (("among them", True), ("but not", False)):
        quoted = [
            f"*{claim.says}* (here {claim.ours}; [{figure}]({figure}.md))"
            for figure, claim in found
            if claim.holds is holds
        ]
        if quoted:
            parts.append(f"{word} {join_words(quoted)}")
    return f"{', '.join(parts)}."
