"""How much of each limit a plan uses, recomputed from the plan and the demand alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from distributary.model.demand import Demand
from distributary.model.interest import FloatArray, IndexArray, IntArray, distinct
from distributary.model.limits import Limits
from distributary.model.packing import Packing
from distributary.model.plan import Plan

__all__ = ["LimitUse", "broken_limits", "limit_uses"]

_ROUNDING = 1e-9  # relative: a sum of doubles may differ by this from another order of the same sum


@dataclass(frozen=True, slots=True)
class LimitUse:
    """Where a plan uses most of a limit: `used` of `allowed` at a group, receiver or switch."""

    limit: str
    where: str
    used: float
    allowed: float

    @property
    def share(self) -> float:
        """The part of what is allowed; above 1 the limit is broken."""
        return self.used / self.allowed


def broken_limits(
    plan: Plan, demand: Demand, limits: Limits, packing: Packing | None = None
) -> tuple[str, ...]:
    """The limits that the plan breaks, each named by its group, receiver or switch."""
    return tuple(
        use.say(at)
        for use in _measure(plan, demand, limits, packing or Packing())
        for at in np.flatnonzero(use.values > use.caps * (1 + _ROUNDING)).tolist()
    )


def limit_uses(
    plan: Plan, demand: Demand, limits: Limits, packing: Packing | None = None
) -> tuple[LimitUse, ...]:
    """For each limit that is set, where the plan uses most of it."""
    worst = (
        (use, int(np.argmax(use.values / use.caps)))
        for use in _measure(plan, demand, limits, packing or Packing())
    )
    return tuple(
        LimitUse(use.limit, use.where(at), float(use.values[at]), float(use.caps[at]))
        for use, at in worst
        if np.isfinite(use.caps[at])
    )


@dataclass(frozen=True, slots=True)
class _Use:
    """The use of one limit everywhere: what is used and what is allowed, and how to say it."""

    limit: str
    values: FloatArray | IntArray
    caps: FloatArray
    where: Callable[[int], str]
    verb: str
    noun: str = ""

    def say(self, at: int) -> str:
        """Say that the limit is broken somewhere."""
        value, cap = self.values[at], self.caps[at]
        if np.issubdtype(self.values.dtype, np.integer):
            return f"{self.where(at)} {self.verb} {value} {self.noun}, over {int(cap)}"
        return f"{self.where(at)} {self.verb} {value:g}{self.noun}, over {cap:g}"


def _measure(plan: Plan, demand: Demand, limits: Limits, packing: Packing) -> Iterator[_Use]:
    """Measure the use of every limit that is set."""
    if plan.receivers != demand.interest.receivers or plan.flows != demand.interest.flows:
        raise ValueError("the plan and the demand must name the same receivers and flows")
    joins = plan.group_joins()
    group_load = _sum_by_group(plan, _sum_by_session(plan, demand.load))
    yield from _measure_network(plan, limits)
    yield from _measure_groups(plan, demand, limits, packing, joins[1], group_load)
    yield from _measure_receivers(plan, demand, limits, joins, group_load)
    yield from _measure_switches(plan, limits, joins)


def _sum_by_session(plan: Plan, rate: FloatArray) -> FloatArray:
    sums = np.bincount(plan.placement_session, rate[plan.placement_flow], plan.n_sessions)
    return sums.astype(np.float64)


def _sum_by_group(plan: Plan, of_session: FloatArray) -> FloatArray:
    return np.bincount(plan.session_group, of_session, plan.n_groups).astype(np.float64)


def _measure_network(plan: Plan, limits: Limits) -> Iterator[_Use]:
    for what, n, most in (
        ("groups", plan.n_groups, limits.groups),
        ("sessions", plan.n_sessions, limits.sessions),
    ):
        if most is not None:
            caps = np.array([most], np.float64)
            yield _Use(what, np.array([n]), caps, lambda _: "the plan", "has", what)


def _measure_groups(
    plan: Plan,
    demand: Demand,
    limits: Limits,
    packing: Packing,
    joined: IndexArray,
    load: FloatArray,
) -> Iterator[_Use]:
    def name(group: int) -> str:
        return f"group {group}"

    members = np.bincount(joined, minlength=plan.n_groups)
    if limits.most_members is not None:
        caps = np.full(plan.n_groups, float(limits.most_members))
        yield _Use("members of a group", members, caps, name, "has", "members")
    if limits.group_rate is not None:
        caps = np.full(plan.n_groups, limits.group_rate)
        yield _Use("rate of a group", load, caps, name, "carries")
    if limits.group_packets:
        packets = _sum_by_group(plan, packing.packets(_sum_by_session(plan, demand.message_load)))
        # A group with more members than any step allows breaks the limit on members.
        caps = np.where(
            members > limits.group_packets[-1].members, np.inf, limits.packet_caps(members)
        )
        yield _Use("packets of a group", packets, caps, name, "sends", " packets/s")


def _measure_receivers(
    plan: Plan,
    demand: Demand,
    limits: Limits,
    joins: tuple[IndexArray, IndexArray],
    group_load: FloatArray,
) -> Iterator[_Use]:
    def name(receiver: int) -> str:
        return f"receiver {plan.receivers[receiver]!r}"

    n = len(plan.receivers)
    if limits.receiver_groups is not None:
        caps = np.full(n, float(limits.receiver_groups))
        joined = np.bincount(joins[0], minlength=n)
        yield _Use("groups of a receiver", joined, caps, name, "joins", "groups")
    if limits.receiver_sessions is not None:
        caps = np.full(n, float(limits.receiver_sessions))
        heard = np.bincount(plan.subscription_receiver, minlength=n)
        yield _Use("sessions of a receiver", heard, caps, name, "subscribes to", "sessions")
    caps = limits.receiver_caps(plan.receivers)
    if np.isfinite(caps).any():
        in_groups = np.bincount(joins[0], group_load[joins[1]], n)
        alone = np.bincount(plan.unicast_receiver, demand.load[plan.unicast_flow], n)
        intake = (in_groups + alone).astype(np.float64)
        yield _Use("rate of a receiver", intake, caps, name, "takes in")


def _measure_switches(
    plan: Plan, limits: Limits, joins: tuple[IndexArray, IndexArray]
) -> Iterator[_Use]:
    switches = sorted(set(limits.switch_of.values()))
    most = [limits.switch_cap(name) for name in switches]
    if all(entries is None for entries in most):
        return
    number = {name: index for index, name in enumerate(switches)}
    behind = np.full(len(plan.receivers), -1, np.int64)
    for receiver, name in enumerate(plan.receivers):
        if name in limits.switch_of:
            behind[receiver] = number[limits.switch_of[name]]
    switch = behind[joins[0]]
    keys = distinct((switch * plan.n_groups + joins[1])[switch >= 0])
    needed = np.bincount(keys // plan.n_groups, minlength=len(switches))
    caps = np.array([np.inf if entries is None else entries for entries in most], np.float64)
    yield _Use(
        "entries of a switch",
        needed,
        caps,
        lambda at: f"switch {switches[at]!r}",
        "needs",
        "entries",
    )
