"""Proposes new clusters from what the channels know, and advises the channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from distributary.machines.actions import Action
from distributary.planning.topics import Planner, Proposal, planned
from distributary.topics import topic_channel, topic_of
from distributary.topics.host import TopicHost
from distributary.topics.messages import Advise, Carried, TopicFlow
from distributary.topics.survey import ChannelSurvey

__all__ = ["Adviser", "propose_clusters"]

_LONGEST_HORIZON = 1e6  # intervals


@dataclass(slots=True)
class Adviser:
    """Plans clusters for a host that runs all channels; the channels decide for themselves."""

    host: TopicHost
    budget: int

    def remind(self, now: float) -> list[Action]:
        """Tell clusters the current rates of their topics and let them reconsider themselves."""
        actions: list[Action] = []
        for name, machine in [*self.host.clusters.items()]:
            for topic, held in [*machine.state.topics.items()]:
                channel = topic_channel(topic)
                known = self.host.topics[channel]
                flow = self.host.flow(channel, now)
                word = Carried(held.told, flow, known.size, known.toll(), ())
                actions += self.host.tell(name, word, now, sender=channel)
            if machine.state.members and machine.state.topics:
                actions += self.host.tell(name, Advise(), now)
        return actions

    def propose(self, found: ChannelSurvey) -> list[tuple[str, Advise]]:
        """Plan from a survey; it reads nothing else, so it may run in another thread."""
        policy = self.host.policy
        planner = Planner(policy.prices, min(policy.horizon, _LONGEST_HORIZON))
        return propose_clusters(found, planner, self.budget, policy.most_topics)

    def give(self, advice: list[tuple[str, Advise]], now: float) -> list[Action]:
        """Send the advice to those of the channels that still exist."""
        actions: list[Action] = []
        for channel, message in advice:
            if self.host.machine(channel) is not None:
                actions += self.host.tell(channel, message, now)
        return actions


def propose_clusters(
    found: ChannelSurvey, planner: Planner, budget: int, most_topics: int
) -> list[tuple[str, Advise]]:
    """Advice by channel: clusters of `most_topics` that move up to `budget` subscriptions."""
    clustering = found.clustering
    proposals = planned(clustering.wants, clustering, found.flows, budget, planner)
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
