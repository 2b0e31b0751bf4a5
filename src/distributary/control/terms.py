"""What a plan must keep to: numbers of groups and sessions, limits of the network, and pins.

Most changes of interest leave them alone: then a flow is placed by the running plan alone. Where
one of them would break, the planner goes through the whole demand, from the plan in force.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from distributary.control.settings import ControlSettings
from distributary.files import parse_limits
from distributary.model import Constraints, Demand, Plan, Previous, broken_constraints
from distributary.planning import Request, Size, count_moved, make_plan, moves_between

__all__ = ["PlanTerms", "Replanned", "most_moves", "read_terms", "replan"]

# What is searched for is near the plan in force, and a service that searches does nothing else. The
# clock ends a search after a second (`planning.search` counts at least two seconds of budget).
_BUDGET_S, _PATIENCE = 0.25, 0.5
_MOVED_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """The terms of every plan."""

    size: Size
    constraints: Constraints

    def list_broken(self, plan: Plan, demand: Demand) -> tuple[str, ...]:
        """The constraints that a plan breaks, one sentence each."""
        if not self.constraints:
            return ()
        return broken_constraints(plan, demand, self.constraints)


@dataclass(frozen=True, slots=True, eq=False)
class Replanned:
    """A plan within the terms, and how many flows had to move for it."""

    plan: Plan
    moves: int


def read_terms(settings: ControlSettings) -> PlanTerms:
    """Read the terms; raises `InputError` for limits that cannot be read, `ValueError` for pins."""
    for flow, group in settings.pins.items():
        if not 0 <= group < settings.groups:
            raise ValueError(
                f"flow {flow!r} cannot be pinned to group {group}: "
                f"there are groups 0 to {settings.groups - 1}"
            )
    constraints = Constraints(parse_limits(settings.limits), dict(settings.pins))
    return PlanTerms(Size(settings.groups, settings.sessions), constraints)


def most_moves(settings: ControlSettings, flows: int) -> int:
    """How many of so many flows a plan may move."""
    if settings.max_moves is not None:
        return settings.max_moves
    return max(1, int(_MOVED_SHARE * flows))


def replan(
    demand: Demand, terms: PlanTerms, previous: Previous | None, most: int | None
) -> Replanned:
    """Keep the terms with at most `most` moves (None: any number), or raise `InfeasibleError`."""
    names = set(demand.interest.flows)
    pinned = {flow: group for flow, group in terms.constraints.pinned.items() if flow in names}
    request = Request(
        terms.size.groups,
        terms.size.sessions,
        budget_s=_BUDGET_S,
        patience=_PATIENCE,
        previous=previous,
        max_moves=None if previous is None else most,
        constraints=replace(terms.constraints, pinned=pinned),
    )
    solution = make_plan(demand, request).solution
    if previous is None:
        return Replanned(solution.plan, 0)
    moves = moves_between(previous, solution.plan, solution.session_origin)
    return Replanned(solution.plan, count_moved(moves))
