"""Constraints on a plan beyond serving every wanted pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from distributary.model.demand import Demand
from distributary.model.interest import IndexArray
from distributary.model.limits import Limits
from distributary.model.packing import Packing
from distributary.model.plan import Plan
from distributary.model.uses import broken_limits

__all__ = ["Constraints", "broken_constraints"]


@dataclass(frozen=True, slots=True)
class Constraints:
    """What the network allows, and flows that must or must not share a group.

    `pinned` fixes the group of a flow: it travels there and in no other group, and not to all of
    its receivers by unicast. The flows of a set in `together` share their sessions; no two flows
    of a set in `apart` share a group. Single pairs may go by unicast all the same.
    """

    limits: Limits = field(default_factory=Limits)
    pinned: Mapping[str, int] = field(default_factory=dict)
    together: tuple[frozenset[str], ...] = ()
    apart: tuple[frozenset[str], ...] = ()

    def __post_init__(self) -> None:
        if any(group < 0 for group in self.pinned.values()):
            raise ValueError("pinned groups are numbered from 0")

    def __bool__(self) -> bool:
        return bool(self.limits or self.pinned or self.together or self.apart)


def broken_constraints(
    plan: Plan, demand: Demand, constraints: Constraints, packing: Packing | None = None
) -> tuple[str, ...]:
    """The constraints that the plan breaks, one sentence each, recomputed from the plan alone.

    `packing` says how many messages share a packet, for limits on packets.
    """
    return (
        *broken_limits(plan, demand, constraints.limits, packing),
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
            if name in flows and set(plan.session_group[sessions(name)].tolist()) != {group}
        ),
        *(
            f"flows {join_names(names)} are not together"
            for names in constraints.together
            if len({tuple(sessions(name)) for name in names if name in flows}) > 1
        ),
        *(f"flows {join_names(names)} are not apart" for names in constraints.apart if meet(names)),
    ]
