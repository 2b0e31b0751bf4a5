"""What plans say of a receiver: the flows that they bring, and the groups that they mean for it."""

from __future__ import annotations

from collections.abc import Iterable

from distributary.delivery.actions import NeedPlan
from distributary.delivery.routes import (
    fingerprint_of,
    subscribed_groups,
    unserved_flows,
    wanted_flows,
)
from distributary.delivery.wire import Announcement
from distributary.model import Plan

__all__ = ["PlanInterest"]

_MOST_PLANS = 8  # that are remembered


class PlanInterest:
    """The plans that a receiver has, by fingerprint.

    With `everything` the receiver wants the flows that the current plan and the upcoming one bring.
    """

    def __init__(self, name: str, *, everything: bool) -> None:
        self._name = name
        self._plans: dict[int, Plan] = {}  # the newest last
        self._brought: tuple[str, ...] = ()  # by the last plan that brought anything
        self._noted: tuple[int, int] | None = None
        self.everything = everything
        self.lost: tuple[str, ...] = ()  # these, if the present plan brings nothing

    def learn(self, plan: Plan) -> None:
        """Keep a plan for when it is announced."""
        fingerprint = fingerprint_of(plan)
        self._noted = None
        self._plans.pop(fingerprint, None)
        self._plans[fingerprint] = plan
        if len(self._plans) > _MOST_PLANS:
            del self._plans[next(iter(self._plans))]

    def knows(self, fingerprint: int) -> bool:
        """Whether the plan of that fingerprint was learnt."""
        return fingerprint in self._plans

    def fix(self) -> None:
        """Want from now on what the caller says, whatever plans bring."""
        self.everything = False
        self.lost = ()

    def latest_flows(self) -> tuple[str, ...]:
        """The flows that the latest plan brings."""
        plan = next(reversed(self._plans.values()), None)
        return () if plan is None else wanted_flows(plan, self._name)

    def note_announced(self, announced: Announcement) -> bool:
        """Note an announcement; returns whether it is of other plans than the one before."""
        before = self._noted
        self._noted = announced.current_fingerprint, announced.upcoming_fingerprint
        return self._noted != before

    def flows_of(self, announced: Announcement) -> set[str] | None:
        """The flows that the announced plans bring; None if the current one is not known.

        None too if the receiver does not want everything.
        """
        current = self._plans.get(announced.current_fingerprint)
        upcoming = self._plans.get(announced.upcoming_fingerprint)
        if not self.everything or (announced.current and current is None):
            return None
        brought = [
            () if plan is None else wanted_flows(plan, self._name) for plan in (current, upcoming)
        ]
        if current is not None:
            self._brought = brought[0] or self._brought
            self.lost = () if brought[0] else self._brought
        return {flow for flows in brought for flow in flows}

    def find_needs(self, announced: Announcement) -> list[NeedPlan]:
        """The announced plans that are not known, if the receiver needs plans or has any."""
        if not self.everything and not self._plans:
            return []
        versions = (
            (announced.current, announced.current_fingerprint),
            (announced.upcoming, announced.upcoming_fingerprint),
        )
        return [
            NeedPlan(version, fingerprint, announced.where)
            for version, fingerprint in versions
            if version and not self.knows(fingerprint)
        ]

    def groups_of(self, announced: Announcement) -> frozenset[int]:
        """The groups that the announced plans mean for the receiver, as far as they are known."""
        fingerprints = announced.current_fingerprint, announced.upcoming_fingerprint
        plans = (self._plans.get(fingerprint) for fingerprint in fingerprints)
        found = (subscribed_groups(plan, self._name) for plan in plans if plan is not None)
        return frozenset().union(*found)

    def unserved_by(self, plan: Plan, flows: Iterable[str]) -> tuple[str, ...]:
        """Those of the flows that a plan does not carry to the receiver."""
        return unserved_flows(plan, self._name, flows)
