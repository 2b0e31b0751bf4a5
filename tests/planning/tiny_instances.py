"""Tiny instances for every option of the planner, for pairs of options and for all together.

The same kind and seed give the same instance. All terms are taken from one plan drawn at random:
limits at what it needs, a little less or a little more, pins and sets from what it does. So most
instances have a plan, if only one that is hard to find, and some just have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any, NamedTuple

from distributary.model import Limits, PacketStep
from tests.planning.tiny_plans import UNICAST, Instance, Prices, TinyPlan, Unicast
from tests.strategies import AWKWARD


class Largest(NamedTuple):
    """The most that a tiny instance has of everything."""

    flows: int = 5
    receivers: int = 4
    pairs: int = 14
    sessions: int = 4
    groups: int = 3


def tiny_instance(kind: Sequence[str], seed: int, largest: Largest | None = None) -> Instance:
    """An instance with the options named, each drawn in turn."""
    rng = Random(f"{'+'.join(kind)} {seed}")
    if largest is None:
        # There are more plans where each pair has a place of its own, or where sessions differ.
        differ = {"copies", "unicast", "moves"} & {*kind}
        largest = Largest(pairs=8 if "copies" in kind else 14, sessions=3 if differ else 4)
    instance = _draw_demand(rng, largest)
    plan = draw_plan(rng, instance)
    for name, draw in OPTIONS.items():
        if name in kind:
            other = draw_plan(rng, instance) if rng.random() < 0.1 else plan
            instance = replace(instance, **draw(rng, instance, other))
    return instance


def _draw_demand(rng: Random, largest: Largest) -> Instance:
    n_flows, n_receivers = rng.randint(2, largest.flows), rng.randint(2, largest.receivers)
    wanted = [
        frozenset(rng.sample(range(n_receivers), rng.randint(1, n_receivers)))
        for _ in range(n_flows)
    ]
    while sum(map(len, wanted)) > largest.pairs:
        wanted.pop()
    heard = sorted(set().union(*wanted))  # nobody is there who wants nothing
    wanted = [frozenset(heard.index(receiver) for receiver in flow) for flow in wanted]
    groups = rng.randint(1, largest.groups)
    return Instance(
        receivers=_draw_names(rng, "r", len(heard)),
        flows=_draw_names(rng, "f", len(wanted)),
        wanted=tuple(wanted),
        rate=_draw_rates(rng, len(wanted)),
        groups=groups,
        sessions=rng.randint(groups, largest.sessions),
    )


def _draw_names(rng: Random, letter: str, count: int) -> tuple[str, ...]:
    if rng.random() < 0.8:
        return tuple(f"{letter}{nth}" for nth in range(count))
    return tuple(sorted(rng.sample([*AWKWARD, "x", "y"], count)))


def _draw_rates(rng: Random, count: int) -> tuple[float, ...]:
    style = rng.choice(["whole", "whole", "whole", "equal", "wide", "tiny", "huge"])
    if style == "equal":
        return (rng.choice([0.1, 1.0, 7.0]),) * count
    if style == "wide":
        return tuple(10 ** rng.uniform(-4, 4) for _ in range(count))
    scale = {"whole": 1.0, "tiny": 1e-200, "huge": 1e200}[style]
    return tuple(scale * rng.randint(1, 9) for _ in range(count))


def draw_plan(rng: Random, instance: Instance) -> TinyPlan:
    """A plan with each flow in one session: what limits are measured on."""
    session_of = [rng.randrange(instance.sessions) for _ in instance.flows]
    used = sorted(set(session_of))
    groups = [rng.randrange(instance.groups) for _ in used]
    names = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    placed = {(flow, used.index(slot)) for flow, slot in enumerate(session_of)}
    return TinyPlan(
        frozenset(placed),
        frozenset((r, session) for flow, session in placed for r in instance.wanted[flow]),
        frozenset(),
        tuple(names[group] for group in groups),
    )


# --- options --------------------------------------------------------------------------------------


def _draw_peak(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    return {"peak": tuple(rate * rng.choice([1, 1, 2, 5]) for rate in instance.rate)}


def _draw_prices(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    """Packets that fill at the rates of the instance, or never, or always."""
    usual = sum(instance.rate) / len(instance.rate)
    return {
        "prices": Prices(
            alpha0=rng.choice([0.0, 0.2, 1.0]),
            alpha1=rng.choice([0.5, 1.0, 4.0]),
            beta0=rng.choice([0.0, 0.3, 1.0]),
            beta1=rng.choice([0.0, 0.5, 2.0]),
            messages_per_packet=rng.choice([1.0, 2.0, 8.0]),
            delay_s=rng.choice([0.0, 0.1, 1.0, 100.0]) / usual,
            heartbeats=rng.choice([0.0, 0.1, 1.0, 20.0]),
        )
    }


def _draw_sent_price(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    """Adler's cost: what is received and what is sent, and no packets."""
    prices = instance.prices
    return {
        "prices": Prices(
            alpha0=rng.choice([0.2, 1.0, 3.0]),
            beta0=0.0,
            messages_per_packet=prices.messages_per_packet,
            delay_s=prices.delay_s,
            sent=rng.choice([0.1, 1.0, 5.0]),
        )
    }


def _draw_weights(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    return {"weight": tuple(rng.choice([0.1, 1.0, 1.0, 3.0, 50.0]) for _ in instance.receivers)}


def _draw_pins(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    group_of = {flow: plan.group_of[session] for flow, session in plan.placed}
    flows = rng.sample(sorted(group_of), rng.randint(1, min(2, len(group_of))))
    return {"pinned": {flow: group_of[flow] for flow in flows}}


def _draw_together(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    """Some of the flows of up to two sessions; sets that overlap make a larger one."""
    sets = []
    for session in rng.choices(plan.sessions, k=2):
        flows = sorted(f for f, s in plan.placed if s == session)
        if len(flows) > 1:
            sets.append(frozenset(rng.sample(flows, rng.randint(2, min(3, len(flows))))))
    return {"together": tuple(sets)}


def _draw_apart(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    """One flow of each of some groups."""
    sets = []
    for _ in range(rng.randint(1, 2)):
        one_each = {
            plan.group_of[s]: f for f, s in rng.sample(sorted(plan.placed), len(plan.placed))
        }
        if len(one_each) > 1:
            sets.append(frozenset(one_each.values()))
    return {"apart": tuple(sets)}


def _draw_moves(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    """Yesterday some flows were elsewhere or not there; some sessions may be empty today."""
    sessions = range(len(plan.group_of))
    home = dict(plan.placed)

    def places(flow: int) -> frozenset[int]:
        fate = rng.random()
        if fate < 0.15:
            return frozenset()
        if fate < 0.3:
            return frozenset(
                rng.sample([UNICAST, *sessions], min(len(sessions), rng.randint(1, 2)))
            )
        return frozenset({rng.choice(sessions) if fate < 0.6 else home[flow]})

    return {
        "home": tuple(map(places, range(len(instance.flows)))),
        "home_group": plan.group_of,
        "max_moves": rng.choice([0, 1, 1, 2, 3, None]),
    }


def _draw_unicast(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    return {
        "unicast": Unicast(
            rng.randint(1, 3),
            rng.choice([None, 0, 1, 2, 4]),
            rng.choice([None, None, 0.0, rng.choice(instance.rate), sum(instance.rate)]),
        )
    }


def _draw_copies(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    return {"max_sent": rng.choice([1.0, 1.2, 1.5, 2.0, 3.0])}


def _draw_limits(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    names = list(_LIMITS)
    for name in rng.sample(names, rng.choice([1, 1, 2, 3, len(names)])):
        limits |= _LIMITS[name](rng, instance, plan)
    return {"limits": Limits(**limits)}


OPTIONS: dict[str, Callable[[Random, Instance, TinyPlan], dict[str, Any]]] = {
    "peak": _draw_peak,
    "prices": _draw_prices,
    "sent price": _draw_sent_price,
    "weights": _draw_weights,
    "limits": _draw_limits,
    "pins": _draw_pins,
    "together": _draw_together,
    "apart": _draw_apart,
    "unicast": _draw_unicast,
    "copies": _draw_copies,
    "moves": _draw_moves,
}
KINDS: tuple[tuple[str, ...], ...] = (
    (),
    *((name,) for name in OPTIONS),
    *combinations(OPTIONS, 2),
    tuple(OPTIONS),
)


# --- limits ---------------------------------------------------------------------------------------


def _near_rate(rng: Random, value: float) -> float:
    return value * rng.choice([1.0, 1.0, 1.0, 1.0, 1.01, 1.5, 2.0, 0.99, 0.7])


def _near_count(rng: Random, value: int) -> int:
    return max(1, value + rng.choice([0, 0, 0, 0, 1, -1]))


def _group_loads(instance: Instance, plan: TinyPlan) -> list[float]:
    return [
        sum(instance.load[f] for f, s in plan.placed if plan.group_of[s] == group)
        for group in sorted(set(plan.group_of))
    ]


def _joined(instance: Instance, plan: TinyPlan) -> list[set[int]]:
    return [
        {plan.group_of[s] for r, s in plan.subscribed if r == receiver}
        for receiver in range(len(instance.receivers))
    ]


def _limit_members(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    most = max(len(plan.members(group)) for group in set(plan.group_of))
    return {"group_members": _near_count(rng, most)}


def _limit_group_rate(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    return {"group_rate": _near_rate(rng, max(_group_loads(instance, plan)))}


def _limit_packets(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    """More members, fewer packets, as routers have it; sometimes the other way round."""
    packets = sorted(
        (_near_rate(rng, instance.prices.packets(load)) for load in _group_loads(instance, plan)),
        reverse=rng.random() < 0.9,
    )
    members = rng.sample(range(1, len(instance.receivers) + 1), 1 + (len(instance.receivers) > 1))
    steps = [
        PacketStep(most, packets[min(nth, len(packets) - 1)])
        for nth, most in enumerate(sorted(members))
    ]
    return {"group_packets": tuple(steps)}


def _limit_receiver_groups(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    return {"receiver_groups": _near_count(rng, max(map(len, _joined(instance, plan))))}


def _limit_receiver_sessions(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    receivers = range(len(instance.receivers))
    most = max(sum(r == receiver for r, _ in plan.subscribed) for receiver in receivers)
    return {"receiver_sessions": _near_count(rng, most)}


def _limit_receiver_rate(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    loads = _group_loads(instance, plan)
    intake = [sum(loads[group] for group in groups) for groups in _joined(instance, plan)]
    named = rng.sample(range(len(intake)), rng.randint(0, len(intake) - 1))
    return {
        "receiver_rate": _near_rate(rng, max(intake)) if rng.random() < 0.5 else None,
        "receiver_rates": {instance.receivers[r]: _near_rate(rng, intake[r]) for r in named},
    }


def _limit_numbers(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    return {
        "groups": _near_count(rng, len(set(plan.group_of))) if rng.random() < 0.5 else None,
        "sessions": _near_count(rng, len(plan.group_of)) if rng.random() < 0.5 else None,
    }


def _limit_switches(rng: Random, instance: Instance, plan: TinyPlan) -> dict[str, Any]:
    switch_of = {name: rng.choice("st") for name in instance.receivers if rng.random() < 0.8}
    needed = {
        switch: set().union(
            *(
                groups
                for name, groups in zip(instance.receivers, _joined(instance, plan), strict=True)
                if switch_of.get(name) == switch
            )
        )
        for switch in sorted(set(switch_of.values()))
    }
    named = {s: _near_count(rng, len(groups)) for s, groups in needed.items() if rng.random() < 0.6}
    return {
        "switch_of": switch_of,
        "entries_of": named,
        "switch_entries": rng.choice([None, 1, 2]),
    }


_LIMITS: dict[str, Callable[[Random, Instance, TinyPlan], dict[str, Any]]] = {
    "members": _limit_members,
    "group rate": _limit_group_rate,
    "packets": _limit_packets,
    "receiver groups": _limit_receiver_groups,
    "receiver sessions": _limit_receiver_sessions,
    "receiver rate": _limit_receiver_rate,
    "numbers": _limit_numbers,
    "switches": _limit_switches,
}
