"""What a plan means for a receiver, as the sender tells it: whole, whatever the network does."""

from __future__ import annotations

import struct
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distributary.delivery import ReceiverParams, fingerprint_of, wanted_flows
from distributary.delivery.portion_wire import (
    Inquiry,
    Portion,
    PortionPart,
    decode_inquiry,
    decode_portion,
    decode_portion_part,
    encode_inquiry,
    encode_portion,
)
from distributary.delivery.portions import PARTS_AT_ONCE, PortionAnswers, PortionView
from distributary.delivery.routes import subscribed_groups
from distributary.delivery.wire import WireError
from distributary.model import Plan
from tests.delivery.machines import simple_plan
from tests.delivery.plans import random_plan

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
PORTIONS = st.builds(
    Portion,
    st.lists(NAMES, max_size=40).map(tuple),
    st.frozensets(st.integers(0, (1 << 32) - 1), max_size=5),
)


def answers_of(plan: Plan, room: int) -> tuple[PortionAnswers, int]:
    answers, fingerprint = PortionAnswers(room), fingerprint_of(plan)
    answers.add_plan(fingerprint, plan, beside=0)
    return answers, fingerprint


def view_of(*fingerprints: int) -> PortionView:
    view = PortionView(ReceiverParams(), np.random.default_rng(1))
    view.need(fingerprints, 0.0)
    return view


@given(PORTIONS)
@example(Portion(("x" * 100_000, ""), frozenset()))
def test_portions_are_read_as_they_were_written(portion: Portion) -> None:
    assert decode_portion(encode_portion(portion)) == portion


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 16) - 1), NAMES)
def test_inquiries_are_read_as_they_were_written(fingerprint: int, first: int, name: str) -> None:
    inquiry = Inquiry(fingerprint, first, name)
    assert decode_inquiry(encode_inquiry(inquiry)) == inquiry


@given(st.binary(max_size=80))
def test_bytes_are_a_portion_or_an_error(found: bytes) -> None:
    for decode in (decode_portion, decode_portion_part, decode_inquiry):
        with suppress(WireError):
            decode(found)


@given(st.integers(0, 10_000), st.sampled_from([40, 64, 200]), st.sampled_from([0.0, 0.3]))
def test_receivers_get_what_plans_mean_for_them_through_loss_and_disorder(
    seed: int, room: int, loss: float
) -> None:
    rng = np.random.default_rng(seed)
    flows = [
        f"flow {at} {'ü' * int(rng.integers(0, 30))}" for at in range(int(rng.integers(1, 30)))
    ]
    wanted = {
        f"r{at}": [flow for flow in flows if rng.random() < 0.5] or flows[:1] for at in range(3)
    }
    plan = random_plan(wanted, rng)
    answers, fingerprint = answers_of(plan, room)
    for name in (*wanted, "nobody"):
        view, now = view_of(fingerprint), 0.0
        while not (found := view.take_found()):
            now = view.next_at()
            assert now < 60.0
            for asked in view.due(now):
                answers.queue(name, decode_inquiry(encode_inquiry(Inquiry(*asked, name))))
            packets = []
            while answers:
                answer = answers.take()
                assert answer is not None
                assert answer[0] == name
                assert len(answer[1]) <= room
                packets += [answer[1]] * int(rng.choice([1, 1, 2]))
            assert len(packets) <= 2 * PARTS_AT_ONCE
            rng.shuffle(packets)
            for packet in packets:
                if rng.random() >= loss:
                    view.take(decode_portion_part(packet), now)
        assert found == [
            (fingerprint, Portion(wanted_flows(plan, name), subscribed_groups(plan, name)))
        ]
        assert view.next_at() == float("inf")


def test_askers_are_answered_in_turns_and_each_once_at_a_time() -> None:
    answers, fingerprint = answers_of(simple_plan([0] * 40, [0]), 40)
    for address in ("a", "b", "a"):
        answers.queue(address, Inquiry(fingerprint, 0, "r"))
    answers.queue("c", Inquiry(fingerprint + 1, 0, "r"))  # not a plan of this sender
    answers.queue("d", Inquiry(fingerprint, 1_000, "r"))  # no such part
    order = []
    while answers:
        found = answers.take()
        order.append(None if found is None else found[0])
    assert order[:6] == ["a", "b", None, "a", "b", "a"]
    assert Counter(order) == {"a": PARTS_AT_ONCE, "b": PARTS_AT_ONCE, None: 1}


def test_a_sender_answers_for_the_plan_in_effect_and_the_upcoming_one() -> None:
    plans = [simple_plan([0] * n, [0]) for n in (1, 2, 3)]
    prints = [fingerprint_of(plan) for plan in plans]
    answers, _ = answers_of(plans[0], 1_000)
    answers.add_plan(prints[1], plans[1], beside=prints[0])
    answers.queue("x", Inquiry(prints[1], 0, "r"))
    answers.add_plan(prints[2], plans[2], beside=prints[0])  # instead of the one before
    assert answers.take() is None
    for at, fingerprint in enumerate(prints):
        view = view_of(fingerprint)
        answers.queue("x", Inquiry(fingerprint, 0, "r"))
        while answers:
            answer = answers.take()
            assert answer is not None
            view.take(decode_portion_part(answer[1]), 0.0)
        expected = [] if at == 1 else [(fingerprint, Portion(plans[at].flows, frozenset({0})))]
        assert view.take_found() == expected


def test_what_does_not_belong_together_is_not_put_together() -> None:
    answers, fingerprint = answers_of(simple_plan([0] * 40, [0]), 64)
    view = view_of(fingerprint)
    view.take(PortionPart(fingerprint + 1, 0, 0, 1, b"\0\0\0\0"), 0.0)  # nobody asked for it
    with pytest.raises(WireError, match="digest"):
        view.take(PortionPart(fingerprint, 7, 0, 1, b"\0\0\0\0"), 0.0)
    view.take(PortionPart(fingerprint, 8, 1, 3, b"other"), 0.0)
    assert view.take_found() == []
    while not (found := view.take_found()):
        for asked in view.due(view.next_at()):
            answers.queue("x", Inquiry(*asked, "r"))
        while answers:
            answer = answers.take()
            assert answer is not None
            view.take(decode_portion_part(answer[1]), view.next_at())
    assert found[0][1].flows == tuple(f"f{at}" for at in range(40))


def test_a_portion_without_end_is_given_up() -> None:
    view, piece = view_of(1), bytes(1 << 15)
    for part in range(1 << 11):
        view.take(PortionPart(1, 2, part, 1 << 16, piece), 0.0)
    with pytest.raises(WireError, match="longer"):
        view.take(PortionPart(1, 2, 1 << 11, 1 << 16, piece), 0.0)


def test_parts_out_of_range_are_malformed() -> None:
    for part, parts in ((3, 3), (0, 0), (0, 1 << 17)):
        with pytest.raises(WireError):
            decode_portion_part(struct.pack("<QQII", 1, 2, part, parts) + b"x")
