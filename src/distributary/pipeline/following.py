"""A plan that follows a changing demand with few moves.

All receivers must be served at once, so the running plan is first completed for new receivers and
flows, without moves. If its excess is then more than `drift` above the reference, some flows are
moved, at most `max_moves`. The reference is the excess after the last moves; it stays while a batch
used up all its moves, so that the next batch can continue. Flows that nobody wants any more leave
the plan.

A plan must also keep its terms. If the running plan cannot be completed within them without moves,
flows are moved at once. If that is not enough, there is no plan for the demand: the running one
stays, and `find_unserved` lists who misses what.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from distributary.errors import InfeasibleError
from distributary.model import Demand, Interest, Plan, Previous
from distributary.planning import MadePlan, Request, count_moved, make_plan, moves_between

__all__ = ["FollowedPlan", "find_unserved", "follow"]

MOVED_SHARE = 0.02
# The budget of the request is for the first plan; the next ones begin near their end.
SECONDS_TO_COMPLETE, SECONDS_TO_MOVE = 0.5, 5.0


@dataclass(frozen=True, slots=True)
class FollowedPlan:
    """The plan for a demand, and how it came about.

    `drift` is the relative growth of the excess above the reference before anything was moved;
    `reference` is the one for the next batch.
    """

    made: MadePlan
    reference: float
    drift: float | None = None
    moves: int = 0
    new: int = 0

    @property
    def excess(self) -> float:
        """The excess as a share of the excess of flooding."""
        return self.made.evaluation.filtering.relative_excess


def follow(
    demand: Demand,
    request: Request,
    previous: Previous | None,
    reference: float | None,
    drift: float,
    max_moves: int | None = None,
) -> FollowedPlan:
    """The plan for a demand: a new one, or the running one completed, with moves if it drifted.

    `max_moves` is by default 2 % of the flows, and at least one. If no plan within these moves
    keeps the terms of the request, `InfeasibleError` says why.
    """
    flows = len(demand.interest.flows)
    if previous is None or reference is None:
        made = make_plan(demand, request)
        return FollowedPlan(made, made.evaluation.filtering.relative_excess, new=flows)
    most = max(1, int(MOVED_SHARE * flows)) if max_moves is None else max_moves
    try:
        served = _move_flows(demand, request, previous, 0, reference)
    except InfeasibleError:
        if not most:
            raise
        forced = _move_flows(demand, request, previous, most, reference)
        return replace(forced, reference=forced.excess)
    grown = served.excess / reference - 1 if reference else float(served.excess > 0)
    served = replace(served, drift=grown)
    if grown <= drift or not most:
        return served
    better = replace(_move_flows(demand, request, previous, most, reference), drift=grown)
    if better.excess >= served.excess:
        return replace(served, reference=served.excess)
    # With moves left over there is nothing more to gain, so this is the new reference.
    return replace(better, reference=better.excess) if better.moves < most else better


def find_unserved(plan: Plan | None, interest: Interest) -> list[tuple[str, str]]:
    """The wanted (receiver, flow) pairs that a plan for another interest does not serve."""
    carried: dict[str, set[int]] = {}
    heard: dict[str, set[int]] = {}
    alone: set[tuple[str, str]] = set()
    if plan is not None:
        for flow, session in zip(plan.placement_flow, plan.placement_session, strict=True):
            carried.setdefault(plan.flows[flow], set()).add(session)
        subscriptions = zip(plan.subscription_receiver, plan.subscription_session, strict=True)
        for receiver, session in subscriptions:
            heard.setdefault(plan.receivers[receiver], set()).add(session)
        pairs = zip(plan.unicast_receiver, plan.unicast_flow, strict=True)
        alone = {(plan.receivers[receiver], plan.flows[flow]) for receiver, flow in pairs}
    none: set[int] = set()
    wanted = (
        (receiver, interest.flows[flow])
        for at, receiver in enumerate(interest.receivers)
        for flow in interest.flows_of(at)
    )
    return [
        (receiver, flow)
        for receiver, flow in wanted
        if carried.get(flow, none).isdisjoint(heard.get(receiver, none))
        and (receiver, flow) not in alone
    ]


def _move_flows(
    demand: Demand, request: Request, previous: Previous, most: int, reference: float
) -> FollowedPlan:
    """The running plan completed for a demand, with at most `most` moves."""
    budget_s = min(request.search.budget_s, SECONDS_TO_MOVE if most else SECONDS_TO_COMPLETE)
    request = request.replace(previous=previous, max_moves=most, budget_s=budget_s)
    made = make_plan(demand, request)
    moves = moves_between(previous, made.solution.plan, made.solution.session_origin)
    new = {move.flow for move in moves if move.before is None}
    return FollowedPlan(made, reference, moves=count_moved(moves), new=len(new))
