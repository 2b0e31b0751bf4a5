"""What a receiver wants, while plans and interest change: what comes, and what is reported."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributary.delivery import (
    Gap,
    Missing,
    ReceiverMachine,
    SenderMachine,
    SenderParams,
    Unserved,
    wanted_flows,
)
from distributary.model import Plan
from tests.delivery.machines import delivered, sends, simple_plan
from tests.delivery.plans import random_plan

FLOWS = [f"f{at}" for at in range(6)]


class Pair:
    """A sender of single messages and a receiver, with no network between them."""

    def __init__(self, plan: Plan, wanted: Iterable[str] | None) -> None:
        params = SenderParams(grace=0.1, messages_per_packet=1, linger=1e6)
        self.sender = SenderMachine(plan, 5, params=params)
        self.receiver = ReceiverMachine("r", wanted, rng=np.random.default_rng(0))
        self.now = 0.0
        self.seen: list[object] = []
        self.seen += self.receiver.learn_plan(plan, 0.0)
        self.seen += self.receiver.start(0.0)
        self.pass_on(self.sender.start(0.0))
        self.wait(0.2)

    def pass_on(self, actions: Iterable[object]) -> None:
        for packet in sends(actions):
            self.seen += self.receiver.on_packet(packet, self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.pass_on(self.sender.on_timer("wake", self.now))

    def change(self, plan: Plan) -> None:
        self.seen += self.receiver.learn_plan(plan, self.now)
        self.pass_on(self.sender.change_plan(plan, self.now))
        self.wait(0.2)
        self.wait(1.0)  # heartbeats say that the old sessions have ended

    def offer_all(self) -> set[str]:
        """One message of each flow: which of them come."""
        self.seen.clear()
        for flow in FLOWS:
            self.pass_on(self.sender.offer(flow, b"x", self.now))
        return {flow for flow, _, _ in delivered(self.seen)}

    def reports(self, *which: type) -> list[object]:
        return [action for action in self.seen if isinstance(action, which)]


wishes = st.lists(st.sets(st.sampled_from(FLOWS), min_size=1), min_size=1, max_size=5)


@given(wishes, st.integers(0, 1_000))
def test_without_interest_a_receiver_gets_what_each_plan_brings(
    wished: list[set[str]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plans = [random_plan({"r": sorted(flows), "s": FLOWS}, rng, unicast=False) for flows in wished]
    pair = Pair(plans[0], None)
    for at, plan in enumerate(plans):
        if at:
            pair.change(plan)
        assert set(pair.receiver.flows) == set(wanted_flows(plan, "r")) >= wished[at]
        for _ in range(2):
            assert pair.offer_all() == set(wanted_flows(plan, "r"))
            assert not pair.reports(Gap, Missing, Unserved)
    assert len(pair.receiver._subs.names) <= 2 * len(FLOWS)  # places are used again


@given(wishes, st.integers(0, 1_000))
def test_changed_interest_holds_from_the_next_plan_on(wished: list[set[str]], seed: int) -> None:
    """Messages of the time when a flow was not wanted are not reported as missing."""
    rng = np.random.default_rng(seed)
    wants = {"r": FLOWS, "s": FLOWS}
    pair = Pair(random_plan(wants, rng, unicast=False), wished[0])
    before = wished[0]
    for flows in wished[1:]:
        pair.seen.clear()
        pair.seen += pair.receiver.want(flows)
        late = tuple(sorted(flows - before))
        assert pair.reports(Unserved) == (
            [Unserved(max(pair.receiver.versions), late)] * bool(late)
        )
        assert pair.offer_all() == before
        pair.change(random_plan(wants, rng, unicast=False))
        told = pair.reports(Unserved)
        assert told == ([Unserved(max(pair.receiver.versions), ())] if late else [])
        assert pair.offer_all() == flows
        assert not pair.reports(Gap, Missing, Unserved)
        before = flows


def test_a_wanted_flow_that_the_plan_does_not_have_is_reported_before_the_sender_is_heard() -> None:
    receiver = ReceiverMachine("r", ["f0", "f7", "f8"], rng=np.random.default_rng(0))
    assert receiver.learn_plan(simple_plan([0], [0]), 0.0) == [Unserved(0, ("f7", "f8"))]
    assert receiver.learn_plan(simple_plan([0, 0], [0]), 0.0) == []  # nothing new to say


def test_flows_that_go_to_others_alone_are_reported() -> None:
    plan = simple_plan([0, -1], [0], {"s": [1]})
    receiver = ReceiverMachine("r", ["f0", "f1"], rng=np.random.default_rng(0))
    assert receiver.learn_plan(plan, 0.0) == [Unserved(0, ("f1",))]


def test_a_plan_that_brings_a_receiver_nothing_any_more_is_reported() -> None:
    rng = np.random.default_rng(0)
    pair = Pair(random_plan({"r": ["f1", "f2"], "s": FLOWS}, rng, unicast=False), None)
    brought = pair.receiver.flows
    pair.seen.clear()
    pair.change(random_plan({"s": FLOWS}, rng, unicast=False))
    assert pair.reports(Unserved) == [Unserved(2, brought)]
    pair.change(random_plan({"r": ["f1"], "s": FLOWS}, rng, unicast=False))
    assert pair.reports(Unserved)[1:] == [Unserved(3, ())]
