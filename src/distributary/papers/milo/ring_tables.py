"""What the page of `milo-overlay` shows of clusters that form in a network of peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distributary.papers.figure import Cell, Claim
from distributary.papers.milo.algorithms import CostChange
from distributary.papers.milo.peers import (
    CHURN,
    CHURN_INTERVALS,
    INTERVAL,
    SURVEY_INTERVALS,
    RingOutcome,
    RingScale,
    Traffic,
)
from distributary.papers.wording import percent, table

__all__ = [
    "RINGS_NOTES",
    "Rings",
    "describe_rings",
    "measure_saving",
    "ring_claims",
    "ring_rows",
    "ring_tables",
]

NEAR = 5.0  # percentage points of OC

Rings = Mapping[str, tuple[RingOutcome, RingOutcome]]  # by model: without clusters, and with them

RINGS_NOTES = (
    "In the network of peers an interval has "
    f"{INTERVAL:.0f} seconds, and channels survey once per {SURVEY_INTERVALS} intervals (a day has "
    "240), so that control messages are many times more frequent than in the paper's runs. They "
    "are counted with all hops; those that look for places in trees are among them, also without "
    "clusters.",
    "The peers' network is the one behind `topics peer`, in virtual time. Its other messages have "
    "no place in the paper's prices: *confirmations* of each hop and each event, *copies* of "
    "channels at two other peers, and *ring*: keep-alives between neighbours, of children in "
    "trees, and of clients, and requests for missed events.",
)


def describe_rings(scale: RingScale) -> str:
    """What was run, in words."""
    users = scale.world.users
    minutes = CHURN_INTERVALS * INTERVAL / 60
    replaced = f"{percent(CHURN, 0)} of the users are replaced in {minutes:.0f} minutes"
    if scale.churn != CHURN_INTERVALS:
        replaced = f"{percent(CHURN, 0)} of the users are replaced"
    return (
        f"Then clusters form by messages: {users} users, who are peers, join {scale.world.topics} "
        "topics in the network of peers, channels survey and merge by themselves, and every "
        f"message is sent. At the end {replaced}, half of whom crash with their channels and "
        "copies. The same users, events and crashes run without clusters. Each reader got all its "
        "events, once and in order: a run in which one had not would have ended with an error. One "
        "seed."
    )


def ring_rows(rings: Rings, users: int) -> Iterator[tuple[Cell, ...]]:
    """The rows of the figure."""
    for model, (plain, shared) in rings.items():
        for way in ("quiet", "churn"):
            before, after = getattr(plain, way), getattr(shared, way)
            change = measure_saving(before, after)
            yield (
                *(model, "Tamara", 0, way, change.maintenance, change.dissemination, change.cost),
                *(_excess(after), _excess(before), "", change.overhead, after.clusters, users),
            )


def measure_saving(plain: Traffic, shared: Traffic) -> CostChange:
    """What the trees carry, against the same time without clusters."""
    return CostChange(
        shared.maintenance / plain.maintenance - 1,
        shared.events / plain.events - 1,
        shared.carried / plain.carried - 1,
        shared.control / plain.carried,
    )


def _excess(traffic: Traffic) -> float:
    return traffic.carried / traffic.priced - 1


def ring_tables(rings: Rings) -> str:
    """Savings, and all messages by what they are for."""
    savings, messages = [], []
    for model, (plain, shared) in rings.items():
        for way, says in (("quiet", ""), ("churn", ", churn")):
            before, after = getattr(plain, way), getattr(shared, way)
            change = measure_saving(before, after)
            parts = (change.maintenance, change.dissemination, change.cost)
            savings.append(
                (
                    f"{model}{says}",
                    f"{after.clusters:.1f}",
                    " / ".join(percent(part, 1, signed=True) for part in parts),
                    percent(after.priced / before.priced - 1, 1, signed=True),
                    percent(_excess(after), 1, signed=True),
                    percent(_excess(before), 1, signed=True),
                    f"{percent(after.helpers, 0)} ({percent(before.helpers, 0)})",
                )
            )
            for name, each in ((f"{model}, Tamara{says}", after), (f"{model}{says}", before)):
                counts = (each.maintenance, each.events, each.control)
                others = (each.answers, each.copies, each.ring)
                messages.append((name, *(f"{count:,.0f}" for count in (*counts, *others))))
    header = (
        *("between peers", "clusters", "MC / DC / OC sent, against no clusters"),
        *("OC by tree prices", "sent, against tree prices", "the same without clusters"),
        "peers in trees that only forward (without clusters)",
    )
    kinds = (
        *("messages between peers per interval", "keep-alives of trees", "events", "control"),
        *("confirmations", "copies", "ring"),
    )
    return "\n\n".join((table(header, savings), table(kinds, messages)))


def ring_claims(rings: Rings) -> Iterator[Claim]:
    """The saving is what the prices say where clusters form by messages, through churn."""
    for model, (plain, shared) in rings.items():
        sent = 100 * measure_saving(plain.churn, shared.churn).cost
        priced = 100 * (shared.churn.priced / plain.churn.priced - 1)
        yield Claim(
            f"{model} events: so do clusters that form by messages between peers, while users "
            "come, leave and crash",
            "section 2",
            f"OC {sent:+.1f} % sent, {priced:+.1f} % by the sizes of trees",
            abs(sent - priced) <= NEAR,
        )
