"""How the paper is read where its text leaves something open.

Each reading was chosen by what the text says, before any figure was run with it. Only the price of
a box was set again after that, as its row says.
"""

from __future__ import annotations

from dataclasses import dataclass

from distributary.content import Pruning
from distributary.papers.chen.pricing import (
    FIRST_RATE,
    FIRST_SECONDS_PER_BOX,
    SECONDS_PER_BOX,
    SECONDS_PER_MESSAGE,
)
from distributary.workloads.workflows import Clusters, WorkflowsParams

__all__ = ["CHOSEN", "CLUSTERED", "HISTORY", "TO_WARM_UP", "Choice"]

# Sections IV-A and V-B: publications are remembered by time and never by number. The time is said
# to be configurable; an hour is the product's.
HISTORY = Pruning(window=1 << 20, expires=3_600.0)
# Section V-E: brokers adjacent in a tree.
CLUSTERED = WorkflowsParams(clusters=Clusters.INNER)
# Section V-F: "after a few movements"; here four of each of the four monitors.
TO_WARM_UP = 16


@dataclass(frozen=True, slots=True)
class Choice:
    """A question that the paper leaves open, our answer, and what in the text speaks for it."""

    question: str
    answer: str
    because: str


CHOSEN = (
    Choice(
        "what counts as a false positive",
        "every publication that a broker sends to another although no client behind that one "
        "wants it when it arrives; dead ends alone, which match nothing at the next broker, are "
        "shown beside it",
        'section V-A: those "unnecessarily forwarded towards uninterested subscribers"',
    ),
    Choice(
        "how much of a root its children cover",
        "no part of a root is left out on purpose: children lie anywhere in it (`held` 1.0)",
        "section I: a general subscription aggregates the interests of those that it covers; the "
        "covering degree of section V-A is their number alone",
    ),
    Choice(
        "how many roots want an event",
        "about two (`overlap` 2.0)",
        "section III-C reckons with others that overlap a subscription and do not cover it, its "
        "INC set; how many there are is said nowhere",
    ),
    Choice(
        "how fast brokers work",
        f"{1e3 * SECONDS_PER_MESSAGE:g} ms a message and {1e6 * SECONDS_PER_BOX:g} µs a box",
        "section V-B: 3.3 publications and subscriptions a second during congestion. The price of "
        f"a box was set twice: with {1e6 * FIRST_SECONDS_PER_BOX:g} µs, the first one, the figures "
        f"came to {FIRST_RATE:g} a second, so it was raised, and all of them were run again",
    ),
    Choice(
        "what a broker remembers",
        "every publication of the last hour, however many",
        'section IV-A: entries expire "after a configurable time"',
    ),
    Choice(
        "which publications are counted together",
        "those that came over the same link",
        "section IV-B counts them for each advertiser; subscriptions here intersect one "
        "advertisement, so that is the same, but for the monitors of Fig. 12: they get about six "
        "events of each publisher between two moves, of which 90 % would be all. Counting by "
        "advertiser was not run",
    ),
    Choice(
        "how far an unsubscription goes",
        "to brokers no farther away than 90 % of the publications were wanted by others",
        "section IV-B: the critical broker, where enough of them are, preserves the subscription; "
        '"less than" there and "> 0" in Algorithm 1, both to the letter, would remove it there as '
        "well. That was not run",
    ),
    Choice(
        "when an unsubscription goes all the way",
        f"if no publication was wanted by more than {HISTORY.few} others",
        'section IV-B: "a small value" of the count suggests that there will be no congestion',
    ),
    Choice(
        "which brokers form a cluster",
        "an inner broker with its edge brokers, two or three in all",
        "section V-E: a cluster is 2 to 4 adjacent brokers; in a tree, edge brokers are adjacent "
        "to their inner broker only",
    ),
    Choice(
        "how messages with several subscriptions count",
        "a pack counts as one message; statements are shown beside it",
        "section V-B: packing combines the messages of one operation",
    ),
    Choice(
        "which tables Fig. 12 shows, and when",
        "entries that came from other brokers, once the monitors have moved 16 times; all entries "
        "from the start are shown beside them",
        "section V-A: a table's size reflects the subscriptions sent among brokers; section V-F: "
        "monitors are everywhere after a few movements",
    ),
)
