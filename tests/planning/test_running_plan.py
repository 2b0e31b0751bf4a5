"""A running plan beside a plain one, which computes all costs anew from sets of names."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import FilteringPrices, filtering_cost
from distributary.model import Demand, Interest
from distributary.planning import RunningPlan, Size, place_single

NAMES = ["", "a", "b", "ä", "a b", "日本", "n" * 300, "z"]
RECEIVERS = 5
pairs = st.tuples(st.integers(0, RECEIVERS - 1), st.integers(0, len(NAMES) - 1))
weights = st.one_of(st.integers(1, 4), st.sampled_from([1, 2**40, 2**53 + 1]))
steps = st.lists(
    st.tuples(
        st.sets(pairs, max_size=10), st.dictionaries(st.integers(0, len(NAMES) - 1), weights)
    ),
    max_size=7,
)
sizes = st.tuples(st.integers(1, 3), st.integers(0, 3)).map(lambda n: Size(n[0], n[0] + n[1]))
prices = st.sampled_from([(1, 1), (3, 1), (1, 0), (0, 1)])


@dataclass
class Plain:
    """Flows, sessions and groups as sets and dictionaries of names."""

    size: Size
    alpha: int
    beta: int
    wanted: set[tuple[int, str]] = field(default_factory=set)
    weight: dict[str, int] = field(default_factory=dict)
    session: dict[str, int] = field(default_factory=dict)
    group: dict[int, int] = field(default_factory=dict)

    def audience(self, flow: str) -> set[int]:
        return {r for r, f in self.wanted if f == flow}

    def intake(self, place: dict[str, int]) -> int:
        total = 0
        for number in set(place.values()):
            inside = [flow for flow in place if place[flow] == number]
            members = set().union(*(self.audience(flow) for flow in inside))
            total += len(members) * sum(self.weight.get(flow, 1) for flow in inside)
        return total

    @property
    def received(self) -> int:
        return self.intake({flow: self.group[s] for flow, s in self.session.items()})

    @property
    def accepted(self) -> int:
        return self.intake(self.session)

    @property
    def work(self) -> int:
        return self.alpha * self.received + self.beta * self.accepted

    def places(self) -> list[tuple[int, int]]:
        """All places for one more flow: sessions in use, then an empty one in each group."""
        used = sorted(set(self.session.values()))
        places = [(session, self.group[session]) for session in used]
        empty = [n for n in range(self.size.most_sessions) if n not in used]
        if empty:
            places += [(empty[0], group) for group in range(self.size.groups)]
        return places

    def price(self, flow: str, place: tuple[int, int]) -> int:
        """What the flow adds there, by two evaluations of the whole plan."""
        session, group = dict(self.session), dict(self.group)
        self.session.pop(flow, None)
        without = self.work
        self.session[flow], self.group[place[0]] = place
        added = self.work - without
        self.session, self.group = session, group
        return added

    @property
    def cost(self) -> tuple[int, int, int]:
        rate = {flow: self.weight.get(flow, 1) for flow in self.session}
        wanted = sum(rate[flow] for _, flow in self.wanted)
        receivers = len({r for r, _ in self.wanted})
        price = self.alpha + self.beta
        flooded = price * (receivers * sum(rate.values()) - wanted)
        return self.work, self.work - price * wanted, flooded


def columns(listed):
    table = np.array(sorted(listed), np.int32).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def read(running):
    """The sessions of flows by name, and the groups of sessions."""
    session = running.sessions_of(np.arange(len(NAMES), dtype=np.int32))
    return {name: s for name, s in zip(NAMES, session.tolist(), strict=True) if s >= 0}, dict(
        enumerate(running.session_group.tolist())
    )


def drive(running, toggles, changed, wanted, order=None):
    """Toggle pairs in a running plan whose flows are numbered in another order."""
    number = {flow: at for at, flow in enumerate(order or NAMES)}
    named = {(r, number[NAMES[f]]) for r, f in toggles}
    on = {(r, f) for r, f in named if (r, f) not in wanted}
    weighed = {number[NAMES[f]]: w for f, w in changed.items()}
    step = running.change(
        *columns(on),
        *columns(named - on),
        np.array(list(weighed), np.int32),
        np.array(list(weighed.values()), np.int64),
    )
    wanted ^= named
    return step


@settings(max_examples=150)
@given(size=sizes, prices=prices, steps=steps)
def test_costs_are_those_of_a_plan_evaluated_from_scratch(size, prices, steps):
    running = RunningPlan(size, NAMES, FilteringPrices(*prices))
    plain, wanted = Plain(size, *prices), set()
    for toggles, changed in steps:
        before = read(running)
        kept = dict(plain.session)
        step = drive(running, toggles, changed, wanted)
        plain.wanted = {(r, NAMES[f]) for r, f in wanted}
        plain.weight |= {NAMES[f]: w for f, w in changed.items()}
        plain.session, plain.group = read(running)
        assert set(plain.session) == {flow for _, flow in plain.wanted}
        assert sorted(set(plain.session.values())) == list(range(len(plain.group)))
        assert sorted(set(plain.group.values())) == list(range(len(set(plain.group.values()))))
        assert len(plain.group) <= size.most_sessions
        assert {NAMES[f] for f in step.placed} == set(plain.session) - set(kept)
        assert {NAMES[f] for f in step.left} == set(kept) - set(plain.session)
        if step.is_same:
            assert before == (plain.session, plain.group)
        work, excess, flooded = (Fraction(n, 8) for n in plain.cost)
        cost = running.cost(8.0)
        assert cost.work == pytest.approx(float(work), rel=1e-15)
        assert cost.excess == pytest.approx(float(excess), rel=1e-15)
        assert cost.flooding_excess == pytest.approx(float(flooded), rel=1e-15)
        assert (cost.excess == 0) == (excess == 0)


@settings(max_examples=150)
@given(size=sizes, prices=prices, steps=steps, receivers=st.sets(st.integers(0, 6), min_size=1))
def test_a_flow_is_placed_where_it_costs_least(size, prices, steps, receivers):
    """By trying every place, with two evaluations of the whole plan for each."""
    running = RunningPlan(size, NAMES, FilteringPrices(*prices))
    plain, wanted = Plain(size, *prices), set()
    for toggles, changed in steps:
        changed = {f: w for f, w in changed.items() if w < 2**50}
        drive(running, toggles, changed, wanted)
        plain.weight |= {NAMES[f]: w for f, w in changed.items()}
    plain.wanted = {(r, NAMES[f]) for r, f in wanted}
    plain.session, plain.group = read(running)
    found = running.find_place(3, np.array(sorted(receivers), np.int32))
    plain.weight["new"] = 3
    plain.wanted |= {(r, "new") for r in receivers}
    priced = [(plain.price("new", place), at, place) for at, place in enumerate(plain.places())]
    least, _, place = min(priced)
    assert found.added_work == pytest.approx(least, rel=1e-12)
    if least < 2**50:  # beyond, prices are rounded
        assert (found.session, found.group) == place
    assert read(running) == (plain.session, plain.group)  # asking changes nothing


@settings(max_examples=60)
@given(size=sizes, prices=prices, toggles=st.sets(pairs, max_size=12))
def test_no_new_flow_gains_from_another_place(size, prices, toggles):
    running = RunningPlan(size, NAMES, FilteringPrices(*prices))
    plain, wanted = Plain(size, *prices), set()
    drive(running, toggles, {}, wanted)
    plain.wanted = {(r, NAMES[f]) for r, f in wanted}
    plain.session, plain.group = read(running)
    for flow, session in sorted(plain.session.items()):
        here = plain.price(flow, (session, plain.group[session]))
        assert all(plain.price(flow, place) >= here for place in plain.places())


@settings(max_examples=100)
@given(
    size=sizes,
    prices=prices,
    steps=steps,
    stop=st.integers(0, 6),
    order=st.permutations(NAMES),
    rows=st.permutations(range(RECEIVERS)),
)
def test_a_plan_adopted_at_any_step_goes_on_as_before(size, prices, steps, stop, order, rows):
    """Also if receivers and flows have other numbers then."""
    running, wanted = RunningPlan(size, NAMES, FilteringPrices(*prices)), set()
    weight = dict.fromkeys(NAMES, 1)
    for toggles, changed in steps[:stop]:
        drive(running, toggles, changed, wanted)
        weight |= {NAMES[f]: w for f, w in changed.items()}
    session, group = read(running)
    other = RunningPlan(size, order, FilteringPrices(*prices))
    again = {(rows[r], order.index(NAMES[f])) for r, f in wanted}
    step = other.adopt(
        np.array([session.get(name, -1) for name in order], np.int32),
        np.array([group[s] for s in sorted(group)], np.int32),
        np.array([weight[name] for name in order], np.int64),
        *columns(again),
    )
    assert not len(step.placed)
    for toggles, changed in [(set(), {}), *steps[stop:]]:
        drive(running, toggles, changed, wanted)
        drive(other, {(rows[r], f) for r, f in toggles}, changed, again, order)
        session = other.sessions_of(np.arange(len(order), dtype=np.int32)).tolist()
        by_name = {name: s for name, s in zip(order, session, strict=True) if s >= 0}
        assert (by_name, other.session_group.tolist()) == (
            read(running)[0],
            running.session_group.tolist(),
        )
        assert other.cost(3.0) == running.cost(3.0)


@given(toggles=st.sets(pairs, min_size=1, max_size=12), session=st.integers(0, 9))
def test_an_adopted_plan_costs_what_the_evaluation_says(toggles, session):
    """Flows without a session are placed, and sessions without a flow end."""
    size, wanted = Size(2, 4), {(f"r{r}", NAMES[f]) for r, f in toggles}
    running = RunningPlan(size, NAMES)
    placed = np.array([(session + f) % 5 - 1 for f in range(len(NAMES))], np.int32)
    weight = np.arange(1, len(NAMES) + 1)
    running.adopt(placed, np.array([0, 1, 0, 1], np.int32), weight, *columns(toggles))
    interest = Interest.from_pairs(wanted)
    rate = np.array([weight[NAMES.index(flow)] / 4 for flow in interest.flows])
    found, group = read(running)
    demand = Demand(interest, rate)
    plan = place_single(
        demand,
        np.array([found[flow] for flow in interest.flows], np.int32),
        np.array(list(group.values()), np.int32),
    )
    told, cost = filtering_cost(plan, demand, FilteringPrices()), running.cost(4.0)
    assert cost.work == pytest.approx(told.work)
    assert cost.excess == pytest.approx(told.excess)
    assert cost.flooding_excess == pytest.approx(told.flooding_excess)


def test_a_plan_without_flows_costs_nothing():
    cost = RunningPlan(Size(1), []).cost(1.0)
    assert (cost.work, cost.excess, cost.relative_excess) == (0, 0, 0)
