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
    "Clustered interests: ten natural clusters of twelve topics; each user has two home clusters "
    "and wants each of their topics with probability 0.9, and other topics with the probability "
    "that makes 26.7 wanted topics on average (the paper says about 25). Frequencies are uniform "
    "inside the classes of Table 1 with exact shares; its first row, printed 0.6-0.6, is read as "
    "0.4-0.6."
)
SHIFTED = (
    "The shift replaces all interests: the same kind of clusters over other topics. Initially "
    "there are the ten natural clusters, and each user is in those that save it something."
)
DECISIONS = (
    "A channel surveys about once a day, at least ten times a run, 384 subscribers, with the "
    "correction for small channels, and contacts the channel with the most common subscribers. "
    "Two topics merge as single topics do in section 3.2: all their subscribers move. A "
    "cluster's survey also reconsiders its topics and the cluster itself, whereas the paper "
    "removes topics only after unsubscriptions; otherwise stale clusters accumulate. phi is "
    "0.99."
)
TABLES = (
    "K-means clusters topics by their users; k is the number of natural clusters, and the best "
    "of three starts by distance is kept. Users join a cluster if they want more than half of "
    "its topics. The paper's percentages come from small rounded numbers, so they are accurate "
    "to a few points. *Near* means within 5 points of OC."
)
OURS_NOTE = (
    "Our policy: members report every change to their clusters, which therefore know exact "
    "counts and need no surveys; users join and leave clusters if that saves something; eight "
    "times per run, the last time a sixteenth before its end, new clusters are proposed from all "
    "interests. All invitations are sent together: each user moves to the cheapest cover of its "
    "interests by old and new clusters, and a cluster is formed if its members save more than it "
    "costs. A change must save more in a day than its messages cost. The policy was tuned on "
    "seeds from 100 on."
)
HELPERS = (
    "Helper peers: the paper counts a channel's subscribers. Scribe's trees also include peers "
    "that only forward messages, relatively more in smaller trees. The last table prices "
    "clusters by the sizes of trees measured on a converged Pastry ring with a peer for every "
    "user. First come the clusters that were formed at the paper's prices; policies with many "
    "small clusters lose most there, as ours does if events are not rare. Then come the clusters "
    "that Tamara and our policy form if they decide by the sizes of trees. Compare our last "
    "number with the better of Tamara's two: if events are not rare, Tamara does worse with the "
    "sizes of trees, since it ends with a few large clusters. If events are rare, both end with "
    "about one cluster of all topics."
)
TIMES = (
    "Each user makes all its requests within a fifth of the run. Tamara+ is OC plus every "
    "message of surveys, merges, moves and subscriptions, as our channels would send them, "
    "spread over the time since the previous point."
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
