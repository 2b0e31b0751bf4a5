"""A running plan as a plan of names with its costs, from its tallies alone.

A new version of a plan that was merely completed needs no look at all pairs of interest: who hears
which session follows from the tallies, and every cost of the plan from a few sums of them. They are
whole numbers, so a stream that starts again writes the same version.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distributary.cost import (
    ChannelCost,
    ChannelPrices,
    Evaluation,
    FilteringCost,
    FilteringPrices,
    Loads,
    OperatingCost,
)
from distributary.errors import PlanError
from distributary.model import IndexArray, IntArray, Plan
from distributary.planning import RunningPlan

__all__ = ["TalliedPlan"]


class TalliedPlan(RunningPlan):
    """A running plan that tells all about itself."""

    def name_plan(
        self,
        receivers: IndexArray,
        receiver_names: Sequence[str],
        flows: IndexArray,
        flow_names: Sequence[str],
    ) -> Plan:
        """The plan of these receivers and flows, all that are wanting and wanted, by their names.

        Raises a `PlanError` if the tallies are not those of a valid plan.
        """
        group = self.session_group
        heard = self._seats.in_session[:, : len(group)] > 0
        receiver, session = np.nonzero(heard[receivers])
        placed = self.sessions_of(flows)
        self._check_tallies(placed, len(receiver))
        return Plan(
            receivers=tuple(receiver_names),
            flows=tuple(flow_names),
            placement_flow=np.arange(len(flows), dtype=np.int32),
            placement_session=placed,
            session_group=group,
            subscription_receiver=receiver.astype(np.int32),
            subscription_session=session.astype(np.int32),
        )

    def evaluate(
        self, seconds: float, prices: FilteringPrices, channel: ChannelPrices
    ) -> Evaluation:
        """What `cost.evaluate` finds, with the loads of all receivers as one sum.

        Weights are messages in so many seconds.
        """
        seats, n_groups = self._seats, int(self.session_group.max()) + 1
        n_sessions, n_flows = len(self.session_group), self.n_flows
        n_receivers = int((self._degree > 0).sum())
        pairs, members = int(self._degree.sum()), int(seats.group_members.sum())
        price, messages = prices.alpha + prices.beta, sum(seats.session_rate.tolist())
        sent, flooded = messages / seconds, n_receivers * messages / seconds
        # Of whole numbers: it is exactly 0 if everybody wants everything.
        unwanted = (n_receivers * messages - self._wanted) / seconds
        received = _multiply(seats.group_rate, seats.group_members) / seconds
        accepted = _multiply(seats.session_rate, seats.session_members) / seconds
        wanted = self._wanted / seconds
        return Evaluation(
            receivers=n_receivers,
            flows=n_flows,
            sessions=n_sessions,
            groups=n_groups,
            duplicated_flows=0,
            problems=(),
            filtering=FilteringCost(
                session_cost=prices.alpha * received,
                flow_cost=prices.beta * accepted,
                wanted_work=price * wanted,
                flooding_excess=price * unwanted,
            ),
            channel=ChannelCost(
                received=channel.received * received,
                sent=channel.sent * sent,
                lower_bound=channel.received * wanted + channel.sent * sent,
                flooding=channel.received * flooded + channel.sent * sent,
            ),
            # Each topic keeps its own channel, where nobody is, and passes events to its group's.
            operating=OperatingCost(
                maintenance=members + n_flows,
                dissemination=sent + (sent + received),
                unclustered=pairs + (sent + wanted),
            ),
            loads=self._loads(seconds, received, accepted, wanted),
            byte_loads=None,
            count="messages",
            unicast_channel_cost=(channel.received + channel.sent) * wanted,
            unicast_copies=wanted / sent,
            goodput=wanted / received,
            flooding_goodput=wanted / flooded,
            unicast_flows=0,
            unicast_links=0,
            unicast_saving=0.0,
            duplication_saving=0.0,
        )

    def _loads(self, seconds: float, received: float, accepted: float, wanted: float) -> Loads:
        seats, group = self._seats, self.session_group
        sessions, groups = slice(len(group)), slice(int(group.max()) + 1)
        return Loads(
            session_rate=seats.session_rate[sessions] / seconds,
            session_flows=seats.session_flows[sessions].copy(),
            session_subscribers=seats.session_members[sessions].copy(),
            group_rate=seats.group_rate[groups] / seconds,
            group_flows=seats.group_flows[groups].copy(),
            group_sessions=np.bincount(group),
            group_members=seats.group_members[groups].copy(),
            receiver_groups=np.array([seats.group_members.sum()]),
            receiver_sessions=np.array([seats.session_members.sum()]),
            received=np.array([received]),
            accepted=np.array([accepted]),
            wanted=np.array([wanted]),
            unicast_rate=0.0,
            unicast_extra_rate=0.0,
            unicast_links=0,
        )

    def _check_tallies(self, placed: IndexArray, subscriptions: int) -> None:
        """Compare the sums of the tallies with each other: no pair may be missing in any."""
        seats, group = self._seats, self.session_group
        sessions, groups = slice(len(group)), slice(int(group.max(initial=-1)) + 1)
        pairs = int(self._degree.sum())
        carried = np.bincount(placed[placed >= 0], minlength=len(group))
        sums = {
            "a session does not carry the flows that were counted": np.array_equal(
                carried, seats.session_flows[sessions]
            ),
            "a session or a group is empty": all(
                (counts > 0).all()
                for counts in (
                    seats.session_flows[sessions],
                    seats.session_members[sessions],
                    seats.group_flows[groups],
                )
            ),
            "wanted pairs are not served": (placed >= 0).all()
            and int(seats.in_session.sum(dtype=np.int64)) == pairs
            and int(seats.in_group.sum(dtype=np.int64)) == pairs
            and int(self._audience.sum()) == pairs,
            "subscriptions were not counted": subscriptions == int(seats.session_members.sum()),
        }
        problems = tuple(problem for problem, holds in sums.items() if not holds)
        if problems:
            raise PlanError(problems, path="the plan just completed")


def _multiply(one: IntArray, other: IntArray) -> int:
    """The exact sum of products, which may need more than 64 bits."""
    return sum(a * b for a, b in zip(one.tolist(), other.tolist(), strict=True))
