"""The plan in force, and how a decision replaces it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from distributary.control.alignment import align_places, find_moved
from distributary.control.audit import BY_CONTROL, AuditLog
from distributary.control.counts import FlowCounts
from distributary.control.interest import InterestCopy, LiveInterest, PairChanges
from distributary.control.messages import (
    Audit,
    ControlAction,
    Decide,
    Decision,
    DropPlan,
    Restored,
    SetBase,
)
from distributary.control.move_list import list_moves
from distributary.control.moving import pick_moves
from distributary.control.placement import PlacedFlows, Placement, Places
from distributary.control.plan_codec import name_plan
from distributary.control.receivers import NOTHING
from distributary.control.settings import ControlSettings
from distributary.control.status import FlowMove, Kind, Waste
from distributary.control.terms import PlanTerms, most_moves, read_terms, replan
from distributary.control.versions import KeptVersions
from distributary.errors import InfeasibleError
from distributary.model import Demand, Plan, Previous

__all__ = ["Candidate", "PlanKeeper", "is_plain", "name_flows"]

_NO_CHANGES = PairChanges((), ())
_CHECK_EVERY, _TRY_EVERY = 5.0, 30.0  # seconds
_KEPT_TIMES = 1_000  # of versions
_LISTED = 20  # moves of a version
_MOST_ATTEMPTS = 3  # to place some of the flows if no plan has a place for all


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A plan for the present interest that could come into force."""

    placement: Placement
    plan: Plan
    moves: int
    waste: Waste
    held: frozenset[str]  # flows without a place


class PlanKeeper:
    """Keeps every wanted flow in the plan in force, within the terms.

    Changes of interest wait until `place` is called; between two calls, the places are those of the
    plan in force. Flows that no plan within the terms has a place for are held back; `refusal` says
    why.
    """

    def __init__(
        self,
        settings: ControlSettings,
        restored: Restored,
        interest: LiveInterest,
        counts: FlowCounts,
        audit: AuditLog,
    ) -> None:
        self.settings, self.terms = settings, read_terms(settings)
        self.decision = restored.decision
        self.plan = _find_plan(restored, self.terms)
        self.held: frozenset[str] = frozenset()
        self.refusal = self._hopeless = ""
        self.broken: tuple[str, ...] = ()  # terms that the plan in force breaks, when last checked
        self._checked_at = self._tried_at = -math.inf
        self._hopeless_until = -math.inf  # what is carried breaks the terms by itself
        self.versions = KeptVersions(settings.keep_versions, audit.entries)
        if self.decision is not None:
            self.versions.add(self.decision, self.plan)
        found = (entry for entry in audit.entries if entry.what == "in force")
        self._began = {entry.version: entry.at for entry in found if entry.version is not None}
        if self.decision is not None:
            self._began[self.decision.version] = self.decision.at
        self._interest, self._counts, self._audit = interest, counts, audit
        self._copy = InterestCopy(interest)
        self._placement = Placement(self.terms.size)

    @property
    def version(self) -> int:
        """The version in force; 0 before the first."""
        return 0 if self.decision is None else self.decision.version

    @property
    def places(self) -> Places:
        """The places in force, also of flows that left since; None has any before the first."""
        if self._placement.carried or self.plan is None:
            return self._placement.places
        return Places.of(self.plan)

    def note(self, receiver: str) -> None:
        """Note that what a receiver wants has changed."""
        self._copy.note(receiver)

    def carries(self, flow: str) -> bool:
        """Whether the plan in force has a place for a flow."""
        return flow in self._placement.carried

    def waste(self, now: float) -> Waste:
        """What receivers get by the plan in force, by the present rates."""
        if not self._placement.carried or not self._interest.receivers:
            return NOTHING
        return self._placement.waste(self._counts.span(now))

    def weigh(self) -> None:
        """Take the present rates."""
        self._placement.follow(_NO_CHANGES, self._counts.weights, self._counts.take_changed())

    def make_demand(self, now: float, without: Collection[str] = ()) -> Demand | None:
        """The present demand."""
        return self._interest.make_demand(self._counts.weights, self._counts.span(now), without)

    def since(self, version: int) -> float:
        """When a version came into force; long ago if that is not known any more."""
        return self._began.get(version, -math.inf)

    # --- interest --------------------------------------------------------------------------------

    def check(self, now: float) -> list[ControlAction]:
        """See from time to time whether the rates of now keep the terms, and mend it if not."""
        if now - self._checked_at < _CHECK_EVERY:
            return []
        self._checked_at = now
        actions: list[ControlAction] = []
        broken = self.list_broken(now)
        if (broken or self.held) and now - self._tried_at >= _TRY_EVERY:
            self._tried_at, self._hopeless_until = now, now
            actions = self.place(now, again=True)
            broken = self.list_broken(now)
        self.broken = broken
        return actions

    def place(self, now: float, *, again: bool = False) -> list[ControlAction]:
        """Place what is wanted and has no place, and let go what nobody wants any more.

        If no interest has changed, there is nothing to do, unless `again`.
        """
        if not self._interest.receivers:
            return []  # the plan stays for whoever comes
        if self._placement.carried and not self._copy.is_behind and not again:
            return []
        before, had_plan = self.places, self.plan is not None
        placed = self._take_changes(before)
        held, self.held, self.refusal = self.held, frozenset(), ""
        moves = 0
        if self.list_broken(now):
            moves = self._place_within_terms(before, now)
            names = self._placement.carried
            placed = PlacedFlows(
                tuple(sorted(names - before.session_of.keys())),
                tuple(sorted(before.session_of.keys() - names)),
            )
        told = self._tell_held(held, now)
        if had_plan and not placed and not moves:
            return told
        if not self._placement.carried:
            return told
        kind: Kind = "placed" if self.decision else "first"
        why = _say_placed(placed) if had_plan or not self.decision else "the stored plan is gone"
        return [*told, *self._decide(kind, BY_CONTROL, why, now, moves)]

    def _take_changes(self, before: Places) -> PlacedFlows:
        weights, carried = self._counts.weights, self._placement.carried
        interest = self._interest
        stale = self._placement.has_stale_names(len(interest.receivers), len(interest.flows))
        if carried and not self.held and not stale:
            changes = self._copy.catch_up()
            return self._placement.follow(changes, weights, self._counts.take_changed())
        self._copy.restart()
        self._copy.catch_up()
        return self._placement.load(before, self._interest, weights)

    def list_broken(self, now: float) -> tuple[str, ...]:
        """The terms that the present places break, by the present rates."""
        if not self.terms.constraints or not self._placement.carried or self._copy.is_behind:
            return ()
        demand = self.make_demand(now, self.held)
        if demand is None:
            return ()
        return self.terms.list_broken(self._placement.write_plan(demand), demand)

    def _place_within_terms(self, before: Places, now: float) -> int:
        """Find places for all within the terms, or for as many as possible; returns the moves."""
        new = sorted(self._interest.flows - before.session_of.keys())
        most = most_moves(self.settings, len(before.session_of))
        nothing: frozenset[str] = frozenset()
        if now < self._hopeless_until:
            self.held = frozenset(new)
            self._placement.load(before, self._interest, self._counts.weights, self.held)
            self.refusal = self._hopeless
            return 0
        try:
            return self._take(self._find_within_terms(before, nothing, now, (0, most)))
        except InfeasibleError as error:
            self.refusal = str(error)
        self.held, moves = frozenset(new), 0
        try:
            if new:
                moves = self._take(self._find_within_terms(before, self.held, now, (0, most)))
        except InfeasibleError:
            new = []
        if not new:  # what is carried breaks them by itself: it goes on as it is
            self._hopeless, self._hopeless_until = self.refusal, now + _TRY_EVERY
            self._placement.load(before, self._interest, self._counts.weights, self.held)
            return 0
        parts = _halve(new)
        for _ in range(_MOST_ATTEMPTS):
            if not parts:
                break
            part = parts.pop(0)
            try:
                without = self.held.difference(part)
                moves += self._take(self._find_within_terms(self.places, without, now, (0,)))
            except InfeasibleError:
                parts += _halve(part)
        return moves

    def _take(self, candidate: Candidate) -> int:
        """Take the places of a candidate; returns its moves."""
        self._placement, self.held = candidate.placement, candidate.held
        return candidate.moves

    def _tell_held(self, before: frozenset[str], now: float) -> list[ControlAction]:
        """Write down which flows are held back, if that is news."""
        if self.held == before or not self.held - before:
            return []
        flows = sorted(self.held)
        return [
            self._audit.write(now, BY_CONTROL, "unserved", f"{name_flows(flows)}: {self.refusal}")
        ]

    # --- decisions -------------------------------------------------------------------------------

    def fit_plan(self, plan: Plan, now: float) -> Candidate:
        """As much of a plan as may move at once, or raise `InfeasibleError` if it breaks terms.

        Its sessions and groups get the numbers of those in force that they have most flows in
        common with, if fewer flows move then, and the terms still hold.
        """
        before, target = self.places, Places.of(plan)
        most = most_moves(self.settings, len(before.session_of))
        aligned = align_places(target, before, self.terms.size.most_sessions)
        tries = sorted((target, aligned), key=lambda places: len(find_moved(places, before)))
        error: InfeasibleError | None = None
        for places in tries:
            picked, _ = pick_moves(places, before, most, self._interest, self._counts.weights)
            try:
                found = self.complete(picked, now)
            except InfeasibleError as refused:
                error = refused
                continue
            if found.moves <= most:
                return found
        raise error or InfeasibleError(f"it moves more than {most} flows", proven=False)

    def complete(self, places: Places, now: float) -> Candidate:
        """Complete places for the present interest within the terms, or raise `InfeasibleError`.

        Flows that were held back still are, unless they are among the places.
        """
        held = self.held.difference(places.session_of)
        placement = Placement(self.terms.size)
        placement.load(places, self._interest, self._counts.weights, held)
        demand = self.make_demand(now, held)
        if demand is None:
            raise InfeasibleError("no flow has a place", proven=False)
        plan = placement.write_plan(demand)
        if self.terms.list_broken(plan, demand):
            given = placement.places.keep(places.session_of)
            found = self._find_within_terms(given, held, now, (0,))
            placement, plan = found.placement, found.plan
        moves = len(self.find_moved(Places.of(plan))[1])
        return Candidate(placement, plan, moves, self._price(placement, now), held)

    def find_moved(self, places: Places) -> tuple[Places, list[str]]:
        """The flows that move to these places; a session that only gets another number does not.

        The places come with the numbers that sessions have now, as far as they are the same.
        """
        return self._compare(places, self.places)

    def _compare(self, places: Places, before: Places) -> tuple[Places, list[str]]:
        aligned = align_places(places, before, self.terms.size.most_sessions)
        tries = [(each, find_moved(each, before)) for each in (places, aligned)]
        return min(tries, key=lambda found: len(found[1]))

    def fit_terms(self, terms: PlanTerms, now: float) -> Candidate | None:
        """The plan in force with the fewest moves that keeps other terms; None if it does so.

        Raises `InfeasibleError` if no plan keeps them, or none is found. Flows that have no place
        now need not get one.
        """
        demand = self.make_demand(now, self.held)
        if demand is None or self.plan is None:
            return None
        if not self.held and not terms.list_broken(self._placement.write_plan(demand), demand):
            return None
        most = most_moves(self.settings, len(demand.interest.flows))
        tries = (0, most)
        try:
            return self._find_within_terms(self.places, frozenset(), now, (*tries, None), terms)
        except InfeasibleError:
            if not self.held:
                raise
        return self._find_within_terms(self.places, self.held, now, (*tries, None), terms)

    def decide(
        self, candidate: Candidate, kind: Kind, by: str, why: str, now: float
    ) -> list[ControlAction]:
        """Put a candidate in force, which was made at the same time."""
        return self._decide(kind, by, why, now, self._take(candidate))

    def change_terms(self, settings: ControlSettings, terms: PlanTerms) -> None:
        """Take other settings from now on."""
        self.settings, self.terms = settings, terms
        self._hopeless_until = -math.inf

    def _find_within_terms(
        self,
        before: Places,
        without: frozenset[str],
        now: float,
        tries: Iterable[int | None],
        terms: PlanTerms | None = None,
    ) -> Candidate:
        """Try with more and more moves; raises the last `InfeasibleError`."""
        terms = terms or self.terms
        demand = self.make_demand(now, without)
        if demand is None:
            raise InfeasibleError("no flow has a place", proven=False)
        previous = None
        if before.session_of:
            previous = Previous(dict(before.session_of), before.session_group)
        error: InfeasibleError | None = None
        for most in tries:
            try:
                found = replan(demand, terms, previous, most)
            except InfeasibleError as refused:
                error = refused
                continue
            placement, places = Placement(terms.size), Places.of(found.plan)
            placement.load(places, self._interest, self._counts.weights, without)
            priced = self._price(placement, now)
            return Candidate(placement, found.plan, found.moves, priced, without)
        assert error is not None
        raise error

    def _price(self, placement: Placement, now: float) -> Waste:
        return placement.waste(self._counts.span(now))

    def _decide(
        self, kind: Kind, by: str, why: str, now: float, moves: int = 0
    ) -> list[ControlAction]:
        """Put the present places in force as a new version."""
        demand = self.make_demand(now, self.held)
        assert demand is not None
        plan, version = self._placement.write_plan(demand), self.version + 1
        predicted = self.waste(now)
        moved = self._list_moves(plan) if moves else []
        self.plan = plan
        self.decision = Decision(version, name_plan(plan), kind, by, why, now, moves, predicted)
        self._began[version] = now
        self._began.pop(version - _KEPT_TIMES, None)
        dropped = self.versions.add(self.decision, plan)
        actions: list[ControlAction] = [Decide(self.decision, plan)]
        actions += [self._write_in_force(moved), SetBase(plan)]
        return [*actions, *map(DropPlan, dropped)]

    def _list_moves(self, plan: Plan) -> list[FlowMove]:
        """The first flows that move when a plan replaces the one in force."""
        if self.plan is None:
            return []
        before = Places.of(self.plan)
        after, moved = self._compare(Places.of(plan), before)
        return list_moves(moved, before, after, self._interest, _LISTED)

    def _write_in_force(self, moved: Sequence[FlowMove] = ()) -> Audit:
        """The entry of the decision in force."""
        now = self.decision
        assert now is not None
        return self._audit.write(
            now.at,
            now.by,
            "in force",
            now.why,
            version=now.version,
            moves=now.moves,
            predicted=now.predicted,
            kind=now.kind,
            plan=now.plan,
            moved=[*moved],
        )

    def catch_up(self) -> list[ControlAction]:
        """Write down the decision in force if nobody got to it, and let the stream go on from it.

        The host has made the fence ours when it restored.
        """
        actions: list[ControlAction] = []
        if self.decision is not None and self._audit.find_version(self.version) is None:
            actions.append(self._write_in_force())
        return actions if self.plan is None else [*actions, SetBase(self.plan)]


def _halve(flows: list[str]) -> list[list[str]]:
    """Two halves, or nothing if there is only one flow."""
    middle = len(flows) // 2
    return [flows[:middle], flows[middle:]] if middle else []


def _find_plan(restored: Restored, terms: PlanTerms) -> Plan | None:
    """The plan in force, unless it is gone or none of ours: then all flows are placed anew."""
    plan = None if restored.decision is None else restored.plans.get(restored.decision.plan)
    if plan is None or not is_plain(plan, terms):
        return None
    return plan


def is_plain(plan: Plan, terms: PlanTerms) -> bool:
    """Whether a plan has each flow in one session, and not too many sessions and groups."""
    size = terms.size
    is_small = plan.n_sessions <= size.most_sessions and plan.n_groups <= size.groups
    return is_small and not plan.duplicated_flows and not len(plan.unicast_flow)


def name_flows(flows: Sequence[str]) -> str:
    """Some flows in words."""
    more = f" and {len(flows) - 1:,} more" if len(flows) > 1 else ""
    return f"flow {flows[0]!r}{more}"


def _say_placed(placed: PlacedFlows) -> str:
    reasons = [
        f"{name_flows(flows)} {says}"
        for flows, says in (
            (placed.placed, "came to be wanted"),
            (placed.left, "is wanted by nobody any more"),
        )
        if flows
    ]
    return "; ".join(reasons) or "limits had to be kept"
