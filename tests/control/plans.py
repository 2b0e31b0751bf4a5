"""Plans made by hand, and what they cost worked out the long way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from distributary.control.messages import Decision
from distributary.control.plan_codec import name_plan
from distributary.control.settings import ControlSettings
from distributary.control.status import AuditEntry, Waste
from distributary.model import Plan
from tests.control.store import FORCE
from tests.control.system import System

Wants = Mapping[str, frozenset[str]]


def make_plan(wants: Wants, session_of: Mapping[str, int], session_group: Sequence[int]) -> Plan:
    """The plan with these places; everybody subscribes to the sessions of what they want."""
    flows = tuple(sorted(session_of))
    receivers = tuple(sorted(name for name, wanted in wants.items() if wanted & set(flows)))
    pairs = sorted(
        {
            (at, session_of[flow])
            for at, name in enumerate(receivers)
            for flow in wants[name]
            if flow in session_of
        }
    )
    return Plan(
        receivers=receivers,
        flows=flows,
        placement_flow=np.arange(len(flows), dtype=np.int32),
        placement_session=np.array([session_of[flow] for flow in flows], np.int32),
        session_group=np.array(session_group, np.int32),
        subscription_receiver=np.array([receiver for receiver, _ in pairs], np.int32),
        subscription_session=np.array([session for _, session in pairs], np.int32),
    )


def read_places(plan: Plan) -> dict[str, int]:
    """The session of each flow."""
    return {
        plan.flows[flow]: session
        for flow, session in zip(
            plan.placement_flow.tolist(), plan.placement_session.tolist(), strict=True
        )
    }


def waste_of(
    wants: Wants,
    session_of: Mapping[str, int],
    session_group: Sequence[int],
    messages: Mapping[str, int],
    seconds: Fraction,
) -> tuple[Fraction, Fraction, Fraction]:
    """What all receivers want, and what their two filters drop, per second, exactly."""
    wanted = first = second = 0
    for wanting in wants.values():
        mine = {session_of[flow] for flow in wanting if flow in session_of}
        joined = {session_group[session] for session in mine}
        for flow, session in session_of.items():
            if flow in wanting:
                wanted += messages[flow]
            elif session in mine:
                second += messages[flow]
            elif session_group[session] in joined:
                first += messages[flow]
    return Fraction(wanted) / seconds, Fraction(first) / seconds, Fraction(second) / seconds


def as_waste(found: tuple[Fraction, Fraction, Fraction]) -> Waste:
    return Waste(*(float(value) for value in found))


def make_system(
    settings: ControlSettings,
    wants: Wants,
    session_of: Mapping[str, int],
    session_group: Sequence[int],
    rates: Mapping[str, float],
) -> System:
    """A control plane with one publisher, 20 s after it began with a plan as version 1."""
    system = System(settings, rates)
    plan = make_plan(wants, session_of, session_group)
    put_in_force(system, plan)
    system.floor.publish("feed", tuple(sorted(rates)), system.now)
    for name, flows in wants.items():
        system.floor.want(name, flows, system.now)
    system.serve()
    system.run(20)
    return system


def put_in_force(system: System, plan: Plan) -> None:
    """Let a plan be in force as version 1, whatever it costs."""
    name, at = name_plan(plan), system.now
    decision = Decision(1, name, "first", "control", "by hand", at, 0)
    system.store.plans[name] = plan
    system.store.write(FORCE, decision, 0, "before")
    entry = AuditEntry(1, at, "control", "in force", "by hand", 1, kind="first", plan=name)
    system.store.audit.append(entry)
