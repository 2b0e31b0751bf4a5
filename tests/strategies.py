"""What the tests draw from: names, interests, rates, demands and plans, small and nasty."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from distributary.model import Constraints, Demand, Interest, Limits, PacketStep, Plan, Rates
from distributary.planning.hierarchy import Maps
from distributary.planning.things import Things

# What file formats trip over most: quotes, separators, line ends, marks and look-alikes.
AWKWARD = (
    *('"', '""', ",", "a,b", "\n", "\r", "\r\n", "a\nb", "\t", " ", " a ", "\\", "'", "{", "}"),
    *("\0", "\ufeff", "\ufeffa", "\u2028", "\x85", "\x1a", "\uffff", "\U00010000", "é", "e\u0301"),
    *("NA", "null", "None", "NaN", "true", "0", "007", "1e5", "#", "-"),
)


def names() -> st.SearchStrategy[str]:
    """Any non-empty text there is in Unicode, awkward ones more often."""
    return st.sampled_from(AWKWARD) | st.text(min_size=1, max_size=8)


def positive_numbers() -> st.SearchStrategy[float]:
    """Any finite double above 0, down to the smallest and up to the largest."""
    return st.floats(min_value=0, exclude_min=True, allow_infinity=False)


def rate_values() -> st.SearchStrategy[float]:
    """Rates that a `Demand` of some dozens of pairs takes: usual ones, and any up to 1e280.

    A demand refuses rates whose sum, if everybody received everything, is above 1e290.
    """
    usual = st.integers(1, 100).map(float) | st.floats(min_value=1e-9, max_value=1e9)
    return usual | st.floats(min_value=0, max_value=1e280, exclude_min=True)


def near(value: float) -> object:
    """Equal but for rounding; products of subnormal rates have few bits, so less is asked there."""
    return pytest.approx(value, rel=1e-9, abs=1e-300)


def whole_rate_values() -> st.SearchStrategy[float]:
    """Small whole numbers: their sums are exact in any order, and ties are frequent."""
    return st.integers(1, 9).map(float)


@st.composite
def interests(draw: st.DrawFn, *, max_receivers: int = 5, max_flows: int = 6) -> Interest:
    """Some receivers that want some flows, at least one each."""
    receivers = draw(st.lists(names(), min_size=1, max_size=max_receivers, unique=True))
    flows = draw(st.lists(names(), min_size=1, max_size=max_flows, unique=True))
    pair = st.tuples(st.sampled_from(receivers), st.sampled_from(flows))
    return Interest.from_pairs(draw(st.lists(pair, min_size=1, max_size=4 * max_flows)))


@st.composite
def rates(draw: st.DrawFn, *, max_flows: int = 6) -> Rates:
    """Flows with any rates there are, half of the time with sizes, half of it with peaks."""
    flows = tuple(sorted(draw(st.lists(names(), min_size=1, max_size=max_flows, unique=True))))
    column = st.lists(positive_numbers(), min_size=len(flows), max_size=len(flows)).map(np.array)
    return Rates(flows, draw(column), draw(st.none() | column), draw(st.none() | column))


@st.composite
def demands(
    draw: st.DrawFn,
    *,
    max_receivers: int = 5,
    max_flows: int = 6,
    rates: st.SearchStrategy[float] | None = None,
) -> Demand:
    """An interest and a rate for each of its flows."""
    interest = draw(interests(max_receivers=max_receivers, max_flows=max_flows))
    n_flows = len(interest.flows)
    values = rate_values() if rates is None else rates
    rate = draw(st.lists(values, min_size=n_flows, max_size=n_flows))
    return Demand(interest, np.array(rate))


@st.composite
def dense_demands(
    draw: st.DrawFn,
    *,
    max_receivers: int = 5,
    max_flows: int = 6,
    rates: st.SearchStrategy[float] | None = None,
) -> Demand:
    """Every receiver wants any set of the flows: harder to plan for than a few pairs."""
    n_flows = draw(st.integers(2, max_flows))
    wish = st.integers(1, 2**n_flows - 1)
    wishes = draw(st.lists(wish, min_size=2, max_size=max_receivers))
    interest = Interest.from_pairs(
        (f"r{j}", f"f{k}") for j, w in enumerate(wishes) for k in range(n_flows) if w >> k & 1
    )
    values = rate_values() if rates is None else rates
    n_wanted = len(interest.flows)
    return Demand(interest, np.array(draw(st.lists(values, min_size=n_wanted, max_size=n_wanted))))


@st.composite
def any_plans(draw: st.DrawFn, interest: Interest, *, max_sessions: int = 4) -> Plan:
    """A plan that need not make sense: flows may be left out, sessions and groups empty."""
    n_sessions = draw(st.integers(1, max_sessions))
    placed = draw(st.sets(_pairs(len(interest.flows), n_sessions)))
    subscribed = draw(st.sets(_pairs(len(interest.receivers), n_sessions)))
    groups = draw(st.lists(st.integers(0, 5), min_size=n_sessions, max_size=n_sessions))
    placement = np.array(sorted(placed), np.int32).reshape(-1, 2)
    subscription = np.array(sorted(subscribed), np.int32).reshape(-1, 2)
    return Plan(
        receivers=interest.receivers,
        flows=interest.flows,
        placement_flow=placement[:, 0],
        placement_session=placement[:, 1],
        session_group=np.array(groups, np.int32),
        subscription_receiver=subscription[:, 0],
        subscription_session=subscription[:, 1],
    )


class Clustering(NamedTuple):
    """Things, each with its receivers, whole-number rate and cluster, in plain Python."""

    n_receivers: int
    receivers: list[set[int]]
    weight: list[int]
    n_clusters: int
    cluster: list[int]

    @property
    def things(self) -> Things:
        """The same things as the kernels want them."""
        return Things(
            self.n_receivers,
            np.cumsum([0, *map(len, self.receivers)]),
            np.array([n for members in self.receivers for n in sorted(members)], np.int32),
            np.array(self.weight, np.int64),
        )


@st.composite
def clusterings(
    draw: st.DrawFn, *, max_receivers: int = 6, max_things: int = 8, max_clusters: int = 4
) -> Clustering:
    """Any clustering there is: small rates for ties, large ones, and things nobody wants."""
    n_receivers = draw(st.integers(1, max_receivers))
    members = st.sets(st.integers(0, n_receivers - 1))
    receivers = draw(st.lists(members, min_size=1, max_size=max_things))
    n_things = len(receivers)
    heaviest = 2**60 // (n_receivers * n_things)
    weights = st.integers(0, 3) | st.integers(0, heaviest)
    n_clusters = draw(st.integers(1, max_clusters))
    return Clustering(
        n_receivers,
        receivers,
        draw(st.lists(weights, min_size=n_things, max_size=n_things)),
        n_clusters,
        draw(st.lists(st.integers(0, n_clusters - 1), min_size=n_things, max_size=n_things)),
    )


class Hierarchy(NamedTuple):
    """Flows in sessions in groups, in plain Python; some sessions may be empty."""

    n_receivers: int
    receivers: list[set[int]]
    weight: list[int]
    session: list[int]
    n_groups: int
    group: list[int]

    @property
    def things(self) -> Things:
        """The flows as the kernels want them."""
        flat = Clustering(self.n_receivers, self.receivers, self.weight, 1, [])
        return flat.things

    @property
    def maps(self) -> Maps:
        """The two maps as the kernels want them."""
        return Maps(np.array(self.session, np.int32), np.array(self.group, np.int32))


@st.composite
def hierarchies(
    draw: st.DrawFn,
    *,
    max_receivers: int = 6,
    max_flows: int = 8,
    max_sessions: int = 5,
    max_groups: int = 3,
) -> Hierarchy:
    """Any two-level plan there is; costs, at prices up to 3, fit the bits a double holds."""
    n_receivers = draw(st.integers(1, max_receivers))
    members = st.sets(st.integers(0, n_receivers - 1), min_size=1)
    receivers = draw(st.lists(members, min_size=1, max_size=max_flows))
    n_flows = len(receivers)
    weights = st.integers(1, 3) | st.integers(1, 2**48 // (n_receivers * n_flows))
    n_groups = draw(st.integers(1, max_groups))
    n_sessions = draw(st.integers(n_groups, max_sessions))
    more = draw(
        st.lists(
            st.integers(0, n_groups - 1),
            min_size=n_sessions - n_groups,
            max_size=n_sessions - n_groups,
        )
    )
    return Hierarchy(
        n_receivers,
        receivers,
        draw(st.lists(weights, min_size=n_flows, max_size=n_flows)),
        draw(st.lists(st.integers(0, n_sessions - 1), min_size=n_flows, max_size=n_flows)),
        n_groups,
        draw(st.permutations([*range(n_groups), *more])),
    )


@st.composite
def constraints(draw: st.DrawFn, demand: Demand, *, n_groups: int) -> Constraints:
    """Caps around what it takes to hold them, and a few flows told where or with whom to be."""
    flows, receivers = demand.interest.flows, demand.interest.receivers
    total = int(demand.load.sum())
    cap = st.integers(max(1, total // n_groups - 2), total).map(float)
    intake = st.integers(max(1, total // 2), total).map(float)
    some = st.sets(st.sampled_from(flows), min_size=2, max_size=3).map(frozenset)
    sets = st.just(()) | st.lists(some, max_size=2).map(tuple) if len(flows) > 1 else st.just(())
    return Constraints(
        Limits(
            group_rate=draw(st.none() | cap),
            receiver_rates=draw(
                st.just({}) | st.dictionaries(st.sampled_from(receivers), intake, max_size=2)
            ),
        ),
        pinned=draw(
            st.just({})
            | st.dictionaries(st.sampled_from(flows), st.integers(0, n_groups - 1), max_size=3)
        ),
        together=draw(sets),
        apart=draw(sets),
    )


@st.composite
def limits(draw: st.DrawFn, demand: Demand) -> Limits:
    """Limits of every kind, around what plans for the demand need."""
    receivers, total = demand.interest.receivers, int(demand.load.sum())
    count = st.none() | st.integers(1, 4)
    amount = st.none() | st.integers(1, total).map(float)
    switch = st.sampled_from(["s", "t", ""])
    steps = draw(st.dictionaries(st.integers(1, 5), st.integers(1, total), max_size=3))
    return Limits(
        group_members=draw(count),
        group_rate=draw(amount),
        group_packets=tuple(PacketStep(n, float(steps[n])) for n in sorted(steps)),
        receiver_groups=draw(count),
        receiver_sessions=draw(count),
        receiver_rate=draw(amount),
        receiver_rates=draw(
            st.dictionaries(st.sampled_from(receivers), st.integers(1, total).map(float))
        ),
        groups=draw(count),
        sessions=draw(count),
        switch_entries=draw(count),
        switch_of=draw(st.dictionaries(st.sampled_from([*receivers, "nobody"]), switch)),
        entries_of=draw(st.dictionaries(switch, st.integers(1, 3))),
    )


@st.composite
def with_unicast(draw: st.DrawFn, plan: Plan) -> Plan:
    """The plan, with any pairs sent by unicast: wanted or not, in a session too or not."""
    pairs = draw(st.sets(_pairs(len(plan.receivers), len(plan.flows))))
    receiver, flow = np.array(sorted(pairs), np.int32).reshape(-1, 2).T
    return replace(plan, unicast_receiver=receiver, unicast_flow=flow)


def _pairs(n_left: int, n_right: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(0, n_left - 1), st.integers(0, n_right - 1))
