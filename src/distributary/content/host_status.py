"""Takes the statistics of a broker process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distributary.content.host_statistics import (
    ClientStatistics,
    HostStatistics,
    LinkStatistics,
)
from distributary.content.sessions import Session, hop_of

if TYPE_CHECKING:
    from distributary.content.host import BrokerHost

__all__ = ["describe_host"]


def describe_host(host: BrokerHost) -> HostStatistics:
    """The statistics of a broker at this moment."""
    counts, core, broker = host.counts, host.broker.core, host.broker
    links = tuple(_describe_link(host, each) for each in sorted(broker.connections))
    sessions = sorted(host.sessions.all(), key=lambda each: each.client)
    return HostStatistics(
        name=host.name,
        incarnation=broker.incarnation,
        policy=core.policy.name,
        network=tuple(host.spanning.links),
        accepted=counts["accepted"],
        refused=counts["refused"],
        routed=counts["publication"],
        matched=host.sessions.matched,
        forwarded=sum(each.forwarded for each in links),
        unneeded=counts["unwanted"],
        acknowledged=counts["acknowledged"],
        dropped=host.sessions.dropped + sum(each.outbox.dropped for each in sessions),
        violations=counts["violations"],
        sessions_ended=counts["sessions_ended"],
        kept_dropped=counts["kept_dropped"],
        subscriptions=len(core.subscriptions),
        boxes=core.subscriptions.boxes,
        advertisements=len(core.advertisements.hops),
        kept_events=broker.unfinished.own,
        kept_bytes=broker.unfinished.own_bytes,
        sizes=broker.sizes | {"sessions": len(host.sessions), "links known": len(host.spanning)},
        links=links,
        clients=tuple(_describe_client(host, each) for each in sessions),
        reasons=dict(host.reasons),
    )


def _describe_link(host: BrokerHost, neighbour: str) -> LinkStatistics:
    broker, counts = host.broker, host.counts
    queue, connection = broker.queues[neighbour], broker.connections[neighbour]
    known = {name for ends in host.spanning.links for name in ends}
    return LinkStatistics(
        neighbour=neighbour,
        connected=neighbour in host.connected,
        complete=neighbour not in broker.incomplete,
        brokers=tuple(sorted(n for n in known if host.spanning.direction_of(n) == neighbour)),
        forwarded=counts[f"forwarded {neighbour}"],
        received=counts[f"received {neighbour}"],
        unneeded=counts[f"unneeded {neighbour}"],
        waiting=len(queue),
        waiting_bytes=queue.waiting_bytes,
        unfinished=queue.unfinished,
        unfinished_bytes=queue.unfinished_bytes,
        subscriptions_sent=len(broker.core.links[neighbour].sent),
        subscriptions_received=len(broker.core.subscriptions.of(neighbour)),
        retransmitted=connection.resent,
    )


def _describe_client(host: BrokerHost, session: Session) -> ClientStatistics:
    return ClientStatistics(
        client=session.client,
        connected=session.connection is not None,
        ephemeral=session.ephemeral,
        subscriptions=len(session.subscriptions),
        advertisements=len(session.advertisements),
        published=session.published,
        delivered=session.delivered,
        outbox=len(session.outbox),
        outbox_bytes=session.outbox.bytes,
        dropped=session.outbox.dropped,
        waiting=host.broker.laggards.count(hop_of(session.client)),
        window=session.window,
    )
