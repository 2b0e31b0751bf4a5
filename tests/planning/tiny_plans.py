"""Tiny instances and plans, and what they cost and break, by loops and sets alone.

The search with terms is judged by this, so it uses neither `planning` nor `cost`: what the terms
mean is written here once more, from their documentation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

from distributary.model import Limits, Plan

UNICAST = -1  # a place, like a session
ROUNDING = 1e-9  # relative: a limit that is reached exactly holds in any order of a sum


# --- instances ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of a message and of a packet at both filters, and of a message sent."""

    alpha0: float = 1.0
    alpha1: float = 0.0
    beta0: float = 1.0
    beta1: float = 0.0
    messages_per_packet: float = 1.0
    delay_s: float = 0.0
    heartbeats: float = 0.0
    sent: float = 0.0

    def packets(self, rate: float) -> float:
        """Packets per second of a session: it waits for `delay_s` or until a packet is full."""
        return rate / min(self.messages_per_packet, 1 + rate * self.delay_s)

    def at_group(self, rates: Sequence[float]) -> float:
        """What a group with sessions of these rates costs each of its members."""
        work = sum(self.alpha0 * rate + self.alpha1 * self.packets(rate) for rate in rates)
        return work + self.alpha1 * self._heartbeats_of(rates)

    def at_session(self, rate: float) -> float:
        """What a session costs each of its subscribers."""
        return self.beta0 * rate + self.beta1 * self.packets(rate)

    def _heartbeats_of(self, rates: Sequence[float]) -> float:
        """Heartbeats of a group: the more, the more often its sessions pause for 10 ms."""
        if self.heartbeats == 0:
            return 0.0
        packets = [self.packets(rate) for rate in rates]
        pauses = sum(each * math.exp(-0.01 * each) for each in packets)
        filled = 1.36 * (0.01 * pauses) ** 0.76
        return self.heartbeats + 100 * filled / (1 + filled / 2)


@dataclass(frozen=True, slots=True)
class Unicast:
    """At most so many unicast receivers per flow, pairs in all, and rate beyond first copies."""

    receivers: int
    links: int | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """A tiny demand and the terms of its plan; flows and receivers are numbers, in order of name.

    `wanted[k]` has the receivers of flow k. `home[k]` has its places in the previous plan, none if
    it is new: sessions, and -1 for unicast. `home_group` is the group of each of those sessions.
    """

    receivers: tuple[str, ...]
    flows: tuple[str, ...]
    wanted: tuple[frozenset[int], ...]
    rate: tuple[float, ...]
    groups: int
    sessions: int
    peak: tuple[float, ...] | None = None
    weight: tuple[float, ...] | None = None
    prices: Prices = Prices()
    limits: Limits = field(default_factory=Limits)
    pinned: Mapping[int, int] = field(default_factory=dict)
    together: tuple[frozenset[int], ...] = ()
    apart: tuple[frozenset[int], ...] = ()
    home: tuple[frozenset[int], ...] = ()
    home_group: tuple[int, ...] = ()
    max_moves: int | None = None
    unicast: Unicast | None = None
    max_sent: float | None = None

    @property
    def load(self) -> tuple[float, ...]:
        """The rates that limits are about."""
        return self.rate if self.peak is None else self.peak

    @property
    def weights(self) -> tuple[float, ...]:
        """How much each receiver counts in the cost."""
        return self.weight or (1.0,) * len(self.receivers)

    def companions(self, flow: int) -> set[int]:
        """The flows that must be where the flow is, itself included."""
        found = {flow}
        for _ in self.together:
            found = found.union(*(flows for flows in self.together if flows & found))
        return found

    @property
    def most_sessions(self) -> int:
        """The maximum number of sessions, by size and limit."""
        return min(self.sessions, self.limits.sessions or self.sessions)

    @property
    def most_groups(self) -> int:
        """The maximum number of groups, by size and limit."""
        return min(self.groups, self.limits.groups or self.groups)


class TinyPlan(NamedTuple):
    """A plan as sets of pairs; `origin` is the previous number of each session, None if new."""

    placed: frozenset[tuple[int, int]]  # (flow, session)
    subscribed: frozenset[tuple[int, int]]  # (receiver, session)
    unicast: frozenset[tuple[int, int]]  # (receiver, flow)
    group_of: tuple[int, ...]
    origin: tuple[int | None, ...] | None = None

    @property
    def sessions(self) -> range:
        """The sessions' numbers."""
        return range(len(self.group_of))

    def members(self, group: int) -> set[int]:
        """Who joins a group."""
        return {r for r, s in self.subscribed if self.group_of[s] == group}

    def groups_of(self, flow: int) -> set[int]:
        """The groups that carry a flow."""
        return {self.group_of[s] for f, s in self.placed if f == flow}

    def idles(self, flow: int, session: int, instance: Instance) -> bool:
        """Whether nobody takes the flow, or one that must be with it, from the session."""
        takers = {
            (r, f)
            for r, s in self.subscribed
            for f, other in self.placed
            if s == other == session and r in instance.wanted[f] and (r, f) not in self.unicast
        }
        companions = instance.companions(flow)
        return not any(f in companions for _, f in takers)

    def serves(self, receiver: int, flow: int) -> bool:
        """Whether the receiver gets the flow."""
        return (receiver, flow) in self.unicast or any(
            f == flow and (receiver, s) in self.subscribed for f, s in self.placed
        )


def read_tiny(plan: Plan, origin: Sequence[int] | None, known: int) -> TinyPlan:
    """A plan of the planner, with the origin of its sessions in a plan of `known` sessions."""

    def pairs(left: Sequence[int], right: Sequence[int]) -> frozenset[tuple[int, int]]:
        return frozenset((int(a), int(b)) for a, b in zip(left, right, strict=True))

    return TinyPlan(
        pairs(plan.placement_flow, plan.placement_session),  # type: ignore[arg-type]
        pairs(plan.subscription_receiver, plan.subscription_session),  # type: ignore[arg-type]
        pairs(plan.unicast_receiver, plan.unicast_flow),  # type: ignore[arg-type]
        tuple(plan.session_group.tolist()),
        None if origin is None else tuple(int(s) if 0 <= s < known else None for s in origin),
    )


# --- the judge ------------------------------------------------------------------------------------


def price(plan: TinyPlan, instance: Instance) -> float:
    """What a plan costs: filters, heartbeats and copies sent."""
    prices, rate, weight = instance.prices, instance.rate, instance.weights
    carried = [sum(rate[f] for f, s in plan.placed if s == session) for session in plan.sessions]
    work = 0.0
    for group in set(plan.group_of):
        rates = [carried[s] for s in plan.sessions if plan.group_of[s] == group]
        work += sum(weight[r] for r in plan.members(group)) * prices.at_group(rates)
    for receiver, session in plan.subscribed:
        work += weight[receiver] * prices.at_session(carried[session])
    for receiver in {receiver for receiver, _ in plan.unicast}:
        stream = sum(rate[f] for r, f in plan.unicast if r == receiver)
        work += weight[receiver] * (prices.at_group([stream]) + prices.at_session(stream))
    return work + prices.sent * _sent(plan, instance)


def complaints(plan: TinyPlan, instance: Instance) -> list[str]:
    """Everything that is wrong with a plan: who misses what, and each term that it breaks."""
    return [
        *_validity(plan, instance),
        *broken_terms(plan, instance),
        *_unicast(plan, instance),
        *_copies(plan, instance),
        *_moves(plan, instance),
    ]


def broken_terms(plan: TinyPlan, instance: Instance) -> list[str]:
    """The limits, pins and sets that a plan breaks."""
    return [
        *_number_limits(plan, instance),
        *_group_limits(plan, instance),
        *_receiver_limits(plan, instance),
        *_sets(plan, instance),
    ]


def is_over(value: float, limit: float | None) -> bool:
    return limit is not None and value > limit * (1 + ROUNDING)


def _sent(plan: TinyPlan, instance: Instance) -> float:
    copies = [f for f, _ in plan.placed] + [f for _, f in plan.unicast]
    return sum(instance.rate[f] for f in copies)


def _validity(plan: TinyPlan, instance: Instance) -> Iterator[str]:
    for flow, receivers in enumerate(instance.wanted):
        for receiver in receivers:
            if not plan.serves(receiver, flow):
                yield f"receiver {receiver} misses flow {flow}"
    for session in plan.sessions:
        if all(s != session for _, s in plan.placed):
            yield f"session {session} carries nothing"
        if all(s != session for _, s in plan.subscribed):
            yield f"session {session} has no subscriber"
    used = set(plan.group_of)
    if used != set(range(len(used))) or not used:
        yield f"the groups are {used}"


def _number_limits(plan: TinyPlan, instance: Instance) -> Iterator[str]:
    if len(plan.group_of) > instance.most_sessions:
        yield f"{len(plan.group_of)} sessions"
    if len(set(plan.group_of)) > instance.most_groups:
        yield f"{len(set(plan.group_of))} groups"


def _group_limits(plan: TinyPlan, instance: Instance) -> Iterator[str]:
    limits, load = instance.limits, instance.load
    for group in set(plan.group_of):
        members = len(plan.members(group))
        loads = [
            sum(load[f] for f, s in plan.placed if s == session)
            for session in plan.sessions
            if plan.group_of[session] == group
        ]
        packets = sum(instance.prices.packets(one) for one in loads)
        steps = limits.group_packets
        most = [step.members for step in steps[-1:]]
        if any(is_over(members, cap) for cap in (limits.group_members, *most)):
            yield f"group {group} has {members} members"
        if is_over(sum(loads), limits.group_rate):
            yield f"group {group} carries {sum(loads)}"
        allowed = [step.packets for step in steps if members <= step.members]
        if allowed and is_over(packets, allowed[0]):
            yield f"group {group} carries {packets} packets to {members} members"


def _receiver_limits(plan: TinyPlan, instance: Instance) -> Iterator[str]:
    limits, load = instance.limits, instance.load
    behind: dict[str, set[int]] = {}
    for receiver, name in enumerate(instance.receivers):
        sessions = {s for r, s in plan.subscribed if r == receiver}
        groups = {plan.group_of[s] for s in sessions}
        intake = sum(load[f] for f, s in plan.placed if plan.group_of[s] in groups)
        intake += sum(load[f] for r, f in plan.unicast if r == receiver)
        if is_over(intake, limits.receiver_rates.get(name, limits.receiver_rate)):
            yield f"receiver {receiver} takes in {intake}"
        if is_over(len(groups), limits.receiver_groups):
            yield f"receiver {receiver} joins {len(groups)} groups"
        if is_over(len(sessions), limits.receiver_sessions):
            yield f"receiver {receiver} subscribes to {len(sessions)} sessions"
        if name in limits.switch_of:
            behind.setdefault(limits.switch_of[name], set()).update(groups)
    for switch, entries in behind.items():
        if is_over(len(entries), limits.entries_of.get(switch, limits.switch_entries)):
            yield f"switch {switch} needs {len(entries)} entries"


def _sets(plan: TinyPlan, instance: Instance) -> Iterator[str]:
    for flow, group in instance.pinned.items():
        if plan.groups_of(flow) != {group}:
            yield f"flow {flow} is not in group {group}"
    for flows in instance.together:
        if len({frozenset(s for f, s in plan.placed if f == flow) for flow in flows}) > 1:
            yield f"flows {set(flows)} are not together"
    for flows in instance.apart:
        groups = [group for flow in flows for group in plan.groups_of(flow)]
        if len(groups) != len(set(groups)):
            yield f"flows {set(flows)} are not apart"


def _unicast(plan: TinyPlan, instance: Instance) -> Iterator[str]:
    allowed = instance.unicast
    if allowed is None:
        if plan.unicast:
            yield "unicast was not asked for"
        return
    extra = 0.0
    for flow, rate in enumerate(instance.rate):
        copies = sum(f == flow for _, f in plan.unicast)
        in_session = any(f == flow for f, _ in plan.placed)
        extra += rate * (copies if in_session else copies - 1)
        if copies > allowed.receivers:
            yield f"flow {flow} has {copies} unicast receivers"
    if is_over(len(plan.unicast), allowed.links):
        yield f"{len(plan.unicast)} unicast pairs"
    if allowed.rate is not None and extra > allowed.rate + ROUNDING * _sent(plan, instance):
        yield f"unicast sends {extra} more than once"
    for receiver, flow in plan.unicast:
        if receiver not in instance.wanted[flow]:
            yield f"receiver {receiver} does not want flow {flow}"


def _copies(plan: TinyPlan, instance: Instance) -> Iterator[str]:
    if instance.max_sent is not None:
        if is_over(_sent(plan, instance), instance.max_sent * sum(instance.rate)):
            yield f"{_sent(plan, instance)} is sent"
    elif len(plan.placed) > len({f for f, _ in plan.placed}):
        yield "a flow is in several sessions"


def _moves(plan: TinyPlan, instance: Instance) -> Iterator[str]:
    if (
        instance.max_moves is not None
        and (moves := count_moves(plan, instance)) > instance.max_moves
    ):
        yield f"{moves} flows move"


def count_moves(plan: TinyPlan, instance: Instance) -> int:
    """How many known flows have a place that they did not have, or one that is in another group.

    Groups may be renumbered to close gaps, so the pairing of old and new groups with the fewest
    moves counts, and without `origin` that of old and new sessions.
    """
    known = len(instance.home_group)
    origins = [plan.origin] if plan.origin is not None else _pairings(known, len(plan.group_of))
    old_groups, n_groups = max(instance.home_group, default=-1) + 1, max(plan.group_of) + 1
    return min(
        _moves_with(plan, instance, origin, group_origin)
        for origin in origins
        for group_origin in _pairings(old_groups, n_groups)
        # Only groups beyond the last number in use are renumbered.
        if all(old in (None, new) or old >= n_groups for new, old in enumerate(group_origin))
    )


def _pairings(n_old: int, n_new: int) -> Iterator[tuple[int | None, ...]]:
    """All ways to give each new thing an old one or none, no old one twice."""
    yield from set(permutations([*range(n_old), *([None] * n_new)], n_new))


def _moves_with(
    plan: TinyPlan,
    instance: Instance,
    origin: tuple[int | None, ...],
    group_origin: tuple[int | None, ...],
) -> int:
    moved = 0
    for flow, home in enumerate(instance.home):
        sessions = {s for f, s in plan.placed if f == flow}
        places = {origin[s] for s in sessions}
        if any(f == flow for _, f in plan.unicast):
            places.add(UNICAST)
        regrouped = any(
            group_origin[plan.group_of[s]] != instance.home_group[old]
            for s in sessions
            if (old := origin[s]) is not None
        )
        moved += bool(home) and (not places <= home or regrouped)
    return moved
