"""Plans that the stream proposes: weighed against the plan in force, then decided or kept.

A proposal is compared with the plan in force for the same interest and rates, those of now, so that
what it saves is exact. It counts as worth it if it saves work at the receivers' filters.
"""

from __future__ import annotations

from dataclasses import dataclass

from distributary.control.audit import BY_CONTROL, AuditLog
from distributary.control.history import dropped
from distributary.control.interest import LiveInterest
from distributary.control.messages import (
    ControlAction,
    DropPlan,
    KeepProposal,
    Proposal,
    Proposed,
    Restored,
)
from distributary.control.move_list import list_moves
from distributary.control.placement import Places
from distributary.control.plan_codec import name_plan
from distributary.control.plan_keeper import Candidate, PlanKeeper, is_plain
from distributary.control.status import ProposalStatus, Waste
from distributary.errors import InfeasibleError
from distributary.model import Plan

__all__ = ["Proposals", "say_saving"]

_SHOWN = 50  # moves, and receivers
_ROUNDING = 1e-9  # relative
# Seconds between two looks at what a proposal that waits still saves.
_PRICE_EVERY, _PRICE_SOON = 30.0, 10.0


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """A proposal that waits, and its plan."""

    proposal: Proposal
    plan: Plan
    status: ProposalStatus
    priced_for: int  # the version in force
    priced_at: float


class Proposals:
    """Takes proposals, and keeps the newest one while it waits for approval."""

    def __init__(
        self, keeper: PlanKeeper, interest: LiveInterest, audit: AuditLog, restored: Restored
    ) -> None:
        self._keeper, self._interest, self._audit = keeper, interest, audit
        self._restored: tuple[Proposal, Plan] | None = None
        if restored.proposal is not None:
            plan = restored.plans.get(restored.proposal.plan)
            if plan is not None:
                self._restored = restored.proposal, plan
        self._pending: _Pending | None = None
        self.refused = ""  # why the last plan of the stream cannot be used

    @property
    def status(self) -> ProposalStatus | None:
        """The proposal that waits."""
        return None if self._pending is None else self._pending.status

    @property
    def number(self) -> int | None:
        """The number of the proposal that waits."""
        return None if self._pending is None else self._pending.proposal.number

    @property
    def plan_name(self) -> str:
        """The name of its plan in the store; "" if none waits."""
        return "" if self._pending is None else self._pending.proposal.plan

    def restore(self, now: float) -> list[ControlAction]:
        """Take up the proposal that waited when another service served."""
        if self._restored is None:
            return []
        (proposal, plan), self._restored = self._restored, None
        return self._price(proposal, plan, now)

    def weigh(self, message: Proposed, now: float) -> Candidate | None:
        """As much of a proposed plan as may move at once; None if that is not worth it."""
        self.refused = ""
        if self._keeper.plan is None or not self._interest.receivers:
            return None
        if not is_plain(message.plan, self._keeper.terms):
            size = self._keeper.terms.size
            self.refused = (
                f"a plan of the stream has flows in several sessions, or more than {size.groups} "
                f"groups and {size.most_sessions} sessions; start it with the terms of this "
                "control plane"
            )
            return None
        try:
            candidate = self._keeper.fit_plan(message.plan, now)
        except InfeasibleError as error:
            self.refused = f"a plan of the stream cannot come into force: {error}"
            return None
        return candidate if self._saves(candidate, now) else None

    def keep(self, candidate: Candidate, now: float) -> list[ControlAction]:
        """Let a plan wait for approval, in the place of one that waits already."""
        before = self._pending
        if before is not None and before.proposal.plan == name_plan(candidate.plan):
            return self._price(before.proposal, before.plan, now)
        self._pending = None
        number = self._audit.next_number
        proposal = Proposal(number, name_plan(candidate.plan), now)
        status = self._describe(proposal, candidate, now)
        why = f"proposal {number}: {say_saving(status)}"
        if before is not None:
            why += f"; it replaces proposal {before.proposal.number}"
        audit = self._audit.write(
            now, BY_CONTROL, "proposed", why, moves=status.moves, predicted=status.after
        )
        version = self._keeper.version
        self._pending = _Pending(proposal, candidate.plan, status, version, now)
        drops = [] if before is None else self._drop_plan(before.proposal)
        return [KeepProposal(proposal, candidate.plan), audit, *drops]

    def drop(self) -> list[ControlAction]:
        """Let no proposal wait any more."""
        if self._pending is None:
            return []
        before, self._pending = self._pending, None
        return [KeepProposal(None), *self._drop_plan(before.proposal)]

    def withdraw(self, now: float) -> list[ControlAction]:
        """Let the proposal that waits go, since it saves nothing any more."""
        return [] if self._pending is None else self._withdraw(self._pending.proposal, now)

    def fit_pending(self, now: float) -> Candidate | None:
        """What the proposal that waits comes to now; None if it saves nothing any more."""
        assert self._pending is not None
        try:
            candidate = self._keeper.fit_plan(self._pending.plan, now)
        except InfeasibleError:
            return None
        return candidate if self._saves(candidate, now) else None

    def price_again(self, now: float) -> list[ControlAction]:
        """See from time to time what the proposal that waits saves by now.

        That is sooner if there is another version in force.
        """
        pending = self._pending
        if pending is None:
            return []
        is_same = pending.priced_for == self._keeper.version
        if now - pending.priced_at < (_PRICE_EVERY if is_same else _PRICE_SOON):
            return []
        return self._price(pending.proposal, pending.plan, now)

    def describe(self, candidate: Candidate, now: float) -> ProposalStatus:
        """What a plan would change."""
        return self._describe(Proposal(0, "", now), candidate, now)

    # --- inside -----------------------------------------------------------------------------------

    def _price(self, proposal: Proposal, plan: Plan, now: float) -> list[ControlAction]:
        """Let a known proposal wait, unless it saves nothing by now."""
        candidate = None
        if self._keeper.plan is not None and self._interest.receivers:
            try:
                candidate = self._keeper.fit_plan(plan, now)
            except InfeasibleError:
                candidate = None
        if candidate is not None and self._saves(candidate, now):
            status = self._describe(proposal, candidate, now)
            self._pending = _Pending(proposal, plan, status, self._keeper.version, now)
            return []
        return self._withdraw(proposal, now)

    def _withdraw(self, proposal: Proposal, now: float) -> list[ControlAction]:
        self._pending = None
        why = f"proposal {proposal.number} saves nothing any more"
        audit = self._audit.write(now, BY_CONTROL, "withdrawn", why)
        return [KeepProposal(None), audit, *self._drop_plan(proposal)]

    def _saves(self, candidate: Candidate, now: float) -> bool:
        before, after = _work(self._keeper.waste(now)), _work(candidate.waste)
        return candidate.moves > 0 and before - after > _ROUNDING * before

    def _drop_plan(self, proposal: Proposal) -> list[ControlAction]:
        """Drop the plan of a proposal that does not wait any more, unless a version has it."""
        has_version = self._keeper.versions.has(proposal.plan)
        return [] if has_version else [DropPlan(proposal.plan)]

    def _describe(self, proposal: Proposal, candidate: Candidate, now: float) -> ProposalStatus:
        before, waste = self._keeper.places, self._keeper.waste(now)
        after, moved = self._keeper.find_moved(Places.of(candidate.plan))
        touched = {name for flow in moved for name in self._interest.receivers_of(flow)}
        return ProposalStatus(
            number=proposal.number,
            at=proposal.at,
            saves_per_hour=3600 * (dropped(waste) - dropped(candidate.waste)),
            moves=candidate.moves,
            receivers_touched=len(touched),
            moved=list_moves(moved, before, after, self._interest, _SHOWN),
            before=waste,
            after=candidate.waste,
            touched=sorted(touched)[:_SHOWN],
        )


def say_saving(status: ProposalStatus) -> str:
    """What a proposal saves and moves, in words."""
    what = "messages"
    saved = status.saves_per_hour
    if saved < 1:  # each is dropped by the first filter instead, which costs less
        what, saved = (
            "messages at the second filter",
            3600 * (status.before.dropped_second - status.after.dropped_second),
        )
    flows = "flow moves" if status.moves == 1 else "flows move"
    return f"saves {saved:,.0f} {what} an hour; {status.moves:,} {flows}"


def _work(waste: Waste) -> float:
    """The work at the two filters: what the second one drops has passed the first."""
    return waste.dropped_first + 2 * waste.dropped_second
