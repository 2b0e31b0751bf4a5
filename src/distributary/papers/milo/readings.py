"""How we read what the paper leaves open: notes for the pages of its figures."""

from __future__ import annotations

__all__ = [
    "CLUSTERED",
    "DECISIONS",
    "HELPERS",
    "LINUX_DECISIONS",
    "LINUX_OURS",
    "OURS_NOTE",
    "SHIFTED",
    "TABLES",
    "TIMES",
]

CLUSTERED = (
    "Clustered interests: ten natural clusters of twelve topics; each user is at home in two of "
    "them, wants each topic there with probability 0.9 and the others so that 26.7 topics are "
    "wanted on average (the paper says about 25). Frequencies are uniform inside the classes of "
    "Table 1 with exact shares; its first row, printed 0.6-0.6, is read as 0.4-0.6."
)
SHIFTED = (
    "The shift replaces all interests: the same kind of clusters over other topics. The start is "
    "the ten natural clusters, each user on those that pay for it."
)
DECISIONS = (
    "A channel surveys about once a day, at least ten times a run, 384 subscribers with the "
    "correction for small channels, and contacts the one channel with most common subscribers. Two "
    "topics merge as single topics do in section 3.2: all their subscribers move. A cluster's "
    "survey also reconsiders its topics and the cluster itself, where the paper removes topics "
    "after unsubscriptions only: without that, stale clusters pile up. phi is 0.99."
)
TABLES = (
    "K-means clusters topics by their users, k as many as natural clusters, the best of three "
    "starts by distance; users join where they want more than half of the topics. The paper's "
    "percentages come from small rounded numbers: compare to a few points. *Near* means within "
    "5 points of OC."
)
OURS_NOTE = (
    "Our policy: members tell their clusters of every change, which then know exact counts and "
    "survey nobody; users join and leave where it saves them something; eight times a run, the "
    "last time a sixteenth before its end, new clusters are proposed from all interests. All "
    "invitations go out together: a user changes over to the cheapest cover of its interests by "
    "old and new clusters, and a cluster comes about if those who come save more than it costs. A "
    "change must save more in a day than its messages. It was tuned on seeds from 100 on."
)
HELPERS = (
    "Helper peers: the paper counts a channel's subscribers. Scribe's trees also run over peers "
    "that only pass things on, relatively more the smaller a tree is. The last table prices "
    "clusters by the sizes of trees measured on a settled Pastry ring with a peer for every user: "
    "first those that were made by the paper's prices, where whoever has many small clusters, as "
    "our policy does where events are not rare, loses most by it; then those that Tamara and our "
    "policy make if they decide by the sizes of trees. Compare our last number with the better of "
    "Tamara's two: where events are not rare, Tamara does worse by knowing: it ends with a few "
    "large clusters. Where events are rare, both end with about one cluster of all topics."
)
TIMES = (
    "Each user makes all its requests within a fifth of the run. Tamara+ is OC plus every message "
    "of surveys, merges, moves and subscriptions, as our channel machines would send them, "
    "spread over the time since the point before."
)
LINUX_DECISIONS = (
    "A channel surveys every 240 intervals, at least ten times in the year, and clusters do not "
    "reconsider their topics then, as in the paper: it removes topics after unsubscriptions only, "
    "and nobody unsubscribes here. (In the other figures a survey reconsiders them. Here hardly "
    "anybody wants most packages, so a sample often meets nobody who wants one; the cluster gives "
    "it up, a survey of the package's own channel brings it back, and every time all members are "
    "told.) Tamara+ is OC plus every message of surveys, merges, moves and subscriptions, as our "
    "channel machines would send them. phi is 0.99."
)
LINUX_OURS = (
    "Our policy: as in the other figures of this paper; new clusters are proposed eight times in "
    "the year, and a change must save more in 240 intervals than its messages."
)
