"""Proposals of new clusters for a running service, and who is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from distributary.planning.topics import Planner, Proposal, planned
from distributary.topics import topic_channel, topic_of
from distributary.topics.host import TopicHost
from distributary.topics.messages import Advise, Carried, TopicFlow
from distributary.topics.survey import Survey

__all__ = ["Adviser"]

_LONGEST_HORIZON = 1e6  # intervals


@dataclass(slots=True)
class Adviser:
    """Plans with all that the channels know; the channels decide for themselves."""

    host: TopicHost
    budget: int

    def remind(self, now: float) -> None:
        """Let clusters reconsider: their topics may have become busy, or quiet."""
        for name, machine in [*self.host.clusters.items()]:
            for topic, held in [*machine.state.topics.items()]:
                channel = topic_channel(topic)
                known = self.host.topics[channel]
                flow = self.host.flow(channel, now)
                word = Carried(held.told, flow, known.size, known.toll(), ())
                self.host.tell(name, word, now, sender=channel)
            if machine.state.members and machine.state.topics:
                self.host.tell(name, Advise(), now)

    def propose(self, found: Survey) -> list[tuple[str, Advise]]:
        """Whom to tell what. It reads the copy alone, so it may run beside the service."""
        policy = self.host.policy
        planner = Planner(policy.prices, min(policy.horizon, _LONGEST_HORIZON))
        clustering = found.clustering
        proposals = planned(clustering.wants, clustering, found.flows, self.budget, planner)
        most = policy.most_topics
        return [_word(found, part) for each in proposals for part in _split(each, most)]

    def give(self, advice: list[tuple[str, Advise]], now: float) -> None:
        """Tell the channels, if they are still there."""
        for channel, message in advice:
            if self.host.machine(channel) is not None:
                self.host.tell(channel, message, now)


def _word(found: Survey, proposal: Proposal) -> tuple[str, Advise]:
    """The topic with most subscribers of its own founds the cluster, for those invited."""
    size = found.clustering.topic_size
    leader = max(proposal.topics, key=lambda topic: int(size[topic]))
    topics = tuple(
        TopicFlow(topic_of(found.topics[at]), float(found.flows[at])) for at in proposal.topics
    )
    invited = tuple(found.subscribers[at] for at in proposal.invited)
    return found.topics[leader], Advise(topics=topics, invited=invited)


def _split(proposal: Proposal, most: int) -> Iterator[Proposal]:
    """The same in clusters of so many topics at most."""
    parts = ceil(len(proposal.topics) / most)
    for at in range(parts):
        topics = proposal.topics[at::parts]
        if len(topics) > 1 or parts == 1:
            yield replace(proposal, topics=topics)
