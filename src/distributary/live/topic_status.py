"""How a channel service is: its channels, what clusters save, and what they cost in messages."""

from __future__ import annotations

import asyncio
import json
import time
from http.client import HTTPException
from typing import Any
from urllib.request import urlopen

import msgspec
import nats.errors
from nats.aio.client import Client

from distributary.cost.topics import clustering_cost
from distributary.live.errors import LiveError, ServiceAwayError, hide_secrets
from distributary.live.subjects import Subjects
from distributary.live.topic_host import TopicHost
from distributary.live.topic_survey import survey
from distributary.protocol.topics.messages import OVERHEAD

__all__ = ["ClusterStatus", "ServerStatus", "TopicStatus", "fetch_status", "server_status"]

_OVERHEAD = {kind.__name__ for kind in OVERHEAD}
_MOST_NAMED = 50  # topics of a cluster, and clusters: the rest is counted


class ClusterStatus(msgspec.Struct, frozen=True):
    """One cluster; `needed` is how many subscriptions its members would have without it."""

    name: str
    topics: list[str]
    n_topics: int
    members: int
    flow: float
    needed: int


class TopicStatus(msgspec.Struct, frozen=True):
    """A whole service. Costs are messages per maintenance interval, as channels know things."""

    uptime: float
    topics: int
    subscribers: int
    subscriptions: int  # there are, of clients to channels
    wanted: int  # there would be without clusters
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

    @property
    def saving(self) -> float:
        """The share of OC that clusters save."""
        return 1.0 - self.cost / self.unclustered if self.unclustered else 0.0

    def encoded(self) -> bytes:
        """As it goes over the network."""
        return msgspec.msgpack.encode(self)

    def document(self) -> dict[str, Any]:
        """As plain values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return {**found, "saving": self.saving}


def status_of(host: TopicHost, **traffic: Any) -> TopicStatus:
    """Look at the channels of a service."""
    found = survey(host, time.time())
    cost = clustering_cost(found.clustering, found.flows, host.policy.prices)
    clusters = sorted(
        (
            ClusterStatus(
                name=name,
                topics=sorted(machine.state.topics)[:_MOST_NAMED],
                n_topics=len(machine.state.topics),
                members=machine.size,
                flow=machine.known().flow,
                needed=sum(len(held.views.needs) for held in machine.state.members.values()),
            )
            for name, machine in host.clusters.items()
            if not machine.finished
        ),
        key=lambda one: (-one.members, one.name),
    )
    said = {kind: n for kind, n in sorted(host.said.items()) if kind in _OVERHEAD}
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
        repairs=host.said["Repair"],
        found_dead=host.counts.found_dead,
        refused=host.counts.refused,
        **traffic,
    )


async def fetch_status(nc: Client, subjects: Subjects, within: float = 5.0) -> TopicStatus:
    """Ask a running service; a `ServiceAwayError` if there is none."""
    deadline = asyncio.get_running_loop().time() + within
    while True:
        left = deadline - asyncio.get_running_loop().time()
        try:
            answer = await nc.request(subjects.status, b"", timeout=max(left, 0.01))
            return msgspec.msgpack.decode(answer.data, type=TopicStatus)
        except nats.errors.NoRespondersError:
            if left < 0.2:
                raise ServiceAwayError(subjects.prefix, within) from None
            await asyncio.sleep(0.1)
        except TimeoutError:
            raise ServiceAwayError(subjects.prefix, within) from None
        except (ValueError, RecursionError):
            raise LiveError(
                f"what answers under {subjects.prefix!r} is no channel service of this version; "
                "see who else uses the prefix, or use the version that is running there"
            ) from None


# --- the server's own word -----------------------------------------------------------------------


class ServerStatus(msgspec.Struct, frozen=True):
    """What a NATS server says of itself on its monitoring pages."""

    version: str
    connections: int
    subscriptions: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    mem: int

    def document(self) -> dict[str, Any]:
        """As plain values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


async def server_status(monitor: str, within: float = 5.0) -> ServerStatus:
    """Read a server's monitoring page; a `LiveError` if there is none."""

    def read() -> Any:
        with urlopen(f"{monitor}/varz", timeout=within) as page:
            return json.load(page)

    try:
        return msgspec.convert(await asyncio.to_thread(read), ServerStatus)
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise LiveError(
            f"{hide_secrets(monitor)}: no monitoring page of a NATS server answers ({said}); check "
            "the address, or leave it away"
        ) from error
