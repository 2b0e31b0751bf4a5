"""Proposals of new clusters for a running service, and who is told of them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from distributary.cost import OperatingPrices
from distributary.live.topic_host import TopicHost
from distributary.live.topic_survey import Survey, survey
from distributary.planning.topics import Planner, Proposal, planned
from distributary.protocol.topics import Policy, topic_channel
from distributary.protocol.topics.messages import Advise, Carried, Tell, TopicFlow

__all__ = ["Adviser"]

_LONGEST_HORIZON = 1e6  # intervals
_HEAVY = 1e6


def _planner(policy: Policy) -> Planner:
    """A planner with the policy's prices.

    Planners take it that to tell a cluster of an event costs a message, as on an overlay. Where it
    costs none, everything else is made to weigh so much more.
    """
    prices, horizon = policy.prices, min(policy.horizon, _LONGEST_HORIZON)
    if prices.notify:
        return Planner(prices, horizon)
    heavy = OperatingPrices(
        maintain=lambda n: _HEAVY * prices.maintain(n),
        associate=prices.associate,
        notify=0.0,
        disseminate=lambda n: _HEAVY * prices.disseminate(n),
    )
    return Planner(heavy, horizon, per_move=_HEAVY * Planner().per_move)


@dataclass(slots=True)
class Adviser:
    """Plans with all that the channels know; the channels decide for themselves."""

    host: TopicHost
    budget: int

    def remind(self, now: float) -> None:
        """Let clusters reconsider: their topics may have become busy, or quiet.

        A cluster looks at what it carries when a member tells it something; here one says again
        what it said last. Under policies where members do not tell, clusters ask them by
        themselves.
        """
        for name, machine in [*self.host.clusters.items()]:
            for topic, held in [*machine.state.topics.items()]:
                channel = topic_channel(topic)
                known = self.host.topics[channel]
                flow = self.host.flow(channel, now)
                word = Carried(held.told, flow, known.size, known.toll(), ())
                self.host.tell(name, word, now, sender=channel)
            if self.host.policy.tells and machine.state.members and machine.state.topics:
                member, attendance = next(iter(machine.state.members.items()))
                topic, held = next(iter(machine.state.topics.items()))
                views = attendance.views
                again = Tell(TopicFlow(topic, held.flow), True, views.needs, views.channels)
                self.host.tell(name, again, now, sender=member)

    async def advice(self) -> list[tuple[str, Advise]]:
        """To whom to say what; the planning goes on beside the service, on a copy."""
        found = survey(self.host, time.time())
        planner = _planner(self.host.policy)
        clustering = found.clustering
        proposals = await asyncio.to_thread(
            planned, clustering.wants, clustering, found.flows, self.budget, planner
        )
        return [self._worded(found, proposal) for proposal in proposals]

    def give(self, advice: list[tuple[str, Advise]], now: float) -> None:
        """Tell the channels, if they are still there."""
        for channel, message in advice:
            if self.host.machine(channel) is not None:
                self.host.tell(channel, message, now)

    def _worded(self, found: Survey, proposal: Proposal) -> tuple[str, Advise]:
        """The topic with most subscribers of its own asks them, and founds the cluster."""
        size = found.clustering.topic_size
        leader = max(proposal.topics, key=lambda topic: int(size[topic]))
        topics = tuple(
            TopicFlow(self.host.topics[found.topics[at]].state.topic, float(found.flows[at]))
            for at in proposal.topics
        )
        return found.topics[leader], Advise(topics=topics)
