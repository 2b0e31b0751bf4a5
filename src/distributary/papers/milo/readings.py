"""How we read what the paper leaves open: notes for the pages of its figures."""

from __future__ import annotations

__all__ = [
    "CLUSTERED",
    "DECISIONS",
    "HELPERS",
    "LINUX_DECISIONS",
    "LINUX_OURS",
    "MESSAGES",
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
    "correction for small channels, and contacts the channel with the most common subscribers, or"
    " else the cluster with the most common topics by the lists of section 3.2. Two topics merge "
    "as single topics do in that section: all their subscribers move. A cluster that takes up a "
    "topic after a survey weighs that against adding it as in section 3.1, where only the common "
    "subscribers leave the topic's channel. A cluster's survey also reconsiders its topics and "
    "the cluster itself, whereas section 3.1 removes topics only after unsubscriptions. phi is "
    "0.99."
)
MESSAGES = (
    "Section 3.1 names two more triggers, falling frequencies and falling numbers of subscribers:"
    " a cluster that does not take up a topic computes from the formula at which size and "
    "frequency it would, and surveys again once it gets there. (Frequencies are constant here, so"
    " only sizes fall.) A change is told to those who may have something to do: subscribers of "
    "the topic's own channel, or the members if they are fewer, when a cluster takes a topic up; "
    "all members when it gives one up, because it knows only a sample of who needs it. Whoever "
    "looks for a topic asks its clusters what else they carry. The paper does not list these "
    "messages."
)
TABLES = (
    "K-means clusters topics by their users; k is the number of natural clusters. Users join a "
    "cluster if they want more than half of its topics. The paper ran it once and names no "
    "restarts, and single runs differ widely; so its printed OC holds if it lies among the middle "
    "90 % of single starts, and Tamara is compared with their median. The best of three starts by "
    "distance stands beside. The paper's percentages come from small rounded numbers, so they are "
    "accurate to a few points; for the other algorithms, OC holds if the mean is within 5 points."
)
OURS_NOTE = (
    "Our policy: members report every change to their clusters, which therefore know exact "
    "counts, need no surveys and tell only those concerned; users join and leave clusters if that"
    " saves something; eight times per run, the last time a sixteenth before its end, new "
    "clusters are proposed from all interests. All invitations are sent together: each user moves"
    " to the cheapest cover of its interests by old and new clusters, and a cluster is formed if "
    "its members save more than it costs. A change must save more in a day than its messages "
    "cost. The policy was tuned on seeds from 100 on."
)
HELPERS = (
    "Helper peers: the paper counts a channel's subscribers. Scribe's trees also include peers "
    "that only forward messages, relatively more in smaller trees. The last table prices clusters"
    " by the sizes of trees measured on a converged Pastry ring with a peer for every user. First"
    " come the clusters that were formed at the paper's prices; policies with many small clusters"
    " lose most there, as ours does if events are not rare. Then come the clusters that Tamara "
    "and our policy form if they decide by the sizes of trees. In a growing system whose events "
    "are not rare, Tamara does worse if it decides by the sizes of trees, since it ends with a "
    "few large clusters, so compare ours with the better of Tamara's two numbers. If events are "
    "rare, both end with about one cluster of all topics."
)
TIMES = (
    "Each user makes all its requests within a fifth of the run. Tamara+ is OC plus every "
    "message of surveys, merges, moves and subscriptions, as our channels would send them, "
    "spread over the time since the previous point."
)
LINUX_DECISIONS = (
    "A channel surveys every 240 intervals, at least ten times in the year, and clusters do not "
    "reconsider their topics then, as in the paper: it removes topics after unsubscriptions only,"
    " and nobody unsubscribes here. (In the other figures a survey reconsiders them. Here hardly "
    "anybody wants most packages, so a sample often meets nobody who wants one; the cluster gives"
    " it up, and a survey of the package's own channel brings it back.) Tamara+ is OC plus every "
    "message of surveys, merges, moves and subscriptions. The paper does not say who hears of a "
    "change: here, subscribers of the package's own channel, or the members if they are fewer; "
    "the column beside has every member of the cluster and every channel of its packages hear of "
    "it and confirm. phi is 0.99."
)
LINUX_OURS = (
    "Our policy: as in the other figures of this paper; new clusters are proposed eight times in "
    "the year, and a change must save more in 240 intervals than its messages."
)
