"""Proofs, before any search, that no plan can meet the constraints.

Each check is a necessary condition: what it refuses, no plan can satisfy, whatever else is allowed.
What no check refuses may still be infeasible; the search decides.

A flow may have at most `unicast_receivers` receivers by unicast, and it may be sent so often that
all flows together send at most `max_sent` times their rate. Both loosen some conditions, so the
checks count on as much of each as any single flow could use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

import numpy as np

from distributary.errors import InfeasibleError
from distributary.model import (
    Constraints,
    Demand,
    FloatArray,
    IndexArray,
    IntArray,
    Limits,
    Packing,
    distinct,
)
from distributary.planning.bundles import number_bundles

__all__ = ["check_contradictions"]

_SLACK = 1 + 5e-10  # smaller than the tolerance of the check of a finished plan

GROUP_RATE = "raise what a group may carry (--group-cap, or rate of [groups])"
RECEIVER_RATE = "raise its cap, or take flows out of its interest"
MEMBERS = "raise members of [groups]"
PACKETS = "raise packets of [groups]"
ENTRIES = "raise entries of [switches]"
SETS = "loosen one of these constraints"


def check_contradictions(
    demand: Demand,
    constraints: Constraints,
    n_groups: int,
    *,
    unicast_receivers: int = 0,
    max_sent: float = 1.0,
    packing: Packing | None = None,
) -> None:
    """Raise `InfeasibleError`, with the limit that must give, if no plan meets the constraints."""
    limits = constraints.limits
    case = _Case(
        demand,
        constraints,
        min(n for n in (n_groups, limits.groups, limits.sessions) if n is not None),
        unicast_receivers,
        max_sent,
        packing or Packing(),
    )
    _check_group_rates(case)
    _check_receiver_rates(case)
    _check_parts(case)
    _check_pins(case)
    _check_apart(case)
    _check_filling(case)
    _check_receiver_groups(case)
    _check_switches(case)
    _check_whole(case)


@dataclass(frozen=True, eq=False)
class _Case:
    """What is asked for, and what it comes to for each flow and each bundle of flows."""

    demand: Demand
    constraints: Constraints
    n_groups: int
    unicast_receivers: int
    max_sent: float
    packing: Packing
    bundle: IndexArray = field(init=False)
    n_bundles: int = field(init=False)

    def __post_init__(self) -> None:
        bundle, n_bundles = number_bundles(self.demand, self.constraints)
        object.__setattr__(self, "bundle", bundle)
        object.__setattr__(self, "n_bundles", n_bundles)

    @property
    def limits(self) -> Limits:
        return self.constraints.limits

    @property
    def names(self) -> tuple[str, ...]:
        return self.demand.interest.flows

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each flow."""
        return {name: k for k, name in enumerate(self.names)}

    @cached_property
    def pins(self) -> dict[str, int]:
        """The pins of flows that somebody wants."""
        return {n: group for n, group in self.constraints.pinned.items() if n in self.index}

    @cached_property
    def leaves(self) -> np.ndarray:
        """Whether each bundle may go to all of its receivers by unicast."""
        most = np.zeros(self.n_bundles, np.int64)
        np.maximum.at(most, self.bundle, self.demand.interest.audience)
        leaves = most <= self.unicast_receivers
        leaves[[self.bundle[self.index[name]] for name in self.pins]] = False
        return leaves

    @cached_property
    def load(self) -> FloatArray:
        """The load of each bundle, which travels as a whole."""
        return self.sum_by_bundle(self.demand.load)

    @cached_property
    def least_members(self) -> IntArray:
        """The receivers that one session with each bundle has at least."""
        interest = self.demand.interest
        if self.unicast_receivers:  # each flow's own outliers may leave
            audience = np.zeros(self.n_bundles, np.int64)
            np.maximum.at(audience, self.bundle, interest.audience)
            audience = np.maximum(audience - self.unicast_receivers, 0)
        else:
            owner = self.bundle[interest.pair_flows()].astype(np.int64)
            keys = distinct(owner * len(interest.receivers) + interest.flow_receivers)
            audience = np.bincount(keys // len(interest.receivers), minlength=self.n_bundles)
        rate = self.sum_by_bundle(self.demand.rate)
        spare = max(0.0, self.max_sent * _SLACK - 1) * float(self.demand.rate.sum())
        copies = np.minimum(1 + np.floor(np.minimum(spare / rate, 1e9)), self.n_groups)
        least: IntArray = np.ceil(audience / copies).astype(np.int64)
        return least

    def sum_by_bundle(self, of_flow: FloatArray) -> FloatArray:
        """The sums of the flows' values in each bundle."""
        return np.bincount(self.bundle, of_flow, self.n_bundles).astype(np.float64)

    def say_bundle(self, bundle: int, alone: str, together: str) -> str:
        """The flows of a bundle, with a verb for one and for several."""
        flows = [self.names[k] for k in np.flatnonzero(self.bundle == bundle)]
        if len(flows) == 1:
            return f"flow {flows[0]!r} {alone}"
        return f"flows {', '.join(map(repr, flows))} together {together}"

    def suggest(self, remedy: str, *, unicast: bool = True, copies: bool = False) -> str:
        """The remedy, and what else is not allowed and might help."""
        more = [] if self.unicast_receivers or not unicast else ["unicast (--unicast-receivers)"]
        more += [] if self.max_sent > 1 or not copies else ["copies (--max-sent)"]
        return remedy + (f", or allow {' or '.join(more)}" if more else "")


def _check_group_rates(case: _Case) -> None:
    cap = case.limits.group_rate
    if cap is None:
        return
    load = np.where(case.leaves, 0.0, case.load)
    worst = int(np.argmax(load))
    if load[worst] > cap * _SLACK:
        who = case.say_bundle(worst, "alone carries", "carry")
        _refuse(f"{who} {load[worst]:g}, over the cap of {cap:g} of a group", GROUP_RATE)
    if load.sum() > case.n_groups * cap * _SLACK:
        _refuse(
            f"all flows carry {load.sum():g}, over the {case.n_groups * cap:g} that "
            f"{case.n_groups} groups may carry",
            f"{GROUP_RATE}, or allow more groups",
        )


def _check_receiver_rates(case: _Case) -> None:
    """Unicast does not help: what a receiver wants reaches it in any case."""
    receivers, wanted = case.demand.interest.receivers, _sum_wanted(case.demand)
    caps = case.limits.receiver_caps(receivers)
    for j in np.flatnonzero(wanted > caps * _SLACK):
        _refuse(
            f"receiver {receivers[j]!r} wants {wanted[j]:g}, over its cap of {caps[j]:g}",
            RECEIVER_RATE,
        )


def _check_parts(case: _Case) -> None:
    """The session with most receivers of a bundle has so many members and sends so many packets."""
    limits, members = case.limits, case.least_members
    most = limits.most_members
    if most is not None and members.max() > most:
        worst = int(np.argmax(members))
        who = case.say_bundle(worst, "has", "have")
        _refuse(
            f"{who} at least {members[worst]} receivers in a group, which may have {most} members",
            case.suggest(MEMBERS, copies=True),
        )
    if not limits.group_packets:
        return
    # A step for more members may allow more packets, and other flows may bring the members.
    steps = limits.packet_caps(np.array([step.members for step in limits.group_packets]))
    reachable = np.maximum.accumulate(steps[::-1])[::-1]
    at = np.searchsorted([step.members for step in limits.group_packets], members)
    caps = np.where(members > 0, reachable[np.minimum(at, len(reachable) - 1)], np.inf)
    packets = case.packing.packets(case.sum_by_bundle(case.demand.message_load))
    for worst in np.flatnonzero(packets > caps * _SLACK).tolist():
        who = case.say_bundle(worst, "sends", "send")
        _refuse(
            f"{who} {packets[worst]:g} packets/s to at least {members[worst]} members of a group, "
            f"which may get {caps[worst]:g}",
            case.suggest(PACKETS, copies=bool(members[worst] > 1)),
        )


def _check_pins(case: _Case) -> None:
    pinned: dict[int, tuple[str, int]] = {}
    for name, group in case.constraints.pinned.items():
        if group >= case.n_groups:
            _refuse(
                f"flow {name!r} is pinned to group {group}, and there are only {case.n_groups}",
                "allow more groups, or pin it to another",
            )
    for name, group in case.pins.items():
        other = pinned.setdefault(int(case.bundle[case.index[name]]), (name, group))
        if other[1] != group:
            _refuse(
                f"flows {other[0]!r} and {name!r} must be together, and are pinned to groups "
                f"{other[1]} and {group}",
                SETS,
            )


def _check_apart(case: _Case) -> None:
    group_of = {int(case.bundle[case.index[name]]): group for name, group in case.pins.items()}
    for names in case.constraints.apart:
        apart = [int(case.bundle[case.index[n]]) for n in sorted(names) if n in case.index]
        placed = [b for b in apart if not case.leaves[b]]
        who = f"flows {', '.join(map(repr, sorted(names)))} must be apart"
        if len(set(placed)) < len(placed):
            _refuse(f"{who}, and some of them together", SETS)
        if len(placed) > case.n_groups:
            _refuse(f"{who}, and there are only {case.n_groups} groups", SETS)
        groups = [group_of[b] for b in placed if b in group_of]
        if len(groups) != len(set(groups)):
            _refuse(f"{who}, and some of them are pinned to the same group", SETS)


def _check_filling(case: _Case) -> None:
    """No group before a pinned one may stay empty; copies could fill several."""
    if not case.pins or case.max_sent > 1:
        return
    name, last = max(case.pins.items(), key=lambda pin: pin[1])
    filled = len(set(case.pins.values()))
    pinned = len({int(case.bundle[case.index[name]]) for name in case.pins})
    if filled + case.n_bundles - pinned <= last:
        _refuse(
            f"flow {name!r} is pinned to group {last}, and there are too few other flows to "
            f"fill the groups before group {last}",
            SETS,
        )


def _check_receiver_groups(case: _Case) -> None:
    """Pins, sets and rates say how many groups a receiver needs; by unicast it needs none."""
    limits, interest = case.limits, case.demand.interest
    fewest = [n for n in (limits.receiver_groups, limits.receiver_sessions) if n is not None]
    if not fewest or case.unicast_receivers:
        return
    most = min(fewest)
    what = "groups" if most == limits.receiver_groups else "sessions"
    remedy = case.suggest(f"raise {what} of [receivers]")
    needed, why = _count_groups_needed(case)
    worst = int(np.argmax(needed))
    if needed[worst] > most:
        _refuse(
            f"receiver {interest.receivers[worst]!r} needs {needed[worst]} {what} for "
            f"{why.get(worst, 'what it wants')}, over {most}",
            remedy,
        )
    if limits.group_rate is not None:
        wanted = _sum_wanted(case.demand)
        worst = int(np.argmax(wanted))
        if wanted[worst] > most * limits.group_rate * _SLACK:
            _refuse(
                f"receiver {interest.receivers[worst]!r} wants {wanted[worst]:g}, and "
                f"{most} groups of {limits.group_rate:g} carry {most * limits.group_rate:g}",
                remedy,
            )


def _count_groups_needed(case: _Case) -> tuple[IntArray, dict[int, str]]:
    """The groups that each receiver joins at least, and for what where that is more than 1."""
    interest = case.demand.interest
    needed = np.ones(len(interest.receivers), np.int64)
    why: dict[int, str] = {}
    apart = [
        ({name: number for number, name in enumerate(names)}, "flows that must be apart")
        for names in case.constraints.apart
    ]
    for place_of, reason in ((case.pins, "its pinned flows"), *apart):
        places: dict[int, set[int]] = {}
        for name, place in place_of.items():
            if name in case.index:
                for j in interest.receivers_of(case.index[name]).tolist():
                    places.setdefault(j, set()).add(place)
        for j, found in places.items():
            if len(found) > needed[j]:
                needed[j], why[j] = len(found), reason
    return needed, why


def _check_switches(case: _Case) -> None:
    """All flows that are wanted behind a switch are in groups that it has entries for."""
    limits, interest = case.limits, case.demand.interest
    if case.unicast_receivers:
        return
    receivers_of: dict[str, list[int]] = {}
    for j, name in enumerate(interest.receivers):
        if name in limits.switch_of:
            receivers_of.setdefault(limits.switch_of[name], []).append(j)
    for switch, receivers in sorted(receivers_of.items()):
        entries = limits.switch_cap(switch)
        if entries is None:
            continue
        flows = np.unique(np.concatenate([interest.flows_of(j) for j in receivers])).tolist()
        wanted = {interest.flows[k] for k in flows}
        pinned = {group for name, group in case.pins.items() if name in wanted}
        apart = max((len(wanted & names) for names in case.constraints.apart), default=0)
        needed, why = max((len(pinned), "pinned"), (apart, "to be apart"))
        if needed > entries:
            _refuse(
                f"switch {switch!r} needs {needed} entries for flows that are {why}, "
                f"and has {entries}",
                case.suggest(ENTRIES),
            )
        load, cap = float(case.demand.load[flows].sum()), limits.group_rate
        if cap is not None and load > entries * cap * _SLACK:
            _refuse(
                f"the receivers behind switch {switch!r} want {load:g}, and its {entries} entries "
                f"are for groups of {cap:g}",
                case.suggest(ENTRIES),
            )


def _check_whole(case: _Case) -> None:
    """All groups together have room for every receiver, and for what they want."""
    most, interest = case.limits.most_members, case.demand.interest
    if most is None or case.unicast_receivers:
        return
    room = case.n_groups * most
    if len(interest.receivers) > room:
        _refuse(
            f"{case.n_groups} groups of {most} members have room for {room} of "
            f"{len(interest.receivers)} receivers",
            case.suggest(f"{MEMBERS}, or allow more groups"),
        )
    cap, wanted = case.limits.group_rate, float(_sum_wanted(case.demand).sum())
    if cap is not None and wanted > room * cap * _SLACK:
        _refuse(
            f"all receivers want {wanted:g}, and {case.n_groups} groups of {most} members and "
            f"{cap:g} deliver {room * cap:g}",
            case.suggest(f"{MEMBERS}, or allow more groups"),
        )


def _sum_wanted(demand: Demand) -> FloatArray:
    """The load that each receiver wants."""
    interest = demand.interest
    return np.add.reduceat(demand.load[interest.receiver_flows], interest.receiver_offsets[:-1])


def _refuse(reason: str, remedy: str) -> NoReturn:
    raise InfeasibleError(reason, proven=True, remedy=remedy)
