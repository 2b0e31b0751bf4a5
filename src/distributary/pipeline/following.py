"""A plan that follows a demand which changes, with as few moves as it takes.

Everybody must be served at once: the running plan is completed for who and what is new, without a
move. If its excess is then more than `drift` above what it was when flows were last moved, some are
moved, `max_moves` at the most. Where all of these were used up the next time may go on; else the
new excess is what drift is counted from. Flows that nobody wants any more leave the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from distributary.model import Demand, Previous
from distributary.planning import MadePlan, Request, make_plan, moves_between

__all__ = ["FollowedPlan", "follow"]

MOVED_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class FollowedPlan:
    """The plan for a demand, and how it came about.

    `drift` is how much the excess had grown before anything was moved, as a share of the one that
    was counted from; `reference` is the one to count from next.
    """

    made: MadePlan
    reference: float
    drift: float | None = None
    moves: int = 0
    new: int = 0

    @property
    def excess(self) -> float:
        """What receivers get in vain, as a share of what flooding would give them."""
        return self.made.evaluation.filtering.relative_excess


def follow(
    demand: Demand,
    request: Request,
    previous: Previous | None,
    reference: float | None,
    drift: float,
    max_moves: int | None = None,
) -> FollowedPlan:
    """The plan for a demand: made anew, or the running one completed, or moved as well.

    Without `max_moves` it is 2 % of the flows, and one at least.
    """
    flows = len(demand.interest.flows)
    if previous is None or reference is None:
        made = make_plan(demand, request)
        return FollowedPlan(made, made.evaluation.filtering.relative_excess, new=flows)
    served = _move_flows(demand, request, previous, 0, reference)
    grown = served.excess / reference - 1 if reference else float(served.excess > 0)
    served = replace(served, drift=grown)
    most = max(1, int(MOVED_SHARE * flows)) if max_moves is None else max_moves
    if grown <= drift or not most:
        return served
    better = replace(_move_flows(demand, request, previous, most, reference), drift=grown)
    if better.excess >= served.excess:
        return replace(served, reference=served.excess)
    # With moves left over there is nothing more to gain: this is what drift counts from now.
    return replace(better, reference=better.excess) if better.moves < most else better


def _move_flows(
    demand: Demand, request: Request, previous: Previous, most: int, reference: float
) -> FollowedPlan:
    """The running plan for a demand, with so many moves at the most."""
    made = make_plan(demand, request.replace(previous=previous, max_moves=most))
    moves = moves_between(previous, made.solution.plan, made.solution.session_origin)
    known = sum(move.before is not None for move in moves)
    return FollowedPlan(made, reference, moves=known, new=len(moves) - known)
