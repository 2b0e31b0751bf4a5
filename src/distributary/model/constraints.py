"""Constraints on a plan beyond serving every wanted pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from distributary.model.demand import Demand
from distributary.model.interest import FloatArray, IndexArray
from distributary.model.plan import Plan

__all__ = ["Constraints", "broken_constraints"]

_ROUNDING = 1e-9  # relative: a sum of doubles may differ by this from another order of the same sum


@dataclass(frozen=True, slots=True)
class Constraints:
    """Caps on load, and flows that must or must not share a group.

    `group_rate` caps the load of each group (its line) and `receiver_rate` the intake of each
    receiver (its NIC; receivers not named have no cap), in messages per second, at the peak rate
    where the demand has one. `pinned` fixes the group of a flow. The flows of a set in `together`
    share a session; no two flows of a set in `apart` share a group.
    """

    group_rate: float | None = None
    receiver_rate: Mapping[str, float] = field(default_factory=dict)
    pinned: Mapping[str, int] = field(default_factory=dict)
    together: tuple[frozenset[str], ...] = ()
    apart: tuple[frozenset[str], ...] = ()

    def __post_init__(self) -> None:
        caps = [
            *self.receiver_rate.values(),
            *([] if self.group_rate is None else [self.group_rate]),
        ]
        if not all(0 < cap < np.inf for cap in caps):
            raise ValueError("a cap must be a finite number above 0")
        if any(group < 0 for group in self.pinned.values()):
            raise ValueError("pinned groups are numbered from 0")

    def __bool__(self) -> bool:
        return bool(
            self.group_rate is not None
            or self.receiver_rate
            or self.pinned
            or self.together
            or self.apart
        )

    def receiver_caps(self, receivers: tuple[str, ...]) -> FloatArray:
        """Each receiver's cap, infinite where it has none."""
        return np.array([self.receiver_rate.get(name, np.inf) for name in receivers], np.float64)


def broken_constraints(plan: Plan, demand: Demand, constraints: Constraints) -> tuple[str, ...]:
    """The constraints that the plan breaks, one sentence each, recomputed from the plan alone."""
    load = demand.load
    session_load = np.bincount(
        plan.placement_session, weights=load[plan.placement_flow], minlength=plan.n_sessions
    )
    group_load = np.bincount(plan.session_group, weights=session_load, minlength=plan.n_groups)
    receiver, group = plan.group_joins()
    intake = np.bincount(receiver, weights=group_load[group], minlength=len(plan.receivers))
    group_cap = np.inf if constraints.group_rate is None else constraints.group_rate
    caps = constraints.receiver_caps(plan.receivers)
    return (
        *(
            f"group {g} carries {group_load[g]:g}, over {group_cap:g}"
            for g in np.flatnonzero(group_load > group_cap * (1 + _ROUNDING))
        ),
        *(
            f"receiver {plan.receivers[n]!r} takes in {intake[n]:g}, over {caps[n]:g}"
            for n in np.flatnonzero(intake > caps * (1 + _ROUNDING))
        ),
        *_broken_sets(plan, constraints),
    )


def _broken_sets(plan: Plan, constraints: Constraints) -> list[str]:
    flows = {name: index for index, name in enumerate(plan.flows)}
    bounds = np.searchsorted(plan.placement_flow, np.arange(len(plan.flows) + 1))

    def sessions(name: str) -> IndexArray:
        flow = flows.get(name)
        if flow is None:
            return np.zeros(0, np.int32)
        return plan.placement_session[bounds[flow] : bounds[flow + 1]]

    def join_names(names: frozenset[str]) -> str:
        return ", ".join(repr(name) for name in sorted(names))

    def meet(names: frozenset[str]) -> bool:
        groups = [g for name in names for g in set(plan.session_group[sessions(name)].tolist())]
        return len(groups) != len(set(groups))

    return [
        *(
            f"flow {name!r} is not in group {group}"
            for name, group in constraints.pinned.items()
            if any(plan.session_group[s] != group for s in sessions(name))
        ),
        *(
            f"flows {join_names(names)} are not together"
            for names in constraints.together
            if len({tuple(sessions(name)) for name in names if name in flows}) > 1
        ),
        *(f"flows {join_names(names)} are not apart" for names in constraints.apart if meet(names)),
    ]
