"""Small plans for tests, of the same receivers and flows in different ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from distributary.model import Interest, Plan, plan_problems


def pairs(found: set[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    ordered = np.array(sorted(found), np.int32).reshape(-1, 2)
    return np.ascontiguousarray(ordered[:, 0]), np.ascontiguousarray(ordered[:, 1])


def random_plan(
    wanted: Mapping[str, Sequence[str]],
    rng: np.random.Generator,
    *,
    unicast: bool = True,
    extra: str | None = None,
) -> Plan:
    """A valid plan for who wants what; with `extra`, of one more flow, which shifts numbers."""
    asked = [(receiver, flow) for receiver, flows in wanted.items() for flow in flows]
    if extra is not None:
        asked.append((asked[0][0], extra))
    interest = Interest.from_pairs(asked)
    n_flows = len(interest.flows)
    n_sessions = int(rng.integers(1, 5))
    alone = {k for k in range(n_flows) if unicast and rng.random() < 0.15}
    if len(alone) == n_flows:
        alone.pop()
    sessions_of = {
        k: sorted(
            rng.choice(
                n_sessions, size=min(n_sessions, 1 + int(rng.random() < 0.2)), replace=False
            ).tolist()
        )
        for k in range(n_flows)
        if k not in alone
    }
    used = sorted({s for found in sessions_of.values() for s in found})
    in_session = [
        (r, k)
        for r in range(len(interest.receivers))
        for k in interest.flows_of(r).tolist()
        if k in sessions_of
    ]
    # Pairs that go by unicast although their flow travels in a session.
    outliers = {pair for pair in in_session[1:] if unicast and rng.random() < 0.1}
    subscriptions = {
        (r, int(rng.choice(sessions_of[k]))) for r, k in in_session if (r, k) not in outliers
    }
    heard = {s for _, s in subscriptions}
    number = {s: at for at, s in enumerate(s for s in used if s in heard)}
    n_groups = int(rng.integers(1, len(number) + 1))
    group = [at % n_groups for at in range(len(number))]
    placement = pairs({(k, number[s]) for k, ss in sessions_of.items() for s in ss if s in number})
    subscription = pairs({(r, number[s]) for r, s in subscriptions})
    by_unicast = pairs(
        outliers | {(r, k) for k in alone for r in interest.receivers_of(k).tolist()}
    )
    plan = Plan(
        interest.receivers,
        interest.flows,
        *placement,
        np.array(group, np.int32),
        *subscription,
        *by_unicast,
    )
    assert plan_problems(plan, interest) == ()
    return plan


def move_flows(plan: Plan, wanted: Mapping[str, Sequence[str]], rng: np.random.Generator) -> Plan:
    """The same plan, but that two sessions exchange a flow each, or one gives a flow away."""
    sessions_of: dict[int, set[int]] = {}
    for flow, session in zip(
        plan.placement_flow.tolist(), plan.placement_session.tolist(), strict=True
    ):
        sessions_of.setdefault(flow, set()).add(session)
    if plan.n_sessions > 1:
        a, b = rng.choice(plan.n_sessions, 2, replace=False).tolist()
        for left, entered in ((a, b), (b, a)) if rng.random() < 0.7 else ((a, b),):
            flows = [flow for flow, found in sorted(sessions_of.items()) if left in found]
            others = [flow for flow in flows if entered not in sessions_of[flow]]
            if others and len(flows) > 1:
                moved = sessions_of[int(rng.choice(others))]
                moved.remove(left)
                moved.add(entered)
    subscriptions = {
        (plan.receivers.index(receiver), min(sessions_of[plan.flows.index(flow)]))
        for receiver, flows in wanted.items()
        for flow in flows
        if plan.flows.index(flow) in sessions_of
    }
    heard = {session for _, session in subscriptions}
    subscriptions |= {(0, session) for session in range(plan.n_sessions) if session not in heard}
    placement = {(flow, session) for flow, found in sessions_of.items() for session in found}
    return replace(
        plan,
        placement_flow=pairs(placement)[0],
        placement_session=pairs(placement)[1],
        subscription_receiver=pairs(subscriptions)[0],
        subscription_session=pairs(subscriptions)[1],
    )
