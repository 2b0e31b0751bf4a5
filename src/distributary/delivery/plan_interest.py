"""What plans say of a receiver: the flows that they bring, and the groups that they mean for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from distributary.delivery.actions import NeedPlan
from distributary.delivery.portion_wire import Portion
from distributary.delivery.routes import (
    fingerprint_of,
    subscribed_groups,
    unserved_flows,
    wanted_flows,
)
from distributary.delivery.wire import Announcement
from distributary.model import Plan

__all__ = ["PlanInterest"]

_MOST_PLANS = 8  # whose portions are remembered


class PlanInterest:
    """A receiver's portions of plans, by fingerprint: from plans that it is given, or the sender.

    With `everything` the receiver wants the flows that the current plan and the upcoming one bring.
    """

    def __init__(self, name: str, *, everything: bool) -> None:
        self._name = name
        self._portions: dict[int, Portion] = {}  # the newest last
        self._given = False  # whether the caller gives plans
        self._brought: tuple[str, ...] = ()  # by the last plan that brought anything
        self._noted: list[tuple[int, int]] | None = None  # fingerprints of each publisher
        self.everything = everything
        self.lost: tuple[str, ...] = ()  # these, if the present plan brings nothing

    def learn(self, plan: Plan) -> None:
        """Keep a plan for when it is announced."""
        portion = Portion(wanted_flows(plan, self._name), subscribed_groups(plan, self._name))
        self.give_portion(fingerprint_of(plan), portion)

    def give_portion(self, fingerprint: int, portion: Portion) -> None:
        """Keep what the caller says that a plan means for the receiver."""
        self._given = True
        self.take_portion(fingerprint, portion)

    def take_portion(self, fingerprint: int, portion: Portion) -> None:
        """Keep what a plan means for the receiver."""
        self._noted = None
        self._portions.pop(fingerprint, None)
        self._portions[fingerprint] = portion
        if len(self._portions) > _MOST_PLANS:
            del self._portions[next(iter(self._portions))]

    def knows(self, fingerprint: int) -> bool:
        """Whether it is known what the plan of that fingerprint means for the receiver."""
        return fingerprint in self._portions

    @property
    def asks(self) -> bool:
        """Whether the receiver asks senders for its portions: it wants them, and has no plans."""
        return self.everything and not self._given

    def fix(self) -> None:
        """Want from now on what the caller says, whatever plans bring."""
        self.everything = False
        self.lost = ()

    def latest_flows(self) -> tuple[str, ...]:
        """The flows that the latest plan brings."""
        portion = next(reversed(self._portions.values()), None)
        return () if portion is None else portion.flows

    def note_announced(self, announced: Sequence[Announcement]) -> bool:
        """Note what publishers announce; returns whether it is of other plans than before."""
        before = self._noted
        self._noted = [
            (found.current_fingerprint, found.upcoming_fingerprint) for found in announced
        ]
        return self._noted != before

    def flows_of(self, announced: Sequence[Announcement]) -> set[str] | None:
        """The flows that the announced plans bring; None if one of them is not known.

        An upcoming one need not be, unless it is a publisher's first. None too if the receiver does
        not want everything.
        """
        current = self._find(found.current_fingerprint for found in announced if found.current)
        upcoming = self._find(found.upcoming_fingerprint for found in announced if found.upcoming)
        first = self._find(found.upcoming_fingerprint for found in announced if not found.current)
        if not self.everything or None in (*current, *first):
            return None
        now, then = _join_flows(current), _join_flows(upcoming)
        if current:
            self._brought = tuple(sorted(now)) or self._brought
            self.lost = () if now else self._brought
        return now | then

    def _find(self, fingerprints: Iterable[int]) -> list[Portion | None]:
        return [self._portions.get(fingerprint) for fingerprint in dict.fromkeys(fingerprints)]

    def find_needs(self, announced: Sequence[Announcement]) -> list[NeedPlan]:
        """The announced plans that the caller has not given, if it gives any."""
        if not self._given:
            return []
        needs = {
            fingerprint: NeedPlan(version, fingerprint, found.where)
            for found in announced
            for version, fingerprint in self._unknown(found)
        }
        return list(needs.values())

    def find_unknown(self, announced: Announcement) -> list[int]:
        """The plans that a publisher announces, and whose portions it has to be asked for."""
        return [fingerprint for _, fingerprint in self._unknown(announced) if self.asks]

    def _unknown(self, announced: Announcement) -> list[tuple[int, int]]:
        versions = (
            (announced.current, announced.current_fingerprint),
            (announced.upcoming, announced.upcoming_fingerprint),
        )
        return [found for found in versions if found[0] and not self.knows(found[1])]

    def groups_of(self, announced: Sequence[Announcement]) -> frozenset[int]:
        """The groups that the announced plans mean for the receiver, as far as they are known."""
        prints = (
            fingerprint
            for found in announced
            for fingerprint in (found.current_fingerprint, found.upcoming_fingerprint)
        )
        return frozenset().union(
            *(found.groups for found in self._find(prints) if found is not None)
        )

    def unserved_by(self, plan: Plan, flows: Iterable[str]) -> tuple[str, ...]:
        """Those of the flows that a plan does not carry to the receiver."""
        return unserved_flows(plan, self._name, flows)


def _join_flows(portions: Iterable[Portion | None]) -> set[str]:
    return {flow for portion in portions if portion is not None for flow in portion.flows}
