"""How the paper is read where its text leaves something open.

Each reading was chosen by what the text says, before any figure was run with it. `CHOSEN` lists
them with their sentences; `OTHERS` are the other ones that the text allows, each a change of one
parameter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from distributary.content import COVERING_POLICIES, Pruning
from distributary.papers.chen.pricing import SECONDS_PER_BOX, SECONDS_PER_MESSAGE
from distributary.workloads.workflows import Clusters, WorkflowsParams

__all__ = [
    "CHEAPER_BOX",
    "CHOSEN",
    "CLUSTERED",
    "HISTORY",
    "LAST_64",
    "TO_WARM_UP",
    "Reading",
]

# Sections IV-A and V-B: publications are remembered by time and never by number. The time is said
# to be configurable; an hour is the product's.
HISTORY = Pruning(window=1 << 20, expires=3_600.0)
LAST_64 = replace(COVERING_POLICIES["pruning"].prunes or HISTORY, window=64, expires=inf)
# Section V-E: brokers adjacent in a tree.
CLUSTERED = WorkflowsParams(clusters=Clusters.INNER)
# The price of a box that was chosen before the text's rate was: 4 to 5 messages a second.
CHEAPER_BOX = 1.2e-5
# Section V-F: "after a few movements"; here four of each of the four monitors.
TO_WARM_UP = 16


@dataclass(frozen=True, slots=True)
class Reading:
    """A question that the paper leaves open, our answer, and what in the text speaks for it."""

    question: str
    answer: str
    because: str


CHOSEN = (
    Reading(
        "what counts as a false positive",
        "every publication that a broker sends to another although no client behind that one "
        "wants it when it arrives; dead ends alone, which match nothing at the next broker, are "
        "shown beside it",
        'section V-A: those "unnecessarily forwarded towards uninterested subscribers"',
    ),
    Reading(
        "how much of a root its children cover",
        "no part of a root is left out on purpose: children lie anywhere in it (`held` 1.0)",
        "section I: a general subscription aggregates the interests of those that it covers; the "
        "covering degree of section V-A is their number alone",
    ),
    Reading(
        "how fast brokers work",
        f"{1e3 * SECONDS_PER_MESSAGE:g} ms a message and {1e6 * SECONDS_PER_BOX:g} µs a box",
        "section V-B: 3.3 publications and subscriptions a second during congestion",
    ),
    Reading(
        "what a broker remembers",
        "every publication of the last hour, however many",
        'section IV-A: entries expire "after a configurable time"',
    ),
    Reading(
        "which brokers form a cluster",
        "an inner broker with its edge brokers, two or three in all",
        "section V-E: a cluster is 2 to 4 adjacent brokers; in a tree, edge brokers are adjacent "
        "to their inner broker only",
    ),
    Reading(
        "how messages with several subscriptions count",
        "a pack counts as one message; statements are shown beside it",
        "section V-B: packing combines the messages of one operation",
    ),
    Reading(
        "which tables Fig. 12 shows, and when",
        "entries that came from other brokers, once the monitors have moved 16 times; all entries "
        "from the start are shown beside them",
        "section V-A: a table's size reflects the subscriptions sent among brokers; section V-F: "
        "monitors are everywhere after a few movements",
    ),
)
