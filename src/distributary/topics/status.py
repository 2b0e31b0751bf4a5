"""The status of a channel service: its channels, what clusters save, and what they cost."""

from __future__ import annotations

from typing import Any

import msgspec

from distributary.cost.topics import clustering_cost
from distributary.topics.host import TopicHost
from distributary.topics.messages import OVERHEAD_KINDS
from distributary.topics.survey import survey

__all__ = ["ClusterStatus", "TopicStatus", "status_of"]

_MOST_NAMED = 50  # clusters, and topics of a cluster, that are listed by name


class ClusterStatus(msgspec.Struct, frozen=True):
    """One cluster; `needed` is the number of subscriptions its members would have without it."""

    name: str
    topics: list[str]
    n_topics: int
    members: int
    flow: float
    needed: int


class TopicStatus(msgspec.Struct, frozen=True):
    """A whole service; costs are in messages per maintenance interval, as estimated by channels."""

    uptime: float
    topics: int
    subscribers: int
    subscriptions: int  # of clients to channels
    wanted: int  # subscriptions without clusters
    clusters: list[ClusterStatus]
    n_clusters: int
    cost: float  # OC
    unclustered: float  # OC without clusters
    accepted: int  # events
    repeated: int
    overhead: int  # messages that a broker without clusters would not send
    overhead_kinds: dict[str, int]
    repairs: int
    found_dead: int
    refused: int
    received: int
    sent: int
    unsent: int
    dropped: int
    batches: int
    searches: int  # for better clusters, under our policy
    search_seconds: float  # of processor time that the last one took

    @property
    def saving(self) -> float:
        """The share of OC that clusters save."""
        return 1.0 - self.cost / self.unclustered if self.unclustered else 0.0

    def encode(self) -> bytes:
        """Encode the status for the network."""
        return msgspec.msgpack.encode(self)

    def document(self) -> dict[str, Any]:
        """The status as plain values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return {**found, "saving": self.saving}


def status_of(host: TopicHost, now: float, **traffic: Any) -> TopicStatus:
    """The status of a host's channels, with the counts of the connection's traffic."""
    found = survey([host], now)
    cost = clustering_cost(found.clustering, found.flows, host.policy.prices)
    clusters = sorted(
        (
            ClusterStatus(
                name=name,
                topics=sorted(machine.state.topics)[:_MOST_NAMED],
                n_topics=len(machine.state.topics),
                members=machine.size,
                flow=machine.measure().flow,
                needed=sum(len(held.views.needs) for held in machine.state.members.values()),
            )
            for name, machine in host.clusters.items()
            if not machine.finished
        ),
        key=lambda one: (-one.members, one.name),
    )
    said = {kind: n for kind, n in sorted(host.message_counts.items()) if kind in OVERHEAD_KINDS}
    members = [set(machine.state.members) for machine in host.topics.values()]
    members += [set(machine.state.members) for machine in host.clusters.values()]
    return TopicStatus(
        topics=len(host.topics),
        subscribers=len(set().union(*members)),
        subscriptions=sum(map(len, members)),
        wanted=int(found.clustering.wants.sum()),
        clusters=clusters[:_MOST_NAMED],
        n_clusters=len(clusters),
        cost=cost.cost,
        unclustered=cost.unclustered,
        accepted=host.counts.accepted,
        repeated=host.counts.repeated,
        overhead=sum(said.values()),
        overhead_kinds=said,
        repairs=host.message_counts["Repair"],
        found_dead=host.counts.found_dead,
        refused=host.counts.refused,
        **traffic,
    )
