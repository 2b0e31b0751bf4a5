"""What the code under test should say, worked out the long way: loops, sets and exact fractions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from fractions import Fraction
from itertools import chain, combinations, product
from typing import NamedTuple

from distributary.model import Constraints, Demand, Interest, Limits, Packing, Plan


class PlainPlan(NamedTuple):
    """A plan as sets of pairs and a list."""

    placed: set[tuple[int, int]]
    subscribed: set[tuple[int, int]]
    group_of: list[int]

    @property
    def groups(self) -> range:
        """The groups' numbers, those that hold nothing included."""
        return range(max(self.group_of) + 1)

    def joins(self, receiver: int, group: int) -> bool:
        """Whether the receiver subscribes to any session of the group."""
        return any(r == receiver and self.group_of[s] == group for r, s in self.subscribed)

    def copies(self, flow: int, group: int) -> int:
        """How many sessions of the group carry the flow."""
        return sum(f == flow and self.group_of[s] == group for f, s in self.placed)


def plain(plan: Plan) -> PlainPlan:
    return PlainPlan(
        set(zip(plan.placement_flow.tolist(), plan.placement_session.tolist(), strict=True)),
        set(
            zip(
                plan.subscription_receiver.tolist(), plan.subscription_session.tolist(), strict=True
            )
        ),
        plan.session_group.tolist(),
    )


def wanted_flows(interest: Interest) -> list[set[int]]:
    """What each receiver wants."""
    return [
        {k for k in range(len(interest.flows)) if j in interest.receivers_of(k)}
        for j in range(len(interest.receivers))
    ]


def exact_rates(demand: Demand) -> list[Fraction]:
    return [Fraction(rate) for rate in demand.rate.tolist()]


# --- validity ------------------------------------------------------------------------------------


def problems(plan: Plan, interest: Interest) -> list[str]:
    """Every sentence that `plan_problems` should say, in its order."""
    it = plain(plan)
    found = []
    missed = [
        (receiver, flow)
        for receiver, wants in enumerate(wanted_flows(interest))
        for flow in sorted(wants)
        if not any(f == flow and (receiver, s) in it.subscribed for f, s in it.placed)
    ]
    if missed:
        receiver, flow = missed[0]
        found.append(
            f"{len(missed)} wanted pairs are not served, the first: "
            f"receiver {interest.receivers[receiver]!r} misses flow {interest.flows[flow]!r}"
        )
    sessions = range(len(it.group_of))
    for kind, lack, empty in (
        ("session", "carries no flow", [s for s in sessions if all(p[1] != s for p in it.placed)]),
        (
            "session",
            "has no subscriber",
            [s for s in sessions if all(p[1] != s for p in it.subscribed)],
        ),
        ("group", "holds no session", [g for g in it.groups if g not in it.group_of]),
    ):
        if empty:
            more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
            found.append(f"{kind} {empty[0]} {lack}{more}")
    return found


def broken(
    plan: Plan, demand: Demand, constraints: Constraints, packing: Packing | None = None
) -> list[str]:
    """Every sentence that `broken_constraints` should say, in its order."""
    it = plain(plan)
    index = {name: flow for flow, name in enumerate(plan.flows)}
    found = [
        *broken_sizes(it, constraints.limits),
        *broken_groups(it, demand, constraints.limits, packing or Packing()),
        *broken_receivers(plan, demand, constraints.limits),
        *broken_switches(plan, constraints.limits),
    ]

    def sessions(name: str) -> set[int]:
        return {s for f, s in it.placed if f == index.get(name)}

    def groups(name: str) -> set[int]:
        return {it.group_of[s] for s in sessions(name)}

    def listed(names: frozenset[str]) -> str:
        return ", ".join(map(repr, sorted(names)))

    for name, group in constraints.pinned.items():
        if name in index and groups(name) != {group}:
            found.append(f"flow {name!r} is not in group {group}")
    for names in constraints.together:
        known = [name for name in names if name in index]
        if any(sessions(a) != sessions(b) for a, b in combinations(known, 2)):
            found.append(f"flows {listed(names)} are not together")
    return found + [
        f"flows {listed(names)} are not apart"
        for names in constraints.apart
        if any(groups(a) & groups(b) for a, b in combinations(names, 2))
    ]


def broken_sizes(it: PlainPlan, limits: Limits) -> list[str]:
    sizes = (("groups", len(it.groups), limits.groups),)
    sizes += (("sessions", len(it.group_of), limits.sessions),)
    return [
        f"the plan has {size} {what}, over {most}"
        for what, size, most in sizes
        if most is not None and size > most
    ]


def broken_groups(it: PlainPlan, demand: Demand, limits: Limits, packing: Packing) -> list[str]:
    load = [Fraction(one) for one in demand.load.tolist()]
    members = [len({r for r, s in it.subscribed if it.group_of[s] == g}) for g in it.groups]
    carried = [sum(load[f] for f, s in it.placed if it.group_of[s] == g) for g in it.groups]
    most, cap = limits.group_members, limits.group_rate
    if limits.group_packets:
        last = limits.group_packets[-1].members
        most = last if most is None else min(most, last)
    found = [
        f"group {g} has {members[g]} members, over {most}"
        for g in it.groups
        if most is not None and members[g] > most
    ] + [
        f"group {g} carries {float(carried[g]):g}, over {cap:g}"
        for g in it.groups
        if cap is not None and carried[g] > cap
    ]
    for g in it.groups:
        steps = [step for step in limits.group_packets if members[g] <= step.members]
        packets = sum(
            packets_of(sum(load[f] for f, placed in it.placed if placed == s), packing)
            for s, group in enumerate(it.group_of)
            if group == g
        )
        if steps and packets > Fraction(steps[0].packets) * (1 + Fraction(1, 10**9)):
            found.append(f"group {g} sends {float(packets):g} packets/s, over {steps[0].packets:g}")
    return found


def packets_of(rate: Fraction, packing: Packing) -> Fraction:
    """Packets per second of a session: the first message waits for as many more as come."""
    waiting = 1 + rate * Fraction(packing.delay_s)
    return rate / min(waiting, Fraction(packing.messages_per_packet))


def broken_receivers(plan: Plan, demand: Demand, limits: Limits) -> list[str]:
    it = plain(plan)
    load = [Fraction(one) for one in demand.load.tolist()]
    joined = [
        {it.group_of[s] for j, s in it.subscribed if j == r} for r in range(len(plan.receivers))
    ]
    found = []
    for r, name in enumerate(plan.receivers):
        most = limits.receiver_groups
        if most is not None and len(joined[r]) > most:
            found.append(f"receiver {name!r} joins {len(joined[r])} groups, over {most}")
    for r, name in enumerate(plan.receivers):
        n, most = sum(j == r for j, _ in it.subscribed), limits.receiver_sessions
        if most is not None and n > most:
            found.append(f"receiver {name!r} subscribes to {n} sessions, over {most}")
    for r, name in enumerate(plan.receivers):
        takes = sum(load[f] for f, s in it.placed if it.group_of[s] in joined[r])
        alone = zip(plan.unicast_receiver.tolist(), plan.unicast_flow.tolist(), strict=True)
        takes += sum(load[f] for j, f in alone if j == r)
        cap = limits.receiver_rates.get(name, limits.receiver_rate)
        if cap is not None and takes > cap:
            found.append(f"receiver {name!r} takes in {float(takes):g}, over {cap:g}")
    return found


def broken_switches(plan: Plan, limits: Limits) -> list[str]:
    it = plain(plan)
    found = []
    for switch in sorted(set(limits.switch_of.values())):
        behind = {
            r for r, name in enumerate(plan.receivers) if limits.switch_of.get(name) == switch
        }
        entries = len({it.group_of[s] for r, s in it.subscribed if r in behind})
        most = limits.entries_of.get(switch, limits.switch_entries)
        if most is not None and entries > most:
            found.append(f"switch {switch!r} needs {entries} entries, over {most}")
    return found


# --- the price lists -----------------------------------------------------------------------------


class Filtering(NamedTuple):
    """Tock's C1 and C2, and the two marks the excess is measured by."""

    session_cost: Fraction
    flow_cost: Fraction
    wanted: Fraction
    flooded: Fraction


def filtering(plan: Plan, demand: Demand, alpha: float, beta: float) -> Filtering:
    """Tock, eq. 1 and 3: each session in the groups joined, each flow in the sessions chosen."""
    it, rate = plain(plan), exact_rates(demand)
    session_cost = flow_cost = Fraction(0)
    for receiver in range(len(plan.receivers)):
        for flow, session in it.placed:
            if it.joins(receiver, it.group_of[session]):
                session_cost += Fraction(alpha) * rate[flow]
            if (receiver, session) in it.subscribed:
                flow_cost += Fraction(beta) * rate[flow]
    price = Fraction(alpha) + Fraction(beta)
    wants = wanted_flows(demand.interest)
    return Filtering(
        session_cost,
        flow_cost,
        price * sum(rate[flow] for flow in chain(*wants)),
        price * sum(rate) * len(wants),
    )


class Channel(NamedTuple):
    """Adler's C in its two parts, and what lies around it."""

    received: Fraction
    sent: Fraction
    lower_bound: Fraction
    flooding: Fraction


def channel(
    plan: Plan,
    demand: Demand,
    received: float = 1,
    sent: float = 1,
    coefficient: Callable[[int, int], float] = lambda receiver, flow: 1,
) -> Channel:
    """Adler, section 2.2: sums over flows i, receivers j and groups m; copies are charged."""
    it, rate = plain(plan), exact_rates(demand)
    w1, w2 = Fraction(received), Fraction(sent)
    receivers = range(len(plan.receivers))

    def pays(receiver: int, flow: int) -> Fraction:
        return Fraction(coefficient(receiver, flow)) * rate[flow]

    took = Fraction(0)
    for flow in range(len(rate)):
        for receiver in receivers:
            for group in it.groups:
                if it.joins(receiver, group):
                    took += it.copies(flow, group) * pays(receiver, flow)
    once = w2 * sum(rate)
    wants = wanted_flows(demand.interest)
    return Channel(
        w1 * took,
        w2 * sum((rate[flow] for flow, _ in it.placed), Fraction(0)),
        w1 * sum(pays(receiver, flow) for receiver in receivers for flow in wants[receiver]) + once,
        w1 * sum(pays(receiver, flow) for receiver in receivers for flow in range(len(rate)))
        + once,
    )


class Operating(NamedTuple):
    """Milo's MC and DC."""

    maintenance: Fraction
    dissemination: Fraction


def operating(
    frequency: Sequence[float],
    direct: Sequence[int],
    clusters: Sequence[tuple[Sequence[int], int]],
    maintain: Callable[[int], float],
    associate: Callable[[int], float],
    notify: float,
    disseminate: Callable[[int], float],
) -> Operating:
    """Milo, section 2: DC goes over the topics, and for each over the clusters that it is in."""
    freq = [Fraction(f) for f in frequency]
    maintenance = sum((Fraction(maintain(size)) for size in direct), Fraction(0))
    for topics, size in clusters:
        maintenance += Fraction(maintain(size)) + Fraction(associate(len(topics)))
    dissemination = Fraction(0)
    for t, size in enumerate(direct):
        dissemination += freq[t] * (Fraction(notify) + Fraction(disseminate(size)))
        for topics, members in clusters:
            for topic in topics:
                if topic == t:
                    dissemination += freq[t] * (Fraction(notify) + Fraction(disseminate(members)))
    return Operating(maintenance, dissemination)


# --- the best there is ---------------------------------------------------------------------------


def subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(items, n) for n in range(len(items) + 1))


def cheapest_single(wants: Sequence[set[int]], rate: Sequence[float], n_groups: int) -> float:
    """OCC by trying every map of flows to groups: received and sent rate."""
    return sum(rate) + min(
        sum(
            sum(r for r, g in zip(rate, group, strict=True) if g in {group[k] for k in wanted})
            for wanted in wants
        )
        for group in product(range(n_groups), repeat=len(rate))
    )


def cheapest_shared(wants: Sequence[set[int]], rate: Sequence[float], n_groups: int) -> float:
    """OCA by trying all (2^K - 1)^N maps of flows to sets of groups, and all covers in each."""
    choices = [set(groups) for groups in subsets(range(n_groups)) if groups]
    joinable = [set(groups) for groups in subsets(range(n_groups))]
    least = float("inf")
    for places in product(choices, repeat=len(rate)):
        carried = [
            sum(r for r, groups in zip(rate, places, strict=True) if m in groups)
            for m in range(n_groups)
        ]
        cost = sum(carried) + sum(
            min(
                sum(carried[m] for m in joined)
                for joined in joinable
                if all(joined & places[k] for k in wanted)
            )
            for wanted in wants
        )
        least = min(least, cost)
    return least


def covers(taken: Sequence[int], options: Sequence[Collection[int]]) -> bool:
    return all(set(option) & set(taken) for option in options)


def cheapest_cover_price(options: Sequence[Collection[int]], price: Sequence[float]) -> float:
    """The subscription problem by trying every set of groups."""
    return min(
        sum(price[group] for group in taken)
        for taken in subsets(range(len(price)))
        if covers(taken, options)
    )


def cheapest_two_level(
    wants: Sequence[set[int]],
    rate: Sequence[float],
    n_sessions: int,
    n_groups: int,
    alpha: float,
    beta: float,
) -> float:
    """Cw by trying every map of flows to sessions and every map of those to groups."""
    least = float("inf")
    for session in product(range(n_sessions), repeat=len(rate)):
        carried = [
            sum(rate[k] for k, s in enumerate(session) if s == own) for own in range(n_sessions)
        ]
        taken = [{session[k] for k in wanted} for wanted in wants]
        accepted = sum(carried[s] for sessions in taken for s in sessions)
        for group in product(range(n_groups), repeat=n_sessions):
            joined = [{group[s] for s in sessions} for sessions in taken]
            received = sum(
                carried[s] for groups in joined for s in range(n_sessions) if group[s] in groups
            )
            least = min(least, alpha * received + beta * accepted)
    return least


def feasible_groups(
    demand: Demand, constraints: Constraints, n_groups: int
) -> Iterator[tuple[int, ...]]:
    """Every map of flows to groups that holds the constraints and leaves no number unused.

    The flows of a set in `together` share a group: then they can share a session in it.
    """
    flows, load = demand.interest.flows, demand.load.tolist()
    index = {name: flow for flow, name in enumerate(flows)}
    wants = wanted_flows(demand.interest)
    limits = constraints.limits
    caps = [limits.receiver_rates.get(name, float("inf")) for name in demand.interest.receivers]
    group_cap = float("inf") if limits.group_rate is None else limits.group_rate
    for group in product(range(n_groups), repeat=len(flows)):
        carried = [0.0] * n_groups
        for flow, g in enumerate(group):
            carried[g] += load[flow]
        if (
            set(group) == set(range(max(group) + 1))
            and all(one <= group_cap for one in carried)
            and all(group[index[name]] == g for name, g in constraints.pinned.items())
            and all(len({group[index[n]] for n in names}) == 1 for names in constraints.together)
            and all(
                len({group[index[n]] for n in names}) == len(names) for names in constraints.apart
            )
            and all(
                sum(carried[g] for g in {group[k] for k in wanted}) <= cap
                for wanted, cap in zip(wants, caps, strict=True)
            )
        ):
            yield group
