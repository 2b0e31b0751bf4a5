"""Proposes new clusters from what the channels know, and advises the channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from distributary.machines.actions import Action, Message
from distributary.planning.topics import Planner, Proposal, plan_proposals
from distributary.topics import topic_channel, topic_of
from distributary.topics.cluster import ClusterChannel
from distributary.topics.codec import SERVICE
from distributary.topics.host import TopicHost
from distributary.topics.messages import Advise, Carried, TopicFlow
from distributary.topics.survey import ChannelSurvey

__all__ = ["Adviser", "propose_clusters"]

_LONGEST_HORIZON = 1e6  # intervals

HostInput = Callable[[float], list[Action]]


@dataclass(slots=True)
class Adviser:
    """Plans clusters for a host that runs all channels; the channels decide for themselves.

    What it has for the host to do comes as many small inputs: with thousands of topics, one input
    for all would keep the host from its clients for seconds.
    """

    host: TopicHost
    budget: int

    def reminders(self) -> list[HostInput]:
        """Tell each cluster the rates of its topics and let it reconsider itself, one at a time."""
        return [partial(self._remind, name) for name in self.host.clusters]

    def _remind(self, name: str, now: float) -> list[Action]:
        machine = self.host.clusters.get(name)
        return self.host.tell_all(self._rates(name, machine, now), now) if machine else []

    def _rates(
        self, name: str, machine: ClusterChannel, now: float
    ) -> Iterator[tuple[str, str, Message]]:
        for topic, held in machine.state.topics.items():
            channel = topic_channel(topic)
            known = self.host.topics[channel]
            flow = self.host.flow(channel, now)
            yield channel, name, Carried(held.told, flow, known.size, known.toll(), held.others)
        if machine.state.members and machine.state.topics:
            yield SERVICE, name, Advise()

    def propose(self, found: ChannelSurvey) -> list[tuple[str, Advise]]:
        """Plan from a survey; it reads nothing else, so it may run in another thread."""
        policy = self.host.policy
        planner = Planner(policy.prices, min(policy.horizon, _LONGEST_HORIZON))
        return propose_clusters(found, planner, self.budget, policy.most_topics)

    def hand_out(self, advice: list[tuple[str, Advise]]) -> list[HostInput]:
        """Send each advice to its channel, if that still exists then, one at a time."""
        return [partial(self._advise, *each) for each in advice]

    def _advise(self, channel: str, message: Advise, now: float) -> list[Action]:
        known = self.host.machine(channel) is not None
        return self.host.tell(channel, message, now) if known else []


def propose_clusters(
    found: ChannelSurvey, planner: Planner, budget: int, most_topics: int
) -> list[tuple[str, Advise]]:
    """Advice by channel: clusters of `most_topics` that move up to `budget` subscriptions."""
    clustering = found.clustering
    proposals = plan_proposals(clustering.wants, clustering, found.flows, budget, planner)
    return [_advise(found, part) for each in proposals for part in _split(each, most_topics)]


def _advise(found: ChannelSurvey, proposal: Proposal) -> tuple[str, Advise]:
    """Advise the topic with most direct subscribers to found the cluster."""
    size = found.clustering.topic_size
    leader = max(proposal.topics, key=lambda topic: int(size[topic]))
    topics = tuple(
        TopicFlow(topic_of(found.topics[at]), float(found.flows[at])) for at in proposal.topics
    )
    invited = tuple(found.subscribers[at] for at in proposal.invited)
    return found.topics[leader], Advise(topics=topics, invited=invited)


def _split(proposal: Proposal, most: int) -> Iterator[Proposal]:
    """Split a proposal into clusters of at most `most` topics."""
    parts = ceil(len(proposal.topics) / most)
    for at in range(parts):
        topics = proposal.topics[at::parts]
        if len(topics) > 1 or parts == 1:
            yield replace(proposal, topics=topics)
