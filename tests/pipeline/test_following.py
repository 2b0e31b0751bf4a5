"""A plan that follows a demand: within its terms, or not at all."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import Evaluation, evaluate
from distributary.files import evaluation_document
from distributary.model import Constraints, Demand, Interest, Limits, Plan, Previous
from distributary.pipeline import following
from distributary.pipeline.following import (
    FollowedPlan,
    PlanFollower,
    budget_to_move,
    find_unserved,
    follow,
)
from distributary.pipeline.live_demand import DemandChange, LiveDemand
from distributary.planning import MadePlan, Request, make_plan, place_single
from distributary.planning.best import PATIENCE
from tests.oracles import plain
from tests.strategies import any_plans, interests


@given(data=st.data(), interest=interests())
def test_who_misses_what_is_what_the_plan_does_not_bring(
    data: st.DataObject, interest: Interest
) -> None:
    wanted = {
        (interest.receivers[r], flow)
        for k, flow in enumerate(interest.flows)
        for r in interest.receivers_of(k)
    }
    alone = data.draw(st.sets(st.sampled_from(sorted(wanted))))
    pairs = sorted((interest.receivers.index(r), interest.flows.index(f)) for r, f in alone)
    table = np.array(pairs, np.int32).reshape(-1, 2)
    plan = replace(
        data.draw(any_plans(interest)), unicast_receiver=table[:, 0], unicast_flow=table[:, 1]
    )
    it = plain(plan)
    brought = {
        (plan.receivers[receiver], plan.flows[flow])
        for flow, carrying in it.placed
        for receiver, session in it.subscribed
        if session == carrying
    }
    assert find_unserved(plan, interest) == sorted(wanted - brought - alone)
    assert find_unserved(None, interest) == sorted(wanted)


NAMES = ["", "a", "b", "ä", "a b", "日本", "z"]
REQUEST = Request(groups=2, sessions=4, budget_s=0.002, patience=math.inf)
wishes = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), st.booleans(), max_size=14
)
totals = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0, 1, 7, 2**40]), max_size=4)
batches = st.lists(st.tuples(wishes, totals), min_size=1, max_size=6)


class Stream:
    """A demand and a plan that follows it; `restart` keeps only what is on disk."""

    def __init__(self, request: Request = REQUEST, drift: float = 0.1) -> None:
        self.request, self.drift = request, drift
        self.rows: dict[tuple[str, str], tuple[int, bool]] = {}
        self.messages: dict[str, int] = {}
        self.plan: Plan | None = None
        self.reference: float | None = None
        self.number, self.seconds = 0, 1.0
        self.restart()

    def restart(self, seed: int = 0) -> None:
        """Load rows and plan, in any order."""
        self.live = LiveDemand()
        rows, messages = shuffled(self.rows, seed), shuffled(self.messages, seed)
        self.live.load([action_table(rows)], message_table(messages), self.seconds)
        self.follower = PlanFollower(self.request, self.live, self.plan, self.drift)

    def apply(
        self, wishes: dict[tuple[str, str], bool], totals: dict[str, int], seed: int = 0
    ) -> DemandChange:
        self.number += 1
        self.seconds = float(self.number)
        rows = {pair: (self.number, on) for pair, on in shuffled(wishes, seed).items()}
        self.rows |= rows
        self.messages |= totals
        return self.live.apply(
            action_table(rows),
            message_table(shuffled(totals, seed)),
            self.seconds,
            lambda tied: np.zeros(tied.num_rows, np.bool_),
        )

    def take(
        self,
        wishes: dict[tuple[str, str], bool],
        totals: dict[str, int],
        seed: int = 0,
        base: Plan | None = None,
    ) -> FollowedPlan | None:
        change = self.apply(wishes, totals, seed)
        if base is None:
            followed = self.follower.follow(change, self.reference)
        else:
            followed = self.follower.follow_base(base, self.reference)
            if followed is None:
                self.follower.restart(self.plan)
        if followed is not None:
            self.reference = followed.reference
            if followed.made is not None:
                self.plan = followed.made.solution.plan
        return followed


def shuffled(table: dict, seed: int) -> dict:
    items = list(table.items())
    random.Random(seed).shuffle(items)
    return dict(items)


def action_table(rows: dict[tuple[str, str], tuple[int, bool]]) -> pa.Table:
    return pa.table(
        {
            "receiver": pa.array([receiver for receiver, _ in rows], pa.string()),
            "flow": pa.array([flow for _, flow in rows], pa.string()),
            "ts": pa.array([time for time, _ in rows.values()], pa.int64()),
            "on": pa.array([on for _, on in rows.values()], pa.bool_()),
        }
    )


def message_table(totals: dict[str, int]) -> pa.Table:
    return pa.table(
        {
            "flow": pa.array(list(totals), pa.string()),
            "messages": pa.array(list(totals.values()), pa.int64()),
        }
    )


@settings(max_examples=40, deadline=None)
@given(batches=batches, drift=st.sampled_from([0.0, 0.1, 10.0]))
def test_the_cost_of_a_followed_plan_is_that_of_its_evaluation(batches, drift) -> None:
    stream = Stream(drift=drift)
    for wishes, totals in batches:
        followed, demand = stream.take(wishes, totals), stream.live.demand()
        assert (followed is None) == (demand is None)
        if followed is None or demand is None:
            continue
        assert stream.plan is not None
        evaluation = evaluate(stream.plan, demand, REQUEST.prices)
        assert evaluation.problems == ()
        if followed.made is not None and not followed.moves:
            assert_same_document(followed.made, evaluation, demand)
        told = evaluation.filtering
        assert followed.cost.work == pytest.approx(told.work)
        assert followed.cost.excess == pytest.approx(told.excess, abs=1e-9 * told.work)
        now = followed.cost.excess - followed.reference * followed.cost.flooding_excess
        assert followed.drift_cost == now
        if followed.saved is not None:
            assert followed.saved > 0


def assert_same_document(made: MadePlan, evaluation: Evaluation, demand: Demand) -> None:
    """A version that was completed says of itself what a look at the whole demand finds."""
    plan = made.solution.plan
    placed = np.zeros(len(plan.flows), np.int32)
    placed[plan.placement_flow] = plan.placement_session
    assert plan == place_single(demand, placed, plan.session_group)
    told, found = evaluation_document(made.evaluation), evaluation_document(evaluation)
    work, flooding = evaluation.filtering.work, evaluation.filtering.flooding_excess
    # The evaluation takes the excess as a difference of two sums, so its rounding is theirs.
    off = abs(told["filtering"].pop("relative_excess") - found["filtering"].pop("relative_excess"))
    assert off <= (1e-12 * work / flooding if flooding else 0)
    assert told == nearly(found, 1e-12 * work)


def nearly(document: object, rounding: float) -> object:
    """What equals all documents whose numbers differ by no more than rounding."""
    if isinstance(document, dict):
        return {key: nearly(value, rounding) for key, value in document.items()}
    if isinstance(document, float):
        return pytest.approx(document, rel=1e-9, abs=rounding)
    return document


@settings(max_examples=40, deadline=None)
@given(
    batches=batches,
    seed=st.integers(0, 9),
    drift=st.sampled_from([0.0, 0.1, 10.0]),
    goes_back=st.sets(st.integers(1, 5)),
)
def test_a_stream_that_starts_again_and_reads_in_another_order_plans_the_same(
    batches, seed, drift, goes_back
) -> None:
    """Also if somebody puts the plan of two batches before back into force."""
    one, other = Stream(drift=drift), Stream(drift=drift)
    plans = []
    for number, (wishes, totals) in enumerate(batches):
        other.restart(seed)
        plans.append(one.plan)
        base = plans[number - 1] if number in goes_back else None
        left = one.take(wishes, totals, base=base)
        right = other.take(wishes, totals, seed, base)
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            assert one.plan == other.plan
            assert (left.cost, left.reference, left.drift) == (
                right.cost,
                right.reference,
                right.drift,
            )
            assert (left.moves, left.new, left.saved) == (right.moves, right.new, right.saved)


def test_a_batch_that_changes_no_subscription_leaves_the_whole_demand_alone(monkeypatch) -> None:
    stream = Stream()
    pairs = {(f"r{r}", f"f{f}"): True for r in range(6) for f in range(6) if (r + f) % 3}
    stream.take(pairs, {"f1": 4})
    monkeypatch.setattr(LiveDemand, "demand", lambda live: pytest.fail("the whole demand"))
    monkeypatch.setattr(LiveDemand, "list_pairs", lambda live: pytest.fail("all pairs"))
    followed = stream.take({}, {"f1": 4, "f2": 1})
    assert followed is not None
    assert followed.made is None
    assert (followed.moves, followed.new) == (0, 0)


@pytest.mark.parametrize(
    ("trigger_s", "budget_s"), [(0.0, 0.25), (1.0, 0.4), (10.0, 4.0), (60.0, 5.0)]
)
def test_a_search_for_moves_takes_no_longer_than_batches_are_apart(
    monkeypatch: pytest.MonkeyPatch, trigger_s: float, budget_s: float
) -> None:
    asked: list[float] = []

    def note_budget(demand: Demand, request: Request) -> MadePlan:
        asked.append(request.search.budget_s)
        return make_plan(demand, request.replace(budget_s=0.002))

    stream = Stream(REQUEST.replace(budget_s=30.0))
    monkeypatch.setattr(following, "make_plan", note_budget)
    stream.follower = PlanFollower(
        stream.request, stream.live, None, 0.1, None, budget_to_move(trigger_s)
    )
    circles = {(f"r{r}", f"f{f}"): True for r in range(6) for f in range(6) if r % 2 == f % 2}
    stream.take(circles, {})
    stream.reference = 1e-9
    stream.take({("r0", "f1"): True, ("r1", "f0"): True, ("r2", "f3"): True}, {})
    assert asked == [30.0, pytest.approx(budget_s)]  # the first plan, and the moves
    assert PATIENCE * budget_s <= max(trigger_s, PATIENCE * 0.25)


def test_a_plan_whose_flows_all_left_is_made_anew() -> None:
    stream = Stream()
    old = {(f"r{r}", f"f{f}"): True for r in range(4) for f in range(4) if r != f}
    stream.take(old, {})
    gone = dict.fromkeys(old, False)
    followed = stream.take(gone | {("r0", "new"): True, ("r1", "more"): True}, {})
    assert followed is not None
    assert (followed.drift, followed.new, followed.excess) == (None, 2, 0)


def test_a_plan_of_other_terms_is_completed_when_they_are_gone() -> None:
    limits = Constraints(Limits(group_members=3))
    stream = Stream(REQUEST.replace(constraints=limits))
    stream.take({("r0", "a"): True, ("r1", "b"): True}, {})
    stream.apply({("r2", "c"): True}, {})  # taken, and not planned: as if it had been refused
    stream.request = REQUEST
    stream.restart()
    followed = stream.take({}, {})
    assert followed is not None
    assert followed.new == 1
    assert stream.plan is not None
    assert stream.plan.flows == ("a", "b", "c")


def test_a_base_is_completed_and_never_raises_the_reference() -> None:
    """Flows that somebody else placed badly are drift, as are plans that were put back."""
    stream = Stream(REQUEST.replace(budget_s=0.05))
    circles = {(f"r{r}", f"f{f}"): True for r in range(6) for f in range(6) if r % 2 == f % 2}
    stream.take(circles, {f"f{f}": 9 for f in range(6)})
    assert stream.plan is not None
    assert stream.reference == 0  # each circle has a group of its own
    mixed = mix_up(stream.plan)
    followed = stream.take({}, {}, base=mixed)
    assert followed is not None
    assert followed.drift == 1
    assert followed.moves > 0
    assert followed.reference == 0
    for _ in range(6):
        followed = stream.take({}, {})
        assert followed is not None
    assert followed.excess == 0

    grown = stream.take({("ann", "f0"): True, ("ann", "f1"): True}, {})
    assert grown is not None
    assert grown.excess > 0  # ann cannot have both circles without waste
    while grown is not None and grown.moves:
        grown = stream.take({}, {})
    kept, best = stream.reference, stream.plan
    assert kept is not None
    again = stream.take({}, {}, base=best)
    assert again is not None
    assert (again.reference, again.drift, again.moves, again.new) == (kept, 0, 0, 0)
    back = stream.take({}, {}, base=mixed)
    assert back is not None
    assert back.before is not None
    assert back.before.relative_excess > kept
    assert (back.reference, back.new) == (kept, 1)  # the flow that was left out


def mix_up(plan: Plan) -> Plan:
    """Every flow in the other session, one of them left out."""
    session = 1 - plan.placement_session[1:]
    order = np.lexsort((session, plan.placement_flow[1:]))
    wants = [(r, s) for r in range(len(plan.receivers)) for s in range(2)]
    halves = np.where(np.arange(len(order)) % 2, session, plan.placement_session[1:])
    return replace(
        plan,
        placement_flow=plan.placement_flow[1:][order],
        placement_session=halves[order],
        subscription_receiver=np.array([r for r, _ in wants], np.int32),
        subscription_session=np.array([s for _, s in wants], np.int32),
    )


def test_a_base_without_a_reference_is_improved_until_that_gains_nothing() -> None:
    first = Stream()
    circles = {(f"r{r}", f"f{f}"): True for r in range(6) for f in range(6) if r % 2 == f % 2}
    first.take(circles, {})
    assert first.plan is not None
    other = Stream(REQUEST.replace(budget_s=0.05), drift=10.0)
    followed = other.take(circles, {}, base=mix_up(first.plan))
    assert followed is not None
    assert (followed.drift, followed.reference, followed.drift_cost) == (None, None, 0)
    for _ in range(9):
        followed = other.take({}, {})
        assert followed is not None
    assert followed.reference == followed.excess == 0


def test_a_base_of_other_flows_gives_way_to_a_new_plan() -> None:
    first, other = Stream(), Stream()
    first.take({("r0", "a"): True, ("r1", "b"): True}, {})
    followed = other.take({("r0", "z"): True, ("r1", "ä"): True}, {}, base=first.plan)
    assert followed is not None
    assert (followed.drift, followed.new) == (None, 2)


def test_drift_moves_flows_but_no_more_than_allowed() -> None:
    """Two circles swap a flow; with one move at a time the plan comes after in two steps."""
    flows = [f"f{number}" for number in range(8)]

    def liked(swapped: int) -> Demand:
        circle = ["abc"] * 4 + ["xyz"] * 4
        circle[:swapped], circle[4 : 4 + swapped] = ["xyz"] * swapped, ["abc"] * swapped
        pairs = [(r, f) for f, own in zip(flows, circle, strict=True) for r in own]
        return Demand(Interest.from_pairs(pairs), np.ones(8))

    request = Request(groups=2, budget_s=60)
    followed = follow(liked(0), request, None, None, drift=0.1)
    assert (followed.excess, followed.moves, followed.new) == (0, 0, 8)
    told = []
    for _ in range(3):
        start = previous_of(followed)
        followed = follow(liked(1), request, start, followed.reference, drift=0.1, max_moves=1)
        told.append((followed.moves, followed.excess > 0, followed.drift))
    assert told == [(1, True, 1), (1, False, 1), (0, False, 0)]

    start = previous_of(followed)
    moved = follow(liked(0), request, start, 0.0, drift=0.1)
    still = follow(liked(0), request, start, 0.0, drift=0.1, max_moves=0)
    assert follow(liked(0), request, start, 0.0, drift=2.0).moves == 0
    assert (moved.moves, still.moves) == (1, 0)
    assert still.excess > moved.excess


def test_drift_counts_from_the_excess_that_no_more_moves_can_lower() -> None:
    pairs = [(r, f) for r, own in {"a": "xy", "b": "yz", "c": "zx"}.items() for f in own]
    demand = Demand(Interest.from_pairs(pairs), np.ones(3))
    request = Request(groups=2, budget_s=60)
    best = follow(demand, request, None, None, drift=0.1)
    followed = follow(demand, request, previous_of(best), best.excess / 2, drift=0.1)
    assert followed.drift == pytest.approx(1)
    assert followed.reference == followed.excess == best.excess


def previous_of(followed: FollowedPlan) -> Previous:
    plan = followed.made.solution.plan
    names = [plan.flows[flow] for flow in plan.placement_flow]
    return Previous(
        dict(zip(names, map(int, plan.placement_session), strict=True)), plan.session_group
    )
