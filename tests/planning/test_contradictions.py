from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.errors import InfeasibleError
from distributary.model import (
    Constraints,
    Demand,
    Interest,
    Limits,
    PacketStep,
    Packing,
    Plan,
    Rates,
    broken_constraints,
    plan_problems,
)
from distributary.planning.contradictions import check_contradictions
from tests.strategies import constraints, limits

GROUPS = 3
EACH_ALONE = Packing(1, 0)

# --- what is refused is impossible ---------------------------------------------------------------


@st.composite
def draw_tiny_demand(draw: st.DrawFn) -> Demand:
    pair = st.tuples(st.sampled_from("rst"), st.sampled_from("abc"))
    interest = Interest.from_pairs(draw(st.sets(pair, min_size=1, max_size=4)))
    n = len(interest.flows)
    rates = draw(st.lists(st.integers(1, 5), min_size=n, max_size=n))
    return Demand(interest, np.array(rates, np.float64))


def every_plan(interest: Interest) -> Iterator[Plan]:
    """Every way to serve each wanted pair, in one of three groups or by unicast.

    One session per group is enough: sessions of a group that become one have no more packets.
    """
    pairs = [(j, int(k)) for j in range(len(interest.receivers)) for k in interest.flows_of(j)]
    for places in product(range(-1, GROUPS), repeat=len(pairs)):
        n_sessions = max(places) + 1
        if n_sessions == 0:
            continue
        placed = sorted({(k, s) for (_, k), s in zip(pairs, places, strict=True) if s >= 0})
        subscribed = sorted({(j, s) for (j, _), s in zip(pairs, places, strict=True) if s >= 0})
        alone = [pair for pair, s in zip(pairs, places, strict=True) if s < 0]
        flow, session = np.array(placed, np.int32).T
        receiver, heard = np.array(subscribed, np.int32).T
        unicast = np.array(alone, np.int32).reshape(-1, 2).T
        groups = np.arange(n_sessions, dtype=np.int32)
        yield Plan(
            interest.receivers, interest.flows, flow, session, groups, receiver, heard, *unicast
        )


def is_allowed(plan: Plan, demand: Demand, unicast_receivers: int, max_sent: float) -> bool:
    sent = demand.rate[plan.placement_flow].sum()
    copies = np.bincount(plan.placement_flow, minlength=len(plan.flows))
    return bool(
        np.bincount(plan.unicast_flow, minlength=1).max() <= unicast_receivers
        and sent <= max_sent * demand.rate.sum()
        and (max_sent > 1 or copies.max() <= 1)
        and plan_problems(plan, demand.interest) == ()
    )


@given(data=st.data(), demand=draw_tiny_demand())
@settings(max_examples=60)
def test_what_is_refused_has_no_plan(data: st.DataObject, demand: Demand) -> None:
    within = data.draw(constraints(demand, n_groups=GROUPS))
    within = Constraints(data.draw(limits(demand)), within.pinned, within.together, within.apart)
    unicast_receivers = data.draw(st.sampled_from([0, 0, 1, 2]))
    max_sent = data.draw(st.sampled_from([1.0, 1.0, 1.5, 3.0]))
    packing = data.draw(st.sampled_from([Packing(), EACH_ALONE]))
    allowed = {"unicast_receivers": unicast_receivers, "max_sent": max_sent, "packing": packing}
    if refused := find_contradiction(demand, within, **allowed):
        assert refused.proven
        assert refused.remedy
        for plan in every_plan(demand.interest):
            if is_allowed(plan, demand, unicast_receivers, max_sent):
                assert broken_constraints(plan, demand, within, packing) != (), refused


def find_contradiction(
    demand: Demand, within: Constraints, **allowed: Any
) -> InfeasibleError | None:
    try:
        check_contradictions(demand, within, allowed.pop("n_groups", GROUPS), **allowed)
    except InfeasibleError as error:
        return error
    return None


# --- what is refused, and what would help --------------------------------------------------------


def demand_of(pairs: str, **rates: float) -> Demand:
    """Pairs such as `ra rb sa`, a receiver and a flow each; flows have rate 1 unless given."""
    interest = Interest.from_pairs([(pair[0], pair[1:]) for pair in pairs.split()])
    return Demand.of(interest, Rates.from_mapping(dict.fromkeys(interest.flows, 1.0) | rates))


def refusal(demand: Demand, within: Constraints | Limits, **allowed: Any) -> InfeasibleError:
    within = within if isinstance(within, Constraints) else Constraints(within)
    error = find_contradiction(demand, within, **allowed)
    assert error is not None
    return error


def assert_passes(demand: Demand, limits: Limits, **allowed: Any) -> None:
    assert find_contradiction(demand, Constraints(limits), **allowed) is None


def test_a_flow_over_the_cap_of_a_group_may_go_by_unicast_to_few() -> None:
    demand = demand_of("ra sa rb", a=7.0)
    cap = Limits(group_rate=6)
    error = refusal(demand, cap)
    assert error.reason == "flow 'a' alone carries 7, over the cap of 6 of a group"
    assert "--group-cap" in error.remedy
    refusal(demand, cap, unicast_receivers=1)
    refusal(demand, cap, max_sent=9.0)
    assert_passes(demand, cap, unicast_receivers=2)
    refusal(demand, Constraints(cap, pinned={"a": 0}), unicast_receivers=2)


def test_more_receivers_than_members_need_unicast_or_copies() -> None:
    demand = demand_of("ra sa ta ua va")
    most = Limits(group_members=2)
    error = refusal(demand, most)
    assert error.reason == (
        "flow 'a' has at least 5 receivers in a group, which may have 2 members"
    )
    assert error.remedy == (
        "raise members of [groups], or allow unicast (--unicast-receivers) or copies (--max-sent)"
    )
    refusal(demand, most, unicast_receivers=2)
    assert_passes(demand, most, unicast_receivers=3)
    refusal(demand, most, max_sent=2.0)
    assert_passes(demand, most, max_sent=3.0)
    assert "groups of 2 members" in refusal(demand_of("ra sb tc"), most, n_groups=1).reason


def test_flows_that_must_be_together_count_their_receivers_together() -> None:
    within = Constraints(Limits(group_members=2), together=(frozenset("ab"),))
    assert "'a', 'b' together have at least 3" in refusal(demand_of("ra sa tb"), within).reason


def test_a_flow_has_the_packets_of_a_step_that_its_receivers_fit() -> None:
    demand = demand_of("ra sa ta", a=40.0)
    steps = Limits(group_packets=(PacketStep(2, 100.0), PacketStep(3, 30.0)))
    error = refusal(demand, steps, packing=EACH_ALONE)
    assert error.reason == (
        "flow 'a' sends 40 packets/s to at least 3 members of a group, which may get 30"
    )
    assert_passes(demand, steps, packing=Packing(2, 1))
    assert_passes(demand, steps, packing=EACH_ALONE, max_sent=2.0)
    assert_passes(demand, steps, packing=EACH_ALONE, unicast_receivers=1)
    rising = Limits(group_packets=(PacketStep(3, 30.0), PacketStep(9, 100.0)))
    assert_passes(demand, rising, packing=EACH_ALONE)


def test_what_a_receiver_wants_must_fit_its_cap_and_its_groups() -> None:
    demand = demand_of("ra rb rc", a=4.0)
    assert "'r' wants 6, over its cap of 5" in refusal(demand, Limits(receiver_rate=5)).reason
    refusal(demand, Limits(receiver_rate=5), unicast_receivers=9, max_sent=9.0)
    few = Limits(receiver_groups=1, group_rate=5)
    assert "'r' wants 6, and 1 groups of 5 carry 5" in refusal(demand, few).reason
    assert_passes(demand, few, unicast_receivers=1)
    pinned = Constraints(Limits(receiver_sessions=1), pinned={"a": 0, "b": 1})
    error = refusal(demand, pinned)
    assert "'r' needs 2 sessions for its pinned flows, over 1" in error.reason
    assert "sessions of [receivers]" in error.remedy
    apart = Constraints(Limits(receiver_groups=2), apart=(frozenset("abc"),))
    assert "needs 3 groups for flows that must be apart" in refusal(demand, apart).reason


def test_a_switch_needs_entries_for_what_is_wanted_behind_it() -> None:
    demand = demand_of("ra sb tc", a=4.0)
    behind = {"switch_entries": 1, "switch_of": {"r": "x", "s": "x", "t": "y"}}
    error = refusal(demand, Limits(group_rate=4, **behind))
    assert "behind switch 'x' want 5, and its 1 entries are for groups of 4" in error.reason
    assert "entries of [switches]" in error.remedy
    assert_passes(demand, Limits(group_rate=4, entries_of={"x": 2}, **behind))
    pinned = Constraints(Limits(**behind), pinned={"a": 0, "b": 1, "c": 2})
    assert "'x' needs 2 entries for flows that are pinned" in refusal(demand, pinned).reason
    apart = Constraints(Limits(**behind), apart=(frozenset("ab"),))
    assert "'x' needs 2 entries for flows that are to be apart" in refusal(demand, apart).reason


def test_the_network_may_have_fewer_groups_than_asked_for() -> None:
    demand = demand_of("ra sb")
    for fewer in (Limits(groups=1), Limits(sessions=1)):
        apart = Constraints(fewer, apart=(frozenset("ab"),))
        assert "there are only 1 groups" in refusal(demand, apart).reason


def test_all_groups_must_have_room_for_all_that_is_wanted() -> None:
    full = Limits(group_members=2, group_rate=3)
    assert_passes(demand_of("ra sa ta ua", a=3.0), full, n_groups=2, max_sent=2.0)
    error = refusal(demand_of("ra sa ta ua rb", a=3.0), full, n_groups=2, max_sent=2.0)
    assert error.reason == ("all receivers want 13, and 2 groups of 2 members and 3 deliver 12")
