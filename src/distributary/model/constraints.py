"""Constraints on a plan beyond serving every wanted pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from distributary.model.demand import Demand
from distributary.model.interest import FloatArray, IndexArray, IntArray, distinct
from distributary.model.limits import Limits
from distributary.model.packing import Packing
from distributary.model.plan import Plan

__all__ = ["Constraints", "broken_constraints", "broken_limits"]

_ROUNDING = 1e-9  # relative: a sum of doubles may differ by this from another order of the same sum


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


def broken_limits(
    plan: Plan, demand: Demand, limits: Limits, packing: Packing | None = None
) -> tuple[str, ...]:
    """The limits that the plan breaks, each named by its group, receiver or switch."""
    if plan.receivers != demand.interest.receivers or plan.flows != demand.interest.flows:
        raise ValueError("the plan and the demand must name the same receivers and flows")
    joins = plan.group_joins()
    group_load = _sum_by_group(plan, _session_sums(plan, demand.load))
    return (
        *_broken_counts(plan, limits),
        *_broken_groups(plan, demand, limits, packing or Packing(), joins, group_load),
        *_broken_receivers(plan, demand, limits, joins, group_load),
        *_broken_switches(plan, limits, joins),
    )


Joins = tuple[IndexArray, IndexArray]


def _session_sums(plan: Plan, rate: FloatArray) -> FloatArray:
    sums: FloatArray = np.bincount(
        plan.placement_session, weights=rate[plan.placement_flow], minlength=plan.n_sessions
    ).astype(np.float64)
    return sums


def _sum_by_group(plan: Plan, of_session: FloatArray) -> FloatArray:
    sums: FloatArray = np.bincount(
        plan.session_group, weights=of_session, minlength=plan.n_groups
    ).astype(np.float64)
    return sums


def _exceeds(values: FloatArray | IntArray, caps: FloatArray | float | None) -> list[int]:
    """Where values are over their caps by more than rounding."""
    if caps is None:
        return []
    over: list[int] = np.flatnonzero(values > np.asarray(caps) * (1 + _ROUNDING)).tolist()
    return over


def _broken_counts(plan: Plan, limits: Limits) -> list[str]:
    return [
        f"the plan has {n} {what}, over {cap}"
        for what, n, cap in (
            ("groups", plan.n_groups, limits.groups),
            ("sessions", plan.n_sessions, limits.sessions),
        )
        if cap is not None and n > cap
    ]


def _broken_groups(
    plan: Plan,
    demand: Demand,
    limits: Limits,
    packing: Packing,
    joins: Joins,
    load: FloatArray,
) -> list[str]:
    members = np.bincount(joins[1], minlength=plan.n_groups)
    broken = [
        *(
            f"group {g} has {members[g]} members, over {limits.group_members}"
            for g in _exceeds(members, limits.group_members)
        ),
        *(
            f"group {g} carries {load[g]:g}, over {limits.group_rate:g}"
            for g in _exceeds(load, limits.group_rate)
        ),
    ]
    if not limits.group_packets:
        return broken
    most = limits.group_packets[-1].members
    packets = _sum_by_group(plan, packing.packets(_session_sums(plan, demand.message_load)))
    caps = np.where(members > most, np.inf, limits.packet_caps(members))
    return [
        *broken,
        *(
            f"group {g} has {members[g]} members, over the {most} of the last packet step"
            for g in _exceeds(members, most)
        ),
        *(
            f"group {g} sends {packets[g]:g} packets/s to {members[g]} members, over {caps[g]:g}"
            for g in _exceeds(packets, caps)
        ),
    ]


def _broken_receivers(
    plan: Plan, demand: Demand, limits: Limits, joins: Joins, group_load: FloatArray
) -> list[str]:
    names, n = plan.receivers, len(plan.receivers)
    joined = np.bincount(joins[0], minlength=n)
    subscribed = np.bincount(plan.subscription_receiver, minlength=n)
    intake = np.bincount(joins[0], weights=group_load[joins[1]], minlength=n) + np.bincount(
        plan.unicast_receiver, weights=demand.load[plan.unicast_flow], minlength=n
    )
    caps = limits.receiver_caps(names)
    return [
        *(
            f"receiver {names[j]!r} joins {joined[j]} groups, over {limits.receiver_groups}"
            for j in _exceeds(joined, limits.receiver_groups)
        ),
        *(
            f"receiver {names[j]!r} subscribes to {subscribed[j]} sessions, "
            f"over {limits.receiver_sessions}"
            for j in _exceeds(subscribed, limits.receiver_sessions)
        ),
        *(
            f"receiver {names[j]!r} takes in {intake[j]:g}, over {caps[j]:g}"
            for j in _exceeds(intake, caps)
        ),
    ]


def _broken_switches(plan: Plan, limits: Limits, joins: Joins) -> list[str]:
    switches = sorted(set(limits.switch_of.values()))
    number = {name: index for index, name in enumerate(switches)}
    behind = np.array(
        [
            number[limits.switch_of[name]] if name in limits.switch_of else -1
            for name in plan.receivers
        ],
        np.int64,
    )
    switch = behind[joins[0]]
    keys = distinct((switch * plan.n_groups + joins[1])[switch >= 0])
    needed = np.bincount(keys // plan.n_groups, minlength=len(switches)).tolist()
    return [
        f"switch {name!r} needs {n} entries, over {cap}"
        for name, n in zip(switches, needed, strict=True)
        if (cap := limits.switch_cap(name)) is not None and n > cap
    ]


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
