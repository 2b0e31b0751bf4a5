"""Which plans come into force: proposals that may, and versions that are rolled back."""

from __future__ import annotations

import itertools

from distributary.control.audit import BY_CONTROL, AuditLog
from distributary.control.counts import FlowCounts
from distributary.control.holding import ProposalPause
from distributary.control.judging import Judge, Judgement, Unjudged
from distributary.control.messages import Audit, ControlAction, FetchPlan, Proposed
from distributary.control.placement import Places
from distributary.control.plan_keeper import Candidate, PlanKeeper
from distributary.control.proposals import Proposals, say_saving
from distributary.control.status import AuditEntry, Kind
from distributary.control.versions import MOVING
from distributary.errors import InfeasibleError
from distributary.model import Plan

__all__ = ["Deciding"]


class Deciding:
    """Puts plans in force, has them judged, and rolls those back that turn out worse.

    Whoever asks it to decide has placed all changes of interest first (`PlanKeeper.place`).
    """

    def __init__(
        self,
        keeper: PlanKeeper,
        proposals: Proposals,
        judge: Judge,
        audit: AuditLog,
        counts: FlowCounts,
    ) -> None:
        self._keeper, self._proposals, self._judge = keeper, proposals, judge
        self._audit, self._counts = audit, counts
        self._pause = ProposalPause(audit)
        self._worse: Judgement | None = None  # of a version whose predecessor is being fetched
        self.stuck = ""  # why a version that turned out worse is in force all the same

    # --- proposals --------------------------------------------------------------------------------

    def paused_until(self) -> float:
        """Until when proposals wait in mode auto, too; in the past if they do not."""
        return self._pause.until()

    def take_proposal(self, message: Proposed, now: float) -> list[ControlAction]:
        """Decide a proposal of the stream, or let it wait, or ignore it if it saves nothing."""
        candidate = self._proposals.weigh(message, now)
        if candidate is None:
            return []
        if not self._may_decide(now):
            return self._proposals.keep(candidate, now)
        return [*self._decide_proposal(candidate, now), *self._proposals.drop()]

    def look_after_pending(self, now: float) -> list[ControlAction]:
        """Decide the proposal that waits if it may come into force by now."""
        if self._proposals.number is None:
            return []
        if not self._may_decide(now):
            return self._proposals.price_again(now)
        candidate = self._proposals.fit_pending(now)
        if candidate is None:
            return self._proposals.withdraw(now)
        return [*self._decide_proposal(candidate, now), *self._proposals.drop()]

    def approve(self, by: str, now: float) -> list[ControlAction] | None:
        """Put the proposal that waits in force; None if it saves nothing any more."""
        number, candidate = self._proposals.number, self._proposals.fit_pending(now)
        if candidate is None:
            return None
        actions = self._decide_proposal(candidate, now, by)
        why = f"proposal {number}, in force as version {self._keeper.version}"
        audit = self._audit.write(now, by, "approved", why, version=self._keeper.version)
        return [*actions, audit, *self._proposals.drop()]

    def _may_decide(self, now: float) -> bool:
        if self._worse is not None:
            return False  # what turned out worse is about to be rolled back
        return self._keeper.settings.mode == "auto" and now >= self._pause.until()

    def _decide_proposal(
        self, candidate: Candidate, now: float, by: str = BY_CONTROL
    ) -> list[ControlAction]:
        why = say_saving(self._proposals.describe(candidate, now))
        return self.decide(candidate, "planned", by, why, now)

    # --- versions ---------------------------------------------------------------------------------

    def decide(
        self, candidate: Candidate, kind: Kind, by: str, why: str, now: float
    ) -> list[ControlAction]:
        """Put a plan in force that moves flows, and have it judged."""
        worse, self._worse, self.stuck = self._worse, None, ""
        actions = self._keeper.decide(candidate, kind, by, why, now)
        decision = self._keeper.decision
        assert decision is not None
        if worse is not None:
            actions.append(self._write_judged(worse, now))
        unjudged = self._judge.follow(decision, now)
        return actions if unjudged is None else [*actions, self._write_unjudged(unjudged, now)]

    def roll_back(
        self, version: int, plan: Plan, by: str, why: str, now: float
    ) -> list[ControlAction] | None:
        """Put the places of an earlier version in force; None if they are there already.

        Raises `InfeasibleError` if they break the terms.
        """
        places = self._keeper.find_moved(Places.of(plan))[0]
        candidate = self._keeper.complete(places, now)
        if not candidate.moves:
            return None
        return self.decide(candidate, "rolled back", by, f"back to version {version}: {why}", now)

    def resume(self, now: float) -> list[ControlAction]:
        """Go on judging the versions that another service put in force and nobody has judged."""
        unjudged = self._list_unjudged()
        if unjudged:
            first, last = unjudged[0], unjudged[-1]
            assert last.kind is not None
            judged = self._audit.find_last("judged")
            self._judge.resume(first.version or 0, last.version or 0, last.kind, judged, now)
        return self._proposals.restore(now)

    def _list_unjudged(self) -> list[AuditEntry]:
        """The entries of the versions to judge: planned ones together, or another one alone."""
        judged = max((e.version or 0 for e in self._audit.entries if e.what == "judged"), default=0)
        moving = [
            entry
            for entry in self._audit.entries
            if entry.what == "in force" and entry.kind in MOVING and (entry.version or 0) > judged
        ]
        planned = itertools.takewhile(lambda entry: entry.kind == "planned", reversed(moving))
        return [*planned][::-1] or moving[-1:]

    # --- judging ----------------------------------------------------------------------------------

    def judge(self, now: float) -> list[ControlAction]:
        """Judge the last versions that moved flows, and roll them back if they are worse."""
        found = self._judge.tick(self._counts, now)
        if found is None:
            return []
        if isinstance(found, Unjudged):
            return [self._write_unjudged(found, now)]
        entry = self._audit.find_version(found.version)
        if not found.is_worse or entry is None or entry.kind != "planned":
            return [self._write_judged(found, now)]
        return self._roll_back_worse(found, now)

    def take_fetched(self, name: str, plan: Plan | None, now: float) -> list[ControlAction]:
        """Roll a version back whose predecessor had to be fetched."""
        found = self._worse
        if found is None or self._keeper.versions.name_of(found.first - 1) != name:
            return []
        self._worse = None
        if plan is None:
            return self._stay(found, "its plan is gone from the store", now)
        return self._go_back(found, plan, now)

    def _roll_back_worse(self, found: Judgement, now: float) -> list[ControlAction]:
        before = found.first - 1
        name = self._keeper.versions.name_of(before)
        if name is None:
            return self._stay(found, "the one before it is not kept", now)
        plan = self._keeper.versions.plan_of(before)
        if plan is None:
            self._worse = found
            return [FetchPlan(name)]
        return self._go_back(found, plan, now)

    def _go_back(self, found: Judgement, plan: Plan, now: float) -> list[ControlAction]:
        """Decide before it is written down: a successor judges again what has no entry."""
        actions, before = self._keeper.place(now), found.first - 1
        why = f"under {found.versions}, {found.say()}"
        try:
            back = self.roll_back(before, plan, BY_CONTROL, why, now)
        except InfeasibleError as error:
            return [*actions, *self._stay(found, str(error), now)]
        if back is None:
            return [*actions, *self._stay(found, "no flow would move back", now)]
        return [*actions, *back, self._write_judged(found, now)]

    def _stay(self, found: Judgement, why: str, now: float) -> list[ControlAction]:
        self.stuck = f"version {found.version} turned out worse, but stays: {why}"
        judged = self._write_judged(found, now)
        kept = self._audit.write(now, BY_CONTROL, "kept", self.stuck, version=found.version)
        return [judged, kept]

    def _write_judged(self, found: Judgement, now: float) -> Audit:
        self._keeper.versions.note_judged(found.version)
        entry = self._audit.find_version(found.version)
        together = "" if found.first == found.version else f"versions {found.versions} together: "
        return self._audit.write(
            now,
            BY_CONTROL,
            "judged",
            together + found.say(),
            version=found.version,
            predicted=found.predicted,
            measured=found.measured,
            lost=found.lost,
            kind=None if entry is None else entry.kind,
        )

    def _write_unjudged(self, found: Unjudged, now: float) -> Audit:
        self._keeper.versions.note_judged(found.version)
        entry = self._audit.find_version(found.version)
        return self._audit.write(
            now,
            BY_CONTROL,
            "judged",
            f"not measured: {found.why}",
            version=found.version,
            lost=found.lost,
            kind=None if entry is None else entry.kind,
        )
